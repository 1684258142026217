#!/usr/bin/env python3
"""Trains a draft head for a checkpoint of LLaVA-OneVision or Qwen2.5-VL on the conversations that
`collect.py` made with it, and writes the directory that `prevue convert` takes. (`nano.py` does the
same for nano, with its data made on the spot.)

Two stages share the time, as ViSpec's: states and probabilities first, then the distance of
probabilities alone. Switches of the ablation: --passes 1 is without MTP, --visual layer is IVSB,
--visual embedding is MSD's, --visual none leaves the video out of training.
"""

import argparse
import glob
import json
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors import safe_open  # noqa: E402

from train.common import Clock, Log, learning_rate  # noqa: E402
from train.head import loss as losses  # noqa: E402
from train.head.bank import load_bank  # noqa: E402
from train.head.head import NORMS, VISUAL, Config, Head, begin_like, export  # noqa: E402
from train.head.tree import Shape, measure  # noqa: E402
from train.optim import Optimiser  # noqa: E402

LAYER_TENSORS = [f"self_attn.{p}_proj.{k}" for p in "qkvo" for k in ("weight", "bias")] + \
    [f"mlp.{p}_proj.weight" for p in ("gate", "up", "down")] + \
    ["input_layernorm.weight", "post_attention_layernorm.weight"]


# ---- the target, as far as a head needs it ----

class Checkpoint:
    """Embeddings, LM head, last layer and last norm of a Hugging Face directory."""

    def __init__(self, folder, device, dtype):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            whole = json.load(f)
        self.config = whole.get("text_config") or whole
        self.files = sorted(glob.glob(os.path.join(folder, "*.safetensors")))
        self.names = {n: p for p in self.files for n in safe_open(p, "pt").keys()}
        last = self.config["num_hidden_layers"] - 1
        self.embedding = self.find("embed_tokens.weight").to(device, dtype)
        found = self.find("lm_head.weight", missing_ok=True)
        self.output = self.embedding if found is None else found.to(device, dtype)
        self.norm = self.find(f"layers.{last}.input_layernorm.weight", instead="norm.weight")
        self.layer = {n: t for n in LAYER_TENSORS
                      if (t := self.find(f"layers.{last}.{n}", missing_ok=True)) is not None}
        self.name = os.path.basename(os.path.normpath(folder))

    def find(self, end, missing_ok=False, instead=None):
        """The tensor of the language model whose name ends so; `instead` puts another ending in
        the place of the layer's."""
        found = [n for n in self.names if (n == end or n.endswith("." + end)) and
                 "vis" not in n.split(end)[0]]
        if instead and found:
            found = [found[0][:-len(end)] + instead]
        if not found:
            if missing_ok:
                return None
            raise SystemExit(f"{os.path.dirname(self.files[0]) if self.files else 'no files'}: "
                             f"no tensor {end}")
        with safe_open(self.names[found[0]], "pt") as f:
            return f.get_tensor(found[0]).float()

    def embed(self, ids):
        return F.embedding(ids, self.embedding)

    def lm_head(self, states):
        return F.linear(states, self.output.to(states.dtype))

    def shape(self, **more):
        c = self.config
        heads = c["num_attention_heads"]
        rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
        return Config(
            hidden_size=c["hidden_size"], num_attention_heads=heads,
            num_key_value_heads=c.get("num_key_value_heads", heads),
            head_dim=c.get("head_dim") or c["hidden_size"] // heads,
            intermediate_size=c["intermediate_size"], rms_norm_eps=c["rms_norm_eps"],
            rope_theta=float(c.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            visual_layer=c["num_hidden_layers"] // 2, target=self.name, **more)


# ---- training ----

class Adam:
    """AdamW alone, in the form of train.optim.Optimiser."""

    def __init__(self, named, lr):
        self.lr = lr
        self.adam = torch.optim.AdamW([p for _, p in named], lr, betas=(0.9, 0.95),
                                      weight_decay=0.0)

    def step(self, factor):
        for g in self.adam.param_groups:
            g["lr"] = self.lr * factor
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)


def make_optimiser(head, args):
    named = [("blocks." + n if p.dim() == 2 else n, p) for n, p in head.named_parameters()]
    return Optimiser(named, args.lr) if args.optimiser == "muon" else Adam(named, args.lr)


def add_noise(batch, amount):
    """Uniform noise on the states that the FC takes, less of it on longer conversations."""
    h = batch["before"]
    batch["before"] = h + (torch.rand_like(h) - 0.5) * (amount * 512 / h.shape[1])


def draw_steps(bank, texts, head, args):
    """Endless (group, first, last) of the first stage and of the second. With `texts` the first has
    conversations without a video; a head without visual rows then meets the same steps of the second
    as the others."""
    seen = head.config.visual != "none" or texts is not None
    second = bank.endless(args.seed, args.rows, args.visual_rows, seen)
    return (texts.endless(args.seed, args.rows, args.visual_rows, False) if texts else second), second


def visual_share(args, spent):
    """Of the steps, those in which a head meets the video's rows: --visual-share, or with
    --visual-ramp from none at the second stage's beginning to all at its end."""
    if not args.visual_ramp:
        return args.visual_share
    return max(0.0, (spent - args.stage1) / max(1 - args.stage1, 1e-9))


def fit(head, bank, source, args, log, save=None, texts=None):
    """Trains until the minutes are over, or the steps where --steps says how many. texts: a Bank for
    the first stage, of conversations without a video, which have one pass."""
    device = next(head.parameters()).device
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    optimiser, clock, n = make_optimiser(head, args), Clock(args.minutes), 0
    stages, rows, saved = losses.STAGES[args.loss], 0, time.time()
    steps, rng = draw_steps(bank, texts, head, args), random.Random(args.seed)
    while True:
        if n == 1:
            clock.start()
        spent = n / args.steps if args.steps else clock.spent()
        if spent >= 1:
            break
        stage = 0 if spent < args.stage1 else 1
        alone = texts is not None and stage == 0
        group, first, last = next(steps[stage])
        seen = head.config.visual != "none" and not alone and \
            rng.random() < visual_share(args, spent)
        batch = group.cut(first, last, device, source.embed, dtype, seen)
        if args.noise:
            add_noise(batch, args.noise)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, told = losses.total_loss(head, source.lm_head, batch, 1 if alone else args.passes,
                                           args.way, stages[stage])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step(learning_rate(spent, n, args.warm, floor=0.01))
        n, rows = n + 1, rows + len(batch["rows"])
        if (n - 1) % args.log_every == 0:
            figures = {f"{k}{i + 1}": p[k].item() for i, p in enumerate(told)
                       for k in ("right", "cross", "distance", "smooth")}
            log.add(step=n, minutes=spent * args.minutes, loss=loss.item(), rows=rows, **figures)
        if save and time.time() - saved > 60:
            save()
            saved = time.time()
    return n, rows


def add_switches(a):
    """The switches of training, which nano.py has too."""
    a.add_argument("--minutes", type=float, default=30)
    a.add_argument("--steps", type=int, default=0, help="instead of minutes")
    a.add_argument("--passes", type=int, default=2, help="1: no MTP; 2: one more pass (2)")
    a.add_argument("--way", default="shift", choices=("shift", "tree"),
                   help="of the passes after the first (shift)")
    a.add_argument("--loss", default="vispec", choices=losses.STAGES)
    a.add_argument("--stage1", type=float, default=0.4, help="share of the time (0.4)")
    a.add_argument("--optimiser", default="muon", choices=("muon", "adamw"))
    a.add_argument("--lr", type=float, default=2e-3)
    a.add_argument("--warm", type=int, default=50, help="steps (50)")
    a.add_argument("--noise", type=float, default=0.0, help="on the states; ViSpec has 0.2 (0)")
    a.add_argument("--rows", type=int, default=16384, help="of text of a step (16384)")
    a.add_argument("--visual-rows", type=int, default=131072, help="at most (131072)")
    a.add_argument("--visual-share", type=float, default=1.0,
                   help="of the steps, where the head meets rows of the video at all (1)")
    a.add_argument("--visual-ramp", action="store_true",
                   help="instead: none of the second stage's steps at first, all at its end")
    a.add_argument("--norms", default="embed,input,output", help=f"of {','.join(NORMS)}")
    a.add_argument("--from-scratch", action="store_true", help="do not begin as the last layer")
    a.add_argument("--log-every", type=int, default=50)
    a.add_argument("--seed", type=int, default=1)


def read_args():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("target", metavar="HF_DIR")
    a.add_argument("--data", required=True, metavar="DIR", help="what collect.py wrote")
    a.add_argument("--held-out", type=int, default=8, help="conversations to measure with (8)")
    a.add_argument("--visual", default="layer", choices=VISUAL)
    a.add_argument("--tree", default="30-3-8", help="total-depth-width, to measure (30-3-8)")
    a.add_argument("-o", dest="out", required=True, metavar="HEAD_DIR")
    add_switches(a)
    return a.parse_args()


def main():
    args = read_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    source = Checkpoint(args.target, device,
                        torch.bfloat16 if device.type == "cuda" else torch.float32)
    head = Head(source.shape(visual=args.visual, norms=tuple(filter(None, args.norms.split(","))),
                             qkv_bias="self_attn.q_proj.bias" in source.layer)).to(device)
    if not args.from_scratch:
        begin_like(head, source.layer, source.norm)
    bank = load_bank(args.data, first=args.held_out)
    print("conversations %d, rows %d" % bank.count(), flush=True)
    fit(head, bank, source, args, Log(os.path.join(args.out, "training.csv")),
        lambda: export(head, args.out))
    export(head, args.out)
    shape = Shape(*map(int, args.tree.split("-")))
    for view in ("text",) + (("full",) if args.visual != "none" else ()):
        told = [0, 0]
        for group in load_bank(args.data, last=args.held_out).groups if args.held_out else ():
            found = measure(head, source.embed, source.lm_head, group, shape, view, device)
            told = [a + b for a, b in zip(told, found)]
        if told[1]:
            print(f"view {view}: {told[0] / told[1]:.2f} tokens a verification, {told[1]} of them")
    print(f"{args.out}: {sum(p.numel() for p in head.parameters())} parameters")


if __name__ == "__main__":
    main()
