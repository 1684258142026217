# Draft heads from the command line: the ids of plain decoding, whatever head drafts; heads
# converted; and what is said when a head does not belong.
head_ask="generate -m $golden/qwen2 --prompt-ids 12,40,7,99,3,150,8,201 -n 24 --ignore-eos --json"

run $head_ask
head_plain=$(json_ids)
verdict head_plain "$([ "$(echo $head_plain | wc -w)" -eq 24 ] || echo "not 24 ids: $head_plain")"
run $head_ask --temp 0.8 --top-p 0.9 -s 5
head_drawn=$(json_ids)

# same_head NAME DRAFTER ARGS...: exit 0, the ids of plain decoding, and who drafted.
same_head()
{
    name=$1
    drafter=$2
    shift 2
    run $head_ask "$@"
    why=
    want=$head_plain
    case $* in *--temp*) want=$head_drawn ;; esac
    [ -n "$want" ] && [ "$(json_ids)" = "$want" ] || why="ids differ from those of ar: $(json_ids)"
    grep -q "\"drafter\":\"$drafter\"" out || why="the drafter is not $drafter"
    grep -q '"draft_rows":[1-9]' out || why="no rows were drafted"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "$name" "$why"
}

same_head head_sparrow head --head "$golden/head_eagle" --method sparrow
same_head head_msd head --head "$golden/head_msd" --method msd
same_head head_drawn head --head "$golden/head_msd" --method sparrow --temp 0.8 --top-p 0.9 -s 5
same_head head_chain head --head "$golden/head_msd" --drafter head --shape chain --window 3
same_head head_static head --head "$golden/head_msd" --method sparrow --shape tree
same_head head_dynamic head --head "$golden/head_msd" --method sparrow --tree-total 12 \
    --tree-depth 2
same_head head_fitted head --head "$golden/head_msd" --drafter head --shape fitted --tree-total 16
same_head head_fitted_drawn head --head "$golden/head_msd" --method msd --shape fitted --temp 0.8 \
    --top-p 0.9 -s 5
same_head head_default_is_auto head --head "$golden/head_msd"
verdict head_default_method "$(grep -q '"method":"auto"' out || echo "the method is not auto")"

run $head_ask --head "$golden/head_msd" --method sparrow --shape chain --schedule parallel
verdict head_parallel "$([ "$(json_ids)" = "$head_plain" ] || echo "ids differ: $(json_ids)")"

# --- converting ---

run convert "$golden/head_msd" head.gguf --type q8_0
verdict head_convert "$([ "$status" -eq 0 ] && [ -s head.gguf ] || echo "no head was written")"
verdict head_convert_whole "$(grep -q 'not converted' err && echo "parts of a whole head are missed")"
same_head head_converted head --head head.gguf --method sparrow

# A head of ViSpec: one tensor more at the end of the file, of its adaptor.
mkdir -p vispec/head_msd
cp "$golden/head_msd/config.json" vispec/head_msd
perl -e 'binmode STDIN; binmode STDOUT; local $/; my $f = <STDIN>; my $n = unpack "Q<", $f;
    my ($h, $d) = (substr($f, 8, $n), substr $f, 8 + $n); my $at = length $d;
    $h =~ s/\s*$//; $h =~ s/\}$//;
    $h .= sprintf q(,"img_fc.weight":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}}), $at, $at + 4;
    print pack("Q<", length $h), $h, $d, pack "f<", 1' \
    <"$golden/head_msd/model.safetensors" >vispec/head_msd/model.safetensors
run convert vispec/head_msd vispec.gguf --type q8_0
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '^prevue: vispec/head_msd: not converted: the adaptor of ViSpec (1 tensors' err ||
    why="the adaptor is dropped silently"
cmp -s head.gguf vispec.gguf || why="the rest of the head is another one"
verdict head_convert_vispec "$why"
failure head_is_no_model 'head\.gguf: only a draft head' inspect head.gguf
failure head_of_another 'hidden size of 64, and that of .* do not belong together' \
    generate -m "$root/models/nano.gguf" -p x --head head.gguf --method sparrow
failure head_that_is_none 'qwen3: not a draft head' generate -m "$golden/qwen2" --prompt-ids 1,2 \
    --head "$golden/qwen3" --method sparrow

# --- misuse ---

misuse head_rejection 'shape fitted goes with exact acceptance only' $head_ask \
    --head "$golden/head_msd" --method sparrow --accept rejection
misuse head_missing 'needs a draft head: give one with --head' generate -m "$golden/qwen2" \
    --prompt-ids 1,2 --method sparrow
misuse head_useless '--head is for the drafter head' generate -m "$golden/qwen2" --prompt-ids 1,2 \
    --head head.gguf --method ngram
misuse head_at_once 'parallel schedule works with chains only; shape is fitted' generate -m "$golden/qwen2" \
    --prompt-ids 1,2 --head head.gguf --method sparrow --schedule parallel
