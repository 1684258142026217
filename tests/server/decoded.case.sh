# A video is decoded once: for all answers of a request, and for all turns of a client that sends it
# again with each.

# decoded: how many files the server has decoded.
decoded()
{
    curl -s -m 10 "$url/metrics" | sed -n 's/^prevue:media_decoded_total //p'
}

# turn N: the body of turn N of a conversation about a video that comes as bytes.
turn()
{
    printf '{"max_tokens":4,"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"'
    data_url "$samples/16-frames.mp4"
    printf '","num_frames":4}},{"type":"text","text":"Describe the video."}]}'
    for k in $(seq 2 "$1"); do
        printf ',{"role":"assistant","content":"A scene."},{"role":"user","content":"And then? %d"}' "$k"
    done
    printf ']}'
}

serve --samples "$samples"
chat "{\"n\":8,\"max_tokens\":4,$(about sample-16-frames 'Describe the video.')}"
why=
[ "$(grep -o '"index"' out | wc -l)" = 8 ] || why="not eight answers"
[ "$(decoded)" = 1 ] || why="decoded $(decoded) times for eight answers"
verdict decoded_for_eight_answers "$why"
why=
for n in 1 2 3 4; do
    turn "$n" >turn.json
    fetch /v1/chat/completions -d @turn.json
    [ -n "$(text_of)" ] || why="turn $n has no answer"
done
[ "$(decoded)" = 1 ] || why="decoded $(decoded) times after four turns with the same bytes"
verdict decoded_for_four_turns "$why"
stop_server
