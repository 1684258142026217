# A hostile client, whose seed is another one each time and is told: nothing runs, waits or stays
# open when it has left, and the server ends in order.
serve --samples "$samples" --client-timeout 2 --upload-dir files
before=$(ls "/proc/$server/fd" | wc -l)
seed=${HOSTILE_SEED:-$(date +%s)}
why=
"$hostile" "${url##*:}" "${HOSTILE_SECONDS:-3}" "$seed" >out || why="seed $seed"
verdict hostile_client "$why"
why="requests are still running (seed $seed)"
for _ in $(seq 100); do
    curl -s -m 10 "$url/metrics" >out
    grep -qx 'prevue:num_requests_running 0' out && grep -qx 'prevue:num_requests_waiting 0' out &&
        [ "$(ls "/proc/$server/fd" | wc -l)" -le $((before + 2)) ] && why= && break
    sleep 0.1
done
verdict hostile_client_leaves_nothing "$why"
kill "$server"
wait "$server"
status=$?
server=
why=
[ $status -eq 0 ] || why="exit status $status (seed $seed)"
grep -qE 'ERROR: |runtime error' serve.err && why="a report of a sanitizer (seed $seed)"
verdict hostile_client_end "$why"
