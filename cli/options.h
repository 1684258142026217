/* Command-line options declared as data: parsing, checking and --help are all driven by tables.
 * Several commands may use one table: each says at which offset of its arguments the table's struct
 * is. */
#ifndef PV_CLI_OPTIONS_H
#define PV_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_type {
    OPTION_FLAG,   /* bool, no value */
    OPTION_INT,    /* int, min..max */
    OPTION_U64,    /* uint64_t, decimal or 0x... */
    OPTION_NUMBER, /* double, min..max */
    OPTION_TIME,   /* double, seconds or [HH:]MM:SS[.f], min..max */
    OPTION_STRING, /* const char *, borrowed from argv */
    OPTION_LIST,   /* struct arg_list: each use adds one string */
    OPTION_TEXT,   /* as OPTION_STRING, in UTF-8 */
    OPTION_TEXTS,  /* as OPTION_LIST, in UTF-8 */
    OPTION_BYTES,  /* uint64_t, with an optional suffix K, M, G or T (powers of 1024) */
    OPTION_CHOICE, /* int: index of the word in `words` */
    OPTION_METHOD, /* const char *: a name of pv_method_name */
    OPTION_VIEW,   /* const char *: a name of pv_view_name */
    OPTION_DRAFTER /* int: enum pv_drafter, by name */
};

enum { MAX_ARGS = 64, OPTION_WORDS_SIZE = 512, OPTION_TEXT_SIZE = 2048 };

/* What a value or an operand is, for shell completions. */
enum value_kind {
    VALUE_FILE, /* name of a file or directory */
    VALUE_DIR,
    VALUE_WORDS,   /* one of the words of option_words */
    VALUE_LIST,    /* some of these words, comma-separated */
    VALUE_COMMAND, /* name of a command */
    VALUE_ANY,     /* a text or number, which cannot be completed */
    VALUE_NONE     /* no value */
};

/* Strings borrowed from argv. */
struct arg_list {
    const char *items[MAX_ARGS];
    int n;
};

struct option {
    const char *name; /* long name without dashes */
    char letter;      /* 0: none */
    const char *also; /* other spellings, with dashes, separated by one space; NULL: none */
    enum option_type type;
    size_t offset;       /* of the value in the group's struct of arguments */
    double min, max;     /* OPTION_INT, OPTION_NUMBER, OPTION_TIME: both inclusive */
    const char *metavar; /* name of the value in --help; for some, option_kind has completions */
    const char *help;    /* one paragraph, wrapped when printed */
    const char *words;   /* OPTION_CHOICE: the words, separated by one space */
};

struct option_group {
    const char *title; /* in --help */
    const struct option *options;
    int n_options;
    size_t offset; /* of the group's struct in the command's arguments */
    int n_short;   /* how many --help lists; --help-all lists all of them */
};
enum { SHORT_ALL = 0, SHORT_NONE = -1 }; /* of n_short */

/* What one command accepts. */
struct option_set {
    const char *command;
    const char *usage; /* lines of synopsis after "prevue COMMAND " */
    const char *about; /* paragraphs, separated by "\n" */
    const struct option_group *groups;
    int n_groups;
    int max_operands;         /* arguments that are not options, at most MAX_ARGS */
    enum value_kind operands; /* what these are; zero: files */
    const char *examples;     /* lines, printed as they are; or NULL */
};

enum { OPTIONS_RUN = -1 };

/* Fill `args`, which holds the defaults, from argv[1..]. Arguments that are not options are added
 * to `operands`, which may be NULL if there can be none, and may be the list of an OPTION_LIST.
 * Returns OPTIONS_RUN, or the exit status if the command is done: 0 after --help, 2 after a misuse,
 * which is reported. */
int options_parse(const struct option_set *set, void *args, int argc, char **argv,
                  struct arg_list *operands);

/* Print what the command does and its options: all of them, or those that most users need. */
void options_help(const struct option_set *set, bool all);

/* --help and --help-all, which every command has besides the options of its groups. */
extern const struct option help_option, help_all_option;

enum value_kind option_kind(const struct option *o);
/* The words that an option takes, separated by spaces; "" if it takes any value. `out` has
 * OPTION_WORDS_SIZE bytes. */
void option_words(const struct option *o, char *out);
/* The description of an option in --help: its paragraph, its words and its other spellings. `out`
 * has OPTION_TEXT_SIZE bytes. */
void option_text(const struct option *o, char *out);
/* A value of --method, --view or --drafter that the option does not take because only prevue-lab
 * has it; for the message OPTION_MOVED. */
bool option_moved(const struct option *o, const char *value);
bool method_moved(const char *name);
#define OPTION_MOVED "%s has moved to 'prevue-lab bench', the command for comparisons"
/* The enum pv_drafter of a name; -1: unknown, or not available as an option. */
int option_drafter(const char *name);

/* Report a misuse of `command` (NULL: of the program itself) on stderr, with a pointer to its help.
 * Returns 2. */
int options_misuse(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Parse values of options; false if `text` is not a number or out of range. */
bool parse_int(const char *text, long long min, long long max, long long *out);
bool parse_u64(const char *text, uint64_t *out);
bool parse_bytes(const char *text, uint64_t *out);
bool parse_number(const char *text, double min, double max, double *out);
/* Seconds, or hours and minutes before them: "90", "1:30", "0:01:30.5". */
bool parse_time(const char *text, double min, double max, double *out);

/* Find the word of `words` (separated by one space) that `text` is probably a misspelling of, and
 * copy it to out; false if none is similar enough. */
bool nearest_word(char *out, size_t out_size, const char *text, const char *words);

#endif
