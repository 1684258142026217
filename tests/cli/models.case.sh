# The commands on small models with random weights: one with a byte-level tokenizer that
# make_model writes, and the golden Hugging Face directories, which have none.

for type in f32 q8_0; do
    "$make_model" --shape micro --type $type micro-$type.gguf >make.log 2>&1 || cat make.log
done
model=micro-f32.gguf
ids="--prompt-ids 5,6,7,8,9,10,11,12,13"

# --- generate: ids, and what they may not depend on ---

for type in f32 q8_0; do
    m=micro-$type.gguf
    run generate -m $m $ids -n 24 --ignore-eos --json -t 1
    first=$(json_ids)
    why=
    [ "$(echo $first | wc -w)" -eq 24 ] || why="not 24 ids: $first"
    verdict "generate_$type" "$why"
    for other in "-t 2" "-t 5" "-b 1" "-b 4" "-c 1000" "--threads=3 --chunk=2"; do
        run generate -m $m $ids -n 24 --ignore-eos --json $other
        why=
        [ "$(json_ids)" = "$first" ] || why="ids differ from those of -t 1: $(json_ids)"
        verdict "same_ids_${type}_with_$(echo $other | tr ' ' _)" "$why"
    done
done

run generate -m $model $ids -n 24 --ignore-eos --json --temp 1 -s 11
drawn=$(json_ids)
run generate -m $model $ids -n 24 --ignore-eos --json --temp 1 -s 11 -t 2 -b 3
why=
[ -n "$drawn" ] && [ "$(json_ids)" = "$drawn" ] || why="the same seed gave other ids"
verdict seed_again "$why"
run generate -m $model $ids -n 24 --ignore-eos --json --temp 1 -s 12
why=
[ "$(json_ids)" != "$drawn" ] || why="another seed gave the same ids"
verdict other_seed "$why"
run generate -m $model $ids -n 24 --ignore-eos --json
greedy=$(json_ids)
for warp in "--top-k 1" "--top-p 0" "--min-p 1"; do
    run generate -m $model $ids -n 24 --ignore-eos --json --temp 1 -s 11 $warp
    why=
    [ "$(json_ids)" = "$greedy" ] || why="one candidate is not greedy"
    verdict "greedy_by_$(echo $warp | tr ' ' _)" "$why"
done

for kv in f16 bf16 f32; do
    succeeds "kv_type_$kv" '"ids":\[[0-9]' generate -m $model $ids -n 4 --json --kv-type $kv
done
succeeds cpumask_none '"ids":\[[0-9]' generate -m $model $ids -n 4 --json --cpumask none
succeeds cpumask_number '"ids":\[[0-9]' generate -m $model $ids -n 4 --json --cpumask 0x0
run generate -m $model $ids -n 7 --ignore-eos --json
why=
for key in text ids method video_tokens draft_video_tokens prompt_tokens tokens passes \
    accepted_per_pass tokens_per_pass mean_run acceptance seconds video vision prefill view \
    draft_prefill draft verify decode total tokens_per_second; do
    grep -q "\"$key\":" out || why="no $key"
done
grep -q '"method":"ar"' out || why="method is not ar"
grep -q '"prompt_tokens":9,"tokens":7,' out || why="counts are not 9 and 7"
[ "$(wc -l <out)" -eq 1 ] || why="not one line"
[ ! -s err ] || why="stderr is not empty"
verdict json_keys "$why"
run generate -m $model $ids -n 7 --ignore-eos --stats -t 1
why=
grep -qx "model   $model, 1 thread" err || why="model and threads are not named"
grep -q '^prompt *9 tokens' err || why="no prompt statistics"
grep -q '^answer *7 tokens' err || why="no answer statistics"
verdict stats "$why"

# --- generate: text ---

run generate -m $model -p 'Hello' -n 12
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
cp out hello.txt
verdict text "$why"
echo Hello >prompt.txt
output text_from_file hello.txt generate -m $model -f prompt.txt -n 12
"$prevue" generate -m $model -f - -n 12 <prompt.txt >out 2>err
status=$? why=
ran="prevue generate -f - <prompt.txt"
cmp -s out hello.txt || why="differs from -p"
verdict text_from_stdin "$why"
run generate -m $model --raw -p 'ab' -n 8 --ignore-eos --json
raw=$(json_ids)
run tokenize -m $model ab
run generate -m $model --prompt-ids "$(cat out)" -n 8 --ignore-eos --json
why=
[ -n "$raw" ] && [ "$(json_ids)" = "$raw" ] || why="--raw differs from the ids of tokenize"
verdict raw_is_the_ids "$why"
"$prevue" generate -m $model --prompt-ids - -n 8 --ignore-eos --json >out 2>err <<END
5 6 7
8,9 10, 11,12
13
END
status=$? why=
ran="prevue generate --prompt-ids -"
[ "$(json_ids | cut -d' ' -f 1-8)" = "$(echo $greedy | cut -d' ' -f 1-8)" ] || why="other ids"
verdict ids_from_stdin "$why"

# --- generate: refusals ---

vocab=512
failure id_outside_vocabulary "$vocab" generate -m $model --prompt-ids $vocab
failure prompt_longer_than_context '^prevue: ' generate -m $model $ids -c 8
failure memory_limit '^prevue: ' generate -m $model $ids --limit-memory 1K
failure no_tokenizer 'no tokenizer' generate -m "$golden/qwen2" -p hello
failure no_tokenizer_to_tokenize 'no tokenizer' tokenize -m "$golden/qwen2" hello

# --- golden directories: the ids that the reference framework gives ---

for model_dir in qwen2 qwen3; do
    vec=$golden/$model_dir/golden.vec
    prompt=$(awk 'want { print; exit } $1 == "prompt" { want = 1 }' "$vec")
    want=$(awk 'want { print; exit } $1 == "greedy" { want = 1 }' "$vec")
    echo $want >want.txt
    output "golden_$model_dir" want.txt generate -m "$golden/$model_dir" --kv-type f32 --ignore-eos \
        --prompt-ids "$(echo $prompt | tr ' ' ,)" -n "$(echo $want | wc -w)"
    run convert "$golden/$model_dir" $model_dir.gguf --type f32
    verdict "convert_$model_dir" "$([ "$status" -eq 0 ] || echo "exit status is not 0")"
    output "golden_${model_dir}_converted" want.txt generate -m $model_dir.gguf --kv-type f32 --ignore-eos \
        --prompt-ids "$(echo $prompt | tr ' ' ,)" -n "$(echo $want | wc -w)"
done

# --- tokenize, inspect, convert ---

succeeds inspect_hears '2 layers, hidden 32, ffn 40, 2 heads of 16; Q-Former of 2 layers, hidden 24' inspect "$golden/salmonn2_plus"

output tokenize_json_pieces /dev/stdin tokenize -m $model --json 'a' <<END
{"ids":[64],"pieces":["a"]}
END
run tokenize -m $model 'héllo'
verdict tokenize_bytes "$([ "$(wc -w <out)" -eq 6 ] || echo "not 6 ids")"
run tokenize -m $model '<|im_end|>'
verdict special_is_one "$([ "$(wc -w <out)" -eq 1 ] || echo "not 1 id")"
run tokenize -m $model --no-special '<|im_end|>'
verdict special_as_text "$([ "$(wc -w <out)" -gt 1 ] || echo "1 id")"
run tokenize -m $model ''
verdict tokenize_nothing "$([ "$status" -eq 0 ] && [ "$(wc -w <out)" -eq 0 ] || echo "not empty")"
run tokenize -m $model --pieces abc
verdict pieces "$([ "$(cut -f 2 out | tr -d '"\n')" = abc ] || echo "the pieces are not abc")"

succeeds inspect 'qwen2' inspect $model
succeeds inspect_option 'qwen2' inspect -m $model
succeeds inspect_json '^\{.*qwen2.*\}$' inspect $model --json
succeeds inspect_tensors 'blk\.1\.|layers\.1\.' inspect $model --tensors
run inspect $model -c 100
cp out c100.txt
run inspect $model -c 1000
verdict inspect_context "$(! cmp -s out c100.txt || echo "memory does not depend on -c")"
failure inspect_context_too_long '^prevue: ' inspect $model -c 16000000

for type in f32 f16 bf16 q8_0 q4_0 q4_1 q5_1; do
    run convert $model conv-$type.gguf --type $type
    why=
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "convert_to_$type" "$why"
    succeeds "converted_$type" '"ids":\[[0-9]' generate -m conv-$type.gguf $ids -n 4 --json
done
run generate -m conv-q4_0.gguf $ids -n 24 --ignore-eos --json
packed=$(json_ids)
run generate -m conv-q4_0.gguf $ids -n 24 --ignore-eos --json --no-repack
verdict no_repack_is_the_same "$([ -n "$packed" ] && [ "$(json_ids)" = "$packed" ] || echo "other ids")"
run generate -m conv-f32.gguf $ids -n 24 --ignore-eos --json
verdict converted_f32_is_the_same "$([ "$(json_ids)" = "$greedy" ] || echo "other ids")"
run convert $model conv-f16.gguf --type f16 --force
verdict convert_force "$([ "$status" -eq 0 ] || echo "exit status is not 0")"
