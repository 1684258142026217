#!/bin/sh
# Tests of the command line: what it prints where, and its exit status.
#
#   tests/cli/run.sh [WORD]     only the case files whose name contains WORD
#   tests/cli/run.sh 1/2        every second case file, from the first; 2/2: the others
#
# PREVUE, PREVUE_LAB and MAKE_MODEL name the programs (default: those of $BUILD). The cases are in *.case.sh,
# which this file reads; each `misuse`, `failure`, `output` or `verdict` line is one test.
set -u
chosen_cases=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
prevue=${PREVUE:-$build/prevue}
lab=${PREVUE_LAB:-$build/prevue-lab}
make_model=${MAKE_MODEL:-$build/make_model}
golden=$root/tests/golden
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-cli-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir" || exit 1
status=0
suite=tests/cli

# The program that has a command: bench and view are in the laboratory.
program_of()
{
    case "${1:-} ${2:-}" in
    'bench '* | 'view '* | 'help bench' | 'help view') echo "$lab" ;;
    *) echo "$prevue" ;;
    esac
}

# Run the command; its status is in $status, its output in the files out and err.
run()
{
    run_program "$(program_of "$@")" "$@"
}

run_program()
{
    ran="${1##*/} $(shift && echo "$*")"
    "$@" >"$dir/out" 2>"$dir/err" </dev/null
    status=$?
}

show_failure()
{
    echo "  ran: $ran"
    echo "  status $status, stdout:"
    head -c 600 "$dir/out" | sed 's/^/    /'
    echo "  stderr:"
    head -c 2000 "$dir/err" | sed 's/^/    /'
}
. "$root/tests/verdict.sh"

# One sentence on stderr matching $1, nothing on stdout; prints what is wrong.
one_sentence()
{
    if [ -s "$dir/out" ]; then
        echo "stdout is not empty"
    elif [ "$(wc -l <"$dir/err")" -ne 1 ]; then
        echo "stderr is not one line"
    elif ! grep -qE -- "$1" "$dir/err"; then
        echo "stderr does not match '$1'"
    fi
}

# misuse NAME PATTERN ARGS...: exit 2, one sentence with a pointer to the help.
misuse()
{
    name=$1
    pattern=$2
    shift 2
    run "$@"
    why=$(one_sentence "$pattern")
    [ -n "$why" ] || grep -qE "see 'prevue(-lab)? help" "$dir/err" || why="no pointer to the help"
    [ "$status" -eq 2 ] || why="exit status is not 2"
    verdict "$name" "$why"
}

# failure NAME PATTERN ARGS...: exit 1, one sentence.
failure()
{
    name=$1
    pattern=$2
    shift 2
    run "$@"
    why=$(one_sentence "$pattern")
    grep -qE '^prevue(-lab)?: ' "$dir/err" || why="stderr does not begin with the program's name"
    [ "$status" -eq 1 ] || why="exit status is not 1"
    verdict "$name" "$why"
}

# output NAME FILE ARGS...: exit 0 and exactly the bytes of FILE on stdout.
output()
{
    name=$1
    expected=$2
    shift 2
    run "$@"
    why=
    cmp -s "$expected" "$dir/out" || why="stdout differs from $expected"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "$name" "$why"
}

# succeeds NAME PATTERN ARGS...: exit 0 and a line of stdout that matches.
succeeds()
{
    name=$1
    pattern=$2
    shift 2
    run "$@"
    why=
    grep -qE -- "$pattern" "$dir/out" || why="stdout does not match '$pattern'"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "$name" "$why"
}

# The ids of --json as words.
json_ids()
{
    sed -n 's/.*"ids":\[\([0-9,]*\)\].*/\1/p' out | tr ',' ' '
}

n_files=0
for file in "$here"/*.case.sh; do
    n_files=$((n_files + 1))
    ! left_out "$(basename "$file")" || continue
    case $chosen_cases-$((n_files % 2))-$(basename "$file") in
    1/2-1-* | 2/2-0-*) . "$file" ;;
    ?/2-*) ;;
    *-?-*"$chosen_cases"*) . "$file" ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
