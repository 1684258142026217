# prevue frames: which frames are taken, the PNG files, what is refused.
. "$here/video.sh"

make_clip clip.y4m 60 10 64 48
make_picture still.ppm 100 30 20

# --- which frames ---

# takes NAME INDICES ARGS...: exactly these frames, ascending files without a gap.
takes()
{
    name=$1
    expected=$2
    shift 2
    rm -rf seen
    run frames clip.y4m -o seen --json "$@"
    why=
    [ "$(json_indices)" = "$expected" ] || why="took $(json_indices)"
    [ "$(ls seen | wc -l)" -eq "$(echo "$expected" | wc -w)" ] || why="other files: $(ls seen)"
    [ "$status" -eq 0 ] || why="exit status is not 0"
    verdict "$name" "$why"
}

takes linspace_8 "0 8 16 25 33 42 50 59" --frames 8
takes linspace_1 "0" --frames 1
takes linspace_spelled "0 19 39 59" --num-frames 4 --frame-rule linspace
takes arange_8 "0 7 15 22 30 37 45 52" --frames 8 --frame-rule arange
takes qwen_8 "0 8 17 25 34 42 51 59" --frames 8 --frame-rule qwen
takes qwen_odd "0 20 39 59" --frames 5 --frame-rule qwen
takes fps_1 "0 11 23 35 47 59" --fps 1
takes fps_bounded "0 29 59" --fps 5 --max-frames 3
takes fps_at_least "0 14 29 44 59" --video-fps 0.1 --min-frames 5
takes clipped "20 23 26 30" --start 2 --end 3 --frames 4
takes clipped_minutes "20 23 26 30" --start 0:02 --end=00:00:03.0 --frames 4
takes clipped_start "50 59" --start 5 --frames 2
verdict default_is_32 "$(run frames clip.y4m -o default --json
    [ "$(json_indices | wc -w)" -eq 32 ] || echo "took $(json_indices)")"

# --- the files ---

rm -rf seen
run frames clip.y4m -o seen --frames 3
why=
for number in 1 2 3; do
    index=$(sed -n "$((number + 1))p" out | awk '{ print $1 }')
    make_picture grey.ppm $((16 + index)) 64 48
    "$prevue" frames grey.ppm -o expected >/dev/null 2>&1 || why="the picture could not be read"
    cmp -s expected/frame-0001.png seen/frame-000$number.png || why="frame $index has other pixels"
done
[ "$(sed -n 1p out | tr -s ' ')" = " index time size file" ] || why="no head of the table"
[ "$(sed -n 3p out | tr -s ' ')" = " 29 2.900 64x48 seen/frame-0002.png" ] || why="another second row"
[ "$(wc -l <out)" -eq 4 ] || why="not four lines"
[ ! -s err ] || why="stderr is not empty"
verdict files_are_the_frames "$why"

# What is written can be read, and written again it is the same.
run frames seen/frame-0002.png -o again
why=
cmp -s seen/frame-0002.png again/frame-0001.png || why="a PNG file read and written differs"
[ "$(head -c 8 again/frame-0001.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || why="no PNG"
verdict png_again "$why"
run frames still.ppm -o still --json
why=
grep -q '"width":30,"height":20,"total_frames":1,"fps":0,' out || why="not a still of 30 x 20"
[ "$(json_indices)" = 0 ] || why="took $(json_indices)"
verdict still "$why"

run frames clip.y4m -o seen --frames 2 --json
why=
grep -q '^{"file":"clip.y4m","width":64,"height":48,"total_frames":60,"fps":10,' out || why="no head"
grep -q '"index":59,"time":5.900000,"width":64,"height":48,"file":"seen/frame-0002.png"}\]}$' out ||
    why="another last frame"
[ "$(wc -l <out)" -eq 1 ] || why="not one line"
grep -q 'seen/frame-0003.png: exists from an earlier run' err || why="the older frame is not told"
verdict json "$why"

mkdir mixed
echo precious >mixed/notes.txt
echo old >mixed/frame-0001.png
run frames clip.y4m -o mixed --frames 1
why=
[ "$(cat mixed/notes.txt)" = precious ] || why="another file was touched"
cmp -s mixed/frame-0001.png seen/frame-0001.png || why="frame-0001.png was not replaced"
[ "$(ls mixed | wc -l)" -eq 2 ] || why="files were left: $(ls mixed | tr '\n' ' ')"
verdict replaces_its_own "$why"

# --- films and pictures of all kinds, and a damaged one ---

for file in "$root"/tests/data/video/*.*; do
    name=$(basename "$file" | tr . _)
    rm -rf seen
    run frames "$file" -o seen --frames 3
    why=
    [ "$status" -eq 0 ] || why="exit status is not 0"
    [ -s seen/frame-0001.png ] || why="no frame"
    [ ! -s err ] || why="stderr is not empty"
    verdict "frames_of_$name" "$why"
done
cp "$root/tests/data/video/bframes.mp4" damaged.mp4
bytes 60 255 | dd of=damaged.mp4 bs=1 seek=4000 conv=notrunc 2>/dev/null
rm -rf seen
run frames damaged.mp4 -o seen --frames 12 --json
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -qE '"lost":[1-9]' out || why="no frame was lost"
grep -qE '^prevue: damaged.mp4: [0-9]+ of 12 frames could not be decoded; ' err || why="no warning"
[ "$(wc -l <err)" -eq 1 ] || why="not one line on stderr"
[ "$(ls seen | wc -l)" -eq 12 ] || why="not 12 files"
verdict frames_of_damaged "$why"
head -c 4000 "$root/tests/data/video/bframes.mp4" >cut.mp4
failure frames_of_cut 'cut\.mp4' frames cut.mp4 -o refused
head -c 3000 "$root/samples/16-frames.mp4" >early.mp4 # its index comes first
rm -rf seen
run frames early.mp4 -o seen --frames 2 --json
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '"cut":11,' out || why="not 11 frames cut off"
grep -q '^prevue: early\.mp4: the file ends early: 11 of its frames ' err || why="no warning"
verdict frames_of_early_end "$why"

# --- what is refused ---

: >empty.mp4
echo "just some text, longer than a header" >text.mp4
mkdir -p bare
failure frames_missing 'nowhere\.mp4' frames nowhere.mp4 -o refused
failure frames_empty 'empty\.mp4' frames empty.mp4 -o refused
failure frames_text 'text\.mp4' frames text.mp4 -o refused
failure frames_directory 'bare' frames bare -o refused
failure frames_empty_name '^prevue: ' frames '' -o refused
failure frames_device '/dev/null' frames /dev/null -o refused
failure frames_model_missing 'nowhere\.gguf' frames clip.y4m -o refused -m nowhere.gguf
failure frames_start_beyond 'clip\.y4m.*(7|6)' frames clip.y4m -o refused --start 7
failure frames_qwen_too_many 'clip\.y4m.*60' frames clip.y4m -o refused --frames 80 --frame-rule qwen
failure limit_bytes 'clip\.y4m.*1000' frames clip.y4m -o refused --max-video-bytes 1000
failure limit_pixels 'bframes\.mp4.*3000' \
    frames "$root/tests/data/video/bframes.mp4" -o refused --max-frame-pixels 3000
failure limit_seconds 'clip\.y4m.*5' frames clip.y4m -o refused --max-video-seconds 5
failure limit_frames 'clip\.y4m.*16' frames clip.y4m -o refused --frames 17 --limit-frames 16
verdict refused_leaves_nothing "$([ ! -e refused ] || echo "the directory was made")"
failure output_is_a_file 'text\.mp4.*not a directory' frames clip.y4m -o text.mp4
mkdir mixed/frame-0002.png
"$prevue" frames clip.y4m -o mixed --frames 3 >out 2>err </dev/null
status=$? why=
ran="prevue frames into a directory in the way"
[ "$status" -eq 1 ] || why="exit status is not 1"
grep -q 'mixed/frame-0002.png' err || why="no sentence"
[ "$(ls mixed | wc -l)" -eq 3 ] || why="files were left: $(ls mixed | tr '\n' ' ')"
verdict file_in_the_way "$why"

misuse frames_no_video 'no video' frames -o x
misuse frames_two_videos 'unexpected argument "b"' frames a b -o x
misuse frames_no_output 'no directory' frames a
misuse frames_and_fps '--frames and --fps' frames a -o x --frames 4 --fps 1
misuse frames_and_bound '--max-frames cannot be combined with --frames' frames a -o x --frames 4 --max-frames 8
misuse bounds_crossed '--min-frames 9 .* --max-frames 8' frames a -o x --min-frames 9 --max-frames 8
misuse pixels_crossed '--min-pixels 9 .* --max-pixels 8' frames a -o x --min-pixels 9 --max-pixels 8
misuse times_crossed '--start 60 .* --end 59.5' frames a -o x --start 1:00 --end 59.5
misuse mmproj_alone '--mmproj needs --model' frames a -o x --mmproj b
misuse threads_alone '--threads needs --model' frames a -o x -t 2
misuse frame_rule 'takes one of: auto linspace arange qwen; not "best"' frames a -o x --frame-rule best
for value in 0 -1 '' x 1.5 1048577; do
    misuse "frames_$value" 'option --frames takes a whole number from 1 to' frames a -o x --frames "$value"
done
for value in 0 -2 '' nan inf 1e9 x; do
    misuse "fps_$value" 'option --fps takes a number from' frames a -o x --fps "$value"
done
for value in -1 '' x 1:2:3:4 1:60 1:99:00 :30 1: 1:-5 1e3 0x10 1000000 +5; do
    misuse "start_$value" 'option --start takes seconds from 0 to' frames a -o x --start "$value"
done
misuse end_zero 'option --end takes' frames a -o x --end 0

# Formats that are not on the list.
printf '#define a_width 8\n#define a_height 1\nstatic char a[] = { 0x01 };\n' >a.xbm
failure frames_of_an_unlisted_format 'a.xbm: files of the format xbm are not read' \
    frames a.xbm -o unlisted
failure frames_of_a_format_that_is_not_there "no codec named 'nonesuch'" \
    frames a.xbm -o unlisted --allow-format nonesuch
succeeds frames_of_an_allowed_format 'allowed/frame-0001.png' frames a.xbm -o allowed --allow-format xbm

# In the helper process and in this one: the same files.
misuse sandbox_and_not '--sandbox and --no-sandbox' frames a -o x --sandbox --no-sandbox
run frames "$root/samples/16-frames.mp4" -o boxed --sandbox
boxed=$status
cp out boxed.out
run frames "$root/samples/16-frames.mp4" -o boxless --no-sandbox
sed 's/boxed/boxless/' boxed.out >boxed.said
why=
[ "$boxed" -eq 0 ] && [ "$status" -eq 0 ] || why="exit status is not 0"
cmp -s boxed.said out || why="stdout differs"
diff -r boxed boxless >/dev/null || why="pictures differ"
verdict frames_in_the_sandbox "$why"

# --- sound ---

# make_wav FILE SECONDS: 16 kHz, mono, 8 bits, silence but for one click.
make_wav()
{
    n=$(($2 * 16000))
    {
        printf 'RIFF%bWAVEfmt %b' "$(le32 $((36 + n)))" "$(le32 16)"
        printf '%b' "\001\000\001\000$(le32 16000)$(le32 16000)\001\000\010\000"
        printf 'data%b' "$(le32 $n)"
        bytes 100 128
        bytes 1 192
        bytes $((n - 101)) 128
    } >"$1"
}

# le32 N: four bytes, for printf's %b.
le32()
{
    printf '\\0%03o\\0%03o\\0%03o\\0%03o' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24))
}

# sample FILE N: sample N of what was written, as a number.
sample()
{
    od -An -tf4 -j $((58 + 4 * $2)) -N 4 "$1" | tr -d ' \n'
}

make_wav click.wav 2
run frames click.wav --wav heard.wav
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(tr -s ' ' <out)" = "32000 samples, 2.000 s of sound heard.wav" ] || why="says $(cat out)"
[ "$(wc -c <heard.wav)" -eq 128058 ] || why="$(wc -c <heard.wav) bytes"
[ "$(sample heard.wav 100)" = 0.5 ] && [ "$(sample heard.wav 101)" = 0 ] || why="no click at sample 100"
[ ! -s err ] || why="stderr is not empty"
verdict sound_alone "$why"
run frames click.wav --wav part.wav --start 0.005 --end 1.5 --json --sandbox
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(cat out)" = '{"file":"click.wav","sound":{"file":"part.wav","rate":16000,"samples":23920}}' ] || why="says $(cat out)"
[ "$(sample part.wav 20)" = 0.5 ] || why="no click at sample 20"
verdict sound_part "$why"
rm -rf seen
run frames clip.y4m -o seen --frames 2 --wav none.wav --json
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -q '"file":"seen/frame-0002.png"}\],"sound":null}$' out || why="says $(cat out)"
[ ! -e none.wav ] || why="a file was written"
verdict sound_none_json "$why"
run frames clip.y4m --wav none.wav
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(cat err)" = "prevue: clip.y4m: has no sound there; none.wav is not written" ] || why="says $(cat err)"
[ ! -e none.wav ] || why="a file was written"
verdict sound_none "$why"
run frames click.wav -o seen
why=
[ "$status" -eq 1 ] || why="exit status is not 1"
verdict sound_has_no_frames "$why"
cp click.wav same.wav
run frames same.wav --wav same.wav
why=
[ "$status" -eq 1 ] || why="exit status is not 1"
cmp -s click.wav same.wav || why="the file was written over"
grep -q 'same.wav: would be overwritten' err || why="says $(cat err)"
verdict sound_over_itself "$why"
failure sound_over_the_clip 'clip\.y4m: would be overwritten' frames clip.y4m -o never --frames 2 --wav clip.y4m
verdict sound_over_the_clip_first "$([ ! -e never ] || echo 'frames were written before')"
run frames click.wav --wav heard.wav --start 3
why=
[ "$status" -eq 0 ] && grep -q 'has no sound there' err || why="says $(cat err)"
verdict sound_past_the_end "$why"
run frames click.wav --wav heard.wav -m model.gguf
why=
[ "$status" -eq 2 ] && grep -q 'model without --output has no meaning' err || why="says $(cat err)"
verdict sound_by_model "$why"

# --- a directory in directories that are not there ---

run frames clip.y4m -o new/sub/dir/ --frames 2
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ -s new/sub/dir/frame-0002.png ] || why="there is no frame"
verdict frames_make_directories "$why"
: >file
failure frames_below_a_file 'file/sub: the directory cannot be created: Not a directory' frames clip.y4m -o file/sub
