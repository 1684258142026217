# The cache on disk (--cache-dir, --cache-kv, --cache-size): another process answers alike and does
# less, damage is one line on stderr, and misuse is told.
. "$here/video.sh"

make_clip cached.y4m 60 10 64 48
question="describe cached.y4m -n 6 --ignore-eos --json --frames 12"

# seconds_of NAME: the seconds of that part in the JSON object; number_of KEY.
seconds_of()
{
    grep -o "\"$1\":[0-9.]*" out | head -n 1 | cut -d: -f 2
}

number_of()
{
    grep -o "\"$1\":[0-9]*" out | head -n 1 | cut -d: -f 2
}

for family in llava_onevision qwen2_5_vl_video; do
    m=$golden/$family
    [ $family = qwen2_5_vl_video ] || m="$m --frames 40"
    rm -rf kept
    run $question -m $m
    plain=$(json_ids)
    run $question -m $m --cache-dir kept
    why=
    [ -n "$plain" ] && [ "$(json_ids)" = "$plain" ] || why="other ids with an empty cache: $(json_ids)"
    verdict "cache_empty_$family" "$why"
    run $question -m $m --cache-dir kept
    why=
    [ "$(json_ids)" = "$plain" ] || why="other ids: $(json_ids)"
    [ "$(seconds_of vision)" = 0.000000 ] || why="the tower ran: $(seconds_of vision)"
    [ "$(number_of reused_tokens)" = 0 ] || why="KV pages without --cache-kv"
    [ ! -s err ] || why="stderr is not empty"
    verdict "cache_full_$family" "$why"
    run $question -m $m --cache-dir kept --cache-kv
    run $question -m $m --cache-dir kept --cache-kv
    why=
    [ "$(json_ids)" = "$plain" ] || why="other ids: $(json_ids)"
    [ "$(number_of reused_tokens)" -ge "$(number_of video_tokens)" ] || why="the video was prefilled"
    verdict "cache_kv_$family" "$why"

    # Video tokens of a quantised tower are others.
    run $question -m $m --cache-dir kept --tower-type q8_0
    why=
    [ "$status" -eq 0 ] && [ "$(seconds_of vision)" != 0.000000 ] || why="the tower did not run"
    verdict "cache_tower_type_$family" "$why"
    run $question -m $m --cache-dir kept --tower-type q8_0
    why=
    [ "$(seconds_of vision)" = 0.000000 ] || why="the tower ran: $(seconds_of vision)"
    verdict "cache_tower_type_full_$family" "$why"

    # One damaged page: one line, and the same answer; then it is whole again.
    page=$(ls kept/page-*.pvc | head -n 1)
    printf x | dd of="$page" bs=1 seek=200 conv=notrunc 2>/dev/null
    run $question -m $m --cache-dir kept --cache-kv
    why=
    [ "$status" -eq 0 ] && [ "$(json_ids)" = "$plain" ] || why="other ids: $(json_ids)"
    [ "$(wc -l <err)" -eq 1 ] && grep -q "^prevue: $page: .*checksum" err || why="not one line on stderr"
    verdict "cache_damaged_$family" "$why"
    run $question -m $m --cache-dir kept --cache-kv
    why=
    [ "$(json_ids)" = "$plain" ] || why="other ids: $(json_ids)"
    [ "$(number_of reused_tokens)" -ge "$(number_of video_tokens)" ] || why="the page was not replaced"
    [ ! -s err ] || why="stderr is not empty"
    verdict "cache_repaired_$family" "$why"
done

# A small directory stays small, and files of others stay.
rm -rf kept
mkdir kept
echo mine >kept/notes.txt
run $question -m $golden/llava_onevision --cache-dir kept --cache-kv --cache-size 60K
why=
[ "$(json_ids)" ] || why="no answer"
[ "$(cat kept/*.pvc | wc -c)" -le 61440 ] || why="more than 60K"
[ -f kept/notes.txt ] || why="another file was removed"
verdict cache_size "$why"

# Prompts of text have pages, too.
"$make_model" --shape micro --type f32 text.gguf >make.log 2>&1 || cat make.log
words="generate -m text.gguf -n 6 --ignore-eos --json --prompt-ids $(seq -s , 1 400)"
run $words
plain=$(json_ids)
run $words --cache-dir text --cache-kv
run $words --cache-dir text --cache-kv
why=
[ -n "$plain" ] && [ "$(json_ids)" = "$plain" ] || why="other ids: $(json_ids)"
[ "$(number_of reused_tokens)" = 256 ] || why="not one page of 256 tokens was read"
verdict cache_generate "$why"

run bench cached.y4m -m $golden/llava_onevision --frames 8 --methods ngram -n 6 --bits -r 1 \
    --cache-dir kept --cache-kv
verdict cache_bench "$([ "$status" -eq 0 ] || echo "exit status is not 0")"

echo file >file
failure cache_dir_is_a_file 'file: .*not a directory' $question -m $golden/llava_onevision --cache-dir file
failure cache_dir_below_a_file 'file/x: .*cannot be created' \
    $question -m $golden/llava_onevision --cache-dir file/x
misuse cache_kv_alone 'cache-kv needs --cache-dir' $question -m $golden/llava_onevision --cache-kv
misuse cache_size_alone 'cache-size needs --cache-dir' \
    $question -m $golden/llava_onevision --cache-size 1G
misuse cache_size_of_nothing 'cache-size.*"much"' \
    $question -m $golden/llava_onevision --cache-dir kept --cache-size much
