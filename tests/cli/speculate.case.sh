# Speculation from the command line, on a model of random weights that drafts for itself: every
# method gives the ids of plain decoding. What each method does inside is the unit tests' business.
. "$here/video.sh"

make_clip short.y4m 8 4 64 48
"$make_model" --shape tiny-ov --type q8_0 model.gguf >make.log 2>&1 || cat make.log
# Another model of the shape, whose drafts are mostly wrong.
"$make_model" --shape tiny-ov --type q4_0 other.gguf >make.log 2>&1 || cat make.log
ask="describe short.y4m -m model.gguf --frames 4 -n 16 --ignore-eos"

# number KEY: the first number of that name in the JSON object.
number()
{
    grep -o "\"$1\":[0-9.]*" out | cut -d: -f 2 | sed -n 1p
}

run $ask --json
plain=$(json_ids)
why=
[ "$(echo $plain | wc -w)" -eq 16 ] || why="not 16 ids: $plain"
grep -q '"method":"ar","drafter":"none"' out || why="the method is not ar"
verdict speculate_plain "$why"
run $ask --json --temp 0.8 --top-p 0.9 -s 5
drawn=$(json_ids)

# same NAME ARGS...: exit 0 and the ids of plain decoding, drawn or not, where ARGS say --temp.
same()
{
    name=$1
    shift
    run $ask --json "$@"
    why=
    want=$plain
    case $* in *--temp*) want=$drawn ;; esac
    [ -n "$want" ] && [ "$(json_ids)" = "$want" ] || why="ids differ from those of ar: $(json_ids)"
    [ ! -s err ] || why="stderr is not empty"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "$name" "$why"
}

# --- presets, and what is changed of them ---

for method in ar sd sd-tree std specvlm ngram pearl hippo parallelvlm auto; do
    same "speculate_$method" -d other.gguf --method $method
    [ "$status" -ne 0 ] || grep -q "\"method\":\"$method\"" out ||
        verdict "speculate_name_$method" "the JSON does not name the method"
done
same speculate_drawn -md model.gguf --method specvlm --temp 0.8 --top-p 0.9 -s 5
same speculate_default --model-draft other.gguf
verdict speculate_default_is_auto "$(grep -q '"method":"auto"' out || echo "the method is not auto")"
same speculate_self -d self
verdict speculate_self_drafts "$(grep -q '"drafter":"self"' out || echo "the drafter is not self")"
same speculate_self_full -d self --method sd --draft-max 3
why=
[ "$(number accepted_per_pass)" = 3 ] || why="a model does not accept all of its own draft"
[ "$(number acceptance)" = 1 ] || why="acceptance is not 1"
[ "$(number draft_video_tokens)" = "$(number video_tokens)" ] || why="not all video tokens were seen"
verdict speculate_counts "$why"
same speculate_ratio -d self --method sd-tree --view uniform --ratio 0.5 --draft-pos original
why=
seen=$(number draft_video_tokens) all=$(number video_tokens)
[ "$seen" -ge $((all / 2)) ] && [ "$seen" -le $((all / 2 + 2)) ] || why="not half of the tokens were seen"
verdict speculate_ratio_counts "$why"
same speculate_dynamic -d other.gguf --method specvlm --shape dynamic --tree-total 9 --tree-depth 2 \
    --tree-width 3 --lambda 0.3
same speculate_fitted -d other.gguf --method specvlm --shape fitted
same speculate_fitted_bounds -d self --method sd --shape fitted --tree-total 9 --tree-depth 2 \
    --tree-width 3
printf '# two levels\n0\n1\n0 0\n' >tree.txt
same speculate_file -d other.gguf --method sd --shape tree.txt --view attention --ratio 0.75
same speculate_guided -d other.gguf --method specvlm --ratio 0.75
why=
seen=$(number draft_video_tokens) all=$(number video_tokens)
[ "$seen" -ge $((all / 4)) ] && [ "$seen" -le $((all / 4 + 2)) ] || why="$seen of $all tokens were seen"
verdict speculate_draft_guided_counts "$why"
same speculate_sparse --drafter sparse --keep 20 --window 4
same speculate_ngram --drafter ngram
same speculate_random --drafter random --schedule serial --accept exact

# --- the parallel schedule, and the views that go with it ---

same parallel_self -d self --schedule parallel
why=
grep -q '"schedule":"parallel"' out || why="the JSON does not name the schedule"
grep -q '"parallel":{"rounds":[1-9]' out || why="no parallel rounds"
verdict parallel_is_told "$why"
same parallel_self_full -d self --method pearl --window 3 --draft-threads 1 -t 2
verdict parallel_window "$([ "$(number window)" = 3 ] || echo "the window is $(number window)")"
same parallel_self_drawn -d self --method hippo --temp 0.8 --top-p 0.9 -s 5
same parallel_drawn -d other.gguf --method parallelvlm --temp 0.8 --top-p 0.9 -s 5 --window 4
same parallel_ngram --drafter ngram --schedule parallel --window 4
same parallel_random --drafter random --schedule parallel
same parallel_serial -d other.gguf --method pearl --schedule serial
verdict parallel_serial_is_serial "$(! grep -q parallel out || echo "there is something parallel")"
same parallel_chain_of_specvlm -d other.gguf --method specvlm --shape chain --schedule parallel
same holistic_terms -d other.gguf --method hippo --terms attention,space --layer 0.5 --crops literal
same holistic_tree -d other.gguf --method sd-tree --view holistic --terms time --ratio 0.75
same alignment_text -d other.gguf --method parallelvlm --layer 1 --text after
run $ask -d self --method pearl --stats
verdict parallel_stats "$(grep -qE '^at once +[0-9]+ rounds?: window [0-9]+, [0-9]+ of the threads draft' err ||
    echo "nothing about the schedule")"
succeeds speculate_rejection '"method":"sd"' $ask --json -d other.gguf --method sd --accept rejection \
    --temp 0.8
run $ask -d self --stats
why=
grep -q '^draft .* by self; it saw' err || why="nothing about the draft"
grep -q '^verify .*mean run .*acceptance' err || why="nothing about the verification"
verdict speculate_stats "$why"
run generate -m model.gguf -p 'a b a b a b' -n 16 --ignore-eos --json
first=$(json_ids)
for how in "-d other.gguf" "-d self" "--method ngram" "--method std"; do
    run generate -m model.gguf -p 'a b a b a b' -n 16 --ignore-eos --json $how
    why=
    [ -n "$first" ] && [ "$(json_ids)" = "$first" ] || why="ids differ from those of ar"
    verdict "speculate_generate_$(echo $how | tr ' ' _)" "$why"
done

# --- comparisons ---

run $ask -d other.gguf --compare sd-tree,ar,specvlm,specvlm:self,ngram
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep -cE '^(ar|sd-tree|specvlm|specvlm:self|ngram) .* yes ' out)" -eq 5 ] || why="not five times yes"
verdict compare "$why"
run $ask -d other.gguf --compare sd-tree,ngram --shape fitted
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep -cE '^(ar|sd-tree|ngram) .* yes ' out)" -eq 3 ] || why="not three times yes"
verdict compare_fitted "$why"
run $ask -d self --compare sd,std --json
why=
[ "$(grep -o '"identical":true' out | wc -l)" -eq 3 ] || why="not three identical methods"
grep -q '^{"text":".*","methods":\[{"method":"ar",' out || why="no text, or ar is not the first"
verdict compare_json "$why"

# --- benchmarks ---

mkdir reel
cp short.y4m reel/b.y4m
make_clip reel/a.y4m 3 2 64 48
echo "no video" >reel/notes.txt
printf '{"video": "reel/a.y4m", "prompt": "Wh\\u0079?"}\n\n{"n": [1, {"x": "]"}], "video": "short.y4m"}\n' >list.jsonl
small="-m model.gguf -n 6 --ignore-eos --repeat 2"
run bench --videos reel --methods sd,sd-rand $small -d other.gguf --ratios 0.5,0.9 --fps 2 \
    --json found.json --csv found.csv --commit abc
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ ! -s err ] || why="stderr is not empty"
[ "$(grep -c '^sd-rand .* yes ' out)" -eq 6 ] || why="not two ratios in three tables"
[ "$(grep -o '"identical":true' found.json | wc -l)" -eq 20 ] || why="not 20 identical answers in the JSON"
grep -q '"video":"reel/a.y4m","frames"' found.json || why="the JSON does not name a clip"
if command -v python3 >/dev/null; then
    python3 -m json.tool found.json >/dev/null || why="the JSON cannot be parsed"
fi
[ "$(wc -l <found.csv)" -eq 9 ] || why="not a header and 8 rows of CSV"
[ "$(awk -F, '{ print NF }' found.csv | sort -u | wc -l)" -eq 1 ] || why="rows of CSV have different lengths"
grep -q ',abc,model.gguf,other.gguf,reel/b.y4m,.*,sd-rand,0.9,6,.*,yes,' found.csv || why="a row of CSV is wrong"
[ "$(wc -L <out)" -le 100 ] || why="lines of $(wc -L <out) characters"
verdict bench "$why"
run bench --videos reel/a.y4m --methods sd $small -d other.gguf --frames 2 --repeat 1 --wide
verdict bench_wide "$(grep -qE '^method +ratio +identical +tokens +passes' out && [ "$(wc -L <out)" -gt 130 ] || echo 'not all columns')"
if command -v script >/dev/null; then
    ran="prevue-lab bench in a terminal"
    script -qec "$lab bench --videos reel --methods sd $small -d other.gguf --frames 2" /dev/null >out 2>&1 </dev/null
    status=$?
    verdict bench_progress "$(grep -q 'clip 2 of 2: sd (method 2 of 2), repeat 2 of 2' out || echo 'no progress line')"
fi
run bench list.jsonl --methods ngram $small --frames 4 --csv found.csv --json -
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '"video":"reel/a.y4m","prompt":"Why?"' out || why="no prompt from the list"
! grep -q '^method' out || why="a table besides the JSON"
[ "$(grep -c '^machine,' found.csv)" -eq 1 ] && [ "$(wc -l <found.csv)" -eq 13 ] || why="rows were not appended"
verdict bench_list "$why"
run bench --videos short.y4m --methods sd,sd-tree,std,auto $small --frames 4 -d self --repeat 1 --bits
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q 'identical: tokens and bits of logits' out || why="does not say what was compared"
[ "$(grep -c ' yes ' out)" -eq 5 ] || why="not all are identical"
verdict bench_bits "$why"
# The methods and views that only the laboratory has.
lab_methods=sd-rand,sd-uniform,sd-window,sd-frame,sd-fastvid,sd-dycoke,onsd
lab_views=$(printf ',sd-tree+view=%s+ratio=0.75' window-front window-middle fastvid-exact dycoke-exact specvlm-grid specvlm-draft)
run bench --videos short.y4m --methods $lab_methods$lab_views $small --frames 4 -d other.gguf --repeat 1 --bits
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep -c ' yes ' out)" -eq 14 ] || why="not all are identical"
verdict bench_lab_rows "$why"
run bench --videos short.y4m --methods sd,std $small --frames 4 -d self --simulate-acceptance 0.7
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep -c 'SIMULATED' out)" -eq 3 ] || why="not marked as simulated"
verdict bench_simulated "$why"

# --- traces and timelines ---

run bench --videos short.y4m --methods sd,pearl $small --frames 4 -d self --repeat 1 \
    --trace trace.json --timeline overlap.png --json found.json
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ ! -s err ] || why="stderr is not empty"
grep -qE '^parallel +rounds +window' out && grep -qE '^pearl +[1-9][0-9]* +[1-9]' out ||
    why="no table of the parallel schedule"
grep -q '"method":"pearl".*"parallel":{"rounds":[1-9].*"wait":' found.json || why="not in the JSON"
verdict bench_parallel "$why"
why=
[ "$(grep -c '"name":"process_name"' trace.json)" -eq 3 ] || why="not three processes"
grep -q '"args":{"name":"pearl, short.y4m"}' trace.json || why="a process has no name"
[ "$(grep -c '"name":"thread_name".*"name":"drafter"' trace.json)" -eq 3 ] || why="not three drafters"
grep -q '"ph":"X","name":"prefill","cat":"model","pid":3,"tid":1,"ts":[0-9.]*,"dur":[0-9]' trace.json ||
    why="pearl has no prefill"
if command -v python3 >/dev/null; then
    python3 -m json.tool trace.json >/dev/null || why="the trace cannot be parsed"
    python3 -m json.tool found.json >/dev/null || why="the JSON cannot be parsed"
fi
verdict bench_trace "$why"
run frames overlap.png -o overlap --json
verdict bench_timeline "$(grep -qE '"width":1[4-9][0-9][0-9],"height":[2-9][0-9][0-9],' out ||
    echo "not a picture of two parts")"
run bench --videos short.y4m --methods pearl $small --frames 4 -d self --repeat 1 \
    --timeline part.png --timeline-from 0.001 --timeline-seconds 0.5
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ -s part.png ] || why="no picture"
verdict bench_timeline_part "$why"
run bench --videos short.y4m --methods hippo,parallelvlm $small --frames 4 -d other.gguf --repeat 1 \
    --ratios 0.5,0.9 --timeline overlap.html
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep -c '^{"name":".*"spans":\[\[' overlap.html)" -eq 5 ] || why="not five methods"
grep -q '^{"name":"hippo 0.5",' overlap.html || why="a method has no ratio"
! grep -qE 'https?:|//[a-z]+\.' overlap.html || why="the page names another place"
[ "$(tail -n 1 overlap.html)" = '</html>' ] || why="the page has no end"
verdict bench_timeline_page "$why"
failure trace_no_directory 'no/where\.json' bench short.y4m -m model.gguf --methods ngram -n 2 \
    --frames 2 --repeat 1 --trace no/where.json

run bench --videos nowhere.y4m short.y4m --methods ngram $small --frames 4
why=
[ "$status" -eq 1 ] || why="exit status is not 1"
grep -q '^prevue-lab: nowhere.y4m: ' err || why="the clip is not named"
grep -q '^prevue-lab: 1 of 2 clips ' err || why="not said how many failed"
grep -q '^ngram .* yes ' out || why="the other clip was not run"
verdict bench_one_fails "$why"

# Variants of a method, statistics over clips, answers and their score.
printf '{"video":"short.y4m","prompt":"What?","options":["a dog","a cat"],"key":"B"}\n{"video":"short.y4m"}\n' \
    >scored.jsonl
run bench scored.jsonl --methods sd,sd+view=none+window=3 $small --frames 4 -d other.gguf --repeat 1 \
    --alone --csv variants.csv --json variants.json --answers answers.jsonl
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '^95 % intervals' out || why="no intervals"
grep -q '^less sd ' out || why="no differences"
grep -q '^accepted by tenth' out || why="nothing by place in the answer"
grep -q 'option  *ted' out || why="no score of options"
[ "$(grep -c ',sd+view=none+window=3,' variants.csv)" -eq 2 ] || why="no rows of the variant"
[ "$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "accepted_by_round") n = i }
    NR > 1 && $n ~ /^[0-9 ]+$/' variants.csv | wc -l)" -eq 4 ] || why="no accepted tokens by round"
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "peak_mib") n = i }
    NR > 1 && !($n > 0) { bad = 1 } END { exit bad }' variants.csv || why="no peak memory"
grep -q '"accuracy":{"value":' variants.json || why="JSON has no accuracy"
[ "$(grep -c '^{"video":"short.y4m",.*"ids":\[' answers.jsonl)" -eq 6 ] || why="not six answers"
[ "$(grep -c '"right":false' answers.jsonl)" -eq 3 ] || why="three answers are not scored"
grep -q 'What?.nA. a dog.nB. a cat.nAnswer with' answers.jsonl || why="the options are not asked"
verdict bench_statistics "$why"
misuse variant_value 'is .OPTION=VALUE' bench short.y4m -m model.gguf -d self --methods sd+window
misuse variant_option 'unknown option --color' bench short.y4m -m model.gguf -d self --methods sd+color=1
misuse variant_draft 'unknown option --draft' bench short.y4m -m model.gguf -d self \
    --methods sd+draft=x.gguf
misuse variant_useless 'sd-tree.window=3": --window is for chains' bench short.y4m -m model.gguf \
    -d self --methods sd-tree+window=3
misuse variant_of_ar 'method ar drafts nothing' bench short.y4m -m model.gguf -d self \
    --methods ar+window=3
misuse variant_long 'longer than 95 characters' bench short.y4m -m model.gguf -d self \
    --methods "sd$(printf '%020d' 0 | sed 's/0/+window=3/g')"

# line NAME PATTERN TEXT: the list of a good line and this one is refused.
line()
{
    printf '{"video":"short.y4m"}\n%s\n' "$3" >bad.jsonl
    failure "list_$1" "^prevue-lab: bad\.jsonl: line 2: .*$2" bench bad.jsonl -m model.gguf --methods ngram
}
line words 'it is not a JSON object' 'short.y4m'
line array 'it is not a JSON object' '["short.y4m"]'
line no_video 'it has no "video"' '{"prompt":"x"}'
line empty 'it has no "video"' '{}'
line empty_video '"video" is empty' '{"video":""}'
line number '"video" is not a string' '{"video":3}'
line twice '"video" is there twice' '{"video":"a","video":"b"}'
line open 'the object is not closed' '{"video":"a"'
line more 'something follows' '{"video":"a"} x'
line colon 'no colon' '{"video" "a"}'
line name "name is missing" '{video:"a"}'
line escape 'an escape' '{"video":"\x"}'
line hex 'four hexadecimal digits' '{"video":"\u12"}'
line half 'half a character' '{"video":"\ud800x"}'
line end 'has no end' '{"video":"a'
line cut 'an escape' '{"video":"a\'
line brackets 'do not match' '{"x":[1,2},"video":"a"}'
line unclosed 'not closed' '{"x":[1,2,"video":"a"'
line deep 'too deeply' "{\"x\":$(printf '%0100d' 0 | tr 0 '[')"
line value 'a value is missing' '{"x":,"video":"a"}'
line options 'not an array of strings' '{"video":"a","prompt":"x","options":[1]}'
line options_alone 'has "options" and no "prompt"' '{"video":"a","options":["x"]}'
line key 'neither the letter nor the number' '{"video":"a","prompt":"x","options":["x"],"key":"B"}'
printf '\n \n' >void.jsonl
failure list_void 'void\.jsonl: there is no clip' bench void.jsonl -m model.gguf --methods ngram
failure list_missing 'nowhere\.jsonl' bench nowhere.jsonl -m model.gguf --methods ngram
mkdir -p bare
failure bench_bare 'bare: there is no video' bench bare -m model.gguf --methods ngram
failure bench_csv 'bare: cannot be opened' bench short.y4m -m model.gguf --methods ngram --csv bare
failure draft_missing 'nowhere\.gguf' $ask -d nowhere.gguf

# --- what makes no sense ---

printf 'the cat saw the dog, the dog saw the cat\n' >some.txt
same draft_vocab -d other.gguf --method sd --draft-vocab 100
same draft_vocab_text -d other.gguf --draft-vocab 64 --draft-text some.txt
same draft_vocab_drawn -d model.gguf --method sd --draft-vocab 100 --temp 0.8 --top-p 0.9 -s 5
misuse draft_vocab_zero 'option --draft-vocab takes' $ask -d self --draft-vocab 0
misuse draft_vocab_self 'is for methods with a draft model or head' $ask -d self --draft-vocab 9
misuse draft_text_alone 'must say how many' $ask -d other.gguf --draft-text some.txt
failure draft_vocab_large 'other.gguf: a draft vocabulary of 4096 of 512 tokens' $ask -d other.gguf --draft-vocab 4096
failure draft_text_missing 'nowhere.txt: ' $ask -d other.gguf --draft-vocab 9 --draft-text nowhere.txt
printf 'broken \377\n' >broken.txt
failure draft_text_broken 'broken.txt: ' $ask -d other.gguf --draft-vocab 9 --draft-text broken.txt
misuse draft_vision_word 'option --draft-vision takes one of: auto own shared' $ask -d other.gguf --draft-vision theirs
misuse draft_vision_self 'cannot be combined with --draft self' $ask -d self --draft-vision shared
misuse draft_vision_ngram 'is for the drafter model: it cannot be used with method ngram and drafter ngram' $ask --method ngram --draft-vision shared
misuse draft_adaptor_own 'contradict each other' $ask -d other.gguf --draft-vision own --draft-adaptor some.txt
failure draft_adaptor_missing 'nowhere.gguf: ' $ask -d other.gguf --method sd --draft-adaptor nowhere.gguf
failure draft_adaptor_model 'model.gguf: not a vision adaptor' $ask -d other.gguf --method sd --draft-adaptor model.gguf
failure draft_adaptor_none 'other.gguf is to see by .*model.gguf.*needs a vision adaptor' $ask -d other.gguf --method sd --draft-vision shared
misuse method_name 'takes one of: ar sd sd-tree .*not "spec"' $ask --method spec
misuse view_name 'takes one of: full none .*not "all"' $ask -d self --view all
misuse view_moved "option --view: dycoke has moved to 'prevue-lab bench'" $ask -d self --view dycoke
misuse method_moved "option --method: sd-window has moved to 'prevue-lab bench'" $ask -d self --method sd-window
misuse drafter_moved "option --drafter: cascade has moved to 'prevue-lab bench'" $ask -d self --drafter cascade
misuse compare_moved "onsd has moved to 'prevue-lab bench'" $ask -d self --compare sd,onsd
misuse view_cut 'takes one of: full none .*not "window"' $ask -d self --view window
misuse ratio_two 'option --ratio takes a number from 0 to 1' $ask -d self --ratio 2
misuse lambda_zero 'option --lambda takes' $ask -d self --lambda 0
misuse window_zero 'option --window takes' $ask -d self --window 0
misuse parallel_tree 'parallel schedule works with chains only; shape is tree' $ask -d self --shape tree --schedule parallel
misuse parallel_specvlm 'works with chains only; shape is tree' $ask -d self --method specvlm --schedule parallel
misuse parallel_draft_guided 'specvlm-draft works with the serial schedule only' bench short.y4m \
    -m model.gguf -d self --methods pearl+view=specvlm-draft
misuse ngram_draft_guided '(--view is for|specvlm-draft is chosen by)' bench short.y4m -m model.gguf \
    --methods ngram+view=specvlm-draft
misuse pearl_tree 'works with chains only; shape is tree' $ask -d self --method pearl --shape tree
misuse parallel_sparse 'std: the parallel schedule does not work with drafter sparse' $ask --method std \
    --schedule parallel
misuse pearl_sparse 'pearl: the parallel schedule does not work with drafter sparse' $ask --method pearl --drafter sparse
misuse parallel_ar '--schedule is for methods that draft' $ask --schedule parallel
misuse parallel_rejection 'rejection needs probabilities.*parallel' $ask -d self --method pearl \
    --accept rejection
misuse pearl_no_draft 'pearl needs a draft model' $ask --method pearl
misuse draft_threads_of_sd '--draft-threads is for the parallel' $ask -d self --method sd --draft-threads 1
misuse draft_threads_zero 'option --draft-threads takes' $ask -d self --method pearl --draft-threads 0
misuse schedule_name 'option --schedule takes one of: serial parallel' $ask -d self --schedule both
misuse layer_of_specvlm '--layer is for the views holistic and alignment' $ask -d self --layer 2
misuse layer_half 'option --layer takes a whole number of layers or a share below 1, not 2.5' \
    $ask -d self --method hippo --layer 2.5
misuse terms_of_alignment '--terms is for view holistic' $ask -d self --method parallelvlm --terms time
misuse terms_word 'option --terms takes some of .*not "time,colour"' $ask -d self --method hippo \
    --terms time,colour
misuse terms_twice 'option --terms takes' $ask -d self --method hippo --terms time,time
misuse crops_of_specvlm '--crops is for view holistic' $ask -d self --crops literal
misuse text_of_hippo '--text is for view alignment' $ask -d self --method hippo --text after
misuse timeline_name 'must end in .png or .html, not "a.gif"' bench short.y4m --timeline a.gif
misuse timeline_part 'are for a picture' bench short.y4m --timeline a.html --timeline-seconds 2
misuse timeline_seconds 'option --timeline-seconds takes' bench short.y4m --timeline a.png \
    --timeline-seconds 0
misuse fitted_ngram 'shape fitted needs .*\(model, self or head\); drafter is ngram' $ask --method ngram \
    --shape fitted
misuse fitted_sparse 'shape fitted needs .*\(model, self or head\); drafter is sparse' $ask --method std \
    --shape fitted
misuse fitted_parallel 'works with chains only; shape is fitted' $ask -d self --method pearl \
    --shape fitted
misuse fitted_rejection 'shape fitted goes with exact acceptance only' $ask -d self --shape fitted \
    --accept rejection
misuse shape_name 'chain, tree, dynamic, fitted or a file, .*"bush"' $ask -d self --shape bush
misuse no_draft 'specvlm needs a draft model' $ask --method specvlm
misuse drafter_model 'needs a draft model' $ask --drafter model
misuse draft_number '--draft names a model.*--window' $ask --draft 5
misuse draft_twice 'contradict' $ask -d self --drafter model
misuse ratio_of_ar '--ratio is for' $ask --ratio 0.5
misuse ratio_of_sd '--ratio is for' $ask -d self --method sd --ratio 0.5
misuse lambda_of_uniform '--lambda is for view specvlm' $ask -d self --view uniform --lambda 0.5
misuse window_of_tree '--window is for chains' $ask -d self --shape tree --window 3
misuse total_of_chain '--tree-total is for trees that grow' $ask -d self --tree-total 9
misuse keep_of_ar '--keep is for the drafter sparse' $ask --keep 5
misuse rejection_of_ngram 'rejection needs probabilities' $ask --method ngram --accept rejection
misuse compare_name "unknown method 'x' .available: ar sd" $ask -d self --compare sd,x
misuse compare_empty "unknown method ''" $ask -d self --compare sd,
misuse compare_suffix 'only "self"' $ask -d self --compare sd:me
misuse compare_self 'no draft model that' $ask --compare ngram:self
misuse compare_no_draft 'needs a draft model' $ask --compare sd
misuse compare_method '--method is for one' $ask -d self --compare sd --method sd
misuse compare_ask '--ask cannot be combined with --compare' $ask -d self --compare sd --ask why
misuse bench_no_video 'no video' bench -m model.gguf --methods sd
misuse bench_ratios 'option --ratios takes numbers' bench short.y4m -m model.gguf -d self \
    --methods sd-rand --ratios 0.5,x
misuse bench_repeat 'option --repeat takes' bench short.y4m --repeat 0
succeeds help_bench '^usage: prevue-lab bench' help bench
verdict help_width_of_bench "$(awk 'length > 80 { print "line " NR " is wider than 80" }' out)"
succeeds help_methods 'One of: ar sd' help describe
