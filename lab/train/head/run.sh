#!/bin/sh
# The heads of nano on one GPU, where a single command may not last long enough: starts nano.py in a
# session of its own, or finds it running, waits, and copies what there is so far.
#
#   lab/train/head/run.sh SPRITES RUNS KEEP [ARGS of nano.py...]
#
# SPRITES is a folder, or a tar of one (manifest.tsv and the styles' folders). RUNS keeps weights and
# logs; KEEP gets results.csv, logs.tar and a tar of each head. WAIT: seconds to wait (540). The same
# command again goes on waiting; after a crash it goes on with the heads that are not there yet.
set -u
usage="usage: lab/train/head/run.sh SPRITES RUNS KEEP [ARGS...]"
sprites=${1:?"$usage"}
runs=${2:?"$usage"}
keep=${3:?"$usage"}
shift 3
here=$(dirname "$0")
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
mkdir -p "$runs" "$keep" || exit 1

# Unpacks SPRITES once, where it is a tar.
unpack()
{
    [ -d "$sprites" ] && return
    if [ ! -e "$runs/sprites.done" ]; then
        mkdir -p "$runs/sprites" && tar -xf "$sprites" -C "$runs/sprites" || exit 1
        touch "$runs/sprites.done"
    fi
    sprites=$(dirname "$(find "$runs/sprites" -name manifest.tsv | head -n 1)")
}

running()
{
    [ -e "$runs/pid" ] && kill -0 "$(cat "$runs/pid")" 2>/dev/null
}

unpack
if ! running && [ ! -e "$runs/done" ]; then
    rm -f "$runs/failed"
    setsid sh -c 'echo $$ >"$1/pid"; runs=$1; shift; if "$@" >>"$runs/log" 2>&1
        then touch "$runs/done"; else touch "$runs/failed"; fi' sh "$runs" \
        python3 "$here/nano.py" --sprites "$sprites" -o "$runs" "$@" </dev/null &
fi
left=${WAIT:-540}
while [ "$left" -gt 0 ] && [ ! -e "$runs/done" ] && [ ! -e "$runs/failed" ]; do
    sleep 2
    left=$((left - 2))
done
tail -n 40 "$runs/log"
cp "$runs"/*.tar "$keep"/ 2>/dev/null
cp "$runs/results.csv" "$keep"/ 2>/dev/null
(cd "$runs" && tar -cf logs.part ./*.csv log && mv logs.part logs) 2>/dev/null
cp "$runs/logs" "$keep/logs.tar" 2>/dev/null
[ ! -e "$runs/failed" ]
