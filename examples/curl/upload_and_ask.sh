#!/bin/sh
# Upload a video to a running `prevue serve` once, then ask about it twice; needs curl.
#
#   prevue serve &
#   examples/curl/upload_and_ask.sh clip.mp4 "What happens?" "How does it end?"
#
# PREVUE_URL names the server (default http://127.0.0.1:8080), PREVUE_KEY the API key if it wants one.
set -eu
url=${PREVUE_URL:-http://127.0.0.1:8080}
video=${1:?usage: upload_and_ask.sh VIDEO QUESTION...}
shift

# Prints the reply. If the server refuses, its reason goes to stderr and the script ends.
request()
{
    reply=$(curl -sS --fail-with-body -H "Authorization: Bearer ${PREVUE_KEY:-none}" "$@") || {
        [ -z "$reply" ] || echo "$reply" >&2
        exit 1
    }
    printf '%s\n' "$reply"
}

# The id of the reply: {"id": "file-...", ...}
file=$(request "$url/v1/files" -F "file=@$video")
id=$(printf '%s\n' "$file" | sed -n 's/.*"id": *"\([^"]*\)".*/\1/p')
for question; do
    echo "> $question"
    text=$(printf '%s' "$question" | sed 's/[\\"]/\\&/g') # one line of text as a JSON string
    body=$(printf '{"max_tokens": 64, "messages": [{"role": "user", "content": [
        {"type": "video_url", "video_url": {"url": "%s"}}, {"type": "text", "text": "%s"}]}]}' "$id" "$text")
    answer=$(request "$url/v1/chat/completions" -d "$body")
    printf '%s\n' "$answer" | sed -n 's/.*"content": *"\(\([^"\\]\|\\.\)*\)".*/\1/p'
done
request -X DELETE "$url/v1/files/$id" >/dev/null
