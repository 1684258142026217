"""What the stages of training share: the clock that rules learning rate and curriculum, the log,
the renderer on the device, and files of weights.

A stage is given minutes, not steps: the schedule is a function of the share of them that is spent.
"""

import csv
import os
import time

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from world.raster import paint, spoil
from world.sprites import HELD_OUT_STYLE, STYLES, Sprites


def begin(args):
    """The device; the seed is set and the directory for results is there."""
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    os.makedirs(args.out, exist_ok=True)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def read_material(args):
    """What clips are made of: sprites of the styles of training, and the tokenizer."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return (Sprites(args.sprites, [s for s in STYLES if s != HELD_OUT_STYLE]),
            Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json")))


class Clock:
    """Share of the stage's minutes that is spent, counted from the first step after the
    compilation, so that every stage trains as long as it says."""

    def __init__(self, minutes):
        self.seconds, self.begin = minutes * 60, None

    def start(self):
        self.begin = time.time()

    def spent(self):
        return 0.0 if self.begin is None else (time.time() - self.begin) / self.seconds


def learning_rate(spent, steps, warm=100, floor=0.0):
    """A short warm-up, level for two fifths of the time, then down in a line."""
    return min(1, (steps + 1) / warm) * (1 if spent < 0.4 else
                                         max(floor, 1 - (1 - floor) * (spent - 0.4) / 0.6))


class Log:
    """Rows of figures in a CSV file, and one line each on the terminal."""

    def __init__(self, path):
        self.path, self.rows = path, []
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)

    def add(self, **figures):
        row = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in figures.items()}
        print("  ".join(f"{k} {v}" for k, v in row.items()), flush=True)
        self.rows.append(row)
        with open(self.path, "w", newline="", encoding="utf-8") as f:
            w = csv.DictWriter(f, list(dict.fromkeys(k for r in self.rows for k in r)))
            w.writeheader()
            w.writerows(self.rows)


class Painter:
    """Frames in -1..1 for the tower, and which thing each video token shows."""

    def __init__(self, sprites, device, at_once=256):
        self.words = torch.from_numpy(sprites.words).to(device)
        self.size, self.at_once = sprites.size, at_once
        self.paint = self.paint_some
        if device.type == "cuda":
            self.paint = torch.compile(self.paint_some)

    def paint_some(self, ground, things, noise):
        rgb, shown = paint(self.words, self.size, ground, things)
        return (spoil(rgb, ground, noise) / 127.5 - 1).to(torch.bfloat16), shown

    @torch.no_grad()
    def __call__(self, ground, things):
        out, shown = [], []
        for i in range(0, len(ground), self.at_once):
            g = ground[i:i + self.at_once]
            noise = torch.randn(len(g), 3, 256, 256, device=g.device, dtype=torch.bfloat16)
            a, b = self.paint(g, things[i:i + self.at_once], noise)
            out.append(a)
            shown.append(b)
        return torch.cat(out), torch.cat(shown)


def wait_for(path):
    """Until a file is there (the stage before has ended), if one is named."""
    while path and not os.path.exists(path):
        time.sleep(0.2)


def save_weights(model, path, dtype=torch.float32):
    state = {k: v.detach().to("cpu", dtype).contiguous() for k, v in model.state_dict().items()}
    save_file(state, path + ".part")
    os.replace(path + ".part", path)


def load_weights(model, path):
    model.load_state_dict({k: v.float() for k, v in load_file(path).items()}, strict=True)
