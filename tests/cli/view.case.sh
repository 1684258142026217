# prevue-lab view: the picture, the page, what each view keeps, what is refused.
. "$here/video.sh"

make_clip views.y4m 60 10 64 48
make_picture shot.ppm 100 30 20
"$make_model" --shape tiny-ov --type f32 sees.gguf >make.log 2>&1 || cat make.log
"$make_model" --shape tiny-qwen2.5-vl --type f32 pairs.gguf >make.log 2>&1 || cat make.log
"$make_model" --shape micro --type f32 blind.gguf >make.log 2>&1 || cat make.log
film=$root/tests/data/video/bframes.mp4

# kept VIEW: the tokens of a view in the page.html, as words.
kept()
{
    sed -n "s/.*\"name\":\"$1\".*\"kept\":\[\([0-9,]*\)\].*/\1/p" page.html | tr ',' ' '
}

# row VIEW: its kept, all and ratio in the table.
row()
{
    awk -v view="$1" '$1 == view { print $2, $3, $4 }' out
}

# --- the picture: every default view, its budget, and evenly chosen frames ---

run view views.y4m -o all.png -m sees.gguf --frames 14 --ratio 0.75
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ ! -s err ] || why="stderr is not empty"
[ "$(awk 'NR > 1 && NR < 12 { printf "%s ", $1 }' out)" = \
    "random uniform frame window-back fastvid-exact dycoke-exact attention specvlm holistic alignment " ] ||
    why="other views"
for view in random uniform window-back attention specvlm holistic alignment; do
    [ "$(row $view)" = "126 504 0.7500" ] || why="$view keeps $(row $view)"
done
[ "$(row frame)" = "108 504 0.7857" ] || why="frame keeps $(row frame)"
[ "$(tail -n 1 out)" = "all.png shows 12 of 14 frames, evenly chosen" ] || why="no word of 12 frames"
verdict view_png "$why"

run frames all.png -o seen --json
why=
grep -q '"width":17[0-9][0-9],"height":[12][0-9][0-9][0-9],"total_frames":1' out ||
    why="not a picture of fourteen rows of twelve frames"
verdict view_png_can_be_read "$why"

# A view that is guided keeps more of the attention than chance, and no view more than all of it.
run view "$film" -o all.png -m sees.gguf --frames 4 --views random,attention,full --ratio 0.75
why=$(awk 'NR == 2 { r = $5 } NR == 3 { a = $5 } NR == 4 { f = $5 }
    END { if (!(r > 0 && a > r && f == "100.0%")) print "attention is " r ", " a ", " f }' out)
verdict view_attention_share "$why"
run view "$film" -o all.png -m sees.gguf --frames 4 --views random,none
why=
[ "$(awk 'NR > 1 { print $5 }' out | sort -u)" = - ] || why="attention without a view that has it"
[ "$(row none)" = "0 144 1.0000" ] || why="none keeps $(row none)"
verdict view_without_scores "$why"

# Edges: 6 rows and 4 frames a tenth of which is 1 at either end; what is known keeps what is known.
run view "$film" -o all.png -m sees.gguf --frames 4 --views window-front,full,none --ratio 0.75
why=$(awk 'NR > 1 { print $6, $7, $8, $9 }' out | tr '\n' ' ')
[ "$why" = "33.3% 33.3% 100.0% 50.0% 33.3% 33.3% 50.0% 50.0% 0.0% 33.3% 0.0% 50.0% " ] && why=
verdict view_edges "$why"
run view "$film" -o one.png -m sees.gguf --frames 4 --views holistic,alignment --layer 1 --terms time \
    --crops literal --text after
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
run view "$film" -o again.png -m sees.gguf --frames 4 --views holistic,alignment
! cmp -s one.png again.png || why="the options change nothing"
verdict view_scores "$why"

run view "$film" -o one.png -m sees.gguf --frames 4 --views random,specvlm --seed 1
run view "$film" -o again.png -m sees.gguf --frames 4 --views random,specvlm --seed 1 -t 1
why=
cmp -s one.png again.png || why="the same command draws another picture"
run view "$film" -o again.png -m sees.gguf --frames 4 --views random,specvlm --seed 2
! cmp -s one.png again.png || why="another seed draws the same picture"
verdict view_seed "$why"

# A draft model that sees changes nothing.
run view "$film" -o again.png -m sees.gguf -d sees.gguf --frames 4 --views random,specvlm -s 1
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
cmp -s one.png again.png || why="another picture"
verdict view_draft_model "$why"

# --- the page ---

run view "$film" -o page.html -m sees.gguf --frames 4 --ratio 0.75 -p 'a <b> & "c" </script>' \
    --views window-back,window-front,frame,specvlm,alignment
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(kept window-back)" = "$(seq -s ' ' 108 143)" ] || why="window-back keeps $(kept window-back)"
[ "$(kept window-front)" = "$(seq -s ' ' 0 35)" ] || why="window-front keeps $(kept window-front)"
[ "$(kept specvlm | wc -w)" -eq 36 ] || why="specvlm keeps $(kept specvlm)"
[ "$(grep -c '^<figure><div><img alt="frame [0-9]*" .*base64,iVBORw0KGgo' page.html)" -eq 4 ] ||
    why="not four frames"
[ "$(sed -n 's/^"scores":\[\([-+.e0-9,]*\)\],$/\1/p' page.html | tr ',' '\n' | wc -l)" -eq 288 ] || why="not twice 144 scores"
grep -q '"name":"window-back","ratio":0.7500,"attention":0.[0-9]*,"rows":0.33333,"frames":1.00000,' page.html ||
    why="no word of the edges"
verdict view_html "$why"
why=
! grep -qE 'https?:|//[a-z]+\.' page.html || why="the page names another place"
grep -q "default-src 'none'" page.html || why="no policy"
grep -q 'asked: a &#60;b&#62; &#38; &#34;c&#34; &#60;/script&#62;</p>' page.html || why="not escaped"
[ "$(grep -c '</script>' page.html)" -eq 2 ] || why="not two scripts"
[ "$(tail -n 1 page.html)" = '</html>' ] || why="the page has no end"
verdict view_html_stands_alone "$why"
why=
grep -q "addEventListener('load', () => show(choices\[0\]))" page.html || why="the page does not open on the frames"
grep -q "ArrowRight" page.html || why="no arrow keys"
verdict view_html_opens_on_frames "$why"

# 64 frames of noise, which compress worst, and the page is still below 3 MB.
head -c $((64 * 320 * 240 * 3 / 2)) /dev/urandom >noise.raw
{
    echo 'YUV4MPEG2 W320 H240 F8:1 Ip A1:1 C420jpeg'
    i=0
    while [ $i -lt 64 ]; do
        echo FRAME
        tail -c +$((i * 115200 + 1)) noise.raw | head -c 115200
        i=$((i + 1))
    done
} >noise.y4m
run view noise.y4m -o large.html -m sees.gguf --frames 64 --views uniform,attention
why=
[ "$(grep -c '^<figure>' large.html)" -eq 64 ] || why="not 64 frames"
[ "$(wc -c <large.html)" -lt 3000000 ] || why="it has $(wc -c <large.html) bytes"
verdict view_html_is_small "$why"

# Qwen: two frames are one unit.
run view "$film" -o page.html -m pairs.gguf --frames 8 --views uniform,attention
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
[ "$(grep -c '^<figure>' page.html)" -eq 4 ] || why="not four pairs"
grep -q '4 pairs of frames' page.html || why="pairs are not told"
verdict view_pairs "$why"

# --- what is refused ---

failure view_missing 'nowhere\.mp4' view nowhere.mp4 -o refused.png -m sees.gguf
failure view_of_picture 'shot\.ppm.* picture' view shot.ppm -o refused.png -m sees.gguf
failure view_blind 'blind\.gguf.*no vision tower' view views.y4m -o refused.png -m blind.gguf
failure view_blind_draft 'blind\.gguf.*no vision tower' \
    view views.y4m -o refused.png -m sees.gguf -d blind.gguf
failure view_model_missing 'nowhere\.gguf' view views.y4m -o refused.png -m nowhere.gguf
failure view_draft_missing 'nowhere\.gguf' view views.y4m -o refused.png -m sees.gguf -d nowhere.gguf
failure view_context 'views\.y4m.*64' view views.y4m -o refused.html -m sees.gguf --frames 4 -c 64
verdict view_refused_leaves_nothing "$(ls refused* 2>/dev/null)"
failure view_no_directory 'no/where' view views.y4m -o no/where.png -m sees.gguf --frames 2
failure view_no_directory_html 'no/where' view views.y4m -o no/where.html -m sees.gguf --frames 2
mkdir taken.png
failure view_in_the_way 'taken\.png' view views.y4m -o taken.png -m sees.gguf --frames 2
verdict view_leaves_no_parts "$(ls -d ./*.tmp* 2>/dev/null)"

misuse view_no_video 'no video' view -o a.png
misuse view_two_videos 'unexpected argument "b"' view a b -o a.png
misuse view_no_output 'no file' view a
misuse view_no_extension 'must end in .png or .html, not "pictures"' view a -o pictures
misuse view_extension 'must end in .png or .html, not "a.jpg"' view a -o a.jpg
misuse view_unknown 'unknown view "specvml" \(did you mean specvlm\?\)' view a -o a.png --views random,specvml
misuse view_empty 'unknown view "" .available: full none ' view a -o a.png --views ''
misuse view_trailing 'unknown view ""' view a -o a.png --views random,
misuse view_too_many 'at most 16 views' view a -o a.png --views "$(seq -s , 17 | sed 's/[0-9][0-9]*/full/g')"
misuse view_ratio 'option --ratio takes a number from 0 to 1' view a -o a.png --ratio 1.5
misuse view_lambda 'option --lambda takes a number' view a -o a.png --lambda 0
misuse view_terms 'option --terms takes' view a -o a.png --terms colour
misuse view_columns 'option --columns takes a whole number from 1 to 64' view a -o a.png --columns 0
