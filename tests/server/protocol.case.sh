# The protocol: what each route answers, errors in OpenAI's form, streams.
serve --samples "$samples" --cors-origin https://page.example --allow-host videos.example

expect health 200 '^\{"status":"ready"\}$' /health
expect models 200 '"data":\[\{"id":"nano"' /v1/models
expect model 200 '"id":"nano"' /v1/models/nano
expect model_unknown 404 'model_not_found' /v1/models/other
expect page 200 '<title>prevue' /
expect nothing_there 404 '"type":"not_found_error"' /v2/other
expect wrong_method 405 '"type":"invalid_request_error"' /v1/chat/completions
expect metrics 200 '^prevue:num_requests_running 0$' /metrics
expect tokenize 200 '"tokens":\[64,819,1034\]' /tokenize -d '{"prompt":"a brown mushroom"}'
expect detokenize 200 '"prompt":"This video"' /detokenize -d '{"tokens":[870,338]}'
expect detokenize_unknown 400 'not a token' /detokenize -d '{"tokens":[123456789]}'

# A video by data URL, whole and streamed.
q=$(about "$(data_url "$samples/16-frames.mp4")" 'Describe the video.')
printf '{%s}' "$q" >whole.json
printf '{"stream":true,"stream_options":{"include_usage":true},%s}' "$q" >stream.json
expect chat 200 '"finish_reason":"stop"' /v1/chat/completions -d @whole.json
cp out whole
expect stream 200 '^data: \[DONE\]$' /v1/chat/completions -d @stream.json
why=
[ -n "$(text_of whole)" ] && [ "$(text_of out)" = "$(text_of whole)" ] || why="other text: $(text_of out)"
[ "$(ids_of out)" = "$(ids_of whole)" ] || why="other ids"
[ "$(grep -c '"role":"assistant"' out)" -eq 1 ] || why="the role does not come once"
head -n 1 out | grep -q '"delta":{"role":"assistant"' || why="the first chunk has no role"
tail -n 4 out | head -n 1 | grep -q '"choices":\[\],"usage":{"prompt_tokens":' || why="no chunk with usage"
grep -vqE '^(data: .*|: .*|)$' out && why="a line that is neither data, nor a comment, nor empty"
verdict stream_is_the_same "$why"
why=
[ "$(member completion_tokens whole)" = "$(ids_of whole | tr , '\n' | grep -c .)" ] || why="usage counts other tokens"
[ "$(member drafted whole | wc -c)" -eq $(($(member completion_tokens whole) + 1)) ] || why="drafted has another length"
grep -qE '"multimodal_tokens":\{"video":2[0-9][0-9]\}' whole || why="other video tokens"
verdict usage "$why"

# The README's commands, as they stand there but for the address.
sed -n '/^curl http/,/^```/p' "$root/README.md" | sed "/^\`\`\`/d; s|http://127.0.0.1:8080|$url|; s/^curl/curl -s/" >readme.sh
(cd "$root" && sh "$dir/readme.sh") >out 2>&1
why=
grep -q '"id":"file-[0-9a-f]*","object":"file"' out || why="no id of a file"
grep -qE '"content":"[A-Z][^"]* scenes' out || why="no description"
verdict readme "$why"

# Forms of media.
expect image_url_with_a_video 200 '"finish_reason":"stop"' /v1/chat/completions \
    -d "{\"max_tokens\":3000,$(about sample-16-frames 'How many scenes does the video have?' | sed 's/video_url/image_url/g')}"
expect input_video 200 '"finish_reason":"length"' /v1/chat/completions -d "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[
    {\"type\":\"input_video\",\"input_video\":{\"data\":\"$(base64 -w 0 "$samples/16-frames.mp4")\",\"num_frames\":2}},{\"type\":\"text\",\"text\":\"What?\"}]}]}"
expect num_frames 200 '"frames":3,' /v1/chat/completions \
    -d '{"max_tokens":1,"media_io_kwargs":{"video":{"num_frames":3}},"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"sample-16-frames"}}]}]}'

# Several answers, stop strings, log-probabilities, seeds.
text='"messages":[{"role":"user","content":"Say something."}]'
expect n 200 '"index":2' /v1/chat/completions -d "{\"n\":3,\"max_tokens\":4,\"temperature\":1,\"seed\":7,$text}"
cp out first
chat "{\"n\":3,\"max_tokens\":4,\"temperature\":1,\"seed\":7,$text}"
why=
[ -n "$(ids_of)" ] && [ "$(ids_of)" = "$(ids_of first)" ] || why="the same seed gives other ids"
verdict seed "$why"
expect logprobs 200 '"logprobs":\{"content":\[\{"token":"[^"]*","logprob":-[0-9.e-]+,"bytes":\[[0-9,]*\],"top_logprobs":\[\{' \
    /v1/chat/completions -d "{\"max_tokens\":2,\"logprobs\":true,\"top_logprobs\":2,$text}"
chat "{\"max_tokens\":8,$text}"
word=$(text_of | cut -d ' ' -f 2)
chat "{\"max_tokens\":8,\"stop\":[\"$word\"],$text}"
why=
[ -n "$word" ] && ! text_of | grep -q "$word" || why="the text has the stop string '$word'"
[ "$(member finish_reason)" = stop ] || why="finish_reason $(member finish_reason)"
verdict stop "$why"
expect completions 200 '"object":"text_completion".*"text":"' /v1/completions -d '{"prompt":"This video shows","max_tokens":3}'
expect completions_logprobs 200 '"logprobs":\{"tokens":\["[^"]*","[^"]*"\],"token_logprobs":\[[-0-9.e]+,[-0-9.e]+\],"top_logprobs":\[\{"[^"]*":[-0-9.e]+,"[^"]*":[-0-9.e]+\},.*"text_offset":\[0,[0-9]+\]' \
    /v1/completions -d '{"prompt":"This video shows","max_tokens":2,"ignore_eos":true,"logprobs":2}'
expect completions_ids 200 '"prompt_tokens":2,' /v1/completions -d '{"prompt":[870,338],"max_tokens":3}'

# Errors.
bad() # NAME STATUS PATTERN BODY
{
    expect "$1" "$2" "^\{\"error\":\{\"message\":\".*$3.*\"param\":.*,\"code\":.*\}\}$" \
        /v1/chat/completions -d "$4"
}
bad not_json 400 'not JSON' '{"messages":'
bad not_an_object 400 'not a JSON object' '[]'
bad no_messages 400 'messages' '{}'
bad other_model 404 'unknown model' "{\"model\":\"gpt-4\",$text}"
bad tools 501 'tools' "{\"tools\":[{\"type\":\"function\"}],$text}"
bad response_format 501 'response_format' "{\"response_format\":{\"type\":\"json_object\"},$text}"
bad penalty 501 'frequency_penalty' "{\"frequency_penalty\":0.5,$text}"
bad temperature 400 'temperature' "{\"temperature\":-1,$text}"
bad max_tokens 400 'max_tokens' "{\"max_tokens\":0,$text}"
bad huge_number 400 'not JSON' "{\"max_tokens\":1e999,$text}"
bad role 400 'unknown role' '{"messages":[{"role":"robot","content":"x"}]}'
bad part 501 'not supported' '{"messages":[{"role":"user","content":[{"type":"input_smell"}]}]}'
bad data_url 400 'base64' '{"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"data:video/mp4;base64,!!!"}}]}]}'
bad no_video 400 'media|memory' '{"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}}]}]}'
bad http_url 400 'allow-domain' '{"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"http://127.0.0.1/x.mp4"}}]}]}'
bad file_url 400 'media-path' '{"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"file:///etc/passwd"}}]}]}'
bad context 400 'context has room.*exceed_context_size_error' "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"video_url\",\"video_url\":{\"url\":\"sample-160-frames\",\"num_frames\":500}},{\"type\":\"video_url\",\"video_url\":{\"url\":\"sample-160-frames\",\"num_frames\":500}}]}]}"
bad deep 400 'not JSON' "{\"x\":$(head -c 3000 /dev/zero | tr '\0' '[')"
bad zero_byte 400 'not JSON' '{"messages":[{"role":"user","content":"a\u0000b"}]}'
bad not_utf8 400 'not JSON' "$(printf '{"messages":[{"role":"user","content":"\377"}]}')"
bad media_in_system 400 'user message' '{"messages":[{"role":"system","content":[{"type":"video_url","video_url":{"url":"sample-16-frames"}}]}]}'
bad unknown_method 400 'unknown method' "{\"prevue\":{\"method\":\"other\"},$text}"
expect unknown_fields 200 '"content"' /v1/chat/completions -d "{\"max_tokens\":1,\"other\":[1],$text}"

# CORS.
fetch /v1/models -X OPTIONS -H 'Origin: https://page.example' -D head
why=
grep -qi '^access-control-allow-origin: https://page.example' head || why="no header"
grep -qi '^access-control-allow-headers:.*authorization.*x-prevue-video' head || why="no allowed headers"
[ "$status" = 204 ] || why="status $status"
verdict cors_preflight "$why"
fetch /v1/models -H 'Origin: https://other.example' -D head
why=
! grep -qi '^access-control-allow-origin' head || why="another origin is allowed"
verdict cors_other "$why"

# What a browser sends for a page of another origin without asking first.
for site in cross-site same-site; do
    expect "post_of_$site" 403 'cors-origin allows them' /tokenize -d '{"prompt":"x"}' -H "Sec-Fetch-Site: $site" -H 'Origin: https://other.example'
done
expect post_of_allowed_site 200 'tokens' /tokenize -d '{"prompt":"x"}' -H 'Sec-Fetch-Site: cross-site' -H 'Origin: https://page.example'
expect post_of_our_page 200 'tokens' /tokenize -d '{"prompt":"x"}' -H 'Sec-Fetch-Site: same-origin'
expect link_of_other_site 200 '<title>prevue' / -H 'Sec-Fetch-Site: cross-site'

# A name that leads to this address by somebody else's will.
for host in evil.example evil.example:8080 localhost.evil.example 127.0.0.1.evil.example; do
    expect "host_$host" 403 'not known as.*--allow-host' /v1/models -H "Host: $host"
done
for host in localhost LOCALHOST:1 page.localhost 127.0.0.1:80 '[::1]:8080' videos.example Videos.example.:80; do
    expect "host_$host" 200 '"object"' /v1/models -H "Host: $host"
done

# The log: one line for each request, without prompts.
why=
[ "$(wc -l <access.log)" -ge 40 ] || why="$(wc -l <access.log) lines"
grep -q 'Say something' access.log && why="it has the text of a prompt"
grep -vqE '^\{"time":"[^"]*","id":"req-[0-9a-f]*","remote":"127.0.0.1:[0-9]*","method":"[A-Z]*","path":".*\}$' access.log && why="a line of another form"
verdict access_log "$why"

# Sound. nano does not hear.
click_wav >click.wav
curl -s "$url/v1/files" -F purpose=user_data -F file=@click.wav >out
click=$(member id)
expect sound_peaks 200 '^\{"object":"sound","rate":16000,"samples":8000,"peaks":\[0,0.5,0,0\]\}$' "/v1/files/$click/sound?points=4"
expect sound_none 200 '^\{"object":"sound","rate":16000,"samples":0,"peaks":\[\]\}$' /v1/files/sample-16-frames/sound
expect sound_of_no_file 404 'no file' /v1/files/file-none/sound
expect sound_points 400 'points.*from 1 to 4000' "/v1/files/$click/sound?points=0"
expect model_does_not_hear 200 '"vision":true,"audio":false' /v1/models
expect use_audio 200 '"frames":3,' /v1/chat/completions \
    -d '{"max_tokens":1,"mm_processor_kwargs":{"use_audio_in_video":false,"num_frames":3},"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"sample-16-frames","use_audio_in_video":true}}]}]}'
bad use_audio_not_bool 400 'use_audio_in_video' '{"messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"sample-16-frames","use_audio_in_video":"yes"}}]}]}'
bad input_audio 400 'input_audio.*cannot hear' "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"$(base64 -w 0 click.wav)\",\"format\":\"wav\"}}]}]}"
bad audio_url 400 'audio_url.*cannot hear' '{"messages":[{"role":"user","content":[{"type":"audio_url","audio_url":{"url":"sample-16-frames"}}]}]}'
