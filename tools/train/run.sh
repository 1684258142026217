#!/bin/sh
# All stages of both models, one after the other, on one GPU: tools/train/run.sh SPRITES OUT
#
# A stage loads, compiles and fills its queue of data while the one before still trains, and waits
# for that one's last file. Minutes of each stage: NANO1 NANO2 DRAFT1 DRAFT2. Logs lie beside the
# weights. SPRITES is a folder, or what world.sprites saved of one (loads faster).
set -u
sprites=${1:?"usage: tools/train/run.sh SPRITES OUT"}
out=${2:?"usage: tools/train/run.sh SPRITES OUT"}
here=$(dirname "$0")
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
mkdir -p "$out" || exit 1

# stage NAME SCRIPT ARGS...: its log is NAME.log; NAME.done or failed says how it ended.
stage()
{
    name=$1
    script=$2
    shift 2
    if python3 "$here/$script" --sprites "$sprites" -o "$out" "$@" >"$out/$name.log" 2>&1; then
        touch "$out/$name.done"
    else
        touch "$out/failed"
    fi
}

stage nano2 train.py --minutes "${NANO2:-13.6}" --gate "$out/nano1.done" --from "$out" &
stage nano1 pretrain.py --minutes "${NANO1:-3.6}"
sleep 20
stage draft1 pretrain.py --model nano-draft --minutes "${DRAFT1:-1.6}" --gate "$out/nano2.done" &
sleep 40
stage draft2 train.py --model nano-draft --minutes "${DRAFT2:-4.2}" --frames 1536 --tokens 65536 \
    --gate "$out/draft1.done" --from "$out" &
wait
[ ! -e "$out/failed" ]
