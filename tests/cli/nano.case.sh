# The models and samples that come with prevue: nano describes a clip it never saw, answers a
# question about it and is found without -m; nano-draft fits it. What they say is learnt, so only
# what the clip's truth holds is asked for, not the wording.

sample=$root/samples/16-frames
for file in "$sample.mp4" "$sample.json" "$root/models/nano.gguf" "$root/models/nano-draft.gguf"; do
    [ -s "$file" ] || echo "$file is missing or empty"
done >missing.txt
ran="looking for models and samples" status=0
: >out
: >err
verdict nano_files "$(head -n 1 missing.txt)"

# run_at DIR PROGRAM ARGS...: as run, from another directory.
run_at()
{
    ran="cd $1; $2 ..."
    (cd "$1" && shift && exec "$@") >out 2>err </dev/null
    status=$?
}

# said: the texts of --json, one a line.
said()
{
    grep -o '"text":"[^"]*"' out | cut -d'"' -f 4
}

all_ids()
{
    grep -o '"ids":\[[0-9,]*\]' out
}

# The first question about a colour, and its true answer.
question=$(grep -A 1 '"kind": "colour"' "$sample.json" | sed -n 's/.*"question": "\(.*\)",$/\1/p' | head -n 1)
answer=$(grep -A 2 '"kind": "colour"' "$sample.json" | sed -n 's/.*"answer": "\(.*\)"$/\1/p' | head -n 1)
ask="describe $sample.mp4 --frames 16 --json"

run_at "$root" "$prevue" $ask --ask "$question" -t 1
alone=$(all_ids)
why=
sed -n 's/.*"name": "\(.*\)",$/\1/p' "$sample.json" >names.txt
[ -s names.txt ] || why="$sample.json names no object"
while IFS= read -r name; do
    said | sed -n 1p | grep -qF "$name" || why="the text does not name the $name"
done <names.txt
[ ! -s err ] || why="stderr is not empty"
[ "$status" -eq 0 ] || why="exit status is not 0"
verdict nano_names_the_objects "$why"
why=
[ -n "$answer" ] && [ "$(said | sed -n 2p)" = "$answer" ] ||
    why="\"$question\" was answered \"$(said | sed -n 2p)\", not \"$answer\""
verdict nano_tells_the_colour "$why"

run_at "$root" "$prevue" $ask -n 32 -t 2 -b 100
why=
begin=$(all_ids | tr -d ']')
[ "$(echo "$begin" | tr ',' '\n' | wc -l)" -eq 32 ] || why="not 32 ids"
case $alone in
"$begin",*) ;;
*) why="ids differ from those of one thread" ;;
esac
verdict nano_same_ids "$why"

# --- the drafter: its own answer, the same tokens ---

run describe "$sample.mp4" --frames 4 --json -m "$root/models/nano-draft.gguf" -n 24
why=
[ "$(json_ids | wc -w)" -gt 0 ] || why="no ids"
[ "$status" -eq 0 ] || why="exit status is not 0"
verdict nano_draft_runs "$why"
for model in nano nano-draft; do
    run inspect "$root/models/$model.gguf" --json
    grep -oE '"(vocab|frame_tokens|image|image_token|video_token|max_context)":[0-9]+' out >$model.txt
done
why=
[ "$(wc -l <nano.txt)" -eq 6 ] || why="not all six figures are told"
cmp -s nano.txt nano-draft.txt || why="vocabulary, frames or context differ: $(diff nano.txt nano-draft.txt)"
verdict nano_pair_fits "$why"

# --- the parallel schedule: whoever drafts, the ids of plain decoding ---

short="describe $sample.mp4 --frames 4 -n 40 --json"
for how in "" "--temperature 0.8 --seed 3"; do
    run_at "$root" "$prevue" $short --method ar $how
    plain=$(all_ids)
    for method in "--method pearl" "--method hippo" "--method parallelvlm" "-d self --schedule parallel" \
        "-d self --method parallelvlm --layer 0.5 --window 3"; do
        run_at "$root" "$prevue" $short $method $how
        why=
        [ -n "$plain" ] && [ "$(all_ids)" = "$plain" ] || why="ids differ from those of ar: $(all_ids)"
        grep -q '"parallel":{"rounds":[1-9]' out || why="no parallel rounds"
        [ ! -s err ] || why="stderr is not empty"
        [ "$status" -eq 0 ] || why="exit status is not 0"
        verdict "nano_parallel $method $how" "$why"
    done
done

run_at "$root" "$lab" bench "$sample.mp4" --frames 4 -n 64 --ignore-eos --repeat 1 --methods sd,pearl \
    --trace "$dir/trace.json" --timeline "$dir/overlap.html"
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
for span in '"prefill","cat":"model"' '"prefill","cat":"drafter"' '"verify","cat":"model"' \
    '"draft","cat":"drafter"'; do
    for pid in 2 3; do
        grep -q "\"ph\":\"X\",\"name\":$span,\"pid\":$pid,\"tid\":[12],\"ts\":[0-9.]*,\"dur\":[0-9]" trace.json ||
            why="process $pid has no span $span"
    done
done
if command -v python3 >/dev/null; then
    python3 -m json.tool trace.json >/dev/null || why="the trace cannot be parsed"
fi
verdict nano_trace "$why"
why=
grep -q '"ph":"X","name":"vision","cat":"model","pid":1,' trace.json || why="the tower has no span"
grep -q '"kinds":\[{"name":"vision",' overlap.html || why="not in the page"
grep -qE '^<tr><td>ar</td><td>model</td><td>[0-9]*[1-9][0-9.]*|^<tr><td>ar</td><td>model</td><td>0\.[0-9]*[1-9]' overlap.html ||
    why="the page does not sum up the tower"
verdict nano_vision_span "$why"

# --- a draft model that sees by nano's tower: the ids of plain decoding, and drafts that are accepted ---

adapted="--draft-adaptor $root/models/nano-adaptor.gguf"
for how in "" "--temperature 0.8 --seed 3"; do
    run_at "$root" "$prevue" $short --method ar $how
    plain=$(all_ids)
    for method in sd specvlm parallelvlm; do
        run_at "$root" "$prevue" $short --method $method $adapted $how
        why=
        [ -n "$plain" ] && [ "$(all_ids)" = "$plain" ] || why="ids differ from those of ar: $(all_ids)"
        grep -q '"draft_video_tokens":[1-9]' out || why="the drafter sees nothing"
        [ "$status" -eq 0 ] || why="exit status is not 0"
        verdict "nano_adaptor $method $how" "$why"
    done
done
# The adaptor belongs to a draft model, so that drafts, and not nano's draft head.
run_at "$root" "$prevue" $short -n 2 $adapted
verdict nano_adaptor_means_draft_model "$(grep -q '"drafter":"model"' out || echo 'the draft model does not draft')"

# accepted_of ADAPTOR: tokens accepted per pass with it. The whole answer about all frames, since its
# beginning hardly depends on the video.
accepted_of()
{
    run_at "$root" "$prevue" describe "$sample.mp4" --frames 16 -n 120 --json --method sd --draft-adaptor "$1"
    sed -n 's/.*"accepted_per_pass":\([0-9.]*\).*/\1/p' out
}

# The same file with zeros in its second half, where the last matrix is: all rows that it makes are zeros.
adaptor=$root/models/nano-adaptor.gguf
half=$(($(wc -c <"$adaptor") / 2))
{
    head -c "$half" "$adaptor"
    tail -c "+$((half + 1))" "$adaptor" | tr '\000-\377' '\000'
} >blank-adaptor.gguf
with=$(accepted_of "$adaptor")
without=$(accepted_of "$dir/blank-adaptor.gguf")
# Measured: 4.83 and 2.50.
why=$(awk -v with="$with" -v without="$without" 'BEGIN {
    if (!(without > 0 && with > 1.3 * without))
        print "accepted per pass: " with " with the adaptor, " without " with one that sees nothing" }')
verdict nano_adaptor_accepts "$why"

# --- the default model: here, else beside the program, else where `make install` puts it ---

mkdir place own own/models
cp "$prevue" place/prevue
echo "not a model" >own/models/nano.gguf
run_at "$dir" place/prevue generate -p duck -n 3
why=$(one_sentence 'no model.*models/nano\.gguf is neither in the current directory, nor in the program.s, nor in \.\./share')
[ "$status" -eq 2 ] || why="exit status is not 2"
verdict default_model_nowhere "$why"
ln -s "$root/models" place/models
run generate -m "$root/models/nano.gguf" -p duck -n 3 --ignore-eos --json
duck=$(all_ids)
why=
grep -q '"method":"auto","drafter":"head"' out || why="the head beside it does not draft"
grep -q "\"model\":\"$root/models/nano.gguf\"" out || why="the model is not named"
grep -q '"finish_reason":"length"' out || why="the answer did not end by its length"
verdict named_model_finds_its_head "$why"
ln -s "$root/models/nano.gguf" lone.gguf
ln -s "$root/models/nano-draft.gguf" lone-draft.gguf
run generate -m lone.gguf -p duck -n 3 --ignore-eos --json
why=
grep -q '"method":"auto","drafter":"model"' out || why="the draft model beside it does not draft"
[ "$(all_ids)" = "$duck" ] || why="other ids"
verdict named_model_finds_its_drafter "$why"
run_at "$dir" "$dir/place/prevue" generate -p duck -n 3 --ignore-eos --json
why=
[ -n "$duck" ] && [ "$(all_ids)" = "$duck" ] || why="not what nano says"
[ "$status" -eq 0 ] || why="exit status is not 0"
verdict default_model_beside "$why"
run_at "$dir/own" "$dir/place/prevue" generate -p duck -n 3
why=$(one_sentence '^prevue: models/nano\.gguf: ')
[ "$status" -eq 1 ] || why="exit status is not 1"
verdict default_model_here_first "$why"
mkdir -p tree/bin tree/share/prevue
cp "$prevue" tree/bin/prevue
ln -s "$root/models" tree/share/prevue/models
run_at "$dir" "$dir/tree/bin/prevue" generate -p duck -n 3 --ignore-eos --json
why=
[ -n "$duck" ] && [ "$(all_ids)" = "$duck" ] || why="not what nano says"
[ "$status" -eq 0 ] || why="exit status is not 0"
verdict default_model_installed "$why"

# --- a clip that nano cannot know ---

. "$here/video.sh"
make_clip real.y4m 8 4 64 48
run_at "$root" "$prevue" describe "$dir/real.y4m" --frames 2 -n 2
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(wc -l <err)" -eq 1 ] || why="not one line on stderr"
grep -q "^prevue: nano\.gguf is a toy model.*hf download Qwen/Qwen3-VL-2B-Instruct" err || why="no model is named"
verdict nano_is_a_toy "$why"

# The model's own weights, heads with rows for the video and views that compare rows have no tower
# of their own: bench counts the model's once.
run bench "$sample.mp4" --frames 4 -n 6 --repeat 1 --csv towers.csv \
    -m "$root/models/nano.gguf" -d "$root/models/nano-draft.gguf" --head "$root/models/nano-head.gguf" \
    --methods msd,specvlm:self,sd-fastvid,hippo+schedule=serial,sd
why=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
    NR > 1 && $at["draft"] ~ /head|self/ && $at["draft_vision_s"] > 0 { print $at["method"], "has a tower" }
    NR > 1 && $at["draft"] ~ /gguf/ && !($at["draft_vision_s"] > 0) { print $at["method"], "has none" }' \
    towers.csv)
[ "$(wc -l <towers.csv)" -eq 7 ] || why="not six methods"
[ "$status" -eq 0 ] || why="exit status is not 0"
verdict nano_towers "$why"
