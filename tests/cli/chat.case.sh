# prevue chat: questions and commands from a pipe; the answers are those of describe, further ones
# reuse the cache, and an interrupt stops an answer and not the program.

sample=$root/samples/16-frames.mp4

# chat INPUT ARGS...: a conversation whose lines are INPUT.
chat()
{
    input=$1
    shift
    ran="prevue chat $* <<< $input"
    printf '%b' "$input" | "$prevue" chat "$@" >out 2>err
    status=$?
}

on="-m $root/models/nano.gguf --frames 4 -n 12"
run describe "$sample" $on -p 'Describe this video.' --ask 'How many scenes does the video have?'
grep -v '^$' out >want.txt
chat 'Describe this video.\n\n  How many scenes does the video have?  \n/stats\n' "$sample" $on
why=
cmp -s want.txt out || why="the answers are not those of describe"
[ "$status" -eq 0 ] || why="exit status is not 0"
grep -qE '^prompt +[0-9]+ tokens .*, [1-9][0-9]* reused' err || why="nothing was reused"
grep -q '^video ' err && why="the clip was decoded again"
verdict chat_answers_as_describe "$why"

chat "/clip $sample\nDescribe this video.\n/reset\n/stats\nDescribe this video.\n/stats\n/quit\nnever asked\n" $on
why=
[ "$(sed -n 1p out)" = "$(sed -n 1p want.txt)" ] || why="the clip was not seen"
[ "$(wc -l <out)" -eq 2 ] || why="not two answers"
grep -qE '^prompt +[1-9][0-9]? tokens' err || why="the clip is still there after /reset"
grep -q 'there is no answer yet' err || why="/reset keeps the last answer"
[ "$status" -eq 0 ] || why="exit status is not 0"
verdict chat_clip_and_reset "$why"

chat '/clip none-such.mp4\n/clap x\nhi\n' $on
why=
grep -q '^prevue: none-such.mp4: ' err || why="the missing file is not named"
grep -q 'unknown command /clap (/help lists them)' err || why="the unknown command is not named"
[ "$(wc -l <out)" -eq 1 ] || why="the conversation did not go on"
[ "$status" -eq 1 ] || why="exit status is not 1"
verdict chat_goes_on_after_errors "$why"

chat '/help\n' $on
why=
for word in /clip /stats /reset /help /quit; do
    grep -q "^$word" err || why="$word is not in the help"
done
[ ! -s out ] || why="stdout is not empty"
verdict chat_help "$why"
chat '\377\376\n' $on
verdict chat_not_text "$(grep -q 'standard input: is not text in UTF-8' err && [ $status -eq 1 ] || echo 'no such error')"
misuse chat_url 'is a URL, and only files are read' chat https://x.org/a.mp4
misuse chat_no_json 'unknown option --json' chat --json

# An interrupt stops the first answer; the second question, which is sent after it, is answered.
mkfifo typed
"$make_model" --shape tiny --type q8_0 tiny.gguf >make.log 2>&1 || cat make.log
ran="prevue chat, interrupted"
: >out
"$prevue" chat -m tiny.gguf --ignore-eos -n 4000 --temp 2 <typed >out 2>err &
pid=$!
exec 7>typed
echo 'first' >&7
tries=0
while [ ! -s out ] && [ $tries -lt 300 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
kill -INT $pid
echo '/stats' >&7
exec 7>&-
wait $pid
status=$? why=
rm typed
[ "$status" -eq 0 ] || why="exit status is not 0"
tokens=$(sed -n 's/^answer *\([0-9]*\) tokens.*/\1/p' err)
[ "${tokens:-0}" -gt 0 ] && [ "$tokens" -lt 4000 ] || why="the answer has ${tokens:-no} tokens, it was not stopped"
verdict chat_interrupt "$why"
