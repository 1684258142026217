# prevue describe, on the golden models of both families: tiny, with random weights.
. "$here/video.sh"

make_clip film.y4m 60 10 64 48
make_picture photo.ppm 100 30 20
"$make_model" --shape micro --type f32 blind.gguf >make.log 2>&1 || cat make.log
ask="describe film.y4m -n 6 --ignore-eos"

# numbers KEY: all numbers of that name in the JSON object; number KEY: the first.
numbers()
{
    grep -o "\"$1\":[0-9.]*" out | cut -d: -f 2 | tr '\n' ' ' | sed 's/ $//'
}

number()
{
    numbers "$1" | cut -d' ' -f 1
}

# reused_more 0 A B: three questions, each of which reuses more, the second the whole video.
reused_more()
{
    [ $# -eq 3 ] && [ "$1" -eq 0 ] && [ "$2" -gt "$tokens" ] && [ "$3" -gt "$2" ]
}

for family in llava_onevision qwen3_vl_video qwen2_5_vl_video; do
    m=$golden/$family

    # --- the object, and what the ids may not depend on ---

    run $ask -m $m --frames 4 --json -t 1
    first=$(json_ids)
    tokens=$(number video_tokens)
    why=
    for key in text ids method video_tokens draft_video_tokens prompt_tokens reused_tokens tokens \
        passes seconds video vision prefill decode total tokens_per_second peak_bytes frames taken \
        lost videos file width height total_frames fps duration sample_fps; do
        grep -q "\"$key\":" out || why="no $key"
    done
    grep -q '"method":"ar"' out || why="method is not ar"
    [ "$(echo $first | wc -w)" -eq 6 ] || why="not 6 ids: $first"
    [ "${tokens:-0}" -gt 0 ] || why="no video tokens"
    [ "$(number prompt_tokens)" -gt "${tokens:-0}" ] || why="no text around the video"
    grep -q '"frames":{"taken":4,"lost":0,' out || why="not 4 frames"
    [ "$(wc -l <out)" -eq 1 ] || why="not one line"
    [ ! -s err ] || why="stderr is not empty"
    verdict "describe_json_$family" "$why"
    for other in "-t 2" "-t 3 -b 7" "-b 64" "-c 4000"; do
        run $ask -m $m --frames 4 --json $other
        why=
        [ -n "$first" ] && [ "$(json_ids)" = "$first" ] || why="ids differ from those of -t 1: $(json_ids)"
        verdict "describe_same_ids_${family}_with_$(echo $other | tr ' ' _)" "$why"
    done
    run $ask -m $m --frames 8 --json
    more=-gt
    [ $family != qwen3_vl_video ] || more=-ge # its frames share one area
    verdict "describe_more_frames_$family" \
        "$([ "$(number video_tokens)" $more "$tokens" ] || echo "not more tokens")"

    # --- a second question reads the video once ---

    run $ask -m $m --frames 4 --json --ask 'And then?' --ask 'Why?'
    why=
    grep -q '^{"answers":\[{"question":"Describe this video\.",' out || why="no first question"
    grep -q ',{"question":"And then?",' out || why="no second question"
    [ "$(numbers tokens)" = "6 6 6" ] || why="not three answers"
    [ "$(grep -o '"ids":\[[0-9,]*\]' out | sed -n 1p)" = "\"ids\":[$(echo $first | tr ' ' ,)]" ] ||
        why="the first answer is not that of a single question"
    reused_more $(numbers reused_tokens) || why="reused $(numbers reused_tokens)"
    case $(numbers vision) in
    *' 0.000000 0.000000') ;;
    *) why="the tower ran again: $(numbers vision)" ;;
    esac
    verdict "describe_ask_$family" "$why"
    run $ask -m $m --frames 4 --ask 'And then?' --stats
    why=
    grep -q '^video *4 frames' err || why="no statistics of the video"
    grep -q "^vision *$tokens tokens" err || why="no statistics of the tower"
    [ "$(grep -c '^answer *6 tokens' err)" -eq 2 ] || why="not two answers"
    [ "$(grep -c '^video ' err)" -eq 1 ] || why="the video was decoded twice"
    verdict "describe_stats_$family" "$why"

    # --- several, and pictures ---

    run describe film.y4m photo.ppm -m $m --frames 4 -n 4 --json
    why=
    [ "$(number video_tokens)" -gt "$tokens" ] || why="the picture has no tokens"
    grep -q '"taken":5,.*"file":"film.y4m".*"file":"photo.ppm"' out || why="not both files"
    verdict "describe_two_$family" "$why"
    run describe --image photo.ppm --video film.y4m -m $m --frames 4 -n 4 --json
    verdict "describe_options_for_files_$family" \
        "$(grep -q '"file":"photo.ppm".*"file":"film.y4m"' out || echo "not both files in order")"
    run describe photo.ppm -m $m -n 4 --json --ask x
    verdict "describe_picture_$family" \
        "$(grep -q '"question":"Describe this picture\."' out || echo "another question")"

    # --- as GGUF: the tower in the file, or beside it, or named ---

    run convert $m $family.gguf --type f16
    why=
    [ "$status" -eq 0 ] || why="exit status is not 0"
    wrote="prevue: wrote $family.gguf ([0-9.]* MiB)"
    [ ! -e mmproj-$family.gguf ] || wrote="$wrote and the vision tower mmproj-$family.gguf ([0-9.]* MiB)"
    grep -qx "$wrote" err || why="stderr does not name what was written"
    verdict "convert_$family" "$why"
    run $ask -m $family.gguf --frames 4 --json
    why=
    [ "$(number video_tokens)" = "$tokens" ] || why="not $tokens video tokens"
    [ "$(json_ids | wc -w)" -eq 6 ] || why="not 6 ids"
    verdict "describe_gguf_$family" "$why"
    ids=$(json_ids)
    run convert $m one-$family.gguf --type f16 --one-file
    [ ! -e mmproj-one-$family.gguf ] || verdict "one_file_$family" "the tower has a file of its own"
    run $ask -m one-$family.gguf --frames 4 --json
    verdict "describe_one_file_$family" "$([ "$(json_ids)" = "$ids" ] || echo "another answer")"

    # --- frames as the model sees them ---

    run frames film.y4m -m $m -o $family --frames 4 --json
    why=
    [ "$status" -eq 0 ] || why="exit status is not 0"
    [ "$(ls $family | wc -l)" -eq 4 ] || why="not 4 files"
    run frames $family/frame-0001.png -o $family-again --json
    [ "$(number width) x $(number height)" != "64 x 48" ] || why="the frames were not resized"
    verdict "frames_resized_$family" "$why"
done

[ ! -e mmproj-llava_onevision.gguf ] || verdict one_file "LLaVA-OneVision's tower has a file of its own"
mkdir other
: >other/mmproj-x.gguf
failure convert_tower_taken 'other/mmproj-x\.gguf.*--force' convert $golden/qwen2 other/x.gguf --type f16
mv mmproj-qwen2_5_vl_video.gguf tower.gguf
failure describe_without_tower 'qwen2_5_vl_video\.gguf.*no vision tower.*--mmproj' \
    describe film.y4m -m qwen2_5_vl_video.gguf
run $ask -m qwen2_5_vl_video.gguf --mmproj tower.gguf --frames 4 --json
verdict describe_mmproj "$([ "$(number video_tokens)" = "$tokens" ] || echo "not $tokens video tokens")"
run inspect qwen2_5_vl_video.gguf
cp out without.txt
run inspect qwen2_5_vl_video.gguf --mmproj tower.gguf
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep '^parameters' out)" != "$(grep '^parameters' without.txt)" ] ||
    why="as many parameters as without the tower"
verdict inspect_mmproj "$why"

# --- a film, models that make_model writes ---

for shape in tiny-ov tiny-qwen2.5-vl; do
    "$make_model" --shape $shape --type q8_0 $shape.gguf >make.log 2>&1 || cat make.log
    run describe "$root/tests/data/video/rotated.mp4" -m $shape.gguf -n 3 --ignore-eos --json
    why=
    [ "$(json_ids | wc -w)" -eq 3 ] || why="not 3 ids"
    [ "$(number lost)" = 0 ] || why="frames were lost"
    verdict "describe_film_$shape" "$why"
done

# --- text ---

m=$golden/llava_onevision
run describe film.y4m -m $m --frames 2 -n 5 --ignore-eos
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ -s out ] || why="no text"
[ -z "$(tail -c 1 out | tr -d '\n')" ] || why="no newline at the end"
[ ! -s err ] || why="stderr is not empty"
verdict describe_text "$why"
cp out text.txt
output describe_prompt text.txt describe film.y4m -m $m --frames 2 -n 5 --ignore-eos \
    -p 'Describe this video.'

# --- the progress line: on a terminal only, and gone in the end ---

if command -v script >/dev/null; then
    make_clip long.y4m 200 10 640 480
    ran="prevue describe on a terminal"
    script -qec "'$prevue' describe long.y4m -m '$m' --frames 100 -c 4000 -n 2" /dev/null \
        </dev/null >out 2>err
    status=$? why=
    tr '\r' '\n' <out | grep -qE '^decoding [0-9]+/100 frames *$|^reading [0-9]+/[0-9]+ tokens [0-9]+ %' ||
        why="no progress line"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict progress_line "$why"
else
    echo "skipped progress_line: there is no program script"
fi

# --- interrupts ---

ran="prevue describe, interrupted"
: >out
"$prevue" describe film.y4m -m tiny-ov.gguf --frames 2 -n 20000 --temp 2 --ignore-eos >out 2>err </dev/null &
pid=$!
tries=0
while [ ! -s out ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -INT $pid
wait $pid
status=$? why=
[ "$status" -eq 130 ] || why="exit status is not 130"
[ -s out ] || why="the text so far is lost"
verdict describe_interrupt "$why"

# --- what is refused ---

: >void.mp4
echo "just some text, longer than a header" >words.mp4
mkdir folder
failure describe_missing 'nowhere\.mp4' describe nowhere.mp4 -m $m
failure describe_second_missing 'nowhere\.mp4' describe film.y4m nowhere.mp4 -m $m
failure describe_empty 'void\.mp4' describe void.mp4 -m $m
failure describe_words 'words\.mp4' describe words.mp4 -m $m
misuse describe_directory "folder is not a video: for many of them there is 'prevue batch'" describe folder -m $m
failure describe_blind 'blind\.gguf.*no vision tower' describe film.y4m -m blind.gguf
failure describe_no_such_model 'nowhere\.gguf' describe film.y4m -m nowhere.gguf
failure describe_no_such_tower 'nowhere\.gguf' describe film.y4m -m $m --mmproj nowhere.gguf
failure describe_small_context 'film\.y4m.*tokens' describe film.y4m -m $m -c 8
failure describe_memory '^prevue: ' describe film.y4m -m $m --limit-memory 1K
failure describe_limit_frames 'film\.y4m.*4' describe film.y4m -m $m --frames 5 --limit-frames 4
misuse describe_no_video 'no video' describe -m $m
misuse describe_no_model 'no model.*models/nano\.gguf' describe film.y4m
misuse describe_frames_and_fps '--frames and --fps' describe a -m $m --frames 4 --fps 1
misuse describe_ask_alone 'option --ask needs a value' describe a -m $m --ask
misuse describe_time_rule 'takes one of: auto seconds whole' describe a -m $m --time-rule best
