# prevue prepare: a question as a file, which describe and prevue-lab bench take for a video and answer alike.
. "$here/video.sh"

make_clip film.y4m 60 10 64 48
make_picture photo.ppm 100 30 20
"$make_model" --shape tiny-ov --type q8_0 model.gguf >make.log 2>&1 || cat make.log
"$make_model" --shape tiny-ov --type q4_0 other.gguf >make.log 2>&1 || cat make.log

# prepares FILE ARGS...: exit 0, nothing printed, the file and no other beside it.
prepares()
{
    file=$1
    shift
    run prepare "$@" -o $file
    why=
    [ ! -s out ] && [ ! -s err ] || why="something was printed"
    [ -s $file ] && [ "$(ls | grep -c "^$file")" -eq 1 ] || why="not one file"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "prepare_$file" "$why"
}

figures_of_prompt()
{
    grep -oE '"(video_tokens|prompt_tokens)":[0-9]+|"frames":[{]"taken":[0-9]+,"lost":[0-9]+' out
}

# same NAME FILE MODEL VIDEOS...: the ids, and the figures of the prompt, that describe gives for
# the videos.
same()
{
    name=$1
    file=$2
    model=$3
    shift 3
    prepares $file -m $model "$@"
    run describe "$@" -m $model -n 8 --ignore-eos --json
    ids=$(json_ids)
    figures=$(figures_of_prompt)
    text=$(grep -o '"text":"[^"]*"' out)
    run describe $file -m $model -n 8 --ignore-eos --json
    why=
    [ "$(echo $ids | wc -w)" -eq 8 ] || why="not 8 ids"
    [ "$(json_ids)" = "$ids" ] || why="ids are not $ids"
    [ "$(grep -o '"text":"[^"]*"' out)" = "$text" ] || why="another text"
    [ "$(figures_of_prompt)" = "$figures" ] || why="not the figures $figures"
    [ ! -s err ] || why="stderr is not empty"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "$name" "$why"
}

for family in llava_onevision qwen2_5_vl_video; do
    same prepare_video_$family a.pvin $golden/$family film.y4m --frames 4 -p 'What happens?'
    same prepare_picture_$family b.pvin $golden/$family photo.ppm --system 'Be short.'
    same prepare_several_$family c.pvin $golden/$family photo.ppm film.y4m photo.ppm --frames 3
done
cp a.pvin qwen.pvin

# --- who drafts, and many methods ---

same prepare_small d.pvin model.gguf film.y4m --frames 4
plain=$(json_ids)
run describe d.pvin -m model.gguf -d other.gguf --method specvlm -n 8 --ignore-eos --json
verdict prepare_drafted "$([ "$(json_ids)" = "$plain" ] || echo "ids differ from those of ar")"
run bench d.pvin -m model.gguf -d other.gguf --methods sd,specvlm -n 8 --ignore-eos -r 2
why=
[ "$(grep -cE '^(ar|sd|specvlm) .* yes ' out)" -eq 3 ] || why="not three methods with the same text"
grep -q '^1 clip, 4 frames each' out || why="not 4 frames"
[ "$status" -eq 0 ] || why="exit status is not 0"
verdict prepare_bench "$why"
run describe d.pvin -m model.gguf -d other.gguf --compare sd -n 8
verdict prepare_compare "$([ "$(grep -cE '^(ar|sd) .* yes ' out)" -eq 2 ] || echo "not two methods")"
mkdir clips
cp d.pvin clips/x.pvin
cp d.pvin clips/y.pvin
run bench clips -m model.gguf --methods ngram -n 4 -r 1
verdict prepare_bench_directory "$(grep -q '^2 clips, 4 frames' out || echo "not two clips")"

# --- what fails, and what makes no sense ---

failure prepare_wrong_model 'qwen.pvin: made for a model of Qwen2.5-VL.*model.gguf is one of LLaVA' \
    describe qwen.pvin -m model.gguf
failure prepare_missing '^prevue: no.pvin: No such file' describe no.pvin -m model.gguf
head -c 3000 d.pvin >cut.pvin
failure prepare_cut 'cut.pvin: has 3000 bytes and says' describe cut.pvin -m model.gguf
{ head -c 3000 d.pvin; printf x; tail -c +3002 d.pvin; } >damaged.pvin
failure prepare_damaged 'damaged.pvin: damaged: its checksum' describe damaged.pvin -m model.gguf
echo no prompt >text.pvin
failure prepare_text 'text.pvin: not a prepared prompt' describe text.pvin -m model.gguf
: >nothing.pvin
failure prepare_empty 'nothing.pvin: not a prepared prompt' describe nothing.pvin -m model.gguf
failure prepare_context 'd.pvin: .* do not fit a context of 20' describe d.pvin -m model.gguf -c 20
failure prepare_no_place 'no/such/x.pvin' prepare film.y4m -m model.gguf --frames 4 -o no/such/x.pvin
failure prepare_no_video 'absent.mp4' prepare absent.mp4 -m model.gguf -o e.pvin
verdict prepare_leaves_nothing "$([ ! -e e.pvin ] || echo "there is a file")"
run bench cut.pvin d.pvin -m model.gguf --methods ngram -n 4 -r 1
why=
grep -q '^prevue-lab: cut.pvin: has 3000 bytes' err || why="the file is not named"
grep -q '^1 clip, ' out || why="the other clip was not answered"
[ "$status" -eq 1 ] || why="exit status is not 1"
verdict prepare_bench_goes_on "$why"
echo '{"video":"d.pvin","prompt":"What?"}' >list.jsonl
failure prepare_list 'line 1: "prompt" cannot be used with a prepared prompt' \
    bench --videos list.jsonl -m model.gguf --methods ngram
misuse prepare_no_output 'ends in .pvin' prepare film.y4m -m model.gguf
misuse prepare_other_output 'ends in .pvin' prepare film.y4m -m model.gguf -o x.gguf
misuse prepare_nothing 'no video given' prepare -m model.gguf -o x.pvin
misuse prepare_twice 'prepared already' prepare d.pvin -m model.gguf -o x.pvin
misuse prepare_asked '--prompt cannot be used with a prepared prompt' describe d.pvin -m model.gguf -p What
misuse prepare_asked_more '--ask cannot be used with a prepared prompt' describe d.pvin -m model.gguf --ask What
misuse prepare_two 'cannot be combined with other videos' describe d.pvin d.pvin -m model.gguf
misuse prepare_frames 'holds its frames' describe d.pvin -m model.gguf --frames 2
misuse prepare_bench_asked '--system cannot be used with a prepared prompt' bench d.pvin -m model.gguf --system Be.
