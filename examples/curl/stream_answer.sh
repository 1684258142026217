#!/bin/sh
# Ask a running `prevue serve` about a video that travels in the request, and print the words as they come; needs curl.
#
#   examples/curl/stream_answer.sh clip.mp4 "What happens?"
#
# PREVUE_URL names the server (default http://127.0.0.1:8080), PREVUE_KEY the API key if it wants one. The answer comes as
# server-sent events: lines that begin with "data: ", each with a piece of JSON, and "data: [DONE]" at the end.
set -eu
url=${PREVUE_URL:-http://127.0.0.1:8080}
{
    printf '{"stream": true, "max_tokens": 64, "messages": [{"role": "user", "content": ['
    printf '{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,'
    base64 -w 0 "$1"
    printf '"}}, {"type": "text", "text": "%s"}]}]}' "${2:-Describe the video.}"
} | curl -sSfN -H "Authorization: Bearer ${PREVUE_KEY:-none}" "$url/v1/chat/completions" -d @- |
    while IFS= read -r line; do
        piece=$(printf '%s\n' "$line" | sed -n 's/^data: .*"delta":{[^}]*"content": *"\(\([^"\\]\|\\.\)*\)".*/\1/p')
        printf '%b' "$piece"
    done
echo
