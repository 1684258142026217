#!/bin/sh
# Run test programs, several at a time, and add up their counts.
#
#   tests/run.sh 'PROGRAM ARGS' ...
#
# TEST_LEFT_OUT, the absolute path of a list, makes programs leave out cases (tests/left_out.h,
# tests/verdict.sh). `make test` uses tests/only_all.txt.
#
# Each program ends with "N passed, N failed" and a matching exit status. One that says neither,
# crashes, hangs or contradicts its own count is one failure more. The output of a program that
# failed is shown whole; the last line is the sum. TEST_JOBS programs run at a time (default: one
# for each core, at most 4), each for at most TEST_TIMEOUT seconds (default: 900). With TEST_PIN=1
# each has one core, but for the programs that TEST_WIDE names: threads that share a core sleep soon where
# they would spin, and spinning is half of what programs with small models cost.
set -u

# The core of this job: the SLOT-th of those that this process may run on, empty where that is unknown.
own_core()
{
    taskset -pc $$ 2>/dev/null | sed 's/.*: //' | tr , '\n' |
        awk -F - -v want="$SLOT" '{ for (c = $1; c <= ($2 == "" ? $1 : $2); c++) if (n++ == want) print c }'
}

# judge COMMAND: runs it; its counts go to the file counts, its lines to stdout when it has ended.
judge()
{
    command=$1
    log=$dir/log.$$
    begin=$(date +%s)
    core=
    case "${TEST_PIN:-} ${TEST_WIDE:-} " in
    *" $command "*) ;;
    1*) core=$(own_core) ;;
    esac
    # shellcheck disable=SC2086
    ${core:+taskset -c $core} timeout "$limit" sh -c "$command" >"$log" 2>&1 </dev/null
    status=$?
    took=$(($(date +%s) - begin))
    times >"$log.times" # of children in its second line, "1m2.5s 0m0.3s"
    cpu=$(awk -F '[ms ]+' 'NR == 2 { printf "%.0f", $1 * 60 + $2 + $3 * 60 + $4 }' "$log.times")
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
    p=0
    f=0
    note=
    if [ -n "$line" ]; then
        p=${line%% passed*}
        f=${line##*passed, }
        f=${f%% failed}
        if [ "$p" -eq 0 ] && [ "$f" -eq 0 ] && ! grep -q '^skip ' "$log"; then
            note="ran no test" f=1
        fi
    else
        note="no count" f=1
    fi
    case $status in
    0) ;;
    124) note="stopped after $limit s" f=$((f > 0 ? f : 1)) ;;
    12[89] | 1[3-9][0-9]) note="killed by signal $((status - 128))" f=$((f > 0 ? f : 1)) ;;
    *) [ "$f" -gt 0 ] || { note="exit status $status" f=1; } ;;
    esac
    if [ "$status" -eq 0 ] && [ "$f" -gt 0 ] && [ -z "$note" ]; then
        note="exit status 0 in spite of failures"
    fi
    skipped=$(grep -c '^skip ' "$log")
    [ "$skipped" -eq 0 ] || note="${note:+$note, }$skipped skipped"
    exec 9>>"$dir/counts"
    flock 9 # one program's lines at a time
    echo "$p $f" >&9
    if [ "$f" -gt 0 ]; then
        printf -- '---- output of %s\n' "$command"
        cat "$log"
        printf -- '----\n'
    elif [ "$skipped" -gt 0 ]; then
        grep -E '^(skip |  skipped)' "$log"
    fi
    printf '%-4s %-44s %6d passed %4d failed %4d s %4d s CPU%s\n' \
        "$([ "$f" -eq 0 ] && echo ok || echo FAIL)" "$command" "$p" "$f" "$took" "$cpu" "${note:+  ($note)}"
    rm -f "$log" "$log.times"
}

limit=${TEST_TIMEOUT:-900}
if [ "${1:-}" = --judge ]; then
    dir=$2
    judge "$3"
    exit 0
fi

cores=$(nproc 2>/dev/null || echo 2)
jobs=${TEST_JOBS:-$((cores < 4 ? cores : 4))}
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-run-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
: >"$dir/counts"
printf '%s\0' "$@" | xargs -0 --process-slot-var=SLOT -P "$jobs" -n 1 "$0" --judge "$dir"
wanted=$# got=$(wc -l <"$dir/counts")
# shellcheck disable=SC2046
set -- $(awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }' "$dir/counts")
passed=$1 failed=$2
if [ "$got" -ne "$wanted" ]; then
    echo "$((wanted - got)) programs of $wanted were not run to their end"
    failed=$((failed + wanted - got))
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
