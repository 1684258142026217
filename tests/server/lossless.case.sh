# Lossless over HTTP: the same text and ids alone, among 16, streaming or not, speculating or not,
# before and after a restart.

# ids_alone FILE: the ids that this request gives.
ids_alone()
{
    curl -s -m 60 -d "@$1" "$url/v1/chat/completions" >out
    ids_of out
}

printf '{%s}' "$(about sample-16-frames 'Describe the video.')" >video.json
printf '{"stream":true,%s}' "$(about sample-16-frames 'Describe the video.')" >video_stream.json
printf '{"prevue":{"method":"ar"},%s}' "$(about sample-16-frames 'Describe the video.')" >video_ar.json
printf '{"stream":true,"prevue":{"method":"specvlm"},%s}' "$(about sample-16-frames 'Describe the video.')" >video_specvlm.json
for i in $(seq 12); do
    printf '{"stream":%s,"max_tokens":24,"temperature":%d,"seed":%d,"messages":[{"role":"user","content":"Tell me about scene %d."}]}' \
        "$([ $((i % 2)) -eq 0 ] && echo true || echo false)" $((i % 3)) "$i" "$i" >"text$i.json"
done
requests="video video_stream video_ar video_specvlm $(seq -f text%g 12 | tr '\n' ' ')"

serve --samples "$samples" --cache-dir kept --cache-kv --max-requests 16
why=
for r in $requests; do
    ids_alone $r.json >$r.alone
    [ -s $r.alone ] || why="$r has no ids"
done
for r in video_stream video_ar video_specvlm; do
    cmp -s video.alone $r.alone || why="$r differs from video"
done
verdict same_however_asked "$why"

# All at once, twice.
for round in 1 2; do
    for r in $requests; do
        curl -s -m 60 -d "@$r.json" "$url/v1/chat/completions" >"$r.out$round" &
        eval "pid_$r=\$!"
    done
    for r in $requests; do
        eval "wait \$pid_$r"
    done
    why=
    for r in $requests; do
        [ "$(ids_of $r.out$round)" = "$(cat $r.alone)" ] || why="$r differs among 16"
    done
    verdict same_among_16_round_$round "$why"
done

# kill -9, and another server on the same cache; then one without speculation.
stop_server
serve --samples "$samples" --cache-dir kept --cache-kv
why=
for r in video video_specvlm text3 text4; do
    [ "$(ids_alone $r.json)" = "$(cat $r.alone)" ] || why="$r differs after a restart"
done
grep -q 'prevue:' serve.err && why="$(grep prevue: serve.err | head -n 1)"
[ "$(curl -s "$url/metrics" | sed -n 's/^prevue:disk_cache_rows_total //p')" -gt 0 ] || why="the cache was not used"
verdict same_after_kill_and_restart "$why"
drafts=
serve --samples "$samples" --method ar
drafts=$all_drafts
why=
for r in video video_stream text3 text4; do
    [ "$(ids_alone $r.json)" = "$(cat $r.alone)" ] || why="$r differs without speculation"
done
verdict same_without_speculation "$why"
