#!/usr/bin/env python3
"""Stage 2: teaches the whole model to talk about clips, from 4 to 160 frames.

Clips begin short and grow with the share of time spent; from two fifths of it on every length is
drawn. The dense loss of stage 1 goes on beside the words' loss on some of the frames, so that
seeing gets better too; the tower learns in every third step, and more slowly than the rest.
`nano-draft` sees random parts of the video (data.draw_view), `nano` all of it; with --whole both do.

--start FILE goes on with finished weights instead of stage 1's; with --new-decoder only tower
and projector are taken from it and the language model begins anew (see --tower-every). Finished
weights know long clips, so every length is drawn from the beginning then.
"""

import argparse
import math
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from train.common import (Clock, Log, Painter, begin, learning_rate,  # noqa: E402
                          load_weights, read_material, save_weights, wait_for)
from train.data import LONGEST, MAX_FRAMES, Packer, Steps  # noqa: E402
from train.head.gguf import load_nano  # noqa: E402
from train.model import Nano  # noqa: E402
from train.optim import Optimiser  # noqa: E402
from train.pretrain import Heads, dense_loss  # noqa: E402
from train.restyle import Restyler  # noqa: E402
from world.scene import BACKGROUND  # noqa: E402

SHORT = 12       # frames of the longest clips at the beginning
DENSE_WEIGHT = 0.2
DENSE_FRAMES = 256
SAVE_EVERY = 60  # seconds: a run that is cut off leaves weights


def longest_clip(spent):
    """Frames of the longest clips drawn at this share of the time."""
    if spent < 0.12:
        return SHORT
    grown = min(1, (spent - 0.12) / 0.25)
    return int(SHORT * math.exp(grown * math.log(MAX_FRAMES / SHORT)))


def assemble(model, tokens, step):
    """The packed row's embeddings: words, video tokens, and the newline after them."""
    table = torch.cat((tokens.flatten(0, 1), model.newline[None].to(tokens.dtype)))
    words = model.embed(step["ids"]).to(tokens.dtype)
    video = step["video"]
    return torch.where((video >= 0)[:, None], table[video.clamp(min=0)], words)


def word_loss(model, step, tokens):
    x = assemble(model, tokens, step)
    hidden = model.decode(x, step["positions"], step["starts"], LONGEST)
    told = step["loss_id"].long()
    logits = model.logits(hidden[step["loss_at"].long()])
    loss = F.cross_entropy(logits.float(), told, ignore_index=-100)
    right = (logits.argmax(-1) == told).sum() / (told >= 0).sum()
    return loss, right


def dense_part(heads, tokens, shown, step):
    """Stage 1's loss on frames spread over the step; backgrounds are left out."""
    n = len(tokens)
    pick = torch.arange(0, n, max(n // DENSE_FRAMES, 1), device=tokens.device)
    kind = step["ground"][pick, BACKGROUND.index("kind")].long()
    return dense_loss(heads, tokens[pick], shown[pick], step["things"][pick],
                      step["labels"][pick].long(), kind, torch.full_like(kind, -1))


def losses(model, heads, painter, step, learn_tower):
    """The step's loss, and its parts: words' loss, share of tokens and of things told right."""
    pixels, shown = painter(step["ground"], step["things"])
    with torch.autocast(pixels.device.type, torch.bfloat16):
        learns = model.tower.patch_embedding.weight.requires_grad
        tokens = model.see(pixels, learn_tower and learns)
        words, right = word_loss(model, step, tokens)
        if not learns:
            return words, (words, right, words.new_zeros(()))
        dense, things = dense_part(heads, tokens, shown, step)
    return words + DENSE_WEIGHT * dense, (words, right, things)


def read_args():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--model", default="nano", help="nano, nano-draft (nano)")
    a.add_argument("--sprites", required=True, metavar="DIR")
    a.add_argument("--tokenizer", default=os.path.join(os.path.dirname(__file__), "tokenizer"))
    a.add_argument("--minutes", type=float, default=11)
    a.add_argument("--frames", type=int, default=1024, help="of a step (1024)")
    a.add_argument("--tokens", type=int, default=81920, help="of a step (81920)")
    a.add_argument("--lr", type=float, default=2.5e-3)
    a.add_argument("--tower-share", type=float, default=0.3, help="of it for the tower (0.3)")
    a.add_argument("--tower-every", type=int, default=3, metavar="N",
                   help="steps the tower learns in one; 0: in none, and no dense loss (3)")
    a.add_argument("--seed", type=int, default=2)
    a.add_argument("--workers", type=int)
    a.add_argument("--gate", metavar="FILE", help="get ready, then wait until this file is there")
    a.add_argument("--from", dest="begin", metavar="DIR", help="where stage 1 left its files")
    a.add_argument("--start", metavar="FILE",
                   help="finished weights to begin with instead, .gguf or .safetensors")
    a.add_argument("--new-decoder", action="store_true",
                   help="of --start take tower and projector alone")
    a.add_argument("--heads", metavar="FILE", help="the linear heads of stage 1 to begin with")
    a.add_argument("--restyle", type=float, default=0, metavar="SHARE",
                   help="of the sprites that are shown in another style than drawn (0)")
    a.add_argument("--reword", action="store_true",
                   help="more wordings, more questions about named things (train.wording)")
    a.add_argument("--from-seeing", metavar="FILE",
                   help="tower and projector of this file in the place of --start's")
    a.add_argument("--whole", action="store_true", help="nano-draft, too, sees whole videos only")
    a.add_argument("-o", dest="out", required=True, metavar="DIR")
    return a.parse_args()


def main():
    args = read_args()
    device = begin(args)
    sprites, tokenizer = read_material(args)
    steps = Steps(lambda: Packer(sprites, tokenizer, args.frames, args.tokens,
                                 args.model == "nano-draft" and not args.whole, args.reword),
                  args.seed, device, args.workers)
    painter = Painter(sprites, device)
    restyle = args.restyle and Restyler(sprites, painter, args.restyle, list(sprites.index))
    model = Nano(args.model).to(device)
    model.tower.requires_grad_(args.tower_every > 0)
    heads = Heads(model.shape.hidden, len(sprites.names)).to(device)
    if device.type == "cuda":  # compile while the stage before still runs
        model.compile()
        for learn_tower in (True, False) if args.tower_every else (False,):
            losses(model, heads, painter, steps.next(), learn_tower)[0].backward()
        model.zero_grad(set_to_none=True)
        heads.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
    wait_for(args.gate)
    begin_with(args, model, heads)
    train(args, steps, painter, model, heads, restyle)
    save_weights(model, f"{args.out}/{args.model}.safetensors")
    save_weights(heads, f"{args.out}/{args.model}-heads2.safetensors")


def begin_with(args, model, heads):
    """The weights that training begins with: stage 1's, finished ones, or none."""
    if args.begin:
        load_weights(model, f"{args.begin}/{args.model}-stage1.safetensors")
        load_weights(heads, f"{args.begin}/{args.model}-heads.safetensors")
    if args.start:
        state = load_nano(args.start, args.model).state_dict()
        if args.new_decoder:
            state = {k: v for k, v in state.items() if k.startswith(("tower.", "linear_"))}
        model.load_state_dict(state, strict=not args.new_decoder)
    if args.from_seeing:
        state = {k: v.float() for k, v in load_file(args.from_seeing).items()
                 if k.startswith(("tower.", "linear_"))}
        model.load_state_dict(state, strict=False)
    if args.heads:
        load_weights(heads, args.heads)


def train(args, steps, painter, model, heads, restyle):
    optimiser = Optimiser(list(model.named_parameters()) + list(heads.named_parameters()), args.lr,
                          ("tower.", "linear_"), args.tower_share)
    clock, log = Clock(args.minutes), Log(f"{args.out}/{args.model}-stage2.csv")
    n, clips, waited = 0, 0, 0.0
    finished = args.start and not args.new_decoder
    clock.start()
    saved = time.time()
    while clock.spent() < 1:
        steps.longest.value = MAX_FRAMES if finished else longest_clip(clock.spent())
        begin = time.time()
        step = steps.next()
        waited += time.time() - begin
        clips += step["clips"]
        if restyle:
            restyle()
        loss, (words, right, things) = losses(
            model, heads, painter, step, n % max(args.tower_every, 1) == 0)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step(learning_rate(clock.spent(), n, floor=0.01))
        if n % 50 == 0 or clock.spent() >= 1:
            log.add(step=n, minutes=clock.spent() * args.minutes, loss=words.item(),
                    tokens_right=right.item(), things_right=things.item(), clips=clips,
                    longest=steps.longest.value, waited=waited)
            if time.time() - saved > SAVE_EVERY:
                save_weights(model, f"{args.out}/{args.model}.safetensors")
                saved = time.time()
        n += 1


if __name__ == "__main__":
    main()
