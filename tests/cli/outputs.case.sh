# What a command writes never costs what it reads, and what is wrong with it is said before the
# work; what is wrong with a video is said by every command that looks at it.
. "$here/video.sh"

make_clip film.y4m 8 4 64 48
"$make_model" --shape tiny-ov --type q8_0 model.gguf >make.log 2>&1 || cat make.log
mkdir many unwritable
cp film.y4m many/a.y4m
on="-m model.gguf --methods ngram --frames 2 -n 2 -r 1"

# --- nothing that is read is written over ---

cp film.y4m film.png
cp film.y4m film.before
cp model.gguf model.before
failure output_json_is_video 'film\.y4m: would be overwritten' bench film.y4m $on --json film.y4m
failure output_csv_is_video 'film\.y4m: would be' bench film.y4m $on --csv ./film.y4m
failure output_json_is_clip 'many/a\.y4m: would be' bench many $on --json many/a.y4m
failure output_json_is_model 'model\.gguf: would be' bench film.y4m $on --json model.gguf
failure output_csv_is_model 'model\.gguf: would be' bench film.y4m $on --csv model.gguf
failure output_twice 'same\.out: would be' bench film.y4m $on --json same.out --csv same.out
failure output_twice_trace 'same\.out: would be' bench film.y4m $on --trace same.out --json ./same.out
failure output_view_is_video 'film\.png: would be' view film.png -m model.gguf -o film.png --frames 2
ln film.y4m film.pvin
failure output_prepare_is_video 'film\.pvin: would be' prepare film.y4m -m model.gguf -o film.pvin
mkdir pictures
make_picture pictures/frame-0001.png 100 30 20
cp pictures/frame-0001.png picture.before
failure output_frames_is_picture 'frame-0001\.png: would be' frames pictures/frame-0001.png -o pictures
why=
cmp -s film.y4m film.before && cmp -s film.png film.before || why="the video was written over"
cmp -s many/a.y4m film.before || why="the clip was written over"
cmp -s model.gguf model.before || why="the model was written over"
cmp -s pictures/frame-0001.png picture.before || why="the picture was written over"
[ ! -e same.out ] || why="there is a same.out"
verdict outputs_spare_inputs "$why"

# --- a table gets rows, another file does not ---

echo 'notes of mine' >notes.txt
failure csv_of_another_kind 'notes\.txt: exists, and its first line' bench film.y4m $on --csv notes.txt
verdict csv_spares_notes "$([ "$(cat notes.txt)" = 'notes of mine' ] || echo 'they were changed')"
: >rows.csv # empty: a table yet to begin
run bench film.y4m $on --csv rows.csv
run bench film.y4m $on --csv rows.csv
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep -c '^machine,' rows.csv)" -eq 1 ] && [ "$(wc -l <rows.csv)" -eq 5 ] || why="not 1 + 4 lines"
verdict csv_goes_on "$why"
run bench nowhere.mp4 $on --csv none.csv
verdict csv_of_nothing "$([ "$status" -eq 1 ] && [ ! -e none.csv ] || echo 'an empty file was left')"

# A file system that fills up in the middle of a row (here: a limit on the size of files, in blocks of
# 512 bytes): the rows of a clip are there whole or not at all, and the next run goes on behind them.
# The limit holds for memory that is shared with the media helper, too; so the table is long.
while [ "$(wc -c <rows.csv)" -lt 40000 ]; do
    tail -n 4 rows.csv >more.csv
    cat more.csv >>rows.csv
done
rows=$(wc -l <rows.csv)
blocks=$(($(wc -c <rows.csv) / 512 + 1))
status=0 tries=0
while [ "$status" -eq 0 ] && [ $tries -lt 9 ]; do
    (
        ulimit -f $blocks
        trap '' XFSZ
        run bench film.y4m $on --csv rows.csv
        exit "$status"
    )
    status=$?
    tries=$((tries + 1))
done
ran="prevue-lab bench --csv on a full disk"
why=
grep -q 'rows\.csv: cannot be written, and is as it was: File too large' err || why="not said"
[ "$status" -eq 1 ] || why="exit status is not 1"
verdict csv_full_disk "$why"
run bench film.y4m $on --csv rows.csv
why=
[ "$(wc -l <rows.csv)" -eq $((rows + 2 * tries)) ] || why="not $((rows + 2 * tries)) lines"
[ "$(tr -dc ',\n' <rows.csv | sort -u | wc -l)" -eq 1 ] || why="rows of different lengths"
verdict csv_after_full_disk "$why"

# --- said before the work, with the name that was given ---

for option in json trace; do
    failure "early_$option" 'nodir/x: cannot be created: No such file' \
        bench film.y4m $on --$option nodir/x
done
failure early_timeline 'nodir/x\.html: cannot be' bench film.y4m $on --timeline nodir/x.html
failure early_view 'nodir/x\.png: cannot be' view film.y4m -m model.gguf -o nodir/x.png
failure early_prepare 'nodir/x\.pvin: cannot be' prepare film.y4m -m model.gguf -o nodir/x.pvin
if [ "$(id -u)" -ne 0 ]; then
    chmod 555 unwritable
    failure frames_reason 'unwritable/f: the directory cannot be created: Permission denied' \
        frames film.y4m -o unwritable/f
fi
failure frames_no_parent 'film\.y4m/f: the directory cannot be created: Not a directory' \
    frames film.y4m -o film.y4m/f
misuse ratios_unused 'is for methods whose view prunes' bench film.y4m -m model.gguf --methods ngram \
    --ratios abc

# --- damaged videos ---

cp "$root/tests/data/video/bframes.mp4" damaged.mp4
bytes 60 255 | dd of=damaged.mp4 bs=1 seek=4000 conv=notrunc 2>/dev/null
lost='^prevue(-lab)?: damaged.(mp4|pvin): [0-9]+ of 12 frames could not be decoded; '

# tells NAME ARGS...: exit 0 and one line on stderr, of the frames that were lost.
tells()
{
    name=$1
    shift
    run "$@"
    why=
    grep -qE "$lost" err || why="the lost frames are not told"
    [ "$(wc -l <err)" -eq 1 ] || why="not one line on stderr"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "$name" "$why"
}
shown="-m model.gguf -n 2"
tells lost_described describe damaged.mp4 $shown --frames 12
tells lost_compared describe damaged.mp4 $shown --frames 12 --compare ngram
tells lost_in_bench bench damaged.mp4 $shown --frames 12 --methods ngram -r 2 --json lost.json
verdict lost_in_json "$(grep -qE '"lost":[1-9]' lost.json || echo 'the JSON does not say so')"
tells lost_prepared prepare damaged.mp4 -m model.gguf --frames 12 -o damaged.pvin
tells lost_of_prepared describe damaged.pvin $shown
tells lost_of_prepared_in_bench bench damaged.pvin $shown --methods ngram -r 2

# A directory's prepared prompts count beside its videos.
mv damaged.pvin many/b.pvin
run bench many -m model.gguf --methods ngram -n 2 -r 1 --json both.json
verdict directory_of_both "$([ "$(grep -o '"video":"' both.json | wc -l)" -eq 2 ] || echo 'not two clips')"

# --- text ---

printf 'ab\377' >latin.txt
failure text_of_file 'latin\.txt: is not text in UTF-8: byte 0xff at offset 2 of 3' \
    generate -m "$golden/qwen2" -f latin.txt
failure text_of_tokenize 'latin\.txt: is not text in UTF-8: byte 0xff at offset 2' \
    tokenize -m "$golden/qwen2" -f latin.txt
misuse text_of_prompt 'option --prompt takes text in UTF-8, and byte 0xff at offset 2' \
    generate -m model.gguf --prompt "$(cat latin.txt)"
misuse text_of_ask 'option --ask takes text in UTF-8, and byte 0xff at offset 2' \
    describe film.y4m -m model.gguf --ask fine --ask "$(cat latin.txt)"

succeeds help_of_version '^usage: prevue version' version --help
# For bug reports: the lines that one asks for first, and whether the sandbox works as the program says.
run version --verbose
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ ! -s err ] || why="stderr is not empty"
for line in 'prevue [0-9.]+' 'build: [0-9a-f]{64}' 'compiler: (gcc|clang) [0-9]+' 'library: FFmpeg [0-9.]+' \
    'library: jansson [0-9.]+' 'library: PCRE2 [0-9.]+' 'library: utf8proc [0-9.]+' 'library: zlib [0-9.]+' \
    'server: libmicrohttpd [0-9.]+' 'system: [A-Z]' 'processor: .' 'threads: [1-9]' 'memory: [0-9.]+ GiB' \
    'sandbox: (not )?available' 'GPU( [0-9]+)?: .'; do
    grep -qE "^$line" out || why="there is no line '$line'"
done
cp out version.txt
verdict version_verbose "$why"
make_clip one.y4m 1 1 16 16
run frames one.y4m -o sandboxed --sandbox
why=
grep -q '^sandbox: available' version.txt && [ "$status" -ne 0 ] && why="it says available, and is not"
grep -q '^sandbox: not' version.txt && [ "$status" -eq 0 ] && why="it says not available, and is"
verdict version_sandbox "$why"
# Without the helper process there is no sandbox,
mkdir -p alone && cp "$prevue" alone/prevue
ran="a copy of prevue without prevue-media, version --verbose"
alone/prevue version --verbose >out 2>err
status=$? why=
[ -e /usr/local/libexec/prevue/prevue-media ] || grep -q '^sandbox: not available: .' out || why="it is said to be"
verdict version_without_helper "$why"
# And no video is decoded; text needs no helper.
why=
for way in '' --no-sandbox --sandbox; do
    ran="a copy of prevue without prevue-media, describe $way"
    alone/prevue describe one.y4m -m model.gguf -n 2 $way >out 2>err
    status=$?
    [ "$status" -eq 1 ] && grep -q '^prevue: one\.y4m: the program prevue-media, which decodes it, is neither' err ||
        why="$way: status $status: $(cat err)"
done
alone/prevue generate -m model.gguf -p Hello -n 2 >out 2>err || why="generate: $(cat err)"
[ -e /usr/local/libexec/prevue/prevue-media ] || verdict video_without_helper "$why"
succeeds help_of_help '^usage: prevue help' help --help
