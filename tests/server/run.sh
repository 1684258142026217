#!/bin/sh
# Tests of `prevue serve`: real requests by curl over the loopback.
#
#   tests/server/run.sh [WORD]     only the case files whose name contains WORD
#
# PREVUE names the program (default: that of $BUILD). The cases are in *.case.sh, which this file
# reads; each `verdict` is one test. A case starts a server of its own with `serve OPTIONS`.
set -u
suite=tests/server
chosen_cases=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
prevue=${PREVUE:-$build/prevue}
client=${CLIENT:-$build/serve_client}
hostile=${HOSTILE:-$build/hostile_client}
samples=$root/samples
models=$root/models
all_drafts="-d $models/nano-draft.gguf --head $models/nano-head.gguf"
drafts=$all_drafts
target=$models/nano.gguf
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-server-XXXXXX") || exit 1
server=
trap 'stop_server; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir" || exit 1

# serve OPTIONS...: start a server on a free port and wait until it is ready; its address is in
# $url, its output in serve.out and serve.err, its log in access.log.
serve()
{
    stop_server
    : >serve.out
    rm -f access.log
    "$prevue" serve -m "$target" $drafts --port 0 --access-log access.log "$@" >serve.out 2>serve.err &
    server=$!
    for _ in $(seq 300); do
        grep -q http serve.out && break
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    url=$(sed -n 's/.* at \(http.*\)/\1/p' serve.out)
    [ -n "$url" ] || { echo "the server did not start:" && cat serve.err; }
}

stop_server()
{
    [ -n "$server" ] || return 0
    kill -9 "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    server=
}

show_failure()
{
    head -c 1500 out 2>/dev/null | sed 's/^/    /'
    echo
    tail -n 5 serve.err 2>/dev/null | sed 's/^/    /'
}
. "$root/tests/verdict.sh"

# fetch PATH [CURL OPTIONS]: the body goes to the file out, the status to $status.
fetch()
{
    path=$1
    shift
    status=$(curl -s -m 60 -o out -w '%{http_code}' "$@" "$url$path")
}

# expect NAME STATUS PATTERN PATH [CURL OPTIONS]: the status, and a line of the body that matches.
expect()
{
    name=$1
    want=$2
    pattern=$3
    shift 3
    : >out
    fetch "$@"
    why=
    grep -qE -- "$pattern" out || why="the body does not match '$pattern'"
    [ "$status" = "$want" ] || why="status $status instead of $want"
    verdict "$name" "$why"
}

# chat JSON [CURL OPTIONS]: a chat completion.
chat()
{
    body=$1
    shift
    fetch /v1/chat/completions -d "$body" "$@"
}

# The value of a string or number in the file out; the text and ids of an answer, whole or streamed.
member()
{
    grep -oE "\"$1\":(\"[^\"]*\"|[-0-9.]+)" "${2:-out}" | head -n 1 | sed 's/^[^:]*://; s/^"//; s/"$//'
}

text_of()
{
    grep -oE '"content":"([^"\\]|\\.)*"' "${1:-out}" | sed 's/^"content":"//; s/"$//' | tr -d '\n'
}

ids_of()
{
    grep -oE '"ids":\[[0-9,]*\]' "${1:-out}" | sed 's/.*\[//; s/\]//' | grep . | paste -sd , -
}

# 16 kHz, mono, 8 bits: 8000 samples, of which number 2000 is a click.
click_wav()
{
    printf 'RIFF\144\037\000\000WAVEfmt \020\000\000\000\001\000\001\000\200\076\000\000\200\076\000\000\001\000\010\000data\100\037\000\000'
    head -c 2000 /dev/zero | tr '\0' '\200'
    printf '\300'
    head -c 5999 /dev/zero | tr '\0' '\200'
}

# A question about a sample as a message; few frames, so that it is quick.
about()
{
    printf '"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"%s","num_frames":4}},{"type":"text","text":"%s"}]}]' \
        "$1" "$2"
}

data_url()
{
    printf 'data:video/mp4;base64,%s' "$(base64 -w 0 "$1")"
}

for file in "$here"/*.case.sh; do
    ! left_out "$(basename "$file")" || continue
    drafts=$all_drafts
    case $(basename "$file") in
    *"$chosen_cases"*) . "$file" ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
