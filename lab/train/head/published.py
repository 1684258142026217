#!/usr/bin/env python3
"""Sparrow and MSD as their authors train them, on nano, and beside them a head that never meets the
video's rows: the same data, the same number of steps, several seeds.

The first half of the steps has conversations without any video: texts of the world, whose states are
the target's when it reads them alone (the authors have ShareGPT there). The second half has the
target's own answers about stills and clips of at most 16 frames. There `sparrow` has the video's
rows from the target's middle layer in every step (IVSB) and a second pass over its own outputs
(MTP), `msd` the projected embeddings in a share of the steps that grows from none to all, and `text`
no rows of the video, and the second pass. All are then measured on held-out clips of each length.
"""

import argparse
import copy
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import torch  # noqa: E402

from train.common import Log  # noqa: E402
from train.data import ASK  # noqa: E402
from train.head import answers, nano  # noqa: E402
from train.head.bank import Bank, Group, pad  # noqa: E402
from train.head.start import add_options, start  # noqa: E402
from train.head.train import fit  # noqa: E402
from world import words  # noqa: E402
from world.scene import draw_clip  # noqa: E402

HEADS = {
    "sparrow": dict(visual="layer", passes=2),
    "msd": dict(visual="embedding", passes=1, visual_ramp=True),
    "text": dict(visual="none", passes=2),
}
KINDS = {16: 1536, 8: 2048, answers.STILL: 1024, 12: 1536, 4: 512}  # frames: clips of training
LENGTHS = (8, 32, 64, 128, 392)  # frames to measure with: 0.5k to 25k rows of video
LONG, FEW = 160, 64              # of clips longer than nano ever saw, so many are enough
TEXTS, OF_BATCH = 6144, 512
TEXT = -1                        # "frames" of a conversation without a video
COLUMNS = ("seed",) + nano.COLUMNS


class Maker(answers.Maker):
    """Makes conversations without a video, too: an Item whose turns are all ids, and in `things`
    which of them belong to an answer."""

    def make(self, seed, frames, scenes=None, told_only=False):
        if frames != TEXT:
            return super().make(seed, frames, scenes, told_only)
        rng = random.Random(seed + 1)
        clip = draw_clip(seed, 16, self.sprites, rng.choice(self.styles))
        asked = words.questions(clip, rng)
        rng.shuffle(asked)
        pairs = [(rng.choice(words.PROMPTS), words.describe(clip))] + [q[1:] for q in asked[:2]]
        texts = []
        for i, (question, answer) in enumerate(pairs):
            texts += [("<|im_start|>user " if i else "") + "\n" + question + ASK,
                      answer + "<|im_end|>"]
        ids = self.encode(["<|im_start|>user "] + texts)
        made = [False] * len(ids[0])
        for i, part in enumerate(ids[1:]):
            made += [i % 2 == 1] * len(part)
        return answers.Item(None, made, [t for part in ids for t in part], float(len(made)))


@torch.no_grad()
def read_texts(target, items):
    """A Group of conversations without a video, with the target's states of reading them."""
    dev, s = target.device, target.model.shape
    ids = pad([torch.tensor(i.turns, dtype=torch.int32) for i in items], -1).to(dev)
    made = pad([torch.tensor(i.things) for i in items], False).to(dev)
    n, rows = ids.shape
    cache = [[torch.empty(n, s.kv_heads, rows, s.head_dim, device=dev, dtype=target.dtype)
              for _ in range(2)] for _ in range(s.layers)]
    states, _ = target.forward(target.embed(ids.clamp(min=0)).to(target.dtype), cache, 0)
    positions = torch.arange(rows, device=dev, dtype=torch.int32).expand(n, -1)
    return Group(ids, positions, states, made, [len(i.turns) for i in items], None, "texts")


def make_data(args, target, items, kinds):
    """The banks of texts and of videos, and [(set, frames, group)] to measure with."""
    texts, bank, held = Bank(), Bank(), []
    source, began = iter(items), time.time()
    for name, frames, clips, *_ in kinds:
        if frames == TEXT:
            found = []
            while len(found) < clips:
                found += next(source)
            found.sort(key=lambda i: i.guess)
            for i in range(0, clips, OF_BATCH):
                texts.add(read_texts(target, found[i:i + OF_BATCH]))
        else:
            for batch in answers.batches(source, frames, clips):
                group = answers.converse(target, batch, True, args.max_text, f"{name}-{frames}")
                if name == "train":
                    bank.add(group)
                else:
                    held.append((name, frames, group))
        print(f"{name}, {frames} frames: {clips} clips, {time.time() - began:.1f} s", flush=True)
    items.stop()
    if target.device.type == "cuda":
        torch.cuda.empty_cache()  # the caches of generation are of no more use
    return texts, bank, held


def job_kinds(args):
    """[(set, frames, clips, seed of the first, scenes, told only)]: all clips of a run."""
    kinds = [("train", TEXT, nano.scaled(TEXTS, args), nano.TRAIN_SEED + (1 << 41), None, False)]
    kinds += [("train", f, nano.scaled(n, args), nano.TRAIN_SEED + (f << 32), None, False)
              for f, n in KINDS.items()]
    return kinds + [("same", f, args.clips if f <= LONG else min(args.clips, FEW), nano.EVAL_SEED,
                     nano.SCENES, True) for f in args.lengths]


def run_heads(args, target, texts, bank, held, began):
    results, rows = os.path.join(args.out, "published.csv"), []
    for run in args.runs.split(","):
        name, seed = run.split(":")
        settings = dict(HEADS[name], seed=int(seed))
        if time.time() - began > args.minutes * 60:
            print(f"no time for {name}, seed {seed}", flush=True)
            continue
        own, start = copy.copy(args), time.time()
        for k, v in settings.items():
            setattr(own, k, v)
        head = nano.make_head(target, os.path.basename(args.target), own)
        log = Log(os.path.join(args.out, f"{name}-{seed}.csv"))
        trained = fit(head, bank, target, own, log, texts=texts)
        spent = time.time() - start
        head.requires_grad_(False)
        found = nano.judge(name, head, settings, target, held, args,
                           (trained[0], f"{spent / 60:.3f}"))
        rows += [dict(seed=seed, **r) for r in found]
        nano.write_rows(results, rows, COLUMNS)
        print(f"{name}, seed {seed}: {spent:.1f} s of training, "
              f"{time.time() - start - spent:.1f} s of measuring", flush=True)


def read_args():
    a = argparse.ArgumentParser(description=__doc__)
    add_options(a, LENGTHS)
    a.add_argument("--runs", metavar="HEAD:SEED,...", help="in this order (three seeds of each)",
                   default=",".join(f"{h}:{s}" for s in (1, 2, 3) for h in HEADS))
    a.set_defaults(stage1=0.5, steps=1600)
    return a.parse_args()


def main():
    began = time.time()
    args = read_args()
    kinds = job_kinds(args)
    target, items = start(args, kinds, Maker)
    texts, bank, held = make_data(args, target, items, kinds)
    print("texts: %d, rows with a loss %d" % texts.count(), flush=True)
    print("conversations: %d, rows with a loss %d" % bank.count(), flush=True)
    run_heads(args, target, texts, bank, held, began)


if __name__ == "__main__":
    main()
