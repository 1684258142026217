#!/bin/sh
# GNU parallel: four processes of one machine, or of several with --sshlogin. Where one process can
# use all cores, one process with a larger --jobs is better: its clips share one copy of the model.
#
#   examples/batch/parallel.sh clips.jsonl answers.jsonl [OPTIONS of prevue batch]
set -eu
list=$1 out=$2
shift 2
n=${SHARDS:-4}
seq "$n" | parallel -j "$n" --halt never prevue batch "$list" -o "$out" --shard "{}/$n" --threads 1 "$@"
stem=${out%.jsonl}
cat "$stem"-*-of-"$n".jsonl >"$out"
