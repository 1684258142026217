#!/bin/sh
# Upload a video to a running `prevue serve` once, then ask about it twice; needs curl.
#
#   prevue serve &
#   examples/curl/upload_and_ask.sh clip.mp4 "What happens?" "How does it end?"
#
# PREVUE_URL names the server (default http://127.0.0.1:8080), PREVUE_KEY the API key if it wants one.
set -eu
url=${PREVUE_URL:-http://127.0.0.1:8080}
video=$1
shift

# The id of the reply: {"id": "file-...", ...}
id=$(curl -sSf -H "Authorization: Bearer ${PREVUE_KEY:-none}" "$url/v1/files" -F "file=@$video" |
    sed -n 's/.*"id": *"\([^"]*\)".*/\1/p')
for question; do
    echo "> $question"
    # A question with quotes or backslashes needs a JSON library instead of printf.
    printf '{"max_tokens": 64, "messages": [{"role": "user", "content": [
        {"type": "video_url", "video_url": {"url": "%s"}}, {"type": "text", "text": "%s"}]}]}' "$id" "$question" |
        curl -sSf -H "Authorization: Bearer ${PREVUE_KEY:-none}" "$url/v1/chat/completions" -d @- |
        sed -n 's/.*"content": *"\(\([^"\\]\|\\.\)*\)".*/\1/p'
done
curl -sSf -X DELETE -H "Authorization: Bearer ${PREVUE_KEY:-none}" "$url/v1/files/$id" >/dev/null
