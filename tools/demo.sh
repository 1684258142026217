#!/bin/sh
# make demo: nano, the model that comes with prevue, describes a sample and answers two questions
# about it; then what the clip really shows, to compare. Then the point of the engine: the same
# tokens, whatever the threads and the steps. No Python, no network.
set -eu
cd "$(dirname "$0")/.."
clip=samples/64-frames
short=samples/16-frames
colour='What colour is the background in the third scene?'
count='How many scenes does the video have?'
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-demo-XXXXXX")
trap 'rm -rf "$dir"' EXIT

die()
{
    echo "make demo: $*" >&2
    exit 1
}

for file in ./prevue models/nano.gguf $clip.mp4 $clip.json $short.mp4; do
    [ -s "$file" ] || die "$file is missing (./prevue comes from 'make', the rest from the repository)"
done

# The true answer to a question of the clip's .json.
truth()
{
    grep -F -A 1 "\"question\": \"$1\"" $clip.json | sed -n 's/^ *"answer": "\(.*\)"$/\1/p'
}

echo "\$ ./prevue describe $clip.mp4 --ask '$colour' --ask '$count' --stats"
echo
./prevue describe $clip.mp4 --ask "$colour" --ask "$count" --stats 2>"$dir/stats" ||
    die "$(tail -n 1 "$dir/stats")"
echo
sed 's/^/    /' "$dir/stats"
echo
echo "What the clip really shows ($clip.json):"
echo
sed -n 's/^ "description": "\(.*\)",$/\1/p' $clip.json
echo
truth "$colour"
echo
truth "$count"
echo
echo "Another clip with other threads and steps, and a checksum of the tokens:"
run=0
for how in "-t 1" "-t 2" "-t 2 -b 100" "-t 3 -b 7"; do
    run=$((run + 1))
    args="describe $short.mp4 --frames 16 $how --json"
    ./prevue $args >"$dir/run.json" || die "prevue $args failed"
    grep -o '"ids":\[[0-9,]*\]' "$dir/run.json" >"$dir/$run.ids" || die "prevue $args said nothing"
    printf '    %-12s %3d tokens  %s\n' "$how" "$(tr ',' '\n' <"$dir/$run.ids" | wc -l)" \
        "$(cksum <"$dir/$run.ids" | cut -d' ' -f 1)"
    cmp -s "$dir/1.ids" "$dir/$run.ids" || die "these are other tokens than with -t 1: this must never happen"
done
