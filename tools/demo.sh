#!/bin/sh
# make demo: a few methods of drafting are measured on this machine, and with the fastest nano, the
# model that comes with prevue, describes a sample and answers two questions about it; then what the
# clip really shows, to compare. Then the point of the engine: the same tokens, whatever the method,
# the threads and the steps. No Python, no network.
set -eu
cd "$(dirname "$0")/.."
clip=samples/64-frames
short=samples/16-frames
colour='What colour is the background in the third scene?'
count='How many scenes does the video have?'
methods=sd,specvlm,std,ngram,sparrow
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-demo-XXXXXX")
trap 'rm -rf "$dir"' EXIT

die()
{
    echo "make demo: $*" >&2
    exit 1
}

for file in ./prevue ./prevue-lab models/nano.gguf models/nano-draft.gguf models/nano-head.gguf $clip.mp4 $clip.json $short.mp4; do
    [ -s "$file" ] || die "$file is missing (the programs come from 'make', the rest from the repository)"
done

# The true answer to a question of the clip's .json.
truth()
{
    grep -F -A 1 "\"question\": \"$1\"" $clip.json | sed -n 's/^ *"answer": "\(.*\)"$/\1/p'
}

# The columns of bench's CSV that the choice rests on, by name: method, tokens, seconds and so on.
fastest()
{
    awk -F, '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["method"] == "ar" { plain = $at["total_s"]; slow = $at["decode_s"] }
        $at["identical"] != "yes" { different = 1 }
        !name || $at["total_s"] < least {
            least = $at["total_s"]
            decode = $at["decode_s"]
            name = $at["method"]
            pass = $at["tokens_per_pass"]
            draft = $at["draft_rows"] > 0 ? 1000 * $at["draft_s"] / $at["draft_rows"] : 0
            seen = $at["draft_video_tokens"]
            all = $at["video_tokens"]
        }
        END {
            printf "%s %.2f %.2f %.1f %.2f %d %d\n", name, plain / least, slow / decode, pass, draft,
                seen, all
            exit different
        }' "$1"
}

echo "Which method is fastest on this machine? (some ten seconds)"
echo
echo "\$ ./prevue-lab bench --videos $clip.mp4 --methods $methods --repeat 3"
echo
./prevue-lab bench --videos $clip.mp4 --methods $methods --repeat 3 --csv "$dir/bench.csv" \
    >"$dir/bench" 2>&1 || die "$(tail -n 1 "$dir/bench")"
cut -c 1-160 "$dir/bench" | sed 's/^/    /'
fastest "$dir/bench.csv" >"$dir/best" || die "a method gave another answer: this must never happen"
read -r method whole decode pass draft seen all <"$dir/best"
echo
if [ "$method" = ar ]; then
    echo "Fastest here is plain decoding (ar): no drafter pays on this machine, for an answer of this length."
else
    echo "Fastest here, from the file to the last word: $method, $whole times as fast as plain decoding (ar);"
    echo "the words alone come $decode times as fast. A pass of the model gives $pass tokens, a drafted row"
    echo "takes $draft ms, and the drafter had to see $seen of $all video tokens."
fi
echo
echo "\$ ./prevue describe $clip.mp4 --method $method --ask '$colour' --ask '$count' --stats"
echo
./prevue describe $clip.mp4 --method "$method" --ask "$colour" --ask "$count" --stats 2>"$dir/stats" ||
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
echo "Another clip with other threads, steps and methods, and a checksum of the tokens:"
run=0
for how in "-t 1" "-t 2" "-t 2 -b 100" "-t 3 -b 7" "--method ar" "--method specvlm"; do
    run=$((run + 1))
    args="describe $short.mp4 --frames 16 $how --json"
    ./prevue $args >"$dir/run.json" || die "prevue $args failed"
    grep -o '"ids":\[[0-9,]*\]' "$dir/run.json" >"$dir/$run.ids" || die "prevue $args said nothing"
    printf '    %-16s %3d tokens  %s\n' "$how" "$(tr ',' '\n' <"$dir/$run.ids" | wc -l)" \
        "$(cksum <"$dir/$run.ids" | cut -d' ' -f 1)"
    cmp -s "$dir/1.ids" "$dir/$run.ids" || die "these are other tokens than with -t 1: this must never happen"
done
