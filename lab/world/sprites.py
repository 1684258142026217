"""The pictures of the world's objects: loaded once, in two sizes, as one flat array of RGBA words
that `raster` reads from, with what `scene` must know of each: its name, how well it can be told
from each colour of background, and whether one sees it turn.
"""

import os

import numpy as np

from world.slots import COLOURS

try:
    from PIL import Image
except ImportError:  # a file that `save` wrote needs none
    Image = None

STYLES = ("noto", "fluent-emoji", "fluent-emoji-flat", "twemoji")
HELD_OUT_STYLE = "twemoji"  # never seen in training
NAMES_FROM = "fluent-emoji-flat"
SIDE = 96
SIDES = (SIDE, SIDE // 2)   # the second for sprites drawn small, so that they do not flicker
BORDER = 1                  # transparent pixels around each

RGB = {"red": (205, 35, 35), "orange": (242, 138, 30), "yellow": (242, 218, 70),
       "green": (50, 150, 60), "blue": (40, 92, 205), "purple": (122, 52, 165),
       "pink": (244, 155, 195), "brown": (112, 68, 30), "grey": (128, 128, 128),
       "white": (242, 242, 242), "black": (20, 20, 20)}


def read_manifest(folder):
    """[(style, stem, name)] of the sprites whose name every clip may use."""
    rows = []
    with open(os.path.join(folder, "manifest.tsv"), encoding="utf-8") as f:
        for line in f:
            style, stem, name = line.rstrip("\n").split("\t")[:3]
            rows.append((style, stem, name))
    told = {name for style, _, name in rows if style == NAMES_FROM}
    return [r for r in rows if r[2] in told]


def flatten(picture):
    """Both sizes of one sprite with their borders, alpha premultiplied, as 32-bit words."""
    words = []
    for side in SIDES:
        p = picture if side == SIDE else picture.resize((side, side), Image.BOX)
        a = np.zeros((side + 2 * BORDER, side + 2 * BORDER, 4), np.uint32)
        a[BORDER:-BORDER, BORDER:-BORDER] = np.asarray(p)
        a[..., :3] = (a[..., :3] * a[..., 3:] + 127) // 255
        words.append((a[..., 0] | a[..., 1] << 8 | a[..., 2] << 16 | a[..., 3] << 24).ravel())
    return np.concatenate(words)


def contrast_with_colours(picture):
    """How far a sprite's pixels are from each background colour, on average: 0 to 441."""
    a = np.asarray(picture.resize((24, 24), Image.BOX), np.float32)
    weight = a[..., 3] / 255
    rgb = np.array([RGB[c] for c in COLOURS], np.float32)
    d = np.sqrt(((a[:, :, None, :3] - rgb) ** 2).sum(-1))
    return (d * weight[..., None]).sum((0, 1)) / max(weight.sum(), 1)


def turning_changes(picture):
    """How much a quarter and a half turn change a sprite, over grey: a ball that spins shows
    nothing."""
    ground = Image.new("RGBA", picture.size, (128, 128, 128, 255))
    ground.alpha_composite(picture)
    a = np.asarray(ground.convert("RGB").resize((24, 24), Image.BOX), np.float32)
    return min(np.abs(a - np.rot90(a, k)).mean() for k in (1, 2))


class Sprites:
    """words: the flat pictures; index[style][name]: number of a sprite; contrast[sprite, colour];
    turning[sprite]; names: sorted, a name's place is its number."""

    def __init__(self, folder, styles=STYLES):
        """From a folder of pictures, or from a file that `save` wrote."""
        if folder.endswith(".npz"):
            self.restore(folder, styles)
            return
        if Image is None:
            raise SystemExit("Pillow is not installed: pip install Pillow")
        rows = [r for r in read_manifest(folder) if r[0] in styles]
        if not rows:
            raise SystemExit(f"{folder}: no sprites of the styles {', '.join(styles)}")
        self.names = sorted({r[2] for r in read_manifest(folder)})
        self.number = {n: i for i, n in enumerate(self.names)}
        self.index = {s: {} for s in styles}
        words, contrast, turning = [], [], []
        for i, (style, stem, name) in enumerate(rows):
            with Image.open(os.path.join(folder, style, stem + ".png")) as p:
                p = p.convert("RGBA")
                if p.size != (SIDE, SIDE):
                    raise SystemExit(f"{folder}/{style}/{stem}.png: {p.size[0]} x {p.size[1]} "
                                     f"pixels, {SIDE} x {SIDE} are needed")
                words.append(flatten(p))
                contrast.append(contrast_with_colours(p))
                turning.append(turning_changes(p))
            self.index[style][name] = i
        self.words = np.concatenate(words).astype(np.uint32).view(np.int32)
        self.size = len(words[0])  # words of one sprite
        self.contrast, self.turning = np.stack(contrast), np.array(turning)
        self.available = {s: sorted(self.index[s]) for s in styles}

    def save(self, path):
        """As one file, which is read much faster than thousands of pictures."""
        rows = [(s, n, str(i)) for s, d in self.index.items() for n, i in d.items()]
        np.savez_compressed(path, words=self.words, contrast=self.contrast,
                            turning=self.turning, size=self.size, names=np.array(self.names),
                            index=np.array(rows))

    def restore(self, path, styles):
        a = np.load(path)
        self.words, self.contrast, self.size = a["words"], a["contrast"], int(a["size"])
        self.turning = a["turning"]
        self.names = [str(n) for n in a["names"]]
        self.number = {n: i for i, n in enumerate(self.names)}
        self.index = {}
        for style, name, i in a["index"]:
            if style in styles:
                self.index.setdefault(str(style), {})[str(name)] = int(i)
        self.available = {s: sorted(d) for s, d in self.index.items()}
