"""Paints frames from the arrays of `scene`: every pixel works out its background and samples each
sprite, nearer ones over farther ones. Plain tensor code: `paint` takes many frames at once,
compiled on a GPU for training, where a thousand take some milliseconds; `paint_frame` one, on a
CPU, where it pays to look for each sprite only where it can be.
"""

import math

import torch
import torch.nn.functional as F

from world.scene import BACKGROUND, SIDE
from world.sprites import BORDER, SIDES

PLAIN, GRADIENT, STRIPED, DOTTED, CHECKED = range(5)
SMALL_BELOW = 62  # pixels under which the halved sprite is sampled


def soft(d):
    """1 where d is negative, 0 where positive, a pixel of ramp between."""
    return (0.5 - d).clamp(0, 1)


def paint_background(g, x, y):
    kind, period, angle = g["kind"], g["period"], g["angle"] * (math.pi / 180)
    px, py = x - g["shift_x"], y - g["shift_y"]
    along = px * torch.cos(angle) + py * torch.sin(angle)
    tri = (torch.remainder(along / period, 1) - 0.5).abs() * period  # pixels from the middle
    stripe = soft(tri - period * 0.25)
    fx, fy = torch.remainder(px, period) - period / 2, torch.remainder(py, period) - period / 2
    dot = soft(torch.sqrt(fx * fx + fy * fy) - period * 0.27)
    check = torch.remainder(torch.floor(px / period) + torch.floor(py / period), 2)
    mix = torch.where(kind == GRADIENT, y / SIDE, torch.zeros_like(y))
    mix = torch.where(kind == STRIPED, stripe, mix)
    mix = torch.where(kind == DOTTED, dot, mix)
    mix = torch.where(kind == CHECKED, check, mix)
    return [g[c] + (g[c + "2"] - g[c]) * mix for c in "rgb"]


def sample_sprite(words, size_words, t, x, y):
    """Red, green, blue (premultiplied) and alpha of one thing at every pixel."""
    sprite, cx, cy, size, angle = t
    size = size.clamp(min=1)
    far = size < SMALL_BELOW
    side = torch.where(far, float(SIDES[1]), float(SIDES[0]))
    stride = side + 2 * BORDER
    base = torch.where(far, float((SIDES[0] + 2 * BORDER) ** 2), 0.0)
    base = sprite.clamp(min=0).long() * size_words + base.long()
    a = angle * (math.pi / 180)
    dx, dy = x - cx, y - cy
    u = (dx * torch.cos(a) + dy * torch.sin(a)) * (side / size) + side / 2 - 0.5 + BORDER
    v = (dy * torch.cos(a) - dx * torch.sin(a)) * (side / size) + side / 2 - 0.5 + BORDER
    u, v = torch.minimum(u.clamp(min=0), stride - 1.001), torch.minimum(v.clamp(min=0),
                                                                        stride - 1.001)
    iu, iv = torch.floor(u), torch.floor(v)
    fu, fv = u - iu, v - iv
    at = base + (iv * stride + iu).long()
    step = stride.long()
    out = [0.0] * 4
    for offset, w in ((0, (1 - fu) * (1 - fv)), (1, fu * (1 - fv)), (step, (1 - fu) * fv),
                      (step + 1, fu * fv)):
        word = words[at + offset]
        for c in range(4):
            out[c] = out[c] + ((word >> (8 * c)) & 255).float() * w
    there = (sprite >= 0).float()
    return [o * there for o in out[:3]] + [out[3] * there * (1 / 255)]


def paint(words, size_words, ground, things):
    """[n, BACKGROUND] and [n, things, SPRITE] -> pixels [n, 3, SIDE, SIDE] in 0..255, and the
    share of each 32 x 32 cell that shows each thing, [n, things, 8, 8]."""
    n, dev = ground.shape[0], ground.device
    g = {c: ground[:, i, None, None] for i, c in enumerate(BACKGROUND)}
    y = torch.arange(SIDE, device=dev, dtype=torch.float32)[None, :, None].expand(n, SIDE, SIDE)
    x = torch.arange(SIDE, device=dev, dtype=torch.float32)[None, None, :].expand(n, SIDE, SIDE)
    rgb = paint_background(g, x, y)
    shown = []
    for k in range(things.shape[1]):
        t = [things[:, k, i, None, None] for i in range(things.shape[2])]
        *over, alpha = sample_sprite(words, size_words, t, x, y)
        rgb = [o + c * (1 - alpha) for o, c in zip(over, rgb)]
        shown = [s * (1 - alpha) for s in shown] + [alpha]
    rgb = torch.stack([c * g["light"] for c in rgb], 1)
    return rgb, F.avg_pool2d(torch.stack(shown, 1), SIDE // 8)


def box_of(t):
    """The pixels that a thing can cover: columns and rows, first and beyond the last. The
    interpolation reaches half a texel beyond its edge; a whole one of the smaller picture is
    given."""
    sprite, cx, cy, size, angle = t.tolist()
    size, a = max(size, 1), math.radians(angle)
    half = size * (0.5 + 1 / SIDES[1]) * (abs(math.cos(a)) + abs(math.sin(a)))
    ends = [min(max(c, 0), SIDE) for m in (cx, cy) for c in (math.floor(m - half),
                                                             math.ceil(m + half) + 1)]
    return ends if sprite >= 0 else [0] * 4


def paint_frame(words, size_words, ground, things):
    """[BACKGROUND] and [things, SPRITE] -> pixels [3, SIDE, SIDE]: what `paint` paints, to less
    than 1 of 255. (There, the last texel of a sprite leaks a thousandth of itself beyond.)"""
    g = dict(zip(BACKGROUND, ground))
    y, x = torch.meshgrid(*[torch.arange(SIDE, dtype=torch.float32)] * 2, indexing="ij")
    rgb = torch.stack(paint_background(g, x, y))
    for t in things:
        left, right, top, bottom = box_of(t)
        if left >= right or top >= bottom:
            continue
        box = slice(top, bottom), slice(left, right)
        *over, alpha = sample_sprite(words, size_words, t, x[box], y[box])
        under = rgb[:, top:bottom, left:right]
        under.copy_(torch.stack(over) + under * (1 - alpha))
    return rgb * g["light"]


def spoil(rgb, ground, normal):
    """What a camera and a codec do: noise (`normal` has its shape), colour at half resolution."""
    rgb = rgb + ground[:, BACKGROUND.index("noise"), None, None, None] * normal
    luma = (0.299 * rgb[:, 0] + 0.587 * rgb[:, 1] + 0.114 * rgb[:, 2])[:, None]
    chroma = F.avg_pool2d(rgb - luma, 2)
    chroma = F.interpolate(chroma, scale_factor=2, mode="nearest")
    return (luma + chroma).clamp(0, 255)
