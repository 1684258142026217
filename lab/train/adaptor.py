#!/usr/bin/env python3
"""Trains a vision adaptor: the network that makes a draft model's video tokens from its target's, so
that the draft model needs no tower (doc/speculation.md). Both models stay as they are.

It begins as the linear map that comes closest to the draft model's own video tokens: since
gelu(a) - gelu(-a) = a, two matrices with a gelu between them can be any such map. Then the draft
model, which sees a part of the adaptor's tokens, learns to say what the target says that sees the
whole video: the loss is the cross-entropy between their distributions over the words of answers.

The figures that are logged: the loss, and how often the likeliest next token of the draft model is
the target's, with the adaptor (`shared`) and, at the beginning and the end, with its own tower
(`own`).
"""

import argparse
import json
import math
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402

from train.common import Clock, Log, Painter, begin, learning_rate, read_material  # noqa: E402
from train.data import LONGEST, MAX_FRAMES, Packer, Steps  # noqa: E402
from train.head.gguf import load_nano  # noqa: E402
from train.model import RMSNorm  # noqa: E402
from train.train import assemble  # noqa: E402

EPS = 1e-6
SOME_FRAMES = 512   # of a step, through towers at once
FIT_ROWS = 60000    # that the linear map is fitted to
RIDGE = 1e-3


class Adaptor(nn.Module):
    def __init__(self, rows_in, middle, rows_out):
        super().__init__()
        self.norm = RMSNorm(rows_in, EPS)
        self.up, self.down = nn.Linear(rows_in, middle), nn.Linear(middle, rows_out)

    def forward(self, x):
        return self.down(F.gelu(self.up(self.norm(x))))

    @torch.no_grad()
    def begin_linear(self, x, y):
        """The best linear map from norm(x) to y, of half the rank of the middle."""
        a = self.norm(x.float())
        mean_a, mean_y = a.mean(0), y.float().mean(0)
        a, b = (a - mean_a).double(), (y.float() - mean_y).double()
        gram = a.T @ a / len(a)
        gram += RIDGE * gram.diagonal().mean() * torch.eye(len(gram), device=gram.device)
        whole = torch.linalg.solve(gram, a.T @ b / len(a))            # [in, out]
        half = self.up.weight.shape[0] // 2
        # The directions of y that are worth most: of what the map makes of these rows.
        _, directions = torch.linalg.eigh(whole.T @ gram @ whole)
        best = directions[:, -min(half, directions.shape[1]):]         # [out, rank]
        first = (whole @ best).T.float()                               # [rank, in]
        rank = len(first)
        self.up.weight[:rank], self.up.weight[half:half + rank] = first, -first
        shift = first @ mean_a
        self.up.bias[:rank], self.up.bias[half:half + rank] = -shift, shift
        self.down.weight[:, :rank] = best.float()
        self.down.weight[:, half:half + rank] = -best.float()
        self.down.bias.copy_(mean_y)
        return (b - (a @ whole) @ best @ best.T).square().mean().item() / b.square().mean().item()


def export(adaptor, folder, target):
    os.makedirs(folder, exist_ok=True)
    state = {"adaptor." + k: v.detach().float().cpu().contiguous()
             for k, v in adaptor.state_dict().items()}
    save_file(state, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "prevue-adaptor", "input_size": adaptor.up.in_features,
                   "intermediate_size": adaptor.up.out_features,
                   "output_size": adaptor.down.out_features, "norm_eps": EPS, "target": target},
                  f, indent=1)


# ---- what the models see and say ----

@torch.no_grad()
def see(models, painter, step):
    """The frames' tokens of each model, [frames, tokens, hidden]."""
    out = [[] for _ in models]
    for i in range(0, len(step["ground"]), SOME_FRAMES):
        pixels, _ = painter(step["ground"][i:i + SOME_FRAMES], step["things"][i:i + SOME_FRAMES])
        for model, tokens in zip(models, out):
            tokens.append(model.see(pixels.to(model.newline.dtype)))
    return [torch.cat(t) for t in out]


def prune(step, low=0.04, high=0.5, ratio=None):
    """The step as a drafter sees it: of each conversation's video a share is kept, which is drawn,
    at random or as evenly as possible; then, in half of them, positions close up."""
    video, starts = step["video"], step["starts"].long()
    n, dev = len(video), video.device
    sequence = torch.zeros(n, dtype=torch.long, device=dev)
    sequence[starts[(starts > 0) & (starts < n)]] = 1
    sequence = sequence.cumsum(0)
    count = int(sequence[-1]) + 1
    share = torch.exp(torch.empty(count, device=dev).uniform_(math.log(low), math.log(high)))
    share[torch.rand(count, device=dev) < 0.15] = 1.0
    if ratio is not None:
        share[:] = ratio
    even = torch.rand(count, device=dev) < 0.5
    place = torch.arange(n, device=dev) * share[sequence]
    kept = torch.where(even[sequence], place.floor() != (place - share[sequence]).floor(),
                       torch.rand(n, device=dev) < share[sequence])
    kept |= (video < 0) | (video == video.max())  # words, and the newline after the video
    rows, before = kept.nonzero()[:, 0], kept.long().cumsum(0)
    ends = torch.cat((torch.zeros(1, dtype=torch.long, device=dev), before))[starts]
    closed = torch.arange(len(rows), device=dev) - ends[:-1][sequence_of(ends, len(rows))]
    positions = torch.where((torch.rand(count, device=dev) < 0.5)[sequence[rows]],
                            closed.int(), step["positions"][rows])
    return {"ids": step["ids"][rows], "video": video[rows], "positions": positions,
            "starts": ends.int(), "loss_at": before[step["loss_at"].long()] - 1}


def sequence_of(starts, n):
    """Which sequence each of n rows is in; several may begin at one row, all but one empty."""
    return torch.searchsorted(starts[1:].contiguous(), torch.arange(n, device=starts.device),
                              right=True).clamp(max=len(starts) - 2)


def say(model, tokens, newline, step):
    """Logits of the rows that answers are learnt from."""
    table = torch.cat((tokens.flatten(0, 1), newline.to(tokens.dtype)[None]))
    words = model.embed(step["ids"]).to(tokens.dtype)
    video = step["video"]
    x = torch.where((video >= 0)[:, None], table[video.clamp(min=0)], words)
    hidden = model.decode(x, step["positions"], step["starts"], LONGEST)
    return model.logits(hidden[step["loss_at"].long()]).float()


@torch.no_grad()
def listen(target, tokens, step):
    """What the target says to the whole video, and which rows count."""
    x = assemble(target, tokens, step)
    hidden = target.decode(x, step["positions"], step["starts"], LONGEST)
    return target.logits(hidden[step["loss_at"].long()]).float(), step["loss_id"] >= 0


def agree(logits, said, counts):
    return ((logits.argmax(-1) == said.argmax(-1)) & counts).sum() / counts.sum()


@torch.no_grad()
def judge(target, draft, adaptor, painter, steps, n):
    """Agreement with the target when a tenth of the video is kept: own tower, shared."""
    own = shared = 0.0
    for step in steps[:n]:
        theirs, ours = see((target, draft), painter, step)
        said, counts = listen(target, theirs, step)
        torch.manual_seed(7)
        seen = prune(step, ratio=0.1)
        own += agree(say(draft, ours, draft.newline, seen), said, counts).item() / n
        shared += agree(say(draft, adaptor(theirs), adaptor(target.newline), seen), said,
                        counts).item() / n
    return own, shared


# ---- the command ----

def read_args():
    here = os.path.dirname(os.path.abspath(__file__))
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--target", default="models/nano.gguf")
    a.add_argument("--draft", default="models/nano-draft.gguf")
    a.add_argument("--shapes", default="nano,nano-draft", help="of train.model.SHAPES")
    a.add_argument("--sprites", required=True, metavar="DIR|FILE.npz")
    a.add_argument("--tokenizer", default=os.path.join(here, "tokenizer"))
    a.add_argument("--middle", type=int, default=384, help="rows of the first matrix (384)")
    a.add_argument("--minutes", type=float, default=1.5)
    a.add_argument("--frames", type=int, default=1024, help="of a step (1024)")
    a.add_argument("--tokens", type=int, default=81920, help="of a step (81920)")
    a.add_argument("--longest", type=int, default=64, help="frames of the longest clips (64)")
    a.add_argument("--lr", type=float, default=2e-3)
    a.add_argument("--judge", type=int, default=3, help="steps to measure with (3)")
    a.add_argument("--no-compile", action="store_true", help="paint frames without a compiler")
    a.add_argument("--seed", type=int, default=5)
    a.add_argument("--workers", type=int)
    a.add_argument("--from", dest="begin", metavar="DIR", help="go on with this adaptor")
    a.add_argument("-o", dest="out", required=True, metavar="DIR")
    return a.parse_args()


def first_adaptor(args, target, draft, painter, steps):
    """The adaptor before training, and what is known of it."""
    adaptor = Adaptor(target.shape.hidden, args.middle, draft.shape.hidden)
    adaptor.to(target.newline.device)
    if args.begin:
        state = load_file(os.path.join(args.begin, "model.safetensors"))
        adaptor.load_state_dict({k.removeprefix("adaptor."): v for k, v in state.items()})
        return adaptor, float("nan")
    theirs, ours = zip(*(see((target, draft), painter, step) for step in steps))
    x, y = (torch.cat([t.flatten(0, 1) for t in some])[:FIT_ROWS] for some in (theirs, ours))
    x, y = torch.cat((x, target.newline[None].to(x))), torch.cat((y, draft.newline[None].to(y)))
    return adaptor, adaptor.begin_linear(x, y)


def train(args, target, draft, adaptor, painter, steps, log):
    optimiser = torch.optim.AdamW(adaptor.parameters(), lr=args.lr, betas=(0.9, 0.98),
                                  weight_decay=0.01)
    clock, n, device = Clock(args.minutes), 0, target.newline.device.type
    clock.start()
    while clock.spent() < 1:
        step = steps.next()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            theirs, = see((target,), painter, step)
            said, counts = listen(target, theirs, step)
            logits = say(draft, adaptor(theirs), adaptor(target.newline), prune(step))
        loss = -(said.softmax(-1) * logits.log_softmax(-1)).sum(-1)[counts].mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(adaptor.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = args.lr * learning_rate(clock.spent(), n, warm=20)
        optimiser.step()
        if n % 20 == 0 or clock.spent() >= 1:
            log.add(step=n, minutes=clock.spent() * args.minutes, loss=loss.item(),
                    shared=agree(logits, said, counts).item())
        n += 1


def main():
    args = read_args()
    device = begin(args)
    sprites, tokenizer = read_material(args)
    steps = Steps(lambda: Packer(sprites, tokenizer, args.frames, args.tokens, False), args.seed,
                  device, args.workers)
    steps.longest.value = min(args.longest, MAX_FRAMES)
    painter = Painter(sprites, device)
    if args.no_compile:
        painter.paint = painter.paint_some
    target, draft = (load_nano(path, shape).to(device) for path, shape in
                     zip((args.target, args.draft), args.shapes.split(",")))
    log, began = Log(os.path.join(args.out, "adaptor.csv")), time.time()
    some = [steps.next() for _ in range(args.judge)]
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        adaptor, error = first_adaptor(args, target, draft, painter, some)
        own, shared = judge(target, draft, adaptor, painter, some, args.judge)
    print(f"linear map: {error:.3f} of the variance is left; agreement own {own:.4f}, "
          f"shared {shared:.4f}; {time.time() - began:.0f} s", flush=True)
    train(args, target, draft, adaptor, painter, steps, log)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        own, shared = judge(target, draft, adaptor, painter, some, args.judge)
    print(f"agreement own {own:.4f}, shared {shared:.4f}", flush=True)
    export(adaptor, args.out, os.path.splitext(os.path.basename(args.target))[0])


if __name__ == "__main__":
    main()
