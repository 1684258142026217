# The manual page and the completions of shells, which the program prints from its tables of options.

commands=$("$prevue" help | sed -n 's/^  \([a-z]*\)  .*/\1/p')
# The options that --help of a command lists, as --name.
options_of()
{
    "$prevue" help "$1" | sed '/^examples:/,$d' | sed -n 's/^  \(-[a-zA-Z],\|   \) \(--[a-z0-9-]*\).*/\2/p'
}

run help --man
cp out prevue.1
why=
head -n 1 prevue.1 | grep -q '^\.TH PREVUE 1 ' || why="it does not begin with .TH"
for section in NAME SYNOPSIS DESCRIPTION COMMANDS 'EXIT STATUS'; do
    grep -q "^\.SH $section\$" prevue.1 || why="there is no section $section"
done
# What begins with a dot is one of the macros that are used, and every backslash an escape that is.
sed 's/\\\(-\|&\|e\|f[BIR]\|(\(aq\|ga\|ha\|ti\|dq\)\)//g' prevue.1 >plain.1
! grep -q '\\' plain.1 || why="an escape is unknown: $(grep -m 1 '\\' plain.1)"
macros='TH|SH|SS|TP|PP|nf|fi'
! grep '^[.'"']" prevue.1 | grep -qvE "^\.($macros)( |\$)" || why="a macro is unknown"
[ "$(grep -c '^\.nf' prevue.1)" -eq "$(grep -c '^\.fi' prevue.1)" ] || why=".nf without .fi"
verdict man_is_well_formed "$why"

if command -v groff >/dev/null; then
    ran="groff -man -ww prevue.1"
    groff -man -ww -Tascii -P-c prevue.1 >bold.txt 2>err
    status=$? why=
    sed "s/.$(printf '\b')//g" bold.txt >out # bold is a letter struck twice
    [ "$status" -eq 0 ] || why="groff failed"
    [ ! -s err ] || why="groff warns"
    grep -q '^ *--max-requests N' out || why="an option is not in the text"
    verdict man_in_groff "$why"
fi

# Commands and options are in it as they are in --help: those of a command under its own name, or in a
# section below that it refers to.
sed 's/\\-/-/g; s/\\f[BIR]//g' prevue.1 >man.txt
why=
for command in $commands; do
    grep -q "^\.SS prevue $command\$" man.txt || why="there is no command $command"
    for option in $(options_of "$command"); do
        grep -qE "^(-[a-zA-Z], )?$option( |\$)" man.txt || why="there is no option $option"
    done
done
[ "$(echo "$commands" | wc -w)" -ge 9 ] || why="there are few commands: $commands"
[ "$(options_of describe | wc -l)" -ge 40 ] || why="describe has few options"
verdict man_has_all_options "$why"

# completes NAME EXPECTED WORDS...: bash, asked to complete the last of the words, offers EXPECTED,
# which is sorted.
cat >ask.bash <<'EOF'
. ./prevue.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_prevue
[ "${#COMPREPLY[@]}" -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | tr '\n' ' '
EOF
completes()
{
    name=$1 expected=$2
    shift 2
    ran="completion of: $*"
    bash ask.bash "$@" >out 2>err
    status=$? why=
    [ "$status" -eq 0 ] || why="bash failed"
    [ ! -s err ] || why="bash complains"
    [ "$(sed 's/ $//' out)" = "$expected" ] || why="it does not offer '$expected'"
    verdict "bash_$name" "$why"
}

"$prevue" help --completions bash >prevue.bash
verdict bash_registered "$(bash -c '. ./prevue.bash && complete -p prevue' 2>&1 | grep -q -- '-F _prevue' || echo 'it is not')"
mkdir -p shelf/below
: >'shelf/a clip.mp4'
completes commands 'chat convert' prevue c
completes all_options "$({ options_of convert; echo -h; } | LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')" \
    prevue convert -
completes one_option '--max-connections' prevue serve --max-co
completes letter_choice 'f16 f32' prevue describe -ctk f
completes choice 'f16 f32' prevue describe --kv-type f
completes choice_joined 'f16 f32' prevue describe --kv-type = f
completes choice_joined_empty 'auto bf16 f16 f32' prevue describe --kv-type =
completes method 'specvlm' prevue describe --method spec
completes view 'uniform' prevue describe --view unif
completes drafter 'ngram none' prevue describe --drafter n
completes method_list 'ar,specvlm' prevue describe --compare ar,specv
completes file 'shelf/a clip.mp4 shelf/below' prevue describe -m shelf/
completes directory 'shelf/below' prevue serve --media-path shelf/
completes operand 'shelf/a clip.mp4 shelf/below' prevue describe --stats shelf/
completes after_dashes 'shelf' prevue describe -- shel
completes text '' prevue describe -p sh
completes text_operand '' prevue tokenize sh
completes help_command 'describe' prevue help de
completes nothing_known '' prevue frobnicate --he

# Each option of each command is one that bash would offer, by its own words.
why=
for command in $commands; do
    bash ask.bash prevue "$command" -- | tr ' ' '\n' | grep . | grep '^--' | LC_ALL=C sort >offered
    options_of "$command" | LC_ALL=C sort >listed
    cmp -s offered listed || why="options of $command differ from --help"
done
verdict bash_has_all_options "$why"

for shell in zsh fish; do
    run help --completions $shell
    cp out prevue.$shell
    why=
    [ "$status" -eq 0 ] || why="exit status is not 0"
    for option in $(options_of serve); do
        grep -q -- "\(-l \|--\)${option#--}[ =[]" prevue.$shell || why="there is no option $option"
    done
    verdict "${shell}_has_all_options" "$why"
    if command -v $shell >/dev/null; then
        ran="$shell -n prevue.$shell"
        $shell -n prevue.$shell >out 2>err
        status=$? why=
        [ "$status" -eq 0 ] || why="a syntax error"
        verdict "${shell}_syntax" "$why"
    fi
done

# The completions in the shells themselves. offers SHELL NAME EXPECTED WORDS: completing the words lists EXPECTED,
# which is a pattern.
offers()
{
    shell=$1 name=$2 expected=$3
    ran="$1 completes: $4"
    if [ "$shell" = fish ]; then
        HOME=$dir XDG_CONFIG_HOME=$dir timeout 60 fish --no-config -c 'source prevue.fish; complete -C $argv[1]' "$4" >out 2>err
    else
        TERM=dumb timeout 60 zsh -f ask.zsh "$4" >out 2>err
    fi
    status=$? why=
    [ "$status" -eq 0 ] || why="$shell failed"
    [ ! -s err ] || why="$shell complains"
    tr -d '\r' <out | grep -qE -- "$expected" || why="it does not offer '$expected'"
    verdict "${shell}_$name" "$why"
}

# An interactive zsh in a terminal of its own: types the words, asks for the list and prints it, without the words.
cat >ask.zsh <<'EOF'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT=; stty -echo cols 200; fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; LISTMAX=0'
# The editor says when it is ready: what is typed earlier would be shown by the terminal, too.
zpty -w shell 'bindkey "^T" list-choices; zle-line-init() { print -n "EDI""TOR" }; zle -N zle-line-init'
text=
await() # PATTERN: reads until the text matches
{
    local part i
    for ((i = 0; i < 300; i++)); do
        zpty -r -t shell part && text+=$part || sleep 0.1
        [[ $text == $~1 ]] && return
    done
    exit 1
}
await '*EDITOR*'
text=
zpty -n -w shell "$1"$'\C-t'
await "*$1*$1*" # as typed, and again below the list
zpty -d shell
print -r -- "${${text#*$1}%$1*}"
EOF
cp prevue.zsh _prevue
for shell in zsh fish; do
    if ! command -v $shell >/dev/null; then
        echo "skip ${shell}_completions: $shell is not installed"
        continue
    fi
    offers $shell commands '^batch +.*answer|^batch.*answer' 'prevue b'
    offers $shell choice '^f16.*' 'prevue describe --kv-type f'
    offers $shell method '^specvlm' 'prevue describe --method spec'
    offers $shell one_option '^--max-connections' 'prevue serve --max-co'
    offers $shell file 'a(\\)? clip.mp4' 'prevue describe shelf/'
    offers $shell directory 'below/' 'prevue serve --media-path shelf/'
    ! grep -q clip out || verdict "${shell}_no_file" "a file is offered where a directory is wanted"
    offers $shell help_command '^describe' 'prevue help de'
done

# --help lists the usual options and says how many more there are; --help-all all of them, as help does.
run describe --help-all
cp out all.txt
output help_is_help_all all.txt help describe
run describe --help
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q -- '--head HEAD' out && grep -q -- '--frames N' out || why="a usual option is missing"
! grep -q -- '--tree-width' out && ! grep -q -- '--limit-frames' out || why="it is not short"
more=$(sed -n "s/^\([0-9]*\) more options.*'prevue describe --help-all'\.$/\1/p" out)
listed=$(grep -cE '^  (-[a-zA-Z],|   ) --' out)
[ $((listed + ${more:-0})) -eq "$(grep -cE '^  (-[a-zA-Z],|   ) --' all.txt)" ] || why="$listed and ${more:-no} more are not all"
verdict help_is_short "$why"
