#!/usr/bin/env python3
"""Stage 1: teaches a tower and its projector to see, on single frames with dense labels.

From scratch, next-word loss alone leaves the tower on a plateau; told for every video token which
thing it shows, where that thing's middle is, how large and how turned it is, and what the
background is, it learns in minutes. The labels come from the renderer. The heads that read them
off the video tokens are kept for stage 2, which goes on with this loss beside its own.

--start FILE goes on with a finished tower, whose linear heads are learned first (--heads-first
steps); --restyle shows most sprites in styles that nobody drew (train.restyle). With --keep the tower
also learns to give a restyled frame the video tokens that it gave the frame as drawn, which the
language model behind it knows how to read (in every third step, since it costs a second look).
"""

import argparse
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from train.common import (Clock, Log, Painter, begin, learning_rate,  # noqa: E402
                          save_weights, wait_for)
from train.head.gguf import load_nano  # noqa: E402
from train.model import CELLS, Nano  # noqa: E402
from train.optim import Optimiser  # noqa: E402
from train.restyle import Restyler  # noqa: E402
from world.scene import BACKGROUND, SIDE, SPRITE  # noqa: E402
from world.slots import COLOURS, KINDS  # noqa: E402
from world.sprites import HELD_OUT_STYLE, RGB, STYLES, Sprites  # noqa: E402

THINGS = 5        # of a frame in this stage
NONE_WEIGHT = 0.1  # of the label "no thing here", which most tokens have
KEEP_EVERY = 3    # steps that --keep is paid for in one
COVERS = 0.15     # share of a cell from which a thing counts as shown there


class Heads(nn.Module):
    """Linear readings of a video token: thing, its offset, size and angle, background."""

    def __init__(self, hidden, names):
        super().__init__()
        self.thing = nn.Linear(hidden, names + 1)
        self.shape = nn.Linear(hidden, 5)
        self.kind = nn.Linear(hidden, len(KINDS))
        self.colour = nn.Linear(hidden, len(COLOURS))


def labels_of(shown, things, names):
    """Per video token: name (the last number: none) and offset, size, angle of its thing."""
    share, k = shown.max(1)
    k, share = k.flatten(1), share.flatten(1)
    name = torch.where(share > COVERS, names.gather(1, k), -1)
    pick = things[:, :, 1:].gather(1, k[..., None].expand(-1, -1, 4))
    c = (torch.arange(CELLS, device=shown.device) + 0.5) * (SIDE / CELLS)
    x, y = c.repeat(CELLS), c.repeat_interleave(CELLS)
    a = pick[..., 3] * (math.pi / 180)
    shape = torch.stack([(pick[..., 0] - x) / 48, (pick[..., 1] - y) / 48,
                         torch.log(pick[..., 2].clamp(min=8) / 76) * 2, torch.cos(a), torch.sin(a)],
                        -1)
    return name, shape


def dense_loss(heads, tokens, shown, things, names, kind, colour):
    """The stage's loss, and the share of things named right."""
    name, shape = labels_of(shown, things, names)
    n = heads.thing.out_features - 1
    name = torch.where(name < 0, n, name)
    there = name < n
    weight = torch.where(there, 1.0, NONE_WEIGHT)
    logits = heads.thing(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), name.flatten(), reduction="none")
    loss = (loss * weight.flatten()).sum() / weight.sum()
    off = F.smooth_l1_loss(heads.shape(tokens).float(), shape, reduction="none").mean(-1)
    loss = loss + (off * there).sum() / there.sum().clamp(min=1)
    for head, label in ((heads.kind, kind), (heads.colour, colour)):
        ok = label >= 0
        one = F.cross_entropy(head(tokens).flatten(0, 1).float(),
                              label.clamp(min=0)[:, None].expand(-1, tokens.shape[1]).flatten(),
                              reduction="none").view(tokens.shape[:2]).mean(1)
        loss = loss + 0.3 * (one * ok).sum() / ok.sum().clamp(min=1)
    right = ((logits.argmax(-1) == name) & there).sum() / there.sum().clamp(min=1)
    return loss, right


class Frames:
    """Single frames drawn on the device: things anywhere, over one another, turned, of any size."""

    def __init__(self, sprites, device, n, styles):
        self.n, self.device = n, device
        pairs = [(i, sprites.number[name]) for style in styles
                 for name, i in sprites.index[style].items()]
        self.pairs = torch.tensor(pairs, device=device)
        self.rgb = torch.tensor([RGB[c] for c in COLOURS], device=device, dtype=torch.float32)

    def uniform(self, low, high, *shape):
        return torch.rand(self.n, *shape, device=self.device) * (high - low) + low

    def draw(self):
        dev, n = self.device, self.n
        pick = self.pairs[torch.randint(len(self.pairs), (n, THINGS), device=dev)]
        things = torch.zeros(n, THINGS, len(SPRITE), device=dev)
        # Five of six cells of a 3 x 2 grid (or 2 x 3), well beside their middles.
        cell = torch.rand(n, 6, device=dev).argsort(1)[:, :THINGS]
        tall = (torch.rand(n, 1, device=dev) < 0.5)
        across = torch.where(tall, cell % 2, cell % 3)
        down = torch.where(tall, cell // 2, cell // 3)
        wide = torch.where(tall, 2.0, 3.0)
        things[..., 1] = (across + 0.5) * (SIDE / wide) + self.uniform(-26, 26, THINGS)
        things[..., 2] = (down + 0.5) * (SIDE * wide / 6) + self.uniform(-26, 26, THINGS)
        things[..., 3] = 76 * torch.exp(self.uniform(math.log(0.55), math.log(1.45), THINGS))
        spun = torch.rand(n, THINGS, device=dev) < 0.2
        things[..., 4] = torch.where(spun, self.uniform(-180, 180, THINGS),
                                     self.uniform(-6, 6, THINGS))
        gone = torch.rand(n, THINGS, device=dev) < 0.1
        things[..., 0] = torch.where(gone, -1, pick[..., 0]).float()
        return self.background(), things, torch.where(gone, -1, pick[..., 1])

    def background(self):
        dev, n = self.device, self.n
        g = dict.fromkeys(BACKGROUND)
        g["kind"] = torch.randint(len(KINDS), (n,), device=dev).float()
        colour = torch.randint(len(COLOURS), (n,), device=dev)
        other = torch.randint(len(COLOURS), (n,), device=dev)
        first = (self.rgb[colour] + self.uniform(-14, 14, 3)).clamp(0, 255)
        by = self.uniform(28, 42) * torch.where(first.mean(1) < 128, 1.0, -1.0)
        second = torch.where((g["kind"] == KINDS.index("gradient"))[:, None], self.rgb[other],
                             first + by[:, None]).clamp(0, 255)
        for i, c in enumerate("rgb"):
            g[c], g[c + "2"] = first[:, i], second[:, i]
        g["period"] = self.uniform(26, 40)
        g["angle"] = torch.where(g["kind"] == KINDS.index("striped"), self.uniform(-10, 150), 0.0)
        g["shift_x"], g["shift_y"] = self.uniform(0, 40), self.uniform(0, 40)
        g["light"] = torch.where(torch.rand(n, device=dev) < 0.15, self.uniform(0.35, 1), 1.0)
        g["noise"] = self.uniform(-8, 8).clamp(min=0)
        g["noise_seed"] = g["noise"]
        self.colour = torch.where(g["kind"] == KINDS.index("gradient"), -1, colour)
        self.kind = g["kind"].long()
        return torch.stack([g[c] for c in BACKGROUND], 1)


class Teacher:
    """The model as it was, looking at frames as drawn."""

    def __init__(self, args, sprites, device):
        self.model = load_nano(args.start, args.model).to(device)
        self.painter, self.weight = Painter(sprites, device), args.keep
        if device.type == "cuda":
            self.model.compile()

    def loss(self, tokens, ground, things, shown):
        """How far video tokens are from those of the frames as drawn, in units of their variance;
        tokens that show a thing count four times."""
        with torch.no_grad():
            goal = self.model.see(self.painter(ground, things)[0]).float()
            w = 1 + 3 * (shown.max(1).values.flatten(1) > COVERS).float()
        far = (tokens.float() - goal).square().mean(-1) / goal.var(dim=(0, 1)).mean()
        return self.weight * (far * w).sum() / w.sum()


def losses(model, heads, painter, frames, heads_only=False, teacher=None):
    ground, things, names = frames.draw()
    pixels, shown = painter(ground, things)
    with torch.autocast(pixels.device.type, torch.bfloat16):
        with torch.set_grad_enabled(torch.is_grad_enabled() and not heads_only):
            tokens = model.see(pixels)
        kept = teacher.loss(tokens, ground, things, shown) if teacher else tokens.new_zeros(())
        loss, right = dense_loss(heads, tokens, shown, things, names, frames.kind, frames.colour)
    return loss + kept, right, kept


@torch.no_grad()
def share_right(model, heads, painter, frames):
    """Of the labelled video tokens, those whose thing is told right."""
    return losses(model, heads, painter, frames)[1].item()


def train(args, painter, frames, others, model, heads, restyle, teacher):
    named = [(k, p) for k, p in model.named_parameters() if not k.startswith(("blocks.", "embed",
                                                                             "norm", "newline"))]
    optimiser = Optimiser(named + list(heads.named_parameters()), args.lr)
    first = torch.optim.AdamW(heads.parameters(), args.lr, weight_decay=0.0)
    clock, log, n = Clock(args.minutes), Log(f"{args.out}/{args.model}-stage1.csv"), 0
    clock.start()
    while clock.spent() < 1:
        if restyle:
            restyle()
        heads_only = n < args.heads_first
        held = teacher if n % KEEP_EVERY == 0 else None
        loss, right, kept = losses(model, heads, painter, frames, heads_only, held)
        loss.backward()
        if heads_only:
            first.step()
            first.zero_grad(set_to_none=True)
        else:
            optimiser.step(learning_rate(clock.spent(), n, floor=0.05))
        if n % 50 == 0 or n == args.heads_first or clock.spent() >= 1:
            more = {"held_out_right": share_right(model, heads, painter, others)} if others else {}
            if held:
                more["kept"] = kept.item()
            log.add(step=n, minutes=clock.spent() * args.minutes, loss=loss.item(),
                    things_right=right.item(), **more)
        n += 1


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--model", default="nano", help="nano, nano-draft (nano)")
    a.add_argument("--sprites", required=True, metavar="DIR")
    a.add_argument("--minutes", type=float, default=4)
    a.add_argument("--frames", type=int, default=1024, help="of a step (1024)")
    a.add_argument("--lr", type=float, default=2.5e-3)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--start", metavar="FILE",
                   help="a finished model to begin with, .gguf or .safetensors")
    a.add_argument("--heads-first", type=int, default=0, metavar="N",
                   help="steps in which only the heads learn (0)")
    a.add_argument("--restyle", type=float, default=0, metavar="SHARE",
                   help="of the sprites that are shown in another style than drawn (0)")
    a.add_argument("--keep", type=float, default=0, metavar="WEIGHT",
                   help="of the distance from the video tokens that --start gives (0)")
    a.add_argument("--held-out", action="store_true",
                   help="log what is told right of the held-out style, too")
    a.add_argument("--gate", metavar="FILE", help="get ready, then wait until this file is there")
    a.add_argument("-o", dest="out", required=True, metavar="DIR")
    args = a.parse_args()
    if args.keep and not args.start:
        a.error("--keep needs the model of --start")
    device = begin(args)
    styles = [s for s in STYLES if s != HELD_OUT_STYLE]
    sprites = Sprites(args.sprites, STYLES if args.held_out else styles)
    painter, frames = Painter(sprites, device), Frames(sprites, device, args.frames, styles)
    others = args.held_out and Frames(sprites, device, args.frames, [HELD_OUT_STYLE])
    restyle = args.restyle and Restyler(sprites, painter, args.restyle, styles)
    model = Nano(args.model).to(device)
    if args.start:
        model.load_state_dict(load_nano(args.start, args.model).state_dict())
    heads = Heads(model.shape.hidden, len(sprites.names)).to(device)
    teacher = Teacher(args, sprites, device) if args.keep else None
    if device.type == "cuda":
        model.compile()
        losses(model, heads, painter, frames, teacher=teacher)[0].backward()  # compiles
        model.zero_grad(set_to_none=True)
        heads.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    wait_for(args.gate)
    train(args, painter, frames, others, model, heads, restyle, teacher)
    save_weights(model, f"{args.out}/{args.model}-stage1.safetensors")
    save_weights(heads, f"{args.out}/{args.model}-heads.safetensors")


if __name__ == "__main__":
    main()
