# A model that hears: tiny, with random weights, so that its words mean nothing but depend on what it
# hears.
"$build/make_model" --shape tiny-salmonn2-plus --type f32 hears.gguf
target=$dir/hears.gguf
drafts=
serve
target=$models/nano.gguf
drafts=$all_drafts
click_wav >click.wav
head -c 16044 click.wav | tr '\200' '\100' >other.wav

# heard PART: an answer, drawn at random, to a part of a message and a question; its ids are in $ids.
heard()
{
    chat "{\"max_tokens\":12,\"temperature\":1,\"seed\":5,\"messages\":[{\"role\":\"user\",\"content\":[$1,{\"type\":\"text\",\"text\":\"What is heard?\"}]}]}"
    ids=$(ids_of)
}
input_audio()
{
    printf '{"type":"input_audio","input_audio":{"data":"%s","format":"wav"}}' "$(base64 -w 0 "$1")"
}

expect model_hears 200 '"vision":true,"audio":true' /v1/models
heard "$(input_audio click.wav)"
first=$ids
why=
[ "$status" = 200 ] && [ -n "$first" ] || why="status $status"
verdict sound_is_answered "$why"

# The command line hears the same, and answers so.
"$prevue" describe -m hears.gguf click.wav -p 'What is heard?' -n 12 --temp 1 --seed 5 --json >cli.json 2>cli.err
why=
[ "$(ids_of cli.json)" = "$first" ] || why="the command line has the ids $(ids_of cli.json)"
verdict sound_as_the_command_line_hears_it "$why"

heard "$(input_audio other.wav)"
why=
[ "$ids" != "$first" ] || why="another sound has the same answer"
verdict other_sound_other_answer "$why"

curl -s "$url/v1/files" -F purpose=user_data -F file=@click.wav >out
click=$(member id)
heard "{\"type\":\"audio_url\",\"audio_url\":{\"url\":\"$click\"}}"
why=
[ "$ids" = "$first" ] || why="an uploaded file has another answer"
verdict uploaded_sound "$why"

bad_sound()
{
    chat "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"$2\",\"format\":\"wav\"}}]}]}"
    why=
    [ "$status" = 400 ] || why="status $status instead of 400"
    grep -q '"error"' out || why="no error"
    verdict "$1" "$why"
}
bad_sound sound_that_is_none "$(printf 'no sound at all' | base64)"
bad_sound sound_of_no_bytes ''
