# One model over several processes: the same text, and an end for all when one of them ends.

video=$root/samples/16-frames.mp4

run describe "$video" -n 12 -p 'Describe this video.'
cp out expected
for n in 2 3; do
    run describe "$video" -n 12 -p 'Describe this video.' --ranks $n
    verdict "the text with $n ranks" "$(cmp -s out expected || echo "another text")"
done

misuse '1 .*64' describe "$video" --ranks 0
misuse '1 .*64' describe "$video" --ranks 65
failure 'spread over ranks cannot be kept on disk' describe "$video" --ranks 2 --cache-dir cache --cache-kv
failure 'CPUs only' describe "$video" --ranks 2 --device cuda

# A rank that is killed while it works: one sentence, no text lost in a hang.
"$prevue" generate --raw -p 'A' -n 4000 --ignore-eos -c 4096 --ranks 3 >out 2>err </dev/null &
leader=$!
tries=0
while [ "$(pgrep -P $leader | wc -l)" -lt 2 ] && [ $tries -lt 100 ]; do
    sleep 0.05
    tries=$((tries + 1))
done
victim=$(pgrep -P $leader | tail -1)
sleep 0.3
kill -9 "$victim"
status=0
wait $leader || status=$?
ran="prevue generate --ranks 3, and kill -9 of one"
verdict "a killed rank ends the others" "$(
    [ $status -eq 1 ] || echo "status $status, not 1"
    grep -qE '^prevue: rank [12] of 3 was killed by signal 9$' err || echo "no such sentence"
    [ "$(wc -l <err)" -eq 1 ] || echo "stderr is not one line"
    [ -z "$(pgrep -P $leader)" ] || echo "a rank is left")"

# Under mpirun, where it is installed: the program with MPI (make MPI=1), which `make test` builds
# beside the other.
if command -v mpirun >/dev/null 2>&1; then
    mpi="mpirun --allow-run-as-root --oversubscribe"
    ran="$mpi -n 2 prevue describe"
    status=0
    $mpi -n 2 "$prevue" describe "$video" -n 12 >out 2>err </dev/null || status=$?
    verdict "a build without MPI says so under mpirun" "$(
        [ $status -ne 0 ] || echo "it succeeded"
        grep -q 'built without MPI' err || echo "no such sentence")"
    for n in 2 3 4; do
        [ -x "$build/prevue_mpi" ] || continue
        ran="$mpi -n $n prevue_mpi describe"
        status=0
        $mpi -n $n "$build/prevue_mpi" describe "$video" -n 12 -p 'Describe this video.' \
            >out 2>err </dev/null || status=$?
        verdict "the text with $n ranks of mpirun" "$(cmp -s out expected || echo "another text")"
    done
fi
