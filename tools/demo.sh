#!/bin/sh
# make demo: a model with random weights, looked at and run. It speaks no language, but it goes
# the whole way: file, tokenizer, decoder, kernels, sampling.
set -eu
build=${BUILD:-build}
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-demo-XXXXXX")
trap 'rm -rf "$dir"' EXIT
ids="151,7,42,99,1000,3,77"

show()
{
    echo
    echo "\$ $*" | sed "s|$dir/||g; s|$build/||g"
    "$@"
}

show "$build/make_model" --shape tiny --type q8_0 "$dir/tiny.gguf"
show ./prevue version
show ./prevue inspect "$dir/tiny.gguf" -c 4096
for threads in 1 2; do
    show ./prevue generate -m "$dir/tiny.gguf" --prompt-ids $ids -n 32 --ignore-eos --json \
        -t $threads | tee "$dir/$threads.json"
    sed -n 's/.*"ids":\(\[[0-9,]*\]\).*/\1/p' "$dir/$threads.json" >"$dir/$threads.ids"
done
echo
if [ -s "$dir/1.ids" ] && cmp -s "$dir/1.ids" "$dir/2.ids"; then
    echo "1 and 2 threads gave the same $(tr -dc , <"$dir/1.ids" | wc -c | awk '{ print $1 + 1 }') ids."
else
    echo "1 and 2 threads gave different ids: this must never happen." >&2
    exit 1
fi
