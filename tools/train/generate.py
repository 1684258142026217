#!/usr/bin/env python3
"""Greedy answers of a model in PyTorch about held-out clips, many at once, and what they score: the
quick look after training. (`evaluate` asks prevue itself, through files.)

All clips of a batch have one number of frames and one prompt, so their rows have one length and a
plain rectangular cache will do.
"""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

from train import score  # noqa: E402
from train.common import Painter, load_weights  # noqa: E402
from train.data import ASK  # noqa: E402
from train.model import Nano, rotate  # noqa: E402
from world import words  # noqa: E402
from world.scene import draw_clip, lay_out  # noqa: E402
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


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("weights", metavar="WEIGHTS.safetensors")
    a.add_argument("--model", default="nano")
    a.add_argument("--sprites", required=True, metavar="DIR")
    a.add_argument("--tokenizer", default=os.path.join(os.path.dirname(__file__), "tokenizer"))
    a.add_argument("--frames", default="16,64,128")
    a.add_argument("--clips", type=int, default=96, help="of each length (96)")
    a.add_argument("--seed", type=int, default=1000, help="of the first clip (1000)")
    a.add_argument("--style", help="sprites of this style (those of training)")
    a.add_argument("--budget", type=int, default=4096, help="frames of a batch (4096)")
    a.add_argument("--json", metavar="FILE")
    args = a.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    styles = [args.style] if args.style else [s for s in STYLES if s != HELD_OUT_STYLE]
    sprites = Sprites(args.sprites, styles)
    tokenizer = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    painter = Painter(sprites, device)
    model = Nano(args.model).to(device)
    load_weights(model, args.weights)
    totals, kept = {}, []
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
        if len(kept) and n == 16:
            print("TRUE", kept[0]["true"], "\nSAID", kept[0]["said"], flush=True)
    print(score.table(totals), flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(kept, f, indent=1)


if __name__ == "__main__":
    main()
