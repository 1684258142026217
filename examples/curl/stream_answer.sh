#!/bin/sh
# Ask a running `prevue serve` about a video that travels in the request, and print the words as they come; needs curl.
#
#   examples/curl/stream_answer.sh clip.mp4 "What happens?"
#
# PREVUE_URL names the server (default http://127.0.0.1:8080), PREVUE_KEY the API key if it wants one. The answer comes as
# server-sent events: lines that begin with "data: ", each with a piece of JSON, and "data: [DONE]" at the end. If the
# server refuses, its reason comes as JSON without "data: ".
set -eu
url=${PREVUE_URL:-http://127.0.0.1:8080}
video=${1:?usage: stream_answer.sh VIDEO [QUESTION]}
text=$(printf '%s' "${2:-Describe the video.}" | sed 's/[\\"]/\\&/g') # one line of text as a JSON string
[ -r "$video" ] || {
    echo "stream_answer.sh: $video cannot be read" >&2
    exit 1
}
{
    printf '{"stream": true, "max_tokens": 64, "messages": [{"role": "user", "content": ['
    printf '{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,'
    base64 -w 0 "$video"
    printf '"}}, {"type": "text", "text": "%s"}]}]}' "$text"
} | curl -sSN -H "Authorization: Bearer ${PREVUE_KEY:-none}" "$url/v1/chat/completions" -d @- | {
    status=1
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        "data: [DONE]"*) status=0 ;;
        "data: "*)
            piece=$(printf '%s\n' "$line" | sed -n 's/^data: .*"delta":{[^}]*"content": *"\(\([^"\\]\|\\.\)*\)".*/\1/p')
            printf '%b' "$piece"
            ;;
        "" | ":"*) ;; # between events, and comments
        *) printf '%s' "$line" >&2 ;;
        esac
    done
    echo
    exit $status
}
