# Names of files, and words from inside them, that hold control characters: a terminal that shows a
# message of ours must not obey them.
. "$here/video.sh"

escape=$(printf '\033[2J')
"$make_model" --shape tiny-ov --type q8_0 shown.gguf >make.log 2>&1 || cat make.log

# harmless NAME STATUS: neither stdout nor stderr has a control character but line ends.
harmless()
{
    why=
    [ "$status" -eq "$2" ] || why="exit status is not $2"
    [ -s out ] || [ -s err ] || why="nothing was printed"
    cat out err | LC_ALL=C tr -d '\n' | LC_ALL=C grep -q '[[:cntrl:]]' && why="a control character"
    cat out err | LC_ALL=C grep -qF '\x1b[2J' || why="the name is not shown"
    verdict "$1" "$why"
}

# The rule by which a tokenizer splits words is text in the model file.
cp shown.gguf pre.gguf
at=$(LC_ALL=C grep -abo 'tokenizer.ggml.pre' pre.gguf | head -n 1 | cut -d: -f 1)
printf '%sx' "$escape" | dd of=pre.gguf bs=1 seek=$((at + 18 + 4 + 8)) conv=notrunc 2>/dev/null
run inspect pre.gguf
harmless hostile_split_rule 1
verdict hostile_split_rule_names_file \
    "$(grep -q '^prevue: pre\.gguf: .*split rule' err || echo 'the file is not named')"

cp shown.gguf "${escape}m.gguf"
make_clip "${escape}v.y4m" 4 4 64 48
for arguments in "inspect ${escape}m.gguf" "inspect ${escape}m.gguf --tensors" \
    "inspect ${escape}none.gguf" "inspect shown.gguf --${escape}x" "${escape}x" \
    "generate -m ${escape}none.gguf -p x" "generate -m shown.gguf -f ${escape}none.txt" \
    "describe ${escape}none.mp4 -m shown.gguf" "convert shown.gguf ${escape}m.gguf --type f16" \
    "describe ${escape}v.y4m -m shown.gguf --limit-frame-pixels 100" \
    "frames ${escape}v.y4m -o ${escape}d" "bench ${escape}none -m shown.gguf --methods ngram"; do
    run $arguments
    case $arguments in
    "inspect ${escape}m"* | frames*) expected=0 ;;
    "$escape"* | *"--$escape"*) expected=2 ;;
    *) expected=1 ;;
    esac
    harmless "hostile_name_$(echo "$arguments" | tr -dc 'a-z ' | tr ' ' _)" $expected
done

# A scale of a matrix that is not a number: no answer rather than a wrong one, and the tensor's name.
"$make_model" --shape tiny --type q8_0 spoilt.gguf >make.log 2>&1 || cat make.log
succeeds sound_weights '^architecture' inspect spoilt.gguf --check
size=$(wc -c <spoilt.gguf)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do printf '\000\176'; done |
    dd of=spoilt.gguf bs=1 seek=$((size / 4 * 2)) conv=notrunc 2>/dev/null
failure spoilt_weights 'spoilt\.gguf: row [0-9]+ of the tensor [a-z0-9_.]+ \(q8_0\) holds a NaN' \
    inspect spoilt.gguf --check
for temperature in 0 1; do
    failure "spoilt_weights_answer_$temperature" 'spoilt\.gguf: row [0-9]+ of the tensor ' \
        generate -m spoilt.gguf -p Hello -n 4 --temp $temperature
done
