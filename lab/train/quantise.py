#!/usr/bin/env python3
"""Fits a finished model to Q4_0, the type of the files in models/: four and a half bits a weight.

Rounding alone costs some of what a model knows. So its weights learn on while they are rounded:
every forward pass runs the matrices as the file will hold them, and the step that follows changes
the numbers behind the rounding (a straight-through estimate). They learn from the model as it was:
to give the words of answers its probabilities, and to have its states and its video tokens, since a
draft head and a vision adaptor read these.

What is written is rounded already, in the way of `prevue convert --type q4_0`, which then changes
nothing. With --minutes 0 it is the model as rounding alone leaves it.
"""

import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch  # noqa: E402

from train.common import (Clock, Log, Painter, begin, learning_rate,  # noqa: E402
                          read_material, save_weights, wait_for)
from train.data import LONGEST, MAX_FRAMES, Packer, Steps  # noqa: E402
from train.head.gguf import BLOCK, load_nano  # noqa: E402
from train.optim import Optimiser  # noqa: E402
from train.restyle import Restyler  # noqa: E402
from train.train import assemble  # noqa: E402

IN_F32 = ("tower.patch_embedding.", "tower.position_embedding")  # `convert` leaves them as they are


def round_q4_0(x):
    """Blocks [n, BLOCK] as Q4_0 holds them: a scale in F16 times -8 to 7. As src/tensor/quant.c
    does it: the number farthest from zero becomes -8 scales, and the levels follow from the scale
    before that is rounded itself."""
    extreme = x.gather(1, x.abs().argmax(1, keepdim=True))
    scale = extreme / -8
    inverse = torch.where(scale != 0, 1 / scale, 0)
    return ((x * inverse + 8.5).clamp(0, 15).floor() - 8) * scale.half().float()


class Rounding:
    """The matrices of a model, rounded and exact by turns."""

    def __init__(self, model):
        self.matrices = [p for n, p in model.named_parameters()
                         if p.dim() == 2 and not n.startswith(IN_F32)]

    @torch.no_grad()
    def round(self):
        self.exact = [p.clone() for p in self.matrices]
        blocks = torch.cat([p.view(-1, BLOCK) for p in self.matrices])
        parts = round_q4_0(blocks).split([p.numel() // BLOCK for p in self.matrices])
        for p, r in zip(self.matrices, parts):
            p.copy_(r.view_as(p))

    @torch.no_grad()
    def restore(self):
        torch._foreach_copy_(self.matrices, self.exact)


def say(model, tokens, step):
    """The states of all rows, and the logits of those that tell an answer's next word."""
    x = assemble(model, tokens, step)
    states = model.decode(x, step["positions"], step["starts"], LONGEST)
    return states, model.logits(states[step["loss_at"].long()]).float()


def distance(a, b):
    """Mean square of what a is off b, as a share of b's own."""
    b = b.float()
    return (a.float() - b).square().mean() / b.square().mean()


def losses(model, teacher, painter, step, learn_tower):
    """The step's loss and its parts: divergence of the words, distance of states and of video
    tokens, share of the rows whose likeliest word is the teacher's."""
    pixels, _ = painter(step["ground"], step["things"])
    counts = step["loss_id"] >= 0
    with torch.autocast(pixels.device.type, torch.bfloat16):
        with torch.no_grad():
            true_tokens = teacher.see(pixels)
            true_states, said = say(teacher, true_tokens, step)
        tokens = model.see(pixels, learn_tower)
        states, logits = say(model, tokens, step)
    said, logits = said[counts].log_softmax(-1), logits[counts].log_softmax(-1)
    words = (said.exp() * (said - logits)).sum(-1).mean()
    far, off = distance(states, true_states), distance(tokens, true_tokens)
    same = (logits.argmax(-1) == said.argmax(-1)).float().mean()
    return words + far + off, (words, far, off, same)


def read_args():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--model", default="nano", help="nano, nano-draft (nano)")
    a.add_argument("--start", required=True, metavar="FILE",
                   help="the finished weights, .gguf or .safetensors")
    a.add_argument("--sprites", required=True, metavar="DIR")
    a.add_argument("--tokenizer", default=os.path.join(os.path.dirname(__file__), "tokenizer"))
    a.add_argument("--minutes", type=float, default=5)
    a.add_argument("--frames", type=int, default=1024, help="of a step (1024)")
    a.add_argument("--tokens", type=int, default=81920, help="of a step (81920)")
    a.add_argument("--lr", type=float, default=3e-4)
    a.add_argument("--tower-share", type=float, default=0.3, help="of it for the tower (0.3)")
    a.add_argument("--tower-every", type=int, default=2, metavar="N",
                   help="steps the tower learns in one (2)")
    a.add_argument("--restyle", type=float, default=0, metavar="SHARE",
                   help="of the sprites that are shown in another style than drawn (0)")
    a.add_argument("--reword", action="store_true",
                   help="more wordings, more questions about named things (train.wording)")
    a.add_argument("--seed", type=int, default=6)
    a.add_argument("--workers", type=int)
    a.add_argument("--gate", metavar="FILE", help="get ready, then wait until this file is there")
    a.add_argument("-o", dest="out", required=True, metavar="DIR")
    return a.parse_args()


def main():
    args = read_args()
    device = begin(args)
    sprites, tokenizer = read_material(args)
    steps = Steps(lambda: Packer(sprites, tokenizer, args.frames, args.tokens,
                                 args.model == "nano-draft", args.reword),
                  args.seed, device, args.workers) if args.minutes > 0 else None
    teacher = load_nano(args.start, args.model).to(device)
    model = load_nano(args.start, args.model).to(device).requires_grad_(True)
    rounding = Rounding(model)
    if steps:
        train(args, device, sprites, steps, teacher, model, rounding)
    rounding.round()
    save_weights(model, f"{args.out}/{args.model}.safetensors")


def train(args, device, sprites, steps, teacher, model, rounding):
    steps.longest.value = MAX_FRAMES
    painter = Painter(sprites, device)
    restyle = args.restyle and Restyler(sprites, painter, args.restyle, list(sprites.index))
    if device.type == "cuda":
        teacher.compile()
        model.compile()
        for learn_tower in (True, False):
            losses(model, teacher, painter, steps.next(), learn_tower)[0].backward()
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    wait_for(args.gate)
    optimiser = Optimiser(list(model.named_parameters()), args.lr, ("tower.", "linear_"),
                          args.tower_share)
    clock, log = Clock(args.minutes), Log(f"{args.out}/{args.model}-quantise.csv")
    n, clips, waited = 0, 0, 0.0
    clock.start()
    while clock.spent() < 1:
        begin = time.time()
        step = steps.next()
        waited += time.time() - begin
        clips += step["clips"]
        if restyle:
            restyle()
        rounding.round()
        loss, (words, far, off, same) = losses(model, teacher, painter, step,
                                               n % args.tower_every == 0)
        loss.backward()
        rounding.restore()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step(learning_rate(clock.spent(), n, floor=0.01))
        if n % 50 == 0 or clock.spent() >= 1:
            log.add(step=n, minutes=clock.spent() * args.minutes, divergence=words.item(),
                    states=far.item(), video_tokens=off.item(), words_same=same.item(),
                    clips=clips, waited=waited)
        n += 1


if __name__ == "__main__":
    main()
