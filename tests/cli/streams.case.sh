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
# Until it has worked for a second: user time, in ticks, is the field after thirteen.
until [ "$(cut -d ' ' -f 14 /proc/$pid/stat 2>/dev/null || echo 9999)" -ge "$(getconf CLK_TCK)" ]; do
    sleep 0.05
done
kill -INT $pid
wait $pid
status=$? why=
[ "$status" -eq 130 ] || why="exit status is not 130"
grep -q '"ids":\[.*\]' out || why="no object with what was there"
verdict interrupt_json "$why"

# ended NAME ARGS...: SIGTERM while the command works, that is has mapped the model file working.gguf;
# the status must be its own, 143, not that of a process that died by the signal. xargs tells one
# from the other by its status, 123 or 125. A command that was quicker than the signal is run again.
ended()
{
    name=$1
    shift
    ran="prevue $*, terminated"
    tries=0 status=0
    while [ "$status" -eq 0 ] && [ $tries -lt 20 ]; do
        : >pid
        echo "$@" | xargs sh -c 'echo $$ >pid; exec "$0" "$@"' "$(program_of "$@")" >out 2>err &
        until grep -q working /proc/"$(cat pid)"/maps 2>/dev/null; do
            kill -0 $! 2>/dev/null || break
        done
        kill -TERM "$(cat pid)" 2>/dev/null
        wait $!
        status=$?
        tries=$((tries + 1))
    done
    why=
    [ "$status" -eq 123 ] || why="it did not end by itself"
    [ -z "$(find . -name '*.tmp[0-9]*')" ] || why="a temporary file was left"
    sed '/terminated by signal/d' err | grep -q . && why="stderr is not empty"
    verdict "$name" "$why"
}

. "$here/video.sh"
"$make_model" --shape q05 --type f32 --hollow working.gguf >make.log 2>&1 || cat make.log
ended terminate_convert convert working.gguf converted.gguf --type q8_0 --force
verdict terminate_leaves_nothing "$([ ! -e converted.gguf ] || echo 'there is an output')"
"$make_model" --shape tiny-ov --type q8_0 working.gguf >make.log 2>&1 || cat make.log
make_clip long.y4m 64 4 320 240
ended terminate_view view long.y4m -m working.gguf --frames 64 -o view.png
ended terminate_prepare prepare long.y4m -m working.gguf --frames 64 -o long.pvin
rm -f working.gguf

ran="prevue $long | head -c 1"
{
    "$prevue" $long 2>err </dev/null
    echo $? >status
} | head -c 1 >out
status=$(cat status) why=
[ "$status" -eq 141 ] || why="exit status is not 141"
[ ! -s err ] || why="stderr is not empty"
verdict broken_pipe "$why"

# A reader that has gone before the first byte is written, and a text longer than a buffer.
for command in "bench --help" "help --man" "help" "version" "inspect tiny.gguf"; do
    ran="prevue $command, into a pipe that nobody reads"
    rm -f gone
    : >out
    {
        while [ ! -e gone ]; do sleep 0.05; done
        "$(program_of $command)" $command 2>err </dev/null
        echo $? >status
    } | { exec <&-; : >gone; }
    status=$(cat status) why=
    [ "$status" -eq 141 ] || why="exit status is not 141"
    [ ! -s err ] || why="stderr is not empty"
    verdict "closed_pipe_$(echo "$command" | tr -d -- '-.' | tr ' ' _)" "$why"
done

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
