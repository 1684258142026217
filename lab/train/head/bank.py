"""Conversations with the target's states, in the form that heads learn from.

Of a conversation's rows those are kept that are text, and those that a text row directly follows:
then the state that a row's FC takes is always that of the kept row before it. Conversations that
were made together, or are of about one length, lie in one padded rectangle, a Group. Rows of the
video lie beside it where they are kept at all.
"""

import glob
import os
import random

import numpy as np
import torch
from safetensors.torch import load_file, save_file

VISUAL_STATES = ("embedding", "layer", "before")


class Group:
    """ids (-1: not text), positions: [n, rows]; states [n, rows, d]; made [n, rows]: tokens of
    the target's own; lengths: rows of each, growing. visual: dict of VISUAL_STATES (some of them)
    [n, rows, d], positions and valid [n, rows], or None."""

    def __init__(self, ids, positions, states, made, lengths, visual=None, name=""):
        order = np.argsort(lengths, kind="stable")
        at = torch.from_numpy(order).to(ids.device)
        longest = int(max(lengths))
        self.order = order  # of each row, which of the given conversations it is
        self.lengths = [int(lengths[i]) for i in order]
        self.ids, self.positions, self.states, made = (t[at][:, :longest] for t in
                                                       (ids, positions, states, made))
        self.visual = visual and {k: v[at] for k, v in visual.items()}
        self.name, self.device = name, ids.device
        inside = torch.arange(longest) < torch.tensor(self.lengths)[:, None]
        self.valid = (self.ids.cpu() >= 0) & inside
        self.valid[:, 0] = False          # the first token of a prompt has no row in a head
        self.made = made.cpu() & inside   # CPU copies: what is cut out of them sizes a batch
        self.asked = self.made.clone()    # rows with a loss: an answer's, but for its last
        self.asked[:, :-1] &= self.made[:, 1:]
        self.asked[:, -1] = False
        self.since = self.count_since()

    def count_since(self):
        """Of each row of an answer, how many of its rows lie before."""
        out, run = torch.zeros(self.made.shape, dtype=torch.int32), 0
        for k in range(1, self.made.shape[1]):
            run = (run + 1) * (self.made[:, k] & self.made[:, k - 1])
            out[:, k] = run
        return out

    def __len__(self):
        return len(self.lengths)

    def visual_count(self):
        return self.visual["positions"].shape[1] if self.visual else 0

    def cut(self, first, last, device, embed, dtype, visual=False):
        """Conversations first to last - 1 as a batch of loss.total_loss."""
        n = self.lengths[last - 1]

        def part(t):
            return t[first:last, :n].to(device, non_blocking=True)
        ids, states = part(self.ids).long(), part(self.states).to(dtype)
        asked = self.asked[first:last, :n].flatten().nonzero()[:, 0]
        return {
            "ids": ids, "embeddings": embed(ids.clamp(min=0)).to(dtype),
            "before": torch.cat((torch.zeros_like(states[:, :1]), states[:, :-1]), 1),
            "states": states, "positions": part(self.positions), "valid": part(self.valid),
            "rows": asked.to(device, non_blocking=True),
            "since": self.since[first:last, :n].flatten()[asked].to(device, non_blocking=True),
            "visual": {k: v[first:last].to(device) if v.dim() == 2 else
                       v[first:last].to(device, dtype) for k, v in self.visual.items()}
            if visual and self.visual else None}


class Bank:
    def __init__(self, groups=()):
        self.groups = list(groups)

    def add(self, group):
        self.groups.append(group)

    def slices(self, rng, rows, visual_rows, need_visual):
        """One epoch, in random order: (group, first, last) with about `rows` kept rows and at
        most `visual_rows` of the video."""
        out = []
        for g in self.groups:
            if need_visual and not g.visual:
                continue
            most = max(1, visual_rows // max(g.visual_count(), 1)) if need_visual else len(g)
            first = 0
            while first < len(g):
                last = first + 1
                while last < len(g) and last - first < most and \
                        (last + 1 - first) * g.lengths[last] <= rows:
                    last += 1
                out.append((g, first, last))
                first = last
        rng.shuffle(out)
        return out

    def endless(self, seed, rows, visual_rows, need_visual):
        rng = random.Random(seed)
        while True:
            slices = self.slices(rng, rows, visual_rows, need_visual)
            if not slices:
                raise SystemExit("no conversation of the data keeps rows of its video")
            yield from slices

    def count(self):
        """Conversations, and rows with a loss."""
        return sum(map(len, self.groups)), sum(int(g.asked.sum()) for g in self.groups)


# ---- files: one for each conversation, where the target is too large to make them in time ----

def keep_rows(ids):
    """Of a conversation's ids (-1: not text), the numbers of the rows that are kept."""
    text = ids >= 0
    keep = text.clone()
    keep[:-1] |= text[1:]
    return keep.nonzero()[:, 0]


def save_conversation(path, ids, made, states, visual):
    """states [rows, d] of all rows; visual {"embedding", "layer"...: [rows of the video, d]}."""
    kept, seen = keep_rows(ids), (ids < 0).nonzero()[:, 0]
    tensors = {"ids": ids[kept].int(), "positions": kept.int(), "made": made[kept],
               "states": states[kept].to(torch.float16), "visual_positions": seen.int()}
    tensors.update({"visual_" + k: v.to(torch.float16) for k, v in visual.items()})
    save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path + ".part")
    os.replace(path + ".part", path)


def pad(tensors, value=0):
    n = max(len(t) for t in tensors)
    out = tensors[0].new_full((len(tensors), n, *tensors[0].shape[1:]), value)
    for row, t in zip(out, tensors):
        row[:len(t)] = t
    return out


def make_group(records):
    lengths = [len(r["ids"]) for r in records]
    visual = None
    if all(len(r["visual_positions"]) for r in records):
        names = [k for k in VISUAL_STATES if "visual_" + k in records[0]]
        visual = {k: pad([r["visual_" + k] for r in records]) for k in names}
        visual["positions"] = pad([r["visual_positions"] for r in records])
        visual["valid"] = pad([torch.ones(len(r["visual_positions"]), dtype=torch.bool)
                               for r in records], False)
    return Group(pad([r["ids"] for r in records], -1), pad([r["positions"] for r in records]),
                 pad([r["states"] for r in records]), pad([r["made"] for r in records], False),
                 lengths, visual)


def load_bank(folder, of_group=16, first=0, last=None):
    """The conversations of a folder, those of about one length together."""
    paths = sorted(glob.glob(os.path.join(folder, "*.safetensors")))[first:last]
    if not paths:
        raise SystemExit(f"{folder}: no conversations (*.safetensors)")
    records = [load_file(p) for p in paths]
    records.sort(key=lambda r: (len(r["visual_positions"]), len(r["ids"])))
    return Bank(make_group(records[i:i + of_group]) for i in range(0, len(records), of_group))
