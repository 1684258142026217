# Who may do what: keys, files outside of the allowed directory, addresses, signals.
printf '# keys of clients\nsecret-one\n\n  secret-two  \n' >keys
mkdir -p media/inner outside
cp "$samples/16-frames.mp4" media/clip.mp4
cp "$samples/16-frames.mp4" media/inner/clip.mp4
cp "$samples/16-frames.mp4" outside/clip.mp4
ln -s "$PWD/outside/clip.mp4" media/link.mp4
ln -s "$PWD/outside" media/linked
ln -s /etc media/inner/etc
mkfifo media/pipe
serve --api-key-file keys --media-path media

expect key_missing 401 '"type":"authentication_error"' /v1/models
expect key_wrong 401 'not known' /v1/models -H 'Authorization: Bearer secret-on'
expect key_longer 401 'not known' /v1/models -H 'Authorization: Bearer secret-one '$(printf x)
expect key_bearer 200 nano /v1/models -H 'Authorization: Bearer secret-one'
expect key_header 200 nano /v1/models -H 'X-Api-Key: secret-two'
expect key_comment 401 'not known' /v1/models -H 'X-Api-Key: # keys of clients'
expect key_metrics 401 'authentication_error' /metrics
expect key_health 200 ready /health
expect key_page 200 '<title>' /
key='X-Api-Key: secret-one'

# media_url NAME STATUS PATTERN URL: a request with this URL.
media_url()
{
    expect "$1" "$2" "$3" /v1/chat/completions -H "$key" \
        -d "{\"max_tokens\":1,$(about "$4" 'What?')}"
}
media_url file_url 200 '"finish_reason"' file:///clip.mp4
media_url file_url_inner 200 '"finish_reason"' file:///inner/clip.mp4
media_url file_url_encoded 200 '"finish_reason"' file:///inner%2fclip.mp4
media_url file_missing 400 'cannot be opened' file:///other.mp4
media_url file_dots 400 'cannot be opened' file:///../outside/clip.mp4
media_url file_dots_inside 400 'cannot be opened' file:///inner/../../outside/clip.mp4
media_url file_dots_encoded 400 'cannot be opened' file:///%2e%2e/outside/clip.mp4
media_url file_dots_twice_encoded 400 'cannot be opened' file:///%252e%252e/outside/clip.mp4
media_url file_absolute 400 'cannot be opened' "file://$PWD/outside/clip.mp4"
media_url file_link 400 'it is a link' file:///link.mp4
media_url file_linked_directory 400 'cannot be opened' file:///linked/clip.mp4
media_url file_linked_etc 400 'cannot be opened' file:///inner/etc/passwd
media_url file_directory 400 'not a regular file' file:///inner
media_url file_pipe 400 'not a regular file' file:///pipe
media_url file_proc 400 'cannot be opened' file:///proc/self/environ
media_url file_zero 400 'malformed' file:///clip.mp4%00.txt
media_url no_scheme 400 'not a media source' /etc/passwd
media_url other_scheme 400 'not a media source' ftp://127.0.0.1/x.mp4
media_url concat 400 'not a media source' concat:clip.mp4
media_url remote 400 'allow-domain' http://169.254.169.254/latest

# With an allowed domain private addresses are still refused, by name and by number. Builds without
# libcurl fetch nothing.
port=${url##*:}
serve --allow-domain "localhost:$port" --allow-domain "127.0.0.1:$port" --allow-domain "[::1]:$port"
for host in localhost 127.0.0.1 '[::1]'; do
    fetch /v1/chat/completions -d "{$(about "http://$host:$port/health" 'What?')}"
    why=
    grep -qE 'not public|without libcurl|cannot be fetched' out || why="no refusal"
    case $status in 400 | 501) ;; *) why="status $status" ;; esac
    verdict "private_address_$host" "$why"
done
fetch /v1/chat/completions -d "{$(about "http://other.example/x.mp4" 'What?')}"
why=
grep -qE 'other.example, port 80, are not allowed|without libcurl' out || why="no refusal"
verdict other_domain "$why"
fetch /v1/chat/completions -d "{$(about "http://localhost:1/x.mp4" 'What?')}"
why=
grep -qE 'localhost, port 1, are not allowed|without libcurl' out || why="no refusal"
verdict other_port "$why"
serve --api-key-file keys --media-path media

# A text file is no video, and the message does not tell where it lies.
printf '#EXTM3U\nfile:///etc/passwd\n' >media/list.m3u8
media_url playlist 400 'error' file:///list.m3u8
why=
grep -qE '/proc/self|/tmp|root:' out && why="the message tells too much"
verdict playlist_message "$why"

# Signals: one drains, and what runs finishes.
curl -s -m 30 -H "$key" "$url/v1/chat/completions" >drained \
    -d '{"stream":true,"max_tokens":300,"ignore_eos":true,"messages":[{"role":"user","content":"Go on."}]}' &
curl_pid=$!
for _ in $(seq 50); do
    [ -s drained ] && break
    sleep 0.05
done
kill "$server"
for _ in $(seq 50); do
    curl -s -m 5 "$url/health" >out
    refused=$?
    [ "$refused" -ne 0 ] || grep -q draining out || continue
    break
done
wait "$curl_pid"
wait "$server"
ended=$?
server=
why=
[ "$ended" -eq 0 ] || why="exit status $ended"
[ "$(ids_of drained | tr , '\n' | wc -l)" -eq 300 ] || why="the running answer was cut"
grep -q '^data: \[DONE\]$' drained || why="the stream did not end"
[ "$refused" -ne 0 ] || grep -q draining out || why="it took a connection while draining"
verdict drain "$why"
rm -f drained
serve --drain-seconds 0.2
curl -s -m 30 "$url/v1/chat/completions" >drained \
    -d '{"stream":true,"max_tokens":20000,"ignore_eos":true,"messages":[{"role":"user","content":"Go on."}]}' &
curl_pid=$!
for _ in $(seq 50); do
    [ -s drained ] && break
    sleep 0.05
done
kill "$server"
wait "$server"
ended=$?
server=
wait "$curl_pid"
why=
[ "$ended" -eq 0 ] || why="exit status $ended"
grep -q 'shutting down' drained || why="the client was not told"
verdict drain_seconds "$why"

# What cannot start says so.
"$prevue" serve -m "$models/nano.gguf" --port 0 --api-key-file none-such >out 2>&1
status=$?
why=
[ $status -eq 1 ] && grep -q 'none-such' out || why="no sentence about the file of keys"
verdict keys_missing "$why"
"$prevue" serve -m none-such.gguf --port 0 --access-log none >out 2>&1
status=$?
why=
[ $status -eq 1 ] && grep -q 'none-such.gguf' out || why="no sentence about the model, status $status"
verdict model_missing "$why"
timeout 2 "$prevue" serve -m "$models/nano.gguf" --host 0.0.0.0 --port 0 --access-log none >out 2>&1
why=
grep -q 'warning: listening on 0.0.0.0 without --api-key-file' out || why="no warning"
verdict open_warning "$why"

# 127.evil.example is no address of this machine.
timeout 2 "$prevue" serve -m "$models/nano.gguf" --host 127.evil.example --port 0 --access-log none >out 2>&1
why=
grep -q "127.evil.example' is not known" out || why="no sentence about the host"
verdict host_like_loopback "$why"

# The log: characters that one does not see are escaped; a request that is refused was not
# cancelled; nobody else may read it.
serve
fetch '/a%C2%9B31m%E2%80%AEb%E2%80%8Bc'
fetch /v1/chat/completions -d '{"model":"other","messages":[{"role":"user","content":"x"}]}'
why=
grep -q '"path":"/a\\u009b31m\\u202eb\\u200bc","status":404' access.log || why="$(grep 31m access.log)"
verdict log_escapes "$why"
why=
grep '"status":404,"sent":true' access.log | grep -q 'unknown model' || why="no line of the request"
! grep -q cancelled access.log || why="it was not cancelled"
verdict log_of_refused "$why"
why=
[ "$(stat -c %a access.log)" = 600 ] || why="mode $(stat -c %a access.log)"
verdict log_mode "$why"

# Uploads of a server that was killed are removed by the next one; those of others stay.
mkdir tmp
TMPDIR=$PWD/tmp
export TMPDIR
serve
curl -s "$url/v1/files" -F "file=@$samples/16-frames.mp4" >out
dead=$(echo tmp/prevue-*)
mkdir -m 755 tmp/prevue-uploads-open
mkdir -m 700 tmp/prevue-uploads-other tmp/prevue-else
echo text >tmp/prevue-uploads-other/file-of-somebody
serve
live=$server
why=
[ -n "$(member id)" ] && [ ! -e "$dead" ] || why="$dead stayed"
[ -d tmp/prevue-uploads-open ] && [ -f tmp/prevue-uploads-other/file-of-somebody ] && [ -d tmp/prevue-else ] || why="$(ls -R tmp)"
verdict uploads_of_dead_server "$why"
curl -s "$url/v1/files" -F "file=@$samples/16-frames.mp4" >out
first=$url
server=
serve
url=$first
expect uploads_of_live_server 200 '"id"' "/v1/files/$(member id)"
stop_server
server=$live
stop_server
unset TMPDIR

# A graceful end loses no request of a client that could connect: here the kernel has taken the
# connections, and the server finds them together with the signal.
serve
kill -STOP "$server"
for i in 1 2 3; do
    curl -s -m 30 "$url/v1/chat/completions" >waiting$i \
        -d '{"max_tokens":4,"messages":[{"role":"user","content":"Go on."}]}' &
    eval "pid_$i=\$!"
done
curl -s -m 30 -F "file=@$samples/16-frames.mp4" "$url/v1/files" >waiting4 &
pid_4=$!
port=$(printf %04X "${url##*:}")
for _ in $(seq 200); do # until the four requests lie in the kernel
    [ "$(awk -v port=":$port\$" '$2 ~ port && $4 == "01" && $5 !~ /:00000000$/' /proc/net/tcp | wc -l)" -lt 4 ] || break
    sleep 0.05
done
kill -TERM "$server"
kill -CONT "$server"
for i in 1 2 3 4; do
    eval "wait \$pid_$i"
done
wait "$server"
ended=$?
server=
why=
[ "$ended" -eq 0 ] || why="exit status $ended"
for i in 1 2 3; do
    grep -q '"finish_reason"' waiting$i || why="request $i: $(head -c 200 waiting$i)"
done
grep -q '"bytes"' waiting4 || why="the upload: $(head -c 200 waiting4)"
verdict drain_takes_what_connected "$why"
