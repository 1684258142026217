#!/usr/bin/env python3
"""Conversations that a checkpoint of LLaVA-OneVision or Qwen2.5-VL has about your pictures and
videos, with the states that a draft head learns from: one file each, for `train.py`.

ITEMS.jsonl has one object a line: "prompt", and "image" (a file), "images" (several) or "video" (a
file, or a folder of frames as PNG). A video file's frames are taken by prevue, as it will take them
at work. The answer is the checkpoint's own, greedy; then one pass over prompt and answer gives the
states of all rows: after the last norm, and of the video's rows also the embeddings and the middle
layer's. What is there already is not made again, so several processes may share a list with --of.
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import numpy as np  # noqa: E402
import PIL.Image  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

from train.head.bank import save_conversation  # noqa: E402

WORDS = " Please answer with at least 1000 words."


def stop(text):
    sys.exit(f"collect: {text}")


# ---- items ----

def read_items(path):
    items = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            try:
                item = json.loads(line)
                item["prompt"]
            except (ValueError, KeyError, TypeError) as e:
                stop(f"{path}, line {number}: {e!r}")
            items.append(item)
    return items


def picture(path):
    return PIL.Image.open(path).convert("RGB")


def frames_of(args, video):
    """[frames, height, width, 3] of 8 bits."""
    if os.path.isdir(video):
        files = sorted(glob.glob(os.path.join(video, "*.png")))
        return np.stack([np.asarray(picture(f)) for f in files])
    with tempfile.TemporaryDirectory() as folder:
        command = [args.prevue, "frames", video, "-o", folder, "-m", args.target, "--json"]
        command += ["--frames", str(args.frames)] if args.frames else []
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            stop(f"{video}: {done.stderr.strip() or done.returncode}")
        return np.stack([np.asarray(picture(f["file"]))
                         for f in json.loads(done.stdout)["frames"]])


def prepare(args, processor, item):
    """The model's inputs."""
    images = [picture(p) for p in item.get("images", [item["image"]] if "image" in item else [])]
    videos = [frames_of(args, item["video"])] if "video" in item else []
    content = [dict(type="image")] * len(images) + [dict(type="video")] * len(videos) + \
        [dict(type="text", text=item["prompt"] + (WORDS if args.long else ""))]
    text = processor.apply_chat_template([dict(role="user", content=content)], tokenize=False,
                                         add_generation_prompt=True)
    more = dict(images=images) if images else {}
    if videos:
        more.update(videos=videos, do_sample_frames=False)
    return processor(text=[text], return_tensors="pt", **more)


# ---- the target ----

def visual_ids(config):
    names = ("image_token_id", "video_token_id", "image_token_index", "video_token_index")
    return {getattr(config, n) for n in names if getattr(config, n, None) is not None}


@torch.inference_mode()
def converse(model, inputs, limit):
    """ids of prompt and answer, and the rows' states after each layer."""
    n = inputs["input_ids"].shape[1]
    ids = model.generate(**inputs, do_sample=False, max_new_tokens=limit)
    grown = {k: v for k, v in inputs.items() if k not in ("input_ids", "attention_mask")}
    if "mm_token_type_ids" in grown:  # of rows: those of the answer are text
        t = grown["mm_token_type_ids"]
        grown["mm_token_type_ids"] = torch.cat((t, t.new_zeros(1, ids.shape[1] - n)), 1)
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True,
                use_cache=False, **grown)
    last = model.get_output_embeddings()(out.hidden_states[-1][:, -1])
    off = (last - out.logits[:, -1]).abs().max() / out.logits[:, -1].abs().max()
    if off > 0.02:
        stop("this version of transformers gives no states after the last norm")
    return ids[0], n, [h[0] for h in out.hidden_states]


def collect_one(args, model, processor, item, path, seen):
    inputs = prepare(args, processor, item).to(model.device)
    for k, v in inputs.items():
        if v.is_floating_point():
            inputs[k] = v.to(model.dtype)
    ids, first, states = converse(model, inputs, args.max_tokens)
    made = torch.arange(len(ids), device=ids.device) >= first
    is_visual = torch.isin(ids, torch.tensor(sorted(seen), device=ids.device))
    rows = torch.where(is_visual, -1, ids)
    before = torch.cat((torch.zeros_like(states[-1][:1]), states[-1][:-1]))
    visual = {"embedding": states[0][is_visual],
              "layer": states[(len(states) - 1) // 2][is_visual]}
    if args.fc:
        visual["before"] = before[is_visual]
    save_conversation(path, rows, made, states[-1], visual)
    return len(ids) - first, int(is_visual.sum())


def read_args():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("target", metavar="HF_DIR")
    a.add_argument("items", metavar="ITEMS.jsonl")
    a.add_argument("--frames", type=int, help="of a video file (what its family does)")
    a.add_argument("--max-tokens", type=int, default=1024, help="of an answer (1024)")
    a.add_argument("--long", action="store_true", help="ask for at least 1000 words")
    a.add_argument("--fc", action="store_true", help="keep what --visual fc needs, too")
    a.add_argument("--type", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    a.add_argument("--prevue", default="./prevue", metavar="PATH", help="(./prevue)")
    a.add_argument("--of", default="0/1", metavar="I/N", help="every N-th item from I on (0/1)")
    a.add_argument("-o", dest="out", required=True, metavar="DIR")
    return a.parse_args()


def main():
    args = read_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForImageTextToText.from_pretrained(
        args.target, dtype=getattr(torch, args.type)).to(device).eval()
    processor = transformers.AutoProcessor.from_pretrained(args.target)
    os.makedirs(args.out, exist_ok=True)
    first, step = map(int, args.of.split("/"))
    for number, item in list(enumerate(read_items(args.items)))[first::step]:
        path = os.path.join(args.out, f"{number:07d}.safetensors")
        if not os.path.exists(path):
            told, seen = collect_one(args, model, processor, item, path,
                                     visual_ids(model.config))
            print(f"{path}: {told} tokens about {seen} rows of video", flush=True)


if __name__ == "__main__":
    main()
