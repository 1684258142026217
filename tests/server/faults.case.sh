# Clients that leave, are slow, or are many; the server stays up and its slots come free.
serve --samples "$samples" --client-timeout 1.5 --max-requests 4 --max-upload 2M --max-files 5M --upload-dir files
port=${url##*:}

# request NAME BODY: a whole request of HTTP in the file NAME.
request()
{
    printf '%s' "$2" >body
    printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n' "$(wc -c <body)" >"$1"
    cat body >>"$1"
}

# metric NAME: its value.
metric()
{
    curl -s -m 10 "$url/metrics" | sed -n "s/^prevue:$1 //p"
}

# settles NAME: within half a minute nothing runs and nothing waits.
settles()
{
    why="requests are still running"
    for _ in $(seq 300); do
        [ "$(metric num_requests_running)$(metric num_requests_waiting)" = 00 ] && why= && break
        sleep 0.1
    done
    verdict "$1" "$why"
}

long='"max_tokens":10000,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me everything."}]'
request stream "{\"stream\":true,$long}"
request whole "{$long}"
request upload_chat "{\"messages\":[{\"role\":\"user\",\"content\":\"$(head -c 100000 /dev/zero | tr '\0' x)\"}]}"

# A client that leaves in the middle of a stream, before a whole answer, or of its own request.
"$client" "$port" vanish stream 0
settles vanish_in_a_stream
"$client" "$port" timeouts whole 1 0.5
settles vanish_before_an_answer
"$client" "$port" vanish upload_chat 50000
expect vanish_in_a_body 200 ready /health

# 200 long requests that their clients leave after half a second; the next one is answered soon.
"$client" "$port" timeouts stream 200 0.5
begin=$(date +%s%N)
expect after_200_timeouts 200 '"finish_reason":"length"' /v1/chat/completions -m 60 \
    -d '{"max_tokens":5,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me everything."}]}'
took=$((($(date +%s%N) - begin) / 1000000))
[ "$took" -lt 60000 ] || verdict after_200_timeouts_soon "it took $took ms"
settles after_200_timeouts_free

# Slow clients are borne for a bounded time. A reader that reads nothing holds a bounded buffer.
held=$("$client" "$port" slow-head 60)
why=
[ "${held%.*}" -lt 50 ] || why="a slow head was borne for $held s"
verdict slow_head "$why"
held=$("$client" "$port" slow-body upload_chat 60)
why=
[ "${held%.*}" -lt 50 ] || why="a slow body was borne for $held s"
verdict slow_body "$why"
request chatty "{\"stream\":true,\"logprobs\":true,\"top_logprobs\":20,$long}"
held=$("$client" "$port" slow-read chatty 60)
why=
[ "${held%.*}" -lt 50 ] || why="a reader that reads nothing was borne for $held s"
verdict slow_reader "$why"
settles slow_reader_free
# A whole reply that is read at a few bytes a second: a file of 1.9 MB.
head -c 1900000 /dev/zero >short.bin
curl -s "$url/v1/files" -F file=@short.bin >out
printf 'GET /v1/files/%s/content HTTP/1.1\r\nHost: localhost\r\n\r\n' "$(member id)" >content
held=$("$client" "$port" slow-read content 60)
why=
[ "${held%.*}" -lt 50 ] || why="a reader of a file was borne for $held s"
verdict slow_file_reader "$why"
curl -s -X DELETE "$url/v1/files/$(member id)" >out

# Uploads: too long, more than all files may take, cut off, malformed; nothing stays behind.
head -c 3000000 /dev/zero >long.bin
head -c 1900000 /dev/zero >short.bin
expect upload_too_long 413 'longer than' /v1/files -F file=@long.bin
expect upload_too_long_chunked 413 'longer than' /v1/files -F file=@long.bin -H 'Transfer-Encoding: chunked'
head -c 90000000 /dev/zero >longer.bin
expect body_too_long 413 'longer than' /v1/chat/completions --data-binary @longer.bin
expect body_too_long_chunked 413 'longer than' /v1/chat/completions --data-binary @longer.bin -H 'Transfer-Encoding: chunked' -H 'Expect:'
rm longer.bin
expect upload 200 '"id":"file-[0-9a-f]+".*"bytes":1900000.*"purpose":"user_data"' /v1/files -F purpose=user_data -F file=@short.bin
expect upload_no_word 400 'the purpose is not a word' /v1/files -F 'purpose=a"b' -F file=@short.bin
expect upload_long_word 400 'the purpose is not a word' /v1/files -F purpose=$(printf 'a%.0s' $(seq 40)) -F file=@short.bin
expect upload_second 200 '"bytes":1900000.*"purpose":"batch"' /v1/files -F file=@short.bin -F purpose=batch
expect upload_storage 507 'delete some' /v1/files -F file=@short.bin
why=
[ "$(ls files | wc -l)" -eq 4 ] || why="$(ls files | wc -l) files instead of 2 with a description each"
verdict upload_leaves_nothing "$why"
curl -s "$url/v1/files" >out
for id in $(grep -oE 'file-[0-9a-f]+' out); do
    expect upload_delete 200 '"deleted":true' "/v1/files/$id" -X DELETE
done
expect upload_no_file 400 'no part named' /v1/files -F other=@short.bin
expect upload_no_form 400 'multipart' /v1/files -d '{}'
expect upload_sample_stays 403 'sample' /v1/files/sample-16-frames -X DELETE
printf 'POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000\r\n\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' >cut
head -c 500000 /dev/zero >>cut
"$client" "$port" vanish cut 400000
why="a part of an upload stayed behind"
for _ in $(seq 30); do
    [ "$(ls files | wc -l)" -eq 0 ] && why= && break
    sleep 0.1
done
verdict upload_cut_off "$why"

# Videos that would take too much: each is refused with a sentence, before it is decoded.
bomb() # NAME PATTERN HEADER
{
    printf '%s\nFRAME\n' "$3" >bomb.y4m
    head -c 10000 /dev/zero >>bomb.y4m
    expect "$1" 400 "$2" /v1/chat/completions -d "{$(about "$(data_url bomb.y4m)" 'What?')}"
}
bomb bomb_dimensions 'pixels|dimension|size|decoded|invalid|Invalid' 'YUV4MPEG2 W60000 H60000 F25:1 C420'
bomb bomb_odd_dimensions 'pixels|dimension|size|decoded|invalid|Invalid' 'YUV4MPEG2 W2147483647 H2 F25:1 C420'
printf 'YUV4MPEG2 W2 H2 F1:4000 C420\n' >bomb.y4m
for _ in 1 2 3 4; do
    printf 'FRAME\n123456' >>bomb.y4m
done
expect bomb_duration 400 'seconds|hour' /v1/chat/completions -d "{$(about "$(data_url bomb.y4m)" 'What?')}"
expect bomb_frames 400 'num_frames' /v1/chat/completions \
    -d '{"media_io_kwargs":{"video":{"num_frames":100000}},"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"sample-16-frames"}}]}]}'
expect bomb_up 200 ready /health

# Media are decoded by a helper; without it they are refused, and text is still answered.
mkdir alone
cp "$prevue" alone/prevue
kept=$prevue
prevue=$PWD/alone/prevue
serve --samples "$samples"
expect helper_missing 400 'prevue-media' /v1/chat/completions -d "{$(about sample-16-frames 'What?')}"
expect helper_missing_text 200 '"finish_reason"' /v1/chat/completions -d '{"max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}'
prevue=$kept

# Few descriptors: connections leave half of them to the rest. Uploads, which take two each, use up
# all; then media are refused for now, and no path is told.
printf '#!/bin/sh\nulimit -n 64\nexec "%s" "$@"\n' "$kept" >few
chmod +x few
prevue=$PWD/few
serve --samples "$samples" --media-path "$samples" --upload-dir few-files
prevue=$kept
port=${url##*:}
printf 'GET /health HTTP/1.1\r\n' >begun
descriptors()
{
    ls "/proc/$server/fd" | wc -l
}
# until_descriptors OPERATOR N: wait until the server has so many, 10 s at most.
until_descriptors()
{
    for _ in $(seq 500); do
        [ "$(descriptors)" "$1" "$2" ] && return
        sleep 0.02
    done
}
before=$(descriptors)
"$client" "$port" timeouts begun 100 1 &
idle=$!
most=0
while kill -0 $idle 2>/dev/null; do
    now=$(descriptors)
    [ "$now" -lt "$most" ] || most=$now
done
why=
[ "$most" -le 52 ] || why="100 connections leave $((64 - most)) of 64 descriptors"
verdict descriptors_left "$why"
until_descriptors -le "$before"
"$client" "$port" timeouts cut $(((62 - before) / 2)) 60 &
idle=$!
until_descriptors -ge 61 # the uploads have begun
expect descriptors_used_up 503 'media helper prevue-media cannot be started: Too many open files|to share with the media helper' \
    /v1/chat/completions -d "{$(about "$(data_url "$samples/16-frames.mp4")" 'What?')}"
# The last of them. Which step fails depends on how many are left for it.
"$client" "$port" timeouts begun $((63 - $(descriptors))) 60 &
last=$!
until_descriptors -ge 63
for source in sample-16-frames file:///16-frames.mp4; do
    expect "no_descriptor_for_$source" 503 \
        '"message":"(the media helper prevue-media|sample-16-frames:|/16-frames.mp4) [^/]*Too many open files"' \
        /v1/chat/completions -d "{$(about "$source" 'What?')}"
done
kill $idle $last
wait $idle $last 2>/dev/null

# A disk that is full: a limit on file sizes does as well.
ulimit -S -f 2000
serve --samples "$samples" --upload-dir files
ulimit -S -f unlimited
expect upload_disk_full 507 'cannot be stored' /v1/files -F file=@short.bin
why=
[ "$(ls files | wc -l)" -eq 0 ] || why="a part of it stayed behind"
verdict upload_disk_full_leaves_nothing "$why"
expect upload_disk_full_up 200 ready /health
port=${url##*:}

# Malformed HTTP and a head that is too long.
printf 'GET / HTTP/9.9\r\n\r\n' >raw1
printf 'nonsense\r\n\r\n' >raw2
{ printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ' && head -c 100000 /dev/zero | tr '\0' y && printf '\r\n\r\n'; } >raw3
for raw in raw1 raw2 raw3; do
    "$client" "$port" raw $raw >out
done
expect up_after_nonsense 200 ready /health

# Long bodies are bounded together: four that are under way leave no room for a fifth.
serve --max-body 1M
port=${url##*:}
printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n' >held
slow=
for _ in 1 2 3 4; do
    "$client" "$port" slow-body held 2 >/dev/null &
    slow="$slow $!"
done
head -c 900000 /dev/zero >fifth
for _ in $(seq 50); do # until they have begun
    fetch /v1/chat/completions --data-binary @fifth
    [ "$status" != 503 ] || break
done
expect bodies_together 503 'too many long requests' /v1/chat/completions --data-binary @fifth
wait $slow
expect bodies_gone 400 'not JSON' /v1/chat/completions --data-binary @fifth

# Out of memory for keys and values: the sum is told, others are answered.
serve --context 512 --kv-memory 8M
expect context_too_small 400 'exceed_context_size_error' /v1/chat/completions \
    -d "{\"messages\":[{\"role\":\"user\",\"content\":\"$(yes word | head -n 2000 | tr '\n' ' ')\"}]}"
expect context_full 200 '"finish_reason":"length"' /v1/chat/completions \
    -d '{"ignore_eos":true,"max_tokens":100000,"messages":[{"role":"user","content":"Go on."}]}'
expect queue_metrics 200 '^prevue:kv_cache_usage_perc 0$' /metrics
