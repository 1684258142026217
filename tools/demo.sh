#!/bin/sh
# make demo: models with random weights, looked at and run. They speak no language, but they go the
# whole way: file, tokenizer, decoder, kernels, sampling; and for a video frames, tower, projector.
# Then the point of the engine: the same tokens, whatever the threads, the steps and the cache.
set -eu
build=${BUILD:-build}
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-demo-XXXXXX")
trap 'rm -rf "$dir"' EXIT
ids="151,7,42,99,1000,3,77"

# A clip of the tests, or else one of plain greys.
. tests/cli/video.sh
clip=tests/data/video/bframes.mp4
if [ ! -e "$clip" ]; then
    clip=$dir/clip.y4m
    make_clip "$clip" 100 10 64 48
fi

show()
{
    echo
    echo "\$ $*" | sed "s|$dir/||g; s|$build/||g"
    "$@" | sed "s|$dir/||g"
}

show "$build/make_model" --shape tiny --type q8_0 "$dir/tiny.gguf"
show ./prevue version
show ./prevue inspect "$dir/tiny.gguf" -c 4096
show ./prevue tokenize -m "$dir/tiny.gguf" --pieces "the cat"

run=0
for how in "-t 1" "-t 2" "-t 2 -b 3" "-t 3 -b 1 -c 512"; do
    run=$((run + 1))
    echo
    echo "\$ prevue generate -m tiny.gguf --prompt-ids $ids -n 24 --temp 3 --seed 7 $how"
    ./prevue generate -m "$dir/tiny.gguf" --prompt-ids $ids -n 24 --ignore-eos --temp 3 --seed 7 \
        $how --json >"$dir/run.json"
    sed -n 's/.*"ids":\[\([0-9,]*\)\].*/\1/p' "$dir/run.json" | tee "$dir/$run.ids"
    cmp -s "$dir/1.ids" "$dir/$run.ids" || {
        echo "these are other ids than those of the first run: this must never happen" >&2
        exit 1
    }
done
[ -s "$dir/1.ids" ] || exit 1

show "$build/make_model" --shape tiny-ov --type q8_0 "$dir/tiny-ov.gguf"
show ./prevue frames "$clip" -o "$dir/seen" -m "$dir/tiny-ov.gguf" --frames 4
echo
echo "\$ prevue describe $(basename "$clip") -m tiny-ov.gguf --frames 8 -n 16 --temp 3 --ask 'And then?' --stats"
./prevue describe "$clip" -m "$dir/tiny-ov.gguf" --frames 8 -n 16 --ignore-eos --temp 3 \
    --ask 'And then?' --stats --json >"$dir/run.json"
grep -oE '"(question|ids)":("[^"]*"|\[[0-9,]*\])' "$dir/run.json"
echo
echo "$run runs with other threads and steps gave the same 24 tokens. The second question about the"
echo "video did not decode or read it again."
