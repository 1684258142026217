# Memory of long bodies: at most three times their size and 16 MiB, and given back afterwards.
serve --context 512 --kv-memory 8M

# memory_of FIELD: VmRSS or VmHWM of the server, in KiB.
memory_of()
{
    awk -v field="$1:" '$1 == field { print $2 }' "/proc/$server/status"
}

# bounded NAME STATUS PATTERN PATH FILE...: all files as bodies at the same time. One of them gets
# this status; for the others 503 will do, too.
bounded()
{
    # First short requests, so that what the server keeps for all is there.
    chat '{"max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}'
    chat "{$(about 'data:video/mp4;base64,AAAA' 'What?')}"
    name=$1
    want=$2
    pattern=$3
    path=$4
    shift 4
    before=$(memory_of VmRSS)
    echo 5 >"/proc/$server/clear_refs" # VmHWM begins anew
    size=0
    clients=
    for file in "$@"; do
        curl -s -m 60 -o "$file.out" -w '%{http_code}\n' -H 'Expect:' --data-binary "@$file" "$url$path" >"$file.status" &
        clients="$clients $!"
        size=$((size + $(wc -c <"$file")))
    done
    wait $clients
    cp "$file.out" out
    for file in "$@"; do
        ! grep -qx "$want" "$file.status" || cp "$file.out" out
    done
    peak=$(($(memory_of VmHWM) - before))
    for _ in $(seq 30); do # what a reply leaves is freed a moment later
        left=$(($(memory_of VmRSS) - before))
        [ "$left" -gt 8192 ] || break
        sleep 0.1
    done
    why=
    grep -qE -- "$pattern" out || why="the body does not match '$pattern'"
    [ "$peak" -le $((3 * size / 1024 + 16384)) ] || why="bodies of $((size / 1024)) KiB took $peak KiB"
    [ "$left" -le 8192 ] || why="$left KiB are kept after bodies of $((size / 1024)) KiB"
    verdict "$name" "$why"
}

# many FILE BYTES TEXT: a chat with an unknown field of so many bytes, which repeat the text.
many()
{
    {
        printf '{"max_tokens":1,"messages":[{"role":"user","content":"Hi"}],"x":['
        yes "$3," | tr -d '\n' | head -c $(($2 / (${#3} + 1) * (${#3} + 1)))
        printf '0]}'
    } >"$1"
}
chats=/v1/chat/completions
too_many='the body has too many values: they would take more than 2 times its [0-9]+ bytes and 15 MiB of memory'
many objects 24000000 '{}'
many objects_too 24000000 '{}'
bounded objects 413 "$too_many" $chats objects
bounded objects_twice 413 "$too_many|too many long requests" $chats objects objects_too
rm objects_too
many arrays 4000000 '[]'
bounded arrays 413 "$too_many" $chats arrays
many numbers 4000000 '1.5'
bounded numbers 413 "$too_many" $chats numbers
many members 4000000 '{"a":""}'
bounded members 413 "$too_many" $chats members
{ printf '{"tokens":[' && yes '1,' | tr -d '\n' | head -c 4000000 && printf '1]}'; } >tokens
bounded tokens 413 "$too_many" /detokenize tokens
many broken 4000000 '{"a":[{}]},x'
bounded broken 400 'not JSON' $chats broken

# One long string, as data URLs are.
{ printf '{"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"data:video/mp4;base64,' &&
    head -c 40000000 /dev/zero | tr '\0' A && printf '"}}]}]}'; } >string
bounded data_url 400 'neither a video' $chats string
many texts 40000000 "\"$(head -c 100000 /dev/zero | tr '\0' x)\""
bounded texts 200 '"finish_reason":"length"' $chats texts
rm objects arrays numbers members tokens broken string texts

# What a client may well send: a prompt of as many ids as a context can have, and a long chat.
{ printf '{"max_tokens":1,"prompt":[' && yes '1234,' | tr -d '\n' | head -c $((5 * 262143)) && printf '1]}'; } >ids
bounded many_ids 400 'context' /v1/completions ids
{
    printf '{"max_tokens":1,"messages":['
    yes '{"role":"user","content":[{"type":"text","text":"And then?"}]},' | head -n 4095
    printf '{"role":"user","content":"?"}]}'
} >long_chat
bounded long_chat 400 'context' $chats long_chat

# A system that has no more memory: this is said, and the server goes on.
{ printf '{"x":"' && head -c 60000000 /dev/zero | tr '\0' x && printf '"}'; } >text
serve --context 512 --kv-memory 8M
size=$(memory_of VmSize)
ulimit -S -v $((size + 100000))
serve --context 512 --kv-memory 8M
ulimit -S -v unlimited
expect no_memory 503 'out of memory' $chats -H 'Expect:' --data-binary @text
expect no_memory_up 200 ready /health

# The same for media: the helper that decodes them cannot be started, and they are not decoded
# without its sandbox either. With memory again, they are read.
if command -v prlimit >/dev/null; then
    serve --context 2048 --kv-memory 64M --samples "$samples"
    clip="{\"max_tokens\":1,$(about sample-16-frames 'What?')}"
    prlimit --pid "$server" --as=50000000:
    expect no_memory_for_media 503 '"message":"[^"/]*([Cc]annot allocate|[Oo]ut of|not enough) memory' $chats -d "$clip"
    prlimit --pid "$server" --as=unlimited:
    expect memory_for_media 200 '"finish_reason"' $chats -d "$clip"
else
    echo "skip no_memory_for_media: prlimit (util-linux) is not installed"
fi
