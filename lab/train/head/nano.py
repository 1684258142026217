#!/usr/bin/env python3
"""Heads for nano, and the paper's ablation (MTP x IVSB x VATA) on the world's clips, in one process
on one GPU: nano talks with itself about clips, heads learn from that one after the other, each is
measured on held-out clips of four lengths.

A run is given minutes, which the heads share by weight after the data is made. A head that is
there already is not trained again, and its figures stay: a run that was cut off is continued by the
same command. MTP and IVSB are settings of training, VATA is a view: a head with visual rows is
measured with and without them. As in the paper, these rows come from short videos (and stills) in
training; heads without visual rows learn from all lengths.
"""

import argparse
import copy
import csv
import itertools
import os
import sys
import tarfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import torch  # noqa: E402

from train.common import Log  # noqa: E402
from train.data import HELD_OUT  # noqa: E402
from train.head import answers  # noqa: E402
from train.head.bank import Bank  # noqa: E402
from train.head.head import Config, Head, begin_like, export, load  # noqa: E402
from train.head.start import add_options, start  # noqa: E402
from train.head.train import LAYER_TENSORS, fit  # noqa: E402
from train.head.tree import Shape, measure  # noqa: E402
from train.model import FRAME_TOKENS  # noqa: E402

# Name: share of the time, and settings. The first four are the ablation; `plain` is MSD trained
# the same way, `mtp-ivsb` is Sparrow as published, `half` meets the video's rows in every other step
# only, `text` never. The last two learn what long chains will ask of them.
HEADS = {
    "plain": (1.0, dict(visual="embedding", passes=1)),
    "mtp-ivsb": (1.0, dict(visual="layer", passes=2)),
    "mtp": (1.0, dict(visual="embedding", passes=2)),
    "ivsb": (1.0, dict(visual="layer", passes=1)),
    "text": (1.0, dict(visual="none", passes=2)),
    "half": (1.0, dict(visual="layer", passes=2, visual_share=0.5)),
    "final": (3.5, dict(visual="none", passes=8, way="tree")),
    "small": (2.5, dict(visual="none", passes=8, way="tree", ffn=512)),
}
SHORT, KEPT = 16, 4096  # frames up to which the video's rows are kept, and of how many clips each
# Frames: clips of training, in the order that they are made in, should the time run out.
KINDS = {16: 6144, 64: 1024, 8: 8192, 128: 512, answers.STILL: 2048, 32: 2048, 12: 6144, 6: 6144,
         24: 2048, 96: 640, 4: 2048, 48: 1280, 160: 384}
LENGTHS = (8, 32, 64, 128)     # 0.5k, 2k, 4k, 8k rows of video
SCENES = 2                     # at most, so that clips of one seed tell the same at each length
FREE = {16: 64, 64: 64, 128: 32}  # frames: clips with as many scenes as they like
EVAL_SEED, TRAIN_SEED = 4000, HELD_OUT + (1 << 40)
COLUMNS = ("head", "passes", "visual", "view", "set", "frames", "video_tokens", "tree", "tokens",
           "verifications", "tau", "steps", "minutes")


def scaled(n, args):
    return max(1, round(n * args.scale))


def job_kinds(args):
    """[(set, frames, clips, seed of the first, scenes, told only)]: all clips of a run."""
    kinds = [("same", f, args.clips, EVAL_SEED, SCENES, True) for f in args.lengths]
    kinds += [("free", f, scaled(n, args), EVAL_SEED + 5000, None, True)
              for f, n in FREE.items() if f <= args.longest]
    return kinds + [("train", f, scaled(n, args), TRAIN_SEED + (f << 32), None, False)
                    for f, n in KINDS.items() if f <= args.longest]


def make_data(args, target, items, kinds):
    """The bank, and [(set, frames, group)] to measure with."""
    bank, held = Bank(), []
    source, began = iter(items), time.time()
    for name, frames, clips, *_ in kinds:
        if time.time() - began > args.data_minutes * 60:
            print(f"no time for {name}, {frames} frames", flush=True)
            continue
        kept = 0
        for batch in answers.batches(source, frames, clips):
            keep = name == "same" or name == "train" and frames <= SHORT and kept < KEPT
            kept += len(batch) * keep
            group = answers.converse(target, batch, keep, args.max_text, f"{name}-{frames}")
            if name == "train":
                bank.add(group)
            else:
                held.append((name, frames, group))
        print(f"{name}, {frames} frames: {clips} clips, {time.time() - began:.1f} s", flush=True)
    items.stop()
    return bank, held


def make_head(target, model_name, args):
    s = target.model.shape
    config = Config(s.hidden, s.heads, s.kv_heads, s.head_dim, args.ffn or s.ffn, s.norm_eps,
                    s.rope_theta, visual=args.visual, visual_layer=s.layers // 2, target=model_name,
                    norms=tuple(filter(None, args.norms.split(","))))
    torch.manual_seed(args.seed)
    head = Head(config).to(target.device)
    if not args.from_scratch:
        last = target.model.blocks[-1].state_dict()  # its names have no self_attn. and mlp.
        own = {n: n.split(".", 1)[1] if n.count(".") == 2 else n for n in LAYER_TENSORS}
        layer = {n: last[o].float() for n, o in own.items() if o in last}
        begin_like(head, layer, target.model.norm.weight.float())
    return head


# ---- results ----

def read_rows(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def write_rows(path, rows, columns=COLUMNS):
    with open(path + ".part", "w", newline="", encoding="utf-8") as f:
        w = csv.DictWriter(f, columns)
        w.writeheader()
        w.writerows(rows)
    os.replace(path + ".part", path)


def judge(name, head, settings, target, held, args, trained):
    """Rows of figures of one head."""
    rows = []
    views = ("text",) if settings["visual"] == "none" else ("text", "full")
    for view, tree in itertools.product(views, args.tree.split(",")):
        shape, found = Shape(*map(int, tree.split("-"))), {}
        for kind, frames, group in held:
            if view == "full" and not group.visual:
                continue
            a = measure(head, target.embed, lambda x: target.lm_head(x), group, shape, view,
                        target.device,
                        at_once=max(1, min(128, (1 << 20) // (frames * FRAME_TOKENS))))
            old = found.setdefault((kind, frames), [0, 0])
            found[kind, frames] = [old[0] + a[0], old[1] + a[1]]
        for (kind, frames), (tokens, passes) in found.items():
            rows.append(dict(zip(COLUMNS, (
                name, settings["passes"], settings["visual"], view, kind, frames,
                frames * FRAME_TOKENS, tree, tokens, passes,
                f"{tokens / max(passes, 1):.4f}", *trained))))
    return rows


def table(rows, lengths, tree):
    """The paper's Table 6, in Markdown, for drafts of one shape."""
    out = ["| MTP | IVSB | VATA | head | " + " | ".join(f"{n * FRAME_TOKENS / 1000:.1f}k"
                                                        for n in lengths) + " |",
           "|---|---|---|---|" + "---:|" * len(lengths)]
    tau = {(r["head"], r["view"], int(r["frames"])): float(r["tau"]) for r in rows
           if r["set"] == "same" and r["tree"] == tree}
    kinds = {r["head"]: (int(r["passes"]) > 1, r["visual"]) for r in rows}
    for name, (mtp, visual) in kinds.items():
        for view in ("full", "text"):
            cells = [tau.get((name, view, n)) for n in lengths]
            if None not in cells:
                marks = ("yes" if mtp else "", {"layer": "yes", "none": "no visual rows"}.get(
                    visual, ""), "yes" if view == "text" else "", name)
                out.append("| " + " | ".join((*marks, *(f"{c:.2f}" for c in cells))) + " |")
    return "\n".join(out)


def pack(folder):
    """One file of a head's folder, easier to carry."""
    with tarfile.open(folder + ".tar", "w") as t:
        t.add(folder, os.path.basename(folder))


# ---- the command ----

def read_args():
    a = argparse.ArgumentParser(description=__doc__)
    add_options(a, LENGTHS)
    a.add_argument("--heads", default=",".join(HEADS), help="to train, in this order")
    a.add_argument("--longest", type=int, default=160, help="frames of any clip (160)")
    a.add_argument("--data-minutes", type=float, default=5, help="at most, about (5)")
    a.add_argument("--judge-minutes", type=float, default=0.3, help="set aside for each head")
    return a.parse_args()


def main():
    began = time.time()
    args = read_args()
    kinds = job_kinds(args)
    target, items = start(args, kinds)
    bank, held = make_data(args, target, items, kinds)
    print("conversations %d, rows with a loss %d" % bank.count(), flush=True)
    run_heads(args, target, bank, held, began)


def run_heads(args, target, bank, held, began):
    results = os.path.join(args.out, "results.csv")
    todo = args.heads.split(",")
    for i, name in enumerate(todo):
        rows, folder = read_rows(results), os.path.join(args.out, name)
        if any(r["head"] == name for r in rows):
            continue
        weight, settings = HEADS[name]
        left = args.minutes - (time.time() - began) / 60
        ahead = [n for n in todo[i:] if not any(r["head"] == n for r in rows)]
        own = copy.copy(args)
        own.minutes = max(0.05, (left - args.judge_minutes * len(ahead)) * weight /
                          sum(HEADS[n][0] for n in ahead))
        for k, v in settings.items():
            setattr(own, k, v)
        head = make_head(target, os.path.basename(args.target), own)
        print(f"{name}: {own.minutes:.2f} minutes", flush=True)
        trained = fit(head, bank, target, own, Log(os.path.join(args.out, name + ".csv")),
                      lambda: export(head, folder))
        export(head, folder)
        pack(folder)
        found = judge(name, load(folder).to(target.device), settings, target, held, args,
                      (trained[0], f"{own.minutes:.2f}"))
        write_rows(results, rows + found)
        for tree in args.tree.split(","):
            print(f"tree {tree}\n" + table(rows + found, args.lengths, tree), flush=True)


if __name__ == "__main__":
    main()
