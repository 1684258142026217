# Lossy pruning of the model itself: its answers say so wherever they appear, and nobody gets one
# without asking for it.
. "$here/video.sh"

make_clip lossy.y4m 8 4 64 48
"$make_model" --shape tiny-ov --type q8_0 lossy.gguf >make.log 2>&1 || cat make.log
lossy_ask="describe lossy.y4m -m lossy.gguf --frames 4 -n 12 --ignore-eos --temp 1 -s 3"

run $lossy_ask --json
lossy_plain=$(json_ids)
verdict lossy_never_unasked "$(grep -q '"lossy"' out && echo "a plain answer is called lossy")"

for pruning in fastv:0.5 sparsevlm:0.8 pyramiddrop:0.7 dycoke:0.9; do
    run $lossy_ask --json --stats --lossy $pruning
    why=
    grep -q "\"method\":\"ar\".*\"lossy\":\"$pruning\"" out || why="the JSON does not say lossy"
    grep -q '"video_kept":0\.[1-9]' out || why="the JSON does not say how much was kept"
    grep -q "^prevue: warning: lossy ($pruning)" err || why="stderr does not warn"
    grep -q "^LOSSY   $pruning" err || why="the statistics do not say lossy"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "lossy_$pruning" "$why"
done
run $lossy_ask --json --lossy fastv:0
verdict lossy_of_nothing "$([ "$(json_ids)" = "$lossy_plain" ] || echo "other ids, though nothing is pruned")"

run bench lossy.y4m -m lossy.gguf --frames 4 -n 12 --ignore-eos --repeat 1 \
    --methods ngram,ar+lossy=fastv:0.5,ar+lossy=dycoke:0.9 --csv lossy.csv --json lossy.json \
    --answers lossy.jsonl --trace lossy-trace.json
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '^ar+lossy=fastv:0.5 .* LOSSY ' out || why="the table does not say lossy"
grep -q '^lossy  *agreement  *same text' out || why="no table of agreement"
[ "$(sed -n 1p lossy.csv | grep -c ',lossy,agreement,video_kept$')" -eq 1 ] || why="no column of agreement"
[ "$(grep -c ',fastv:0.5,[01]\.[0-9]*,0\.83[0-9]*$' lossy.csv)" -eq 1 ] || why="no lossy row in the CSV"
[ "$(grep -c ',,,$' lossy.csv)" -eq 2 ] || why="lossless rows have a figure of agreement"
grep -q '"lossy":"dycoke:0.9".*"agreement":[01]' lossy.json || why="no agreement in the JSON"
grep -q '"method":"ar+lossy=fastv:0.5"' lossy.jsonl || why="the answers do not name the method"
[ "$(grep -c 'warning: lossy' err)" -eq 2 ] || why="not two warnings"
verdict lossy_bench "$why"
why=
for pid in 1 2 3 4; do
    grep -q "\"ph\":\"X\",\"name\":\"vision\",\"cat\":\"model\",\"pid\":$pid," lossy-trace.json ||
        why="process $pid has no span of the tower"
done
verdict lossy_trace "$why"

printf '{"video":"lossy.y4m"}\n' >lossy_list.jsonl
run batch lossy_list.jsonl -o lossy_out.jsonl -m lossy.gguf --frames 4 -n 4 --lossy fastv:0.5
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '"lossy":"fastv:0.5"' lossy_out.jsonl || why="the result does not say lossy"
run batch lossy_list.jsonl -o lossy_out.jsonl -m lossy.gguf --frames 4 -n 4
[ "$status" -eq 1 ] || why="lossless results are added to lossy ones"
verdict lossy_batch "$why"

misuse lossy_name "option --lossy: unknown lossy method 'slow:0.5' .*fastv, sparsevlm, pyramiddrop, dycoke" \
    $lossy_ask --lossy slow:0.5
misuse lossy_ratio 'expected fastv:RATIO.*0 to 0.99' $lossy_ask --lossy fastv:1
misuse lossy_drafting 'is for plain decoding .method ar.; method sd drafts' $lossy_ask \
    --lossy fastv:0.5 -d self --method sd
misuse lossy_with_draft 'is for plain decoding' $lossy_ask --lossy fastv:0.5 -d self
misuse lossy_variant_of_sd 'is for plain decoding' bench lossy.y4m -m lossy.gguf -d self \
    --methods sd+lossy=fastv:0.5
misuse lossy_in_a_list 'ar.lossy=fastv:0.5 is one' bench lossy.y4m -m lossy.gguf --lossy fastv:0.5
misuse lossy_server '--lossy is not for a server' serve -m lossy.gguf --lossy fastv:0.5

# An 8-bit KV cache: labelled everywhere, with any method, and drafting still changes nothing.
lossy_fp8_memory() { sed -n 's/.*"peak_bytes":\([0-9]*\).*/\1/p' out; }
run $lossy_ask --json --kv-type bf16 -c 16384
lossy_bf16_bytes=$(lossy_fp8_memory)
run $lossy_ask --json --stats --lossy kv-fp8 -c 16384
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '"method":"ar".*"lossy":"kv-fp8"' out || why="the JSON does not say lossy"
grep -q '"video_kept"' out && why="the JSON has a share of the video, of which all is there"
grep -q '^prevue: warning: lossy (kv-fp8): the KV cache' err || why="stderr does not warn"
grep -q '^LOSSY   kv-fp8: keys and values' err || why="the statistics do not say lossy"
[ "$(lossy_fp8_memory)" -lt "$lossy_bf16_bytes" ] || why="it needs no less memory than bf16"
verdict lossy_fp8 "$why"
lossy_fp8_ids=$(json_ids)
run $lossy_ask --json --lossy kv-fp8 -d self --method sd
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(json_ids)" = "$lossy_fp8_ids" ] || why="drafting changes the answer"
grep -q '"method":"sd".*"lossy":"kv-fp8"' out || why="the JSON does not say lossy"
verdict lossy_fp8_drafting "$why"

run bench lossy.y4m -m lossy.gguf -d self --frames 4 -n 12 --ignore-eos --repeat 1 --bits \
    --methods ngram,sd,specvlm --lossy kv-fp8 --csv lossy-fp8.csv
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep -c ' yes LOSSY' out)" -eq 4 ] || why="not four rows that are identical and lossy"
[ "$(grep -c ',yes LOSSY,.*,kv-fp8,,$' lossy-fp8.csv)" -eq 4 ] || why="not four rows of CSV"
[ "$(grep -c 'warning: lossy' err)" -eq 1 ] || why="not one warning"
verdict lossy_fp8_bench "$why"

run batch lossy_list.jsonl -o lossy_fp8.jsonl -m lossy.gguf --frames 4 -n 4 --lossy kv-fp8
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '"lossy":"kv-fp8"' lossy_fp8.jsonl || why="the result does not say lossy"
verdict lossy_fp8_batch "$why"

misuse lossy_fp8_twice 'both choose the type of the KV cache: give one' $lossy_ask --lossy kv-fp8 \
    --kv-type f16
misuse lossy_fp8_ratio 'unknown lossy method' $lossy_ask --lossy kv-fp8:0.5
misuse lossy_fp8_is_no_plain_type 'takes one of: auto f16 bf16 f32' $lossy_ask --kv-type fp8
misuse lossy_fp8_variant 'methods of a list share one KV cache' bench lossy.y4m -m lossy.gguf \
    --methods ar+lossy=kv-fp8
misuse lossy_fp8_and_pruning 'methods of a list share one KV cache' bench lossy.y4m -m lossy.gguf \
    --lossy kv-fp8 --methods ar+lossy=fastv:0.5
misuse lossy_fp8_server '--lossy is not for a server' serve -m lossy.gguf --lossy kv-fp8
