# prevue batch: one line of results for each clip, whatever happens on the way.
. "$here/video.sh"

"$make_model" --shape tiny-ov --type q8_0 model.gguf >make.log 2>&1 || cat make.log
for i in 1 2 3 4 5 6; do
    make_clip "clip$i.y4m" 8 4 $((48 + 16 * i)) 48
done
for i in 1 2 3 4 5 6 1 2 3 4 5 6; do
    printf '{"id":%d,"video":"clip%d.y4m","questions":["What is %d?","Where?"]}\n' "$i" "$i" "$i"
done >list.jsonl
printf '\n{"video":"clip1.y4m","prompt":"Wh\\u0079?"}\n{"video":"nowhere.y4m"}\nno json\n' >>list.jsonl
with="-m model.gguf --frames 4 -n 24 --jobs 3"
lines=15 # of list.jsonl that are not blank

# --- the results ---

run batch list.jsonl -o all.jsonl $with
why=
[ "$status" -eq 1 ] || why="exit status is not 1, and two clips fail"
[ "$(wc -l <all.jsonl)" -eq $lines ] || why="not $lines lines"
[ "$(cut -d, -f1 all.jsonl | sort -u | wc -l)" -eq $lines ] || why="a line is there twice"
grep -q '^{"line":15,"error":"nowhere.y4m: No such file' all.jsonl || why="the missing clip has no error"
grep -q '^{"line":16,"error":"list.jsonl: line 16: it is not a JSON object"' all.jsonl || why="no error of line 16"
grep -q '^{"line":14,"video":"clip1.y4m","frames":4,"answers":\[{"question":"Why?","text":"' all.jsonl ||
    why="line 14 has no answer"
grep -q '^{"line":3,"id":"3","video":"clip3.y4m".*"What is 3?".*"Where?".*"finish":"length"' all.jsonl ||
    why="line 3 has not both answers"
grep -q '13 clips answered, 2 failed' err || why="no summary"
grep -q '^prevue: all\.jsonl: its lines with "error" say why' err || why="it is not said where the reasons are"
verdict batch_results "$why"

# An answer is the one that describe gives.
run describe clip3.y4m -p 'Where?' -m model.gguf --frames 4 -n 24 --json
text=$(sed 's/.*"text":\("\([^"\\]\|\\.\)*"\).*/\1/' out)
got=$(grep '^{"line":3,' all.jsonl | sed 's/.*"Where?","text":\("\([^"\\]\|\\.\)*"\).*/\1/')
verdict batch_as_describe "$([ -n "$text" ] && [ "$text" = "$got" ] || echo "$got and $text")"

run batch list.jsonl -o all.jsonl $with
why=
[ "$status" -eq 1 ] && [ "$(wc -l <all.jsonl)" -eq $lines ] || why="not the same $lines lines"
grep -q 'all 15 clips were there already, 2 of them with an error' err || why="no summary"
verdict batch_again "$why"

failure batch_to_device '/dev/full: exists and is not a regular file' batch list.jsonl -o /dev/full $with

# --- killed at any moment ---

sort all.jsonl >all.sorted
kills=0 finished=0
while [ $kills -lt "${KILLS:-12}" ] && [ $finished -eq 0 ]; do
    "$prevue" batch list.jsonl -o killed.jsonl $with --jobs $((1 + kills % 4)) 2>err >out &
    pid=$!
    # from 0.1 to 0.6 s, at no fixed place
    sleep "$(awk "BEGIN { srand($$ + $kills); print 0.1 + 0.5 * rand() }")"
    kill -9 $pid 2>/dev/null || finished=1
    wait $pid 2>/dev/null
    kills=$((kills + 1))
done
run batch list.jsonl -o killed.jsonl $with
sort killed.jsonl >killed.sorted
verdict batch_killed "$(cmp all.sorted killed.sorted 2>&1)"

# Half a line at the end is cut off; the rest stays.
head -n 3 all.jsonl >half.jsonl
sed -n 4p all.jsonl | head -c 90 | tr -d '\n' >>half.jsonl
run batch list.jsonl -o half.jsonl $with
sort half.jsonl >half.sorted
why=$(cmp all.sorted half.sorted 2>&1)
grep -q '3 were there already' err || why="not 3 of them were kept"
verdict batch_half_a_line "$why"

# So is what a power failure leaves of it: NUL bytes behind its beginning, or in place of all of it.
# Blank lines are nobody's.
for begin in 0 5 90; do
    head -n 3 all.jsonl >half.jsonl
    sed -n 4p all.jsonl | head -c $begin | tr -d '\n' >>half.jsonl
    head -c 5000 /dev/zero >>half.jsonl
    run batch list.jsonl -o half.jsonl $with
    sort half.jsonl >half.sorted
    why=$(cmp all.sorted half.sorted 2>&1)
    grep -q '3 were there already' err || why="not 3 of them were kept"
    verdict "batch_zeros_after_$begin" "$why"
done
sed '2s/^/\n \t\r\n/; $s/$/\n\n  /' all.jsonl >blank.jsonl
run batch list.jsonl -o blank.jsonl $with
why=$(cmp all.jsonl blank.jsonl 2>&1)
grep -q 'all 15 clips were there already' err || why="not all of them were kept"
verdict batch_blank_lines "$why"
{ head -n 3 all.jsonl && head -c 9 /dev/zero && sed -n 4p all.jsonl; } >zeros.jsonl
failure batch_zeros_within 'zeros\.jsonl: line 4 is not a result of batch, or was edited' \
    batch list.jsonl -o zeros.jsonl $with

# --- a signal ---

"$prevue" batch list.jsonl -o stopped.jsonl $with -n 400 --jobs 1 >out 2>err &
pid=$!
for _ in $(seq 100); do
    [ -s stopped.jsonl ] && break
    sleep 0.05
done
kill -TERM $pid
wait $pid
status=$?
why=
[ $status -eq 143 ] || why="exit status is not 143"
[ "$(tail -c 1 stopped.jsonl | od -An -c | tr -d ' ')" = '\n' ] || why="half a line is left"
verdict batch_terminated "$why"

# --- errors tried again ---

cp clip1.y4m nowhere.y4m
cp all.jsonl retry.jsonl
run batch list.jsonl -o retry.jsonl $with --retry
why=
[ "$(wc -l <retry.jsonl)" -eq $lines ] || why="not $lines lines"
grep -q '^{"line":15,"video":"nowhere.y4m","frames":4' retry.jsonl || why="line 15 has no answer"
grep -q '13 were there already' err || why="not 13 of them were kept"
verdict batch_retry "$why"
rm nowhere.y4m

# --- shards ---

run batch list.jsonl -o part.jsonl $with --shard 1/2
SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=6 SLURM_ARRAY_TASK_COUNT=2 "$prevue" batch list.jsonl -o part.jsonl $with 2>err >out
cat part-1-of-2.jsonl part-2-of-2.jsonl | sort >parts.sorted
verdict batch_shards "$(cmp all.sorted parts.sorted 2>&1)"
JOB_COMPLETION_INDEX=0 "$prevue" batch list.jsonl -o part.jsonl $with --shard /2 2>err >out
verdict batch_kubernetes "$(grep -q 'all 8 clips were there' err || cat err)"
misuse batch_shard_zero '\-\-shard: "0/2" is not I/N' batch list.jsonl -o x.jsonl --shard 0/2
misuse batch_shard_unknown 'neither Slurm nor Kubernetes' batch list.jsonl -o x.jsonl --shard /2
misuse batch_no_output 'no output file given' batch list.jsonl
misuse batch_no_list 'no list of clips given' batch -o x.jsonl
misuse describe_many "list.jsonl is not a video: for many of them there is 'prevue batch'" describe list.jsonl

# --- what is there is not lost ---

failure batch_other_options 'all\.jsonl: line 1 was made with another model or other options' \
    batch list.jsonl -o all.jsonl $with -n 9
sed 2d list.jsonl >other.jsonl
failure batch_other_list 'answers another line' batch other.jsonl -o all.jsonl $with
failure batch_over_list 'list\.jsonl: would be overwritten' batch list.jsonl -o list.jsonl $with
failure batch_over_model 'model\.gguf: line 1 is not a result of batch' batch list.jsonl -o model.gguf $with
sed 's/What is 4/What is 5/' all.jsonl >changed.jsonl
failure batch_changed 'is not a result of batch, or was edited' batch list.jsonl -o changed.jsonl $with
failure batch_missing_list 'nolist\.jsonl' batch nolist.jsonl -o x.jsonl $with
: >void.jsonl
failure batch_void 'there is no clip in this list' batch void.jsonl -o x.jsonl $with
sort all.jsonl | cmp -s - all.sorted
verdict batch_spared "$(sort all.jsonl | cmp - all.sorted 2>&1)"
[ "$(id -u)" -eq 0 ] || failure batch_unwritable 'cannot be opened' batch list.jsonl -o /proc/x.jsonl $with
# A file system that fills up (here: a limit on the size of files, 128 KiB). The limit holds for memory that is
# shared with the media helper, too; so the lines are long.
awk -v long="$(printf '%020000d' 0)" '{ sub(/"id":/, "&" long); print }' list.jsonl |
    sed 's/"id":\([0-9]*\)/"id":"\1"/' >long.jsonl
"$prevue" batch long.jsonl -o long.sorted $with >out 2>err
sort -o long.sorted long.sorted
(
    ulimit -f 256
    exec "$prevue" batch long.jsonl -o full.jsonl $with
) >out 2>err
why=
[ "$(wc -l <full.jsonl)" -lt $lines ] || why="all lines fit: $(wc -c <full.jsonl)"
run_again=$(head -c 400 err)
"$prevue" batch long.jsonl -o full.jsonl $with >out 2>err
sort full.jsonl >full.sorted
cmp long.sorted full.sorted >cmp.log 2>&1 || why="$(cat cmp.log), first: $run_again"
verdict batch_full_disk "$why"
