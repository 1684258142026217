#!/bin/sh
# Runs fuzzers for hours on several cores, goes on after findings, and reports executions, CPU time,
# coverage and findings of each.
#
#   tests/fuzz/long.sh [-t HOURS] [-j JOBS] [-o DIR] PROGRAMS CORPUS NAME...
#
#   PROGRAMS  directory with the programs fuzz_NAME (`make fuzz-programs`)
#   CORPUS    directory with a directory of first inputs for each NAME
#   -t HOURS  for all of them together, fractions allowed (default 1)
#   -j JOBS   processes at a time (default: one for each core)
#   -o DIR    where everything goes (default fuzz-long): NAME/found (inputs that reached something
#             new), NAME/bad (inputs that failed), NAME/log.*, and report.txt
#
# Each fuzzer gets the same time, HOURS * JOBS / number of fuzzers. A later run with the same DIR
# goes on from the inputs found before. The exit status is 1 when there is a finding.
set -u
most_findings=20 # of one process

# One process of one fuzzer, begun again after a finding.
fuzz_one()
{
    programs=$1 corpus=$2 dir=$3 seconds=$4 number=$5 name=$6
    out=$dir/$name log=$dir/$name/log.$number
    mkdir -p "$out/found" "$out/bad"
    end=$(($(date +%s) + seconds)) found=0
    while [ "$found" -lt $most_findings ]; do
        left=$((end - $(date +%s)))
        [ "$left" -gt 0 ] || break
        # It ends by itself; the timer is for one that cannot.
        if timeout -k 10 $((left + 60)) "$programs/fuzz_$name" -max_total_time="$left" -timeout=10 \
            -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$out/bad/" \
            "$out/found" "$corpus/$name" >>"$log" 2>&1; then
            break
        fi
        found=$((found + 1))
    done
    times >>"$log" # of the shell, then of what it ran
}

if [ "${1:-}" = --one ]; then
    shift
    fuzz_one "$@"
    exit 0
fi

# A row of the report from the logs of a fuzzer: executions and CPU time are sums, coverage is the
# most of any process.
row()
{
    awk -v name="$1" -v inputs="$(find "$dir/$1/found" -type f | wc -l)" \
        -v bad="$(find "$dir/$1/bad" -type f ! -name 'slow-unit-*' | wc -l)" '
        function seconds(t, part) { split(t, part, "m"); return 60 * part[1] + part[2] }
        /^stat::number_of_executed_units/ { n += $2 }
        match($0, /\([0-9]+ inline 8-bit counters/) { total = substr($0, RSTART + 1) + 0 }
        match($0, /cov: [0-9]+/) {
            c = substr($0, RSTART + 5, RLENGTH - 5) + 0
            cov = c > cov ? c : cov
        }
        FNR == 1 && NR > 1 { cpu += ran; ran = 0 }
        /^[0-9]+m[0-9.]+s [0-9]+m[0-9.]+s$/ { split($0, t, " "); ran = seconds(t[1]) + seconds(t[2]) }
        END {
            printf "%-12s %12d %12.1f %9d %6d %8d %8d\n", name, n, (cpu + ran) / 60, cov, total,
                inputs, bad
        }' "$dir/$1"/log.*
}

hours=1 jobs=$(nproc 2>/dev/null || echo 2) dir=fuzz-long
while getopts t:j:o: option; do
    case $option in
    t) hours=$OPTARG ;;
    j) jobs=$OPTARG ;;
    o) dir=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -lt 3 ]; then
    echo "use: $0 [-t HOURS] [-j JOBS] [-o DIR] PROGRAMS CORPUS NAME..." >&2
    exit 2
fi
programs=$1 corpus=$2
shift 2
for name in "$@"; do
    if [ ! -x "$programs/fuzz_$name" ] || [ ! -d "$corpus/$name" ]; then
        echo "$programs/fuzz_$name or $corpus/$name is missing" >&2
        exit 2
    fi
done

# As many processes of each as keep all cores busy, and seconds for each process.
each=$(((jobs + $# - 1) / $#))
seconds=$(awk "BEGIN { s = int($hours * 3600 * $jobs / ($# * $each)); print (s > 0 ? s : 1) }")
mkdir -p "$dir" || exit 1
rm -f "$dir"/*/log.*
echo "$# fuzzers, $each process(es) of each for $seconds s, $jobs at a time"
number=0
while [ "$number" -lt "$each" ]; do
    for name in "$@"; do
        echo "$number $name"
    done
    number=$((number + 1))
done | xargs -P "$jobs" -L 1 "$0" --one "$programs" "$corpus" "$dir" "$seconds"

{
    printf '%-12s %12s %12s %9s %6s %8s %8s\n' fuzzer executions 'CPU minutes' edges 'of' inputs findings
    for name in "$@"; do
        row "$name"
    done
} | tee "$dir/report.txt"
for name in "$@"; do
    if ! grep -q '^stat::number_of_executed_units' "$dir/$name"/log.*; then
        echo "fuzz_$name did not run: see $dir/$name/log.0" >&2
        exit 2
    fi
done
bad=$(for name in "$@"; do find "$dir/$name/bad" -type f ! -name 'slow-unit-*'; done)
[ -z "$bad" ] || printf 'findings:\n%s\n' "$bad"
[ -z "$bad" ]
