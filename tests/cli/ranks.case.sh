# One model over several processes: the same text, and an end for all when one of them ends.

video=$root/samples/16-frames.mp4
nano=$root/models/nano.gguf

# The text of `describe` with these options, in the file out.
ask()
{
    run describe "$video" -m "$nano" -n 12 -p 'Describe this video.' "$@"
}

ask
cp out one.txt
verdict "the text of one process" "$([ -s one.txt ] || echo "there is none")"
for n in 2 3; do
    ask --ranks $n
    verdict "the text with $n ranks" "$(cmp -s out one.txt || echo "another text")"
done

# The draft model on processes of its own, which draft while the model works.
draft=$root/models/nano-draft.gguf
for options in '--method pearl --draft-ranks 1' '--method hippo --ranks 2 --draft-ranks 1' \
    '--method parallelvlm --draft-ranks 2' '--method specvlm --draft-ranks 1'; do
    ask -d "$draft" $options
    verdict "the text with $options" "$(cmp -s out one.txt || echo "another text")"
done

misuse "no draft ranks" '1 .*63' describe "$video" -m "$nano" --draft-ranks 0
misuse "no ranks" '1 .*64' describe "$video" -m "$nano" --ranks 0
misuse "too many ranks" '1 .*64' describe "$video" -m "$nano" --ranks 65
failure "pages of ranks on disk" 'spread over ranks cannot be kept on disk' \
    describe "$video" -m "$nano" --ranks 2 --cache-dir cache --cache-kv
misuse "a list of devices that ends too soon" "unknown device 'cuda:0,'" \
    describe "$video" -m "$nano" --devices cuda:0,
misuse "a list with a CPU" "unknown device 'cuda:0,cpu'" \
    describe "$video" -m "$nano" --devices cuda:0,cpu
failure "ranks on a GPU" 'CPUs only' describe "$video" -m "$nano" --ranks 2 --device cuda

# A rank that is killed while it works: one sentence, and nobody is left.
children()
{
    cat "/proc/$leader/task/$leader/children" 2>/dev/null
}

"$prevue" generate -m "$nano" --raw -p 'A' -n 4000 --ignore-eos -c 4096 --ranks 3 \
    >out 2>err </dev/null &
leader=$!
tries=0
while [ ! -s out ] && [ $tries -lt 400 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
first=$(children | cut -d ' ' -f 1)
kill -9 "$(children | cut -d ' ' -f 2)" 2>/dev/null
status=0
wait $leader || status=$?
ran="prevue generate --ranks 3, and kill -9 of rank 2"
verdict "a killed rank ends the others" "$(
    [ $status -eq 1 ] || echo "status $status, not 1"
    grep -qE '^prevue: rank 2 of 3 was killed by signal 9$' err || echo "no such sentence"
    [ "$(wc -l <err)" -eq 1 ] || echo "stderr is not one line"
    ! kill -0 "${first:-1}" 2>/dev/null || echo "a rank is left")"

# Under mpirun, where it is installed: the program with MPI (make MPI=1), which `make test` builds
# beside the other.
if command -v mpirun >/dev/null 2>&1; then
    usual=$prevue
    prevue=mpirun
    ran_by="--allow-run-as-root --oversubscribe -n"
    run $ran_by 2 "$usual" describe "$video" -m "$nano" -n 12
    verdict "a build without MPI says so under mpirun" "$(
        [ $status -ne 0 ] || echo "it succeeded"
        grep -q 'built without MPI' err || echo "no such sentence")"
    for n in 2 3 4; do
        [ -x "$build/prevue_mpi" ] || continue
        run $ran_by $n "$build/prevue_mpi" describe "$video" -m "$nano" -n 12 -p 'Describe this video.'
        verdict "the text with $n ranks of mpirun" "$(cmp -s out one.txt || echo "another text")"
    done
    prevue=$usual
fi
