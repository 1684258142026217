# Interrupts, and a stdout that is closed, full or goes away.

"$make_model" --shape tiny --type q8_0 tiny.gguf >make.log 2>&1 || cat make.log
long="generate -m tiny.gguf -p Hello --ignore-eos -n 20000 --temp 2"

# wait_for_output: the file out gets something within 30 s.
wait_for_output()
{
    tries=0
    while [ ! -s out ] && [ $tries -lt 300 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
}

: >out # the last case's output would be taken for this one's
ran="prevue $long, interrupted"
"$prevue" $long >out 2>err </dev/null &
pid=$!
wait_for_output
kill -INT $pid
wait $pid
status=$? why=
[ "$status" -eq 130 ] || why="exit status is not 130"
[ -s out ] || why="the text so far is lost"
[ ! -s err ] || why="stderr is not empty"
verdict interrupt "$why"

: >out
ran="prevue $long --json, interrupted"
"$prevue" $long --json >out 2>err </dev/null &
pid=$!
sleep 1
kill -INT $pid
wait $pid
status=$? why=
[ "$status" -eq 130 ] || why="exit status is not 130"
grep -q '"ids":\[.*\]' out || why="no object with what was there"
verdict interrupt_json "$why"

ran="prevue $long | head -c 1"
{
    "$prevue" $long 2>err </dev/null
    echo $? >status
} | head -c 1 >out
status=$(cat status) why=
[ "$status" -eq 1 ] || why="exit status is not 1"
grep -q '^prevue: standard output' err || why="no sentence"
verdict broken_pipe "$why"

for command in "generate -m tiny.gguf -p Hello -n 200 --ignore-eos --temp 2" "inspect tiny.gguf" \
    "tokenize -m tiny.gguf x" "help generate" "help" "version"; do
    name=$(echo "$command" | cut -d' ' -f 1-2 | tr ' ' _)
    ran="prevue $command >/dev/full"
    : >out
    "$prevue" $command >/dev/full 2>err </dev/null
    status=$? why=
    [ "$status" -eq 1 ] || why="exit status is not 1"
    grep -q '^prevue: standard output' err || why="no sentence"
    verdict "full_disk_$name" "$why"
    ran="prevue $command >&-"
    "$prevue" $command >&- 2>err </dev/null
    status=$? why=
    [ "$status" -eq 1 ] || why="exit status is not 1"
    grep -q '^prevue: standard output' err || why="no sentence"
    verdict "closed_stdout_$name" "$why"
done

# A model opened while stdin, stdout and stderr are closed must not take their numbers.
ran="prevue convert with all descriptors closed"
"$prevue" convert tiny.gguf closed.gguf --type q8_0 <&- >&- 2>&-
status=$? why=
[ "$status" -eq 0 ] || why="exit status is not 0"
run convert tiny.gguf open.gguf --type q8_0
cmp -s closed.gguf open.gguf || why="the file differs from one written with them open"
verdict closed_descriptors "$why"
