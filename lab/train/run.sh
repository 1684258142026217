#!/bin/sh
# All stages of both models, one after the other, on one GPU: lab/train/run.sh SPRITES OUT
#
# A stage loads, compiles and fills its queue of data while the one before still trains, and waits
# for that one's last file. Minutes of each stage: NANO1 NANO2 DRAFT1 DRAFT2 NANO3 NANO4 NANO5
# DRAFT3. OUT/q4_0 gets what ships, both models fitted to Q4_0. What came before: of nano
# OUT/nano.safetensors (NANO2), OUT/seeing (NANO3) and OUT/all (NANO4), of nano-draft
# OUT/nano-draft.safetensors. Logs lie beside the weights. SPRITES is a folder, or what
# world.sprites saved of one (loads faster).
set -u
sprites=${1:?"usage: lab/train/run.sh SPRITES OUT"}
out=${2:?"usage: lab/train/run.sh SPRITES OUT"}
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

# Until stage NAME has ended; the script ends where one failed.
ended()
{
    while [ ! -e "$out/$1.done" ]; do
        [ ! -e "$out/failed" ] || exit 1
        sleep 1
    done
}

stage nano2 train.py --minutes "${NANO2:-13.6}" --gate "$out/nano1.done" --from "$out" &
stage nano1 pretrain.py --minutes "${NANO1:-3.6}"
sleep 20
stage draft1 pretrain.py --model nano-draft --minutes "${DRAFT1:-1.6}" --gate "$out/nano2.done" &
sleep 40
stage draft2 train.py --model nano-draft --minutes "${DRAFT2:-4.2}" --frames 1536 --tokens 65536 \
    --gate "$out/draft1.done" --from "$out" &

# nano once more, on sprites in other styles than drawn: it begins with the weights of nano2.
ended draft1
stage nano3 pretrain.py --minutes "${NANO3:-3.0}" --start "$out/nano.safetensors" --restyle 0.8 \
    --keep 1 --heads-first 150 --lr 1.5e-3 --frames 512 --gate "$out/draft2.done" -o "$out/seeing" &
ended draft2
stage nano4 train.py --minutes "${NANO4:-3.7}" --start "$out/nano.safetensors" --restyle 0.5 \
    --reword --tower-every 2 --lr 1e-3 --from-seeing "$out/seeing/nano-stage1.safetensors" \
    --heads "$out/seeing/nano-heads.safetensors" --gate "$out/nano3.done" -o "$out/all" &

# Both fitted to the type that ships; the weights to fit are read at the start.
ended nano4
stage nano5 quantise.py --minutes "${NANO5:-4.8}" --start "$out/all/nano.safetensors" \
    --restyle 0.5 --reword -o "$out/q4_0" &
sleep 60
stage draft3 quantise.py --model nano-draft --minutes "${DRAFT3:-1.6}" --frames 1536 \
    --tokens 65536 --start "$out/nano-draft.safetensors" --gate "$out/nano5.done" -o "$out/q4_0" &
wait
[ ! -e "$out/failed" ]
