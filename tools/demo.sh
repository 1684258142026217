#!/bin/sh
# make demo: a model with random weights, looked at and run. It speaks no language, but it goes the
# whole way: file, tokenizer, decoder, kernels, sampling. Then the point of the engine: the same
# tokens, whatever the threads, the steps and the cache.
set -eu
build=${BUILD:-build}
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-demo-XXXXXX")
trap 'rm -rf "$dir"' EXIT
ids="151,7,42,99,1000,3,77"

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
echo
echo "$run runs with other threads and steps gave the same 24 tokens."
