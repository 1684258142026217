#!/bin/sh
# A Slurm array job: each task answers its part of a list. Killed or requeued tasks go on where they
# were. Submit with
#
#   sbatch --array=0-7 examples/batch/slurm.sh clips.jsonl answers.jsonl MODEL
#
# and join the parts when all tasks are done:
#
#   cat answers-*-of-8.jsonl > answers.jsonl
#
#SBATCH --job-name=prevue
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --requeue
set -eu
list=$1 out=$2 model=$3
# The shard is found in SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT.
exec prevue batch "$list" -o "$out" -m "$model" --threads "${SLURM_CPUS_PER_TASK:-8}"
