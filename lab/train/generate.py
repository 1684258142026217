#!/usr/bin/env python3
"""Greedy answers of a model in PyTorch about held-out clips, many at once, and what they score: the
quick look after training. (`evaluate` asks prevue itself, through files.)

All clips of a batch have one number of frames and one prompt, so their rows have one length and a
plain rectangular cache will do. With --questions each clip is also asked so many, each alone, and
with --held-out-wording in words that training never used (train.wording).
"""

import argparse
import csv
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

from train import score, wording  # noqa: E402
from train.common import Painter, wait_for  # noqa: E402
from train.data import ASK  # noqa: E402
from train.head import answers  # noqa: E402
from train.head.gguf import load_nano  # noqa: E402
from train.model import rotate  # noqa: E402
from world import words  # noqa: E402
from world.scene import BACKGROUND, SPRITE, draw_clip, lay_out  # noqa: E402
from world.slots import MAX_OBJECTS  # noqa: E402
from world.sprites import HELD_OUT_STYLE, STYLES, Sprites  # noqa: E402

MAX_NEW = 420


class Cache:
    def __init__(self, model, batch, length, device):
        s = model.shape
        self.k, self.v = (torch.zeros(s.layers, batch, s.kv_heads, length, s.head_dim,
                                      device=device, dtype=torch.bfloat16) for _ in range(2))
        self.n = 0


def forward(model, x, cache):
    """Rows [batch, n, hidden] after those in the cache -> normalised states of the last one."""
    b, n, _ = x.shape
    positions = torch.arange(cache.n, cache.n + n, device=x.device)
    cos, sin = (t[:, 0] for t in model.angles(positions))
    for i, block in enumerate(model.blocks):
        y = block.input_layernorm(x)
        q, k, v = (p(y).view(b, n, -1, block.head_dim).transpose(1, 2)
                   for p in (block.q_proj, block.k_proj, block.v_proj))
        cache.k[i, :, :, cache.n:cache.n + n] = rotate(k, cos, sin)
        cache.v[i, :, :, cache.n:cache.n + n] = v
        y = F.scaled_dot_product_attention(
            rotate(q, cos, sin).to(torch.bfloat16), cache.k[i, :, :, :cache.n + n],
            cache.v[i, :, :, :cache.n + n], is_causal=n > 1, enable_gqa=True)
        x = x + block.o_proj(y.transpose(1, 2).reshape(b, n, -1))
        y = block.post_attention_layernorm(x)
        x = x + block.down_proj(F.silu(block.gate_proj(y)) * block.up_proj(y))
    cache.n += n
    return model.norm(x[:, -1])


@torch.no_grad()
def answer(model, tokenizer, tokens, prompts, max_new=MAX_NEW):
    """Greedy texts for video tokens [batch, n, hidden]; the prompts have one length in tokens."""
    dev, b = tokens.device, len(tokens)
    ids = [tokenizer.encode(p, add_special_tokens=False).ids for p in prompts]
    head = tokenizer.encode("<|im_start|>user ", add_special_tokens=False).ids
    stop = tokenizer.token_to_id("<|im_end|>")
    with torch.autocast(dev.type, torch.bfloat16):
        embed = model.embed
        x = torch.cat((embed(torch.tensor(head, device=dev)).expand(b, -1, -1), tokens,
                       model.newline.expand(b, 1, -1), embed(torch.tensor(ids, device=dev))), 1)
        cache = Cache(model, b, x.shape[1] + max_new, dev)
        hidden, out = forward(model, x, cache), []
        done = torch.zeros(b, dtype=torch.bool, device=dev)
        for i in range(max_new):
            new = model.logits(hidden).argmax(-1)
            out.append(new)
            done |= new == stop
            if i % 16 == 15 and bool(done.all()):
                break
            hidden = forward(model, embed(new)[:, None], cache)
    rows = torch.stack(out, 1).tolist()
    return [tokenizer.decode(r[:r.index(stop)] if stop in r else r) for r in rows]


@torch.no_grad()
def look(model, painter, ground, things, device):
    with torch.autocast(device.type, torch.bfloat16):
        out = [model.see(painter(ground[i:i + 256].to(device), things[i:i + 256].to(device))[0])
               for i in range(0, len(ground), 256)]
    return torch.cat(out)


def questions_of(clip, number, held_out):
    """[(kind, question, answer)]: so many about a clip, as lab/train/evaluate draws them."""
    drawn = words.questions(clip, random.Random(clip.seed))
    random.Random(clip.seed).shuffle(drawn)
    if held_out:
        drawn = [(k, w[0], a) for k, q, a in drawn if (w := wording.wordings(k, q, True))]
    return drawn[:number]


@torch.no_grad()
def ask_all(model, painter, tokenizer, clips, sprites, number, held_out, device):
    """{kind: (right, total)} of questions that are asked alone."""
    target = answers.Target(model, painter, tokenizer, device, torch.bfloat16)
    items, truth, total = [], [], {}
    for clip in clips:
        ground, things = lay_out(clip, sprites)[:2]
        for kind, question, answer_ in questions_of(clip, number, held_out):
            ids = tokenizer.encode("\n" + question + ASK, add_special_tokens=False).ids
            items.append(answers.Item(ground, things, [ids]))
            truth.append((kind, answer_))
    size = answers.batch_size(clips[0].frames)
    for first in range(0, len(items), size):
        group = answers.converse(target, items[first:first + size], False)
        for row, at in enumerate(group.order):
            ids = group.ids[row].cpu()[group.made[row]].tolist()
            kind, true = truth[first + at]
            said = tokenizer.decode(ids[:ids.index(target.stop)] if target.stop in ids else ids)
            one = int(score.score_answer(true, said)), 1
            score.add(total, {kind: one, "all": one})
    return total


class Counts:
    """The counts of --csv: what was asked for, frames, slot, right, of so many."""

    def __init__(self, args):
        self.path, self.first = args.csv, [os.path.basename(args.weights), args.style or "trained"]
        self.rows = [["weights", "style", "what", "frames", "slot", "right", "total"]]

    def add(self, what, frames, total):
        self.rows += [[*self.first, what, frames, slot, *both] for slot, both in total.items()]
        if self.path:
            with open(self.path, "w", newline="", encoding="utf-8") as f:
                csv.writer(f).writerows(self.rows)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("weights", metavar="WEIGHTS.safetensors|MODEL.gguf")
    a.add_argument("--model", default="nano")
    a.add_argument("--sprites", required=True, metavar="DIR")
    a.add_argument("--tokenizer", default=os.path.join(os.path.dirname(__file__), "tokenizer"))
    a.add_argument("--frames", default="16,64,128")
    a.add_argument("--clips", type=int, default=96, help="of each length (96)")
    a.add_argument("--seed", type=int, default=1000, help="of the first clip (1000)")
    a.add_argument("--style", help="sprites of this style (those of training)")
    a.add_argument("--budget", type=int, default=4096, help="frames of a batch (4096)")
    a.add_argument("--questions", type=int, default=0, metavar="N",
                   help="about each clip of the first length (0)")
    a.add_argument("--held-out-wording", action="store_true")
    a.add_argument("--json", metavar="FILE")
    a.add_argument("--csv", metavar="FILE", help="counts, written as they come")
    a.add_argument("--gate", metavar="FILE", help="get ready, then wait until this file is there")
    args = a.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    styles = [args.style] if args.style else [s for s in STYLES if s != HELD_OUT_STYLE]
    sprites = Sprites(args.sprites, styles)
    tokenizer = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    painter = Painter(sprites, device)
    if args.gate:
        painter(torch.zeros(256, len(BACKGROUND), device=device),
                torch.full((256, MAX_OBJECTS, len(SPRITE)), -1.0, device=device))
        wait_for(args.gate)
    model = load_nano(args.weights, args.model).to(device)
    totals, kept, counts = {}, [], Counts(args)
    for n in [int(f) for f in args.frames.split(",")]:
        total, batch = {}, max(1, args.budget // n)
        for first in range(0, args.clips, batch):
            clips = [draw_clip(args.seed + first + i, n, sprites)
                     for i in range(min(batch, args.clips - first))]
            arrays = [lay_out(c, sprites)[:2] for c in clips]
            ground, things = (torch.cat([torch.from_numpy(x[j]) for x in arrays]) for j in (0, 1))
            tokens = look(model, painter, ground, things, device).view(len(clips), -1,
                                                                      model.shape.hidden)
            texts = answer(model, tokenizer, tokens, ["\n" + words.PROMPTS[0] + ASK] * len(clips))
            for c, t in zip(clips, texts):
                score.add(total, score.score(c, t))
                kept.append({"seed": c.seed, "frames": n, "true": words.describe(c), "said": t})
        totals[f"{n} frames"] = total
        counts.add("told", n, total)
        if len(kept) and n == 16:
            print("TRUE", kept[0]["true"], "\nSAID", kept[0]["said"], flush=True)
    print(score.table(totals), flush=True)
    if args.questions:
        clips = [draw_clip(args.seed + i, int(args.frames.split(",")[0]), sprites)
                 for i in range(args.clips)]
        for held_out in (False, True) if args.held_out_wording else (False,):
            kind = "asked, wording held out" if held_out else "asked"
            found = ask_all(model, painter, tokenizer, clips, sprites, args.questions, held_out,
                            device)
            counts.add(kind, clips[0].frames, found)
            print("Questions" + (", wordings held out" if held_out else "") + "\n" +
                  score.table({"asked alone": found}), flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(kept, f, indent=1)


if __name__ == "__main__":
    main()
