/* Completions for bash, zsh and fish. Each script holds the commands, their options and what values
 * these take; it never starts the program, so that completing is quick and works with any build. */
#include "command.h"
#include "guides.h"

#include <string.h>

enum { MAX_SUMMARY = 512 };

/* The i-th option of a command over all its groups, --help last; NULL past it. */
static const struct option *option_at(const struct option_set *set, int i)
{
    for (int g = 0; g < set->n_groups; g++) {
        if (i < set->groups[g].n_options)
            return &set->groups[g].options[i];
        i -= set->groups[g].n_options;
    }
    return i == 0 ? &help_option : i == 1 ? &help_all_option : NULL;
}

/* The first sentence of the help, without its full stop. */
static void summarize(const struct option *o, char *out)
{
    size_t n = 0;
    while (o->help[n] && n + 1 < MAX_SUMMARY &&
           !(o->help[n] == '.' && (!o->help[n + 1] || o->help[n + 1] == ' ')))
        n++;
    memcpy(out, o->help, n);
    out[n] = 0;
}

/* The text with a backslash before each character of `special`, inside single quotes: one that is
 * in the text itself is written as `quote`. */
static void put_quoted(const char *text, const char *special, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, stdout);
            continue;
        }
        if (strchr(special, *text))
            putchar('\\');
        putchar(*text);
    }
}

/* The names of all commands, separated by spaces. */
static void put_commands(void)
{
    for (int i = 0; command_at(i); i++)
        printf("%s%s", i ? " " : "", command_at(i)->name);
}

/* Words of `also` one by one; false past the last. */
static bool next_spelling(const char **also, char *out, size_t size)
{
    size_t n = *also ? strcspn(*also, " ") : 0;
    if (n == 0)
        return false;
    snprintf(out, size, "%.*s", (int)n, *also);
    *also += n + ((*also)[n] == ' ');
    return true;
}

/* --- bash --- */

static const char *const bash_kinds[] = {
    [VALUE_FILE] = "file", [VALUE_DIR] = "dir",         [VALUE_WORDS] = "words",
    [VALUE_LIST] = "list", [VALUE_COMMAND] = "command", [VALUE_ANY] = "any",
    [VALUE_NONE] = "none",
};

/* "        --model|-m) kind=file ;;" */
static void bash_option(const struct option *o)
{
    char words[OPTION_WORDS_SIZE], name[64];
    const char *also = o->also;
    enum value_kind kind = option_kind(o);

    if (kind == VALUE_NONE)
        return;
    printf("        --%s", o->name);
    if (o->letter)
        printf(" | -%c", o->letter);
    while (next_spelling(&also, name, sizeof name))
        printf(" | %s", name);
    printf(") kind=%s", bash_kinds[kind]);
    option_words(o, words);
    if (words[0])
        printf(" words='%s'", words);
    puts(" ;;");
}

static void bash_command(const struct option_set *set)
{
    printf("    %s)\n        operands=%s\n        options='", set->command,
           bash_kinds[set->max_operands ? set->operands : VALUE_NONE]);
    for (int i = 0; option_at(set, i); i++) {
        const struct option *o = option_at(set, i);
        printf("%s--%s", i ? " " : "", o->name);
        if (o->letter)
            printf(" -%c", o->letter);
    }
    puts("'\n        case $option in");
    for (int i = 0; option_at(set, i); i++)
        bash_option(option_at(set, i));
    puts("        esac\n        ;;");
}

static void print_bash(void)
{
    puts("# Completions of prevue for bash, made by 'prevue help --completions bash'.\n"
         "_prevue()\n"
         "{\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "    local kind= words= options= operands= lead= i");
    fputs("    local commands='", stdout);
    put_commands();
    puts("'\n"
         "    COMPREPLY=()\n"
         "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "        COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$cur\"))\n"
         "        return\n"
         "    fi\n"
         "    # --name=value comes as three words\n"
         "    if [ \"$cur\" = = ]; then\n"
         "        cur=\n"
         "    elif [ \"$option\" = = ]; then\n"
         "        option=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "    fi\n"
         "    case ${COMP_WORDS[1]} in");
    for (int i = 0; command_at(i); i++)
        bash_command(command_at(i)->set);
    puts("    esac\n"
         "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
         "        [ \"${COMP_WORDS[i]}\" != -- ] || { kind=$operands options=; }\n"
         "    done\n"
         "    if [ -z \"$kind\" ]; then\n"
         "        kind=$operands\n"
         "        case $cur in -*) kind=words words=$options ;; esac\n"
         "    fi\n"
         "    case $kind in\n"
         "    file) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
         "    dir) mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
         "    command) COMPREPLY=($(compgen -W \"$commands\" -- \"$cur\")) ;;\n"
         "    words) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
         "    list)\n"
         "        case $cur in *,*) lead=${cur%,*}, ;; esac\n"
         "        COMPREPLY=($(compgen -P \"$lead\" -W \"$words\" -- \"${cur##*,}\"))\n"
         "        compopt -o nospace 2>/dev/null\n"
         "        ;;\n"
         "    esac\n"
         "    case $kind in file | dir) compopt -o filenames 2>/dev/null ;; esac\n"
         "    return 0\n"
         "}\n"
         "complete -F _prevue prevue");
}

/* --- zsh --- */

/* ":MODEL:_files", what follows the description of an option that takes a value. */
static void zsh_value(const struct option *o)
{
    char words[OPTION_WORDS_SIZE];
    option_words(o, words);
    if (option_kind(o) == VALUE_NONE)
        return;
    putchar(':');
    put_quoted(o->metavar, ":\\", "'\\''");
    switch (option_kind(o)) {
    case VALUE_FILE:
        fputs(":_files", stdout);
        break;
    case VALUE_DIR:
        fputs(":_files -/", stdout);
        break;
    case VALUE_WORDS:
        printf(":(%s)", words);
        break;
    case VALUE_LIST:
        printf(":_sequence compadd - %s", words);
        break;
    default:
        fputs(": ", stdout);
    }
}

/* One spelling: '*--model=[GGUF file]:MODEL:_files'. `joint`: "=" where --name=VALUE is a form. */
static void zsh_spelling(const struct option *o, const char *name, const char *joint)
{
    char summary[MAX_SUMMARY];
    summarize(o, summary);
    printf("            '*%s%s[", name, o->type == OPTION_FLAG ? "" : joint);
    put_quoted(summary, ":[]\\", "'\\''");
    putchar(']');
    zsh_value(o);
    puts("' \\");
}

static void zsh_command(const struct option_set *set)
{
    static const char *const operands[] = {
        [VALUE_FILE] = "_files",
        [VALUE_COMMAND] = "_prevue_commands",
        [VALUE_ANY] = " ",
        [VALUE_NONE] = " ",
    };
    char name[64];
    printf("    %s)\n        _arguments \\\n", set->command);
    for (int i = 0; option_at(set, i); i++) {
        const struct option *o = option_at(set, i);
        snprintf(name, sizeof name, "--%s", o->name);
        zsh_spelling(o, name, "=");
        snprintf(name, sizeof name, "-%c", o->letter);
        if (o->letter)
            zsh_spelling(o, name, "");
    }
    printf("            '%s:argument:%s'\n        ;;\n", set->max_operands > 1 ? "*" : "1",
           operands[set->max_operands ? set->operands : VALUE_NONE]);
}

static void print_zsh(void)
{
    puts("#compdef prevue\n"
         "# Completions of prevue for zsh, made by 'prevue help --completions zsh'.\n"
         "_prevue_commands()\n"
         "{\n"
         "    local -a commands\n"
         "    commands=(");
    for (int i = 0; command_at(i); i++) {
        printf("        '%s:", command_at(i)->name);
        put_quoted(command_at(i)->summary, ":\\", "'\\''");
        puts("'");
    }
    puts("    )\n"
         "    _describe command commands\n"
         "}\n"
         "_prevue()\n"
         "{\n"
         "    local command=$words[2]\n"
         "    if ((CURRENT == 2)); then\n"
         "        _prevue_commands\n"
         "        return\n"
         "    fi\n"
         "    shift words\n"
         "    ((CURRENT--))\n"
         "    case $command in");
    for (int i = 0; command_at(i); i++)
        zsh_command(command_at(i)->set);
    puts("    esac\n"
         "}\n"
         "if [[ $funcstack[1] == _prevue ]]; then\n"
         "    _prevue \"$@\"\n"
         "else\n"
         "    compdef _prevue prevue\n"
         "fi");
}

/* --- fish --- */

static void fish_option(const struct option_set *set, const struct option *o)
{
    char words[OPTION_WORDS_SIZE], summary[MAX_SUMMARY];
    enum value_kind kind = option_kind(o);

    printf("complete -c prevue -n '__fish_seen_subcommand_from %s' -l %s", set->command, o->name);
    if (o->letter)
        printf(" -s %c", o->letter);
    option_words(o, words);
    if (kind == VALUE_FILE)
        fputs(" -r -F", stdout);
    else if (kind == VALUE_DIR)
        fputs(" -x -a '(__fish_complete_directories)'", stdout);
    else if (kind != VALUE_NONE)
        fputs(" -x", stdout);
    if (words[0])
        printf(" -a '%s'", words);
    summarize(o, summary);
    fputs(" -d '", stdout);
    put_quoted(summary, "\\", "\\'");
    puts("'");
}

static void fish_operands(const struct option_set *set)
{
    if (set->max_operands == 0 || set->operands == VALUE_ANY)
        return;
    printf("complete -c prevue -n '__fish_seen_subcommand_from %s'", set->command);
    if (set->operands == VALUE_COMMAND) {
        fputs(" -a '", stdout);
        put_commands();
        puts("'");
    } else {
        puts(" -F");
    }
}

static void print_fish(void)
{
    puts("# Completions of prevue for fish, made by 'prevue help --completions fish'.\n"
         "complete -c prevue -f");
    for (int i = 0; command_at(i); i++) {
        const struct option_set *set = command_at(i)->set;
        printf("complete -c prevue -n __fish_use_subcommand -a %s -d '", set->command);
        put_quoted(command_at(i)->summary, "\\", "\\'");
        puts("'");
        fish_operands(set);
        for (int k = 0; option_at(set, k); k++)
            fish_option(set, option_at(set, k));
    }
}

void print_completions(enum guide_shell shell)
{
    static void (*const print[])(void) = {
        [GUIDE_BASH] = print_bash,
        [GUIDE_ZSH] = print_zsh,
        [GUIDE_FISH] = print_fish,
    };
    print[shell]();
}
