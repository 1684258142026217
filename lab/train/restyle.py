"""Sprites in styles that nobody drew: every picture of training bent, recoloured, flattened, blurred,
outlined, partly covered, or mixed with the picture that another style has of the same thing, so that
a tower learns things and not pictures of them.

All of it is done to the flat words that `world.raster` samples, on the device, for a part of the
sprites at a time: a step then sees pictures that no other step saw.
"""

import math
import re

import torch
import torch.nn.functional as F

from world.slots import COLOURS
from world.sprites import BORDER, SIDE

AT_ONCE = 640       # sprites that one call renews
WAVE = 6            # points of a side of the grids that warp and mix
COLOURED = re.compile(r"\b(" + "|".join(COLOURS) + r"|sun|moon|fire|snow|leaf|traffic)\b")
SIDED = re.compile(r"\b(left|right|clockwise|o’clock|thirty)\b")


def unpack(words, size, rows):
    """[rows, 4, SIDE, SIDE] in 0..1, alpha premultiplied, of the larger pictures."""
    wide = SIDE + 2 * BORDER
    flat = words.view(-1, size)[rows, :wide * wide].view(-1, wide, wide)
    flat = flat[:, BORDER:-BORDER, BORDER:-BORDER]
    return torch.stack([(flat >> (8 * c)) & 255 for c in range(4)], 1).float() / 255


def pack(pictures):
    """The words of both sizes of each picture."""
    out = []
    for p in (pictures, F.avg_pool2d(pictures, 2)):
        p = F.pad((p.clamp(0, 1) * 255 + 0.5).long(), (BORDER,) * 4)
        p = torch.minimum(p, p[:, 3:])  # premultiplied: no colour above its alpha
        out.append((p[:, 0] | p[:, 1] << 8 | p[:, 2] << 16 | p[:, 3] << 24).flatten(1))
    return torch.cat(out, 1).to(torch.int32)


class Restyler:
    """Renews the words of a Painter. `share` of the sprites are restyled at any time, the others
    are as drawn."""

    def __init__(self, sprites, painter, share, styles):
        dev = painter.words.device
        painter.words = painter.words.clone()  # on a CPU it shares memory with the sprites
        self.words, self.size, self.share = painter.words, sprites.size, share
        entries = [(i, name) for s in styles for name, i in sprites.index[s].items()]
        self.rows = torch.tensor([i for i, _ in entries], device=dev)
        at = {}
        for k, (_, name) in enumerate(entries):
            at.setdefault(name, []).append(k)
        most = max(map(len, at.values()))
        same = [at[name] + at[name][:1] * (most - len(at[name])) for _, name in entries]
        self.same = torch.tensor(same, device=dev)  # sprites of the same thing
        self.may_turn_hue = torch.tensor([not COLOURED.search(n) for _, n in entries], device=dev)
        self.may_flip = torch.tensor([not SIDED.search(n) for _, n in entries], device=dev)
        self.original = (unpack(self.words, self.size, self.rows) * 255 + 0.5).to(torch.uint8)

    @torch.no_grad()
    def __call__(self, count=AT_ONCE):
        n, dev = len(self.rows), self.rows.device
        pick = torch.randperm(n, device=dev)[:min(count, n)]
        plain = self.original[pick].float() / 255
        new = self.restyle(pick, plain)
        kept = torch.rand(len(pick), 1, 1, 1, device=dev) >= self.share
        self.words.view(-1, self.size)[self.rows[pick]] = pack(torch.where(kept, plain, new))

    def chance(self, like, p):
        return torch.rand(len(like), 1, 1, 1, device=like.device) < p

    def between(self, like, low, high):
        return torch.rand(len(like), 1, 1, 1, device=like.device) * (high - low) + low

    def restyle(self, pick, x):
        x = self.mix(pick, x)
        x = self.bend(pick, x)
        x = self.flatten(self.soften(x))
        alpha = x[:, 3:]
        rgb = x[:, :3] / alpha.clamp(min=1 / 255)
        rgb = self.recolour(pick, rgb.clamp(0, 1), alpha)
        rgb, alpha = self.outline(self.cover(rgb, alpha), alpha)
        return torch.cat((rgb.clamp(0, 1) * alpha, alpha), 1)

    def wave(self, like, channels):
        """Smooth noise of mean 0 and about unit size, [n, channels, SIDE, SIDE]."""
        low = torch.randn(len(like), channels, WAVE, WAVE, device=like.device)
        return F.interpolate(low, (SIDE, SIDE), mode="bicubic", align_corners=True)

    def mix(self, pick, x):
        """Two fifths of the pictures: another style's of the same thing, blended or in patches."""
        column = torch.randint(self.same.shape[1], (len(pick), 1), device=pick.device)
        other = self.original[self.same[pick].gather(1, column)[:, 0]].float() / 255
        patches = (self.wave(x, 1) * 4).sigmoid()
        w = torch.where(self.chance(x, 0.5), patches, self.between(x, 0.2, 0.8).expand_as(patches))
        return torch.where(self.chance(x, 0.4), x + (other - x) * w, x)

    def bend(self, pick, x):
        """Turned, stretched, sheared, moved, mirrored, and warped a little."""
        n, dev = len(x), x.device

        def u(low, high):
            return torch.rand(n, device=dev) * (high - low) + low
        a, shear = u(-0.35, 0.35), u(-0.2, 0.2)
        size, tall = u(0.8, 1.3), torch.exp(u(-0.2, 0.2))
        flip = torch.where((u(0, 1) < 0.4) & self.may_flip[pick], -1.0, 1.0)
        cos, sin = torch.cos(a) * size, torch.sin(a) * size
        theta = torch.stack((torch.stack((cos * flip * tall, -sin + shear, u(-0.1, 0.1)), 1),
                             torch.stack((sin * flip, cos / tall, u(-0.1, 0.1)), 1)), 1)
        grid = F.affine_grid(theta, x.shape, align_corners=False)
        warp = self.wave(x, 2) * self.between(x, 0, 0.06)
        return F.grid_sample(x, grid + warp.permute(0, 2, 3, 1), align_corners=False)

    def soften(self, x):
        """Blurred, sharpened, or neither."""
        soft = F.avg_pool2d(x, 5, 1, 2)
        x = torch.where(self.chance(x, 0.3), x + (soft - x) * self.between(x, 0.3, 1), x)
        return torch.where(self.chance(x, 0.15), (x * 2 - soft).clamp(0, 1), x)

    def flatten(self, x):
        """Two fifths of the pictures without shading and small parts: each pixel takes the colour of
        that one of four squares around it which varies least (Kuwahara's filter)."""
        flat, fifth = x.clone(), len(x) // 5  # pictures come in random order
        for part, reach in ((slice(fifth), 2), (slice(fifth, 2 * fifth), 4)) if fifth else ():
            y = F.pad(x[part], (reach,) * 4, mode="replicate")
            mean = F.avg_pool2d(y, reach + 1, 1)
            varies = (F.avg_pool2d(y * y, reach + 1, 1) - mean * mean).sum(1, True)
            best, least = None, None
            for dy in (0, reach):
                for dx in (0, reach):
                    m, v = (t[:, :, dy:dy + SIDE, dx:dx + SIDE] for t in (mean, varies))
                    best = m if best is None else torch.where(v < least, m, best)
                    least = v if least is None else torch.minimum(v, least)
            flat[part] = best
        return flat

    def recolour(self, pick, rgb, alpha):
        grey = (rgb * rgb.new_tensor((0.299, 0.587, 0.114))[None, :, None, None]).sum(1, True)
        rgb = grey + (rgb - grey) * torch.where(self.chance(rgb, 0.12), 0.0,
                                                self.between(rgb, 0.4, 1.7))
        far = self.chance(rgb, 0.22) & self.may_turn_hue[pick].view(-1, 1, 1, 1)
        angle = torch.where(far, self.between(rgb, -math.pi, math.pi),
                            self.between(rgb, -0.35, 0.35))
        rgb = turn_hue(rgb, angle)
        mean = (rgb * alpha).sum((1, 2, 3), True) / (3 * alpha.sum((1, 2, 3), True)).clamp(min=1)
        rgb = mean + (rgb - mean) * self.between(rgb, 0.6, 1.5)
        rgb = rgb * self.between(rgb, 0.75, 1.25) + self.between(rgb, -0.12, 0.12)
        tint = torch.rand(len(rgb), 3, 1, 1, device=rgb.device) * 0.3 + 0.85
        rgb = (rgb * tint).clamp(0, 1) ** torch.exp(self.between(rgb, -0.4, 0.4))
        # Shading added, or taken away: a few flat tones.
        slope = self.wave(rgb, 1) * self.between(rgb, 0, 0.15)
        rgb = torch.where(self.chance(rgb, 0.3), rgb + slope, rgb).clamp(0, 1)
        levels = torch.floor(self.between(rgb, 2, 7))
        return torch.where(self.chance(rgb, 0.35), torch.round(rgb * levels) / levels, rgb)

    def cover(self, rgb, alpha):
        """A patch of a sixth of the pictures has but one colour."""
        n, dev = len(rgb), rgb.device
        at = torch.arange(SIDE, device=dev).float()
        half = self.between(rgb, 6, 16)
        x, y = self.between(rgb, 15, 81), self.between(rgb, 15, 81)
        inside = ((at[None, None, None] - x).abs() < half) & ((at[None, None, :, None] - y).abs()
                                                             < half)
        colour = torch.rand(n, 3, 1, 1, device=dev)
        return torch.where(inside & self.chance(rgb, 0.17), colour, rgb)

    def outline(self, rgb, alpha):
        """A dark, light or coloured line around a third of the pictures, or along their edges."""
        wide = F.max_pool2d(alpha, 5, 1, 2)
        thin = -F.max_pool2d(-alpha, 5, 1, 2)
        ink = torch.rand(len(rgb), 3, 1, 1, device=rgb.device) * self.between(rgb, 0.1, 1)
        outer, inner = self.chance(rgb, 0.17), self.chance(rgb, 0.17)
        line = torch.where(inner, alpha - thin, torch.zeros_like(alpha)).clamp(0, 1)
        grey = rgb.mean(1, True)
        edge = ((F.max_pool2d(grey, 3, 1, 1) + F.max_pool2d(-grey, 3, 1, 1)) * 4 - 0.6).clamp(0, 1)
        line = torch.where(self.chance(rgb, 0.15), torch.maximum(line, edge), line)
        rgb = rgb + (ink - rgb) * line
        ring = (wide - alpha).clamp(0, 1)
        rgb = torch.where(outer, (rgb * alpha + ink * ring) / (alpha + ring).clamp(min=1e-3), rgb)
        return rgb, torch.where(outer, wide, alpha)


def turn_hue(rgb, angle):
    """Colours turned about the axis of greys."""
    cos, sin = torch.cos(angle), torch.sin(angle)
    r, g, b = rgb[:, 0:1], rgb[:, 1:2], rgb[:, 2:3]
    third, root = (1 - cos) / 3, math.sqrt(1 / 3) * sin
    return torch.cat((r * (cos + third) + g * (third - root) + b * (third + root),
                      r * (third + root) + g * (cos + third) + b * (third - root),
                      r * (third - root) + g * (third + root) + b * (cos + third)), 1)
