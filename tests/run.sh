#!/bin/sh
# Run test programs and add up their counts.
#
#   tests/run.sh 'PROGRAM ARGS' ...
#
# Each program ends with "N passed, N failed" and a matching exit status. One that says neither,
# crashes, hangs or contradicts its own count is one failure more. The output of a program that
# failed is shown whole; the last line is the sum.
set -u
limit=${TEST_TIMEOUT:-900} # seconds for one program
log=$(mktemp "${TMPDIR:-/tmp}/prevue-run-XXXXXX") || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM
passed=0
failed=0

for command in "$@"; do
    begin=$(date +%s)
    timeout "$limit" sh -c "$command" >"$log" 2>&1 </dev/null
    status=$?
    took=$(($(date +%s) - begin))
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
    passed=$((passed + p))
    failed=$((failed + f))
    skipped=$(grep -c '^skip ' "$log")
    [ "$skipped" -eq 0 ] || note="${note:+$note, }$skipped skipped"
    if [ "$f" -gt 0 ]; then
        printf -- '---- output of %s\n' "$command"
        cat "$log"
        printf -- '----\n'
    elif [ "$skipped" -gt 0 ]; then
        grep -E '^(skip |  skipped)' "$log"
    fi
    printf '%-4s %-44s %6d passed %4d failed %4d s%s\n' \
        "$([ "$f" -eq 0 ] && echo ok || echo FAIL)" "$command" "$p" "$f" "$took" "${note:+  ($note)}"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
