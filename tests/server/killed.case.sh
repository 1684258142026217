# A model over several processes, one of which is killed: clients get an error, and the server ends
# with one sentence. While nobody asks for anything, and in the middle of an answer.

# end_with NAME SENTENCE: the server ends by itself within 8 seconds, status 1.
end_with()
{
    why="it still runs"
    for _ in $(seq 80); do
        kill -0 "$server" 2>/dev/null || { why= && break; }
        sleep 0.1
    done
    status=0
    if [ -z "$why" ]; then
        wait "$server" || status=$?
        server=
        [ $status -eq 1 ] || why="status $status, not 1"
        grep -qxE "$2" serve.err || why="no such sentence"
        [ "$(wc -l <serve.err)" -eq 1 ] || why="stderr is not one line"
    fi
    verdict "$1" "$why"
}

# rank_of N: the process of child N of the server.
rank_of()
{
    cut -d ' ' -f "$1" "/proc/$server/task/$server/children"
}

drafts=
serve --ranks 3
expect ranks_answer 200 '"finish_reason":"length"' /v1/chat/completions \
    -d '{"max_tokens":5,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me everything."}]}'
kill -9 "$(rank_of 2)"
end_with idle_server_ends 'prevue: rank 2 of 3 was killed by signal 9'

serve --ranks 2
curl -s -N -m 20 -o killed.out "$url/v1/chat/completions" \
    -d '{"stream":true,"max_tokens":4000,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me everything."}]}' &
reader=$!
for _ in $(seq 100); do
    grep -q content killed.out 2>/dev/null && break
    sleep 0.1
done
kill -9 "$(rank_of 1)"
end_with busy_server_ends 'prevue: rank 1 of 2 was killed by signal 9'
wait $reader
verdict client_gets_an_error "$(
    grep -q '"error".*rank 1 of 2' killed.out || echo "no error in the stream"
    ! grep -q '"finish_reason":"' killed.out || echo "an end as if nothing had happened")"

# The draft model's process is not the model's; both are needed.
drafts="-d $models/nano-draft.gguf"
serve --draft-ranks 1 --method pearl
expect draft_rank_answers 200 '"finish_reason":"length"' /v1/chat/completions \
    -d '{"max_tokens":5,"ignore_eos":true,"messages":[{"role":"user","content":"Tell me everything."}]}'
kill -9 "$(rank_of 1)"
end_with draft_rank_ends 'prevue: rank 1 of 2 was killed by signal 9'
