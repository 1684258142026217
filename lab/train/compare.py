#!/usr/bin/env python3
"""Compares what transformers and prevue say about the same clips, and what Q8_0 changes.

Both see the same pixels: prevue chooses and resizes the frames and writes them as PNG, and these
pictures are the video that transformers' processor gets. Both answer greedily in F32, prevue with a
KV cache in F32 too, so that only the order of sums is left to differ. With --quantised a second
file runs as users run it, and its answers are compared with those of prevue's F32. Exit status 1:
an F32 answer differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import PIL.Image
import torch
import transformers


def stop(text):
    sys.exit(f"compare: {text}")


def prevue(args, *words):
    """What a command of prevue prints as JSON."""
    command = [args.prevue, *map(str, words), "--json", "-t", str(args.threads)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        stop(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return json.loads(done.stdout)


def stored_type(hf):
    config = json.loads((Path(hf) / "config.json").read_text())
    return config.get("dtype", config.get("torch_dtype"))


def frames_of(args, video):
    """[frames, height, width, 3] of 8 bits, as prevue's model sees them."""
    with tempfile.TemporaryDirectory() as folder:
        made = prevue(args, "frames", video, "-o", folder, "-m", args.hf, "--frames", args.frames)
        return np.stack([np.asarray(PIL.Image.open(f["file"]).convert("RGB"))
                         for f in made["frames"]])


class Reference:
    """The model and processor of transformers."""

    def __init__(self, args):
        self.model = transformers.LlavaOnevisionForConditionalGeneration.from_pretrained(
            args.hf, dtype=torch.float32, attn_implementation=args.attention).eval()
        self.processor = transformers.LlavaOnevisionProcessor.from_pretrained(args.hf)
        self.tokenizer = self.processor.tokenizer
        eos = self.model.generation_config.eos_token_id
        self.stops = [eos] if isinstance(eos, int) else list(eos)

    def answer(self, frames, question, limit):
        """Greedy ids without the stop token, and the logits that each came from; where the model
        stopped there is one row of logits more than ids."""
        content = [dict(type="video"), dict(type="text", text=question)]
        text = self.processor.apply_chat_template([dict(role="user", content=content)],
                                                  add_generation_prompt=True)
        inputs = self.processor(text=[text], videos=[frames], do_sample_frames=False,
                                return_tensors="pt")
        n = inputs["input_ids"].shape[1]
        with torch.inference_mode():
            out = self.model.generate(**inputs, do_sample=False, max_new_tokens=limit,
                                      output_logits=True, return_dict_in_generate=True)
        ids = out.sequences[0, n:].tolist()
        if ids and ids[-1] in self.stops:
            ids.pop()
        return ids, [row[0] for row in out.logits], n


def first_difference(a, b):
    """Where two lists part; None: they are equal."""
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def explain(ref, ids, logits, mine, at):
    """Both tokens at the first difference, and how far apart transformers sees them."""
    def token(i):
        return repr(ref.tokenizer.decode([i]))
    theirs = ids[at] if at < len(ids) else ref.stops[0]
    ours = mine[at] if at < len(mine) else ref.stops[0]
    text = f"token {at}: transformers {theirs} {token(theirs)}, prevue {ours} {token(ours)}"
    if at < len(logits):
        text += f", margin {float(logits[at][theirs] - logits[at][ours]):.3g}"
    return text


def smallest_margin(logits):
    """The least distance from a chosen token to the next: how much rounding it would take."""
    return min((float(row.topk(2).values.diff().abs()) for row in logits), default=float("inf"))


def edits(a, b):
    """Tokens to insert, delete or replace to get from one list to the other."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[len(b)]


def positions_off(a, b):
    """Positions of `a` at which `b` has another token or none."""
    return sum(i >= len(b) or x != b[i] for i, x in enumerate(a))


def compare_clip(args, ref, video, totals):
    question = ["-p", args.prompt, "-n", args.max_tokens, "--frames", args.frames]
    ids, logits, n_prompt = ref.answer(frames_of(args, video), args.prompt, args.max_tokens)
    out = prevue(args, "describe", video, "-m", args.gguf or args.hf, "--kv-type", "f32",
                 *question)
    if out["prompt_tokens"] != n_prompt:
        stop(f"{video}: the prompt has {n_prompt} tokens in transformers, {out['prompt_tokens']} "
             "in prevue")
    mine = out["ids"]
    at = first_difference(ids, mine)
    totals["clips"] += 1
    totals["tokens"] += len(mine)
    totals["equal"] += at is None
    line = (f"equal, {len(ids)} tokens, smallest margin {smallest_margin(logits):.3g}"
            if at is None else "DIFFERS at " + explain(ref, ids, logits, mine, at))
    if args.quantised:
        q = prevue(args, "describe", video, "-m", args.quantised, *question)["ids"]
        off, distance = positions_off(mine, q), edits(mine, q)
        totals["off"] += off
        totals["edits"] += distance
        totals["same"] += q == mine
        line += f"; quantised: {off} of {len(mine)} positions differ, {distance} edits"
    print(f"{video}: {line}", flush=True)


def summary(args, t):
    text = f"{t['equal']} of {t['clips']} F32 answers equal, {t['tokens']} tokens"
    if args.quantised:
        n = max(t["tokens"], 1)
        text += (f"; quantised: {t['same']} of {t['clips']} answers identical, "
                 f"{100 * t['off'] / n:.2f} % of positions differ, "
                 f"{100 * t['edits'] / n:.2f} % edited")
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hf", metavar="HFDIR", help="directory of lab/train/export_hf.py")
    parser.add_argument("--prevue", required=True, metavar="PATH")
    parser.add_argument("--videos", required=True, nargs="+", metavar="VIDEO")
    parser.add_argument("--frames", type=int, required=True, metavar="N")
    parser.add_argument("-p", "--prompt", default="Describe this video.")
    parser.add_argument("-n", "--max-tokens", type=int, default=256, metavar="N")
    parser.add_argument("--gguf", metavar="FILE", help="F32 model for prevue (default: HFDIR)")
    parser.add_argument("--quantised", metavar="FILE", help="model to compare with prevue's F32")
    parser.add_argument("--attention", default="eager", choices=["eager", "sdpa"],
                        help="of transformers; sdpa needs less memory (default: eager)")
    parser.add_argument("-t", "--threads", type=int, default=2, metavar="N")
    args = parser.parse_args()
    for path in [args.hf, args.prevue, args.gguf, args.quantised, *args.videos]:
        if path and not Path(path).exists():
            stop(f"{path}: does not exist")
    args.prevue = str(Path(args.prevue).resolve())
    if not args.gguf and stored_type(args.hf) != "float32":
        stop(f"{args.hf}: the weights are not F32, and prevue computes in their type: give --gguf")

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    ref = Reference(args)
    totals = dict.fromkeys(("clips", "equal", "tokens", "off", "edits", "same"), 0)
    for video in args.videos:
        compare_clip(args, ref, video, totals)
    print(summary(args, totals))
    sys.exit(0 if totals["equal"] == totals["clips"] else 1)


if __name__ == "__main__":
    main()
