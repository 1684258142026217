"""Draws clips at random: first their slots, then for every frame where each sprite is, how large
and how turned, the background's pattern, the light and the noise. A clip is a function of its seed,
the style and the number of frames.

The rules keep every slot visible. A thing enters or leaves sideways only where nothing stands in
its way, crosses in a row of its own, spins only if that can be seen of it, and no background
swallows its colours. A scene lasts at least MIN_FRAMES of the frames that will be seen.
"""

import math
import random

import numpy as np

from world.slots import (COLOURS, COLUMNS, KINDS, MAX_OBJECTS, MAX_SCENES, ROWS, Background, Clip,
                         Scene, Thing)
from world.sprites import RGB

SIDE = 256  # pixels of a frame
MIN_FRAMES = 4
MIN_CONTRAST = 75
MIN_TURNING = 12
COLUMN_X = {"left": 48, "middle": 128, "right": 208}
ROW_Y = {"top": 52, "middle": 128, "bottom": 204}
SIZE_PIXELS = {"small": (54, 60), "medium": (72, 80), "large": (100, 112)}
PAN = 50    # pixels a pan moves everything
MOTION_WEIGHTS = {"stands": 2, "enters": 3, "crosses": 2, "rises": 1.4, "falls": 1.4, "grows": 1.2,
                  "shrinks": 1.2, "spins": 1.4, "bounces": 1.4, "leaves": 2}

# The columns of the arrays that describe a frame; raster reads them in this order.
BACKGROUND = ("kind", "r", "g", "b", "r2", "g2", "b2", "period", "angle", "shift_x", "shift_y",
              "light", "noise", "noise_seed")
SPRITE = ("sprite", "x", "y", "size", "angle")


# --- slots ----------------------------------------------------------------------------------------

def allowed_motions(column, row, columns, rows):
    """Motions (and their directions) that nothing in the scene makes hard to see."""
    leftmost, rightmost = column == columns[0], column == columns[-1]
    alone_in_row = rows.count(row) == 1
    sides = [s for s, ok in (("left", leftmost), ("right", rightmost)) if ok]
    ends = [s for s, ok in (("top", row != "bottom"), ("bottom", row != "top")) if ok]
    out = {"stands": ["none"], "enters": sides + ends, "leaves": sides + ends, "spins": ["none"],
           "grows": ["none"], "shrinks": ["none"]}
    cross = [to for to, begin, ok in (("right", "left", leftmost), ("left", "right", rightmost))
             if ok and column == begin and alone_in_row]
    if cross:
        out["crosses"] = cross
    if row != "top":
        out["rises"] = out["bounces"] = ["none"]
    if row != "bottom":
        out["falls"] = ["none"]
    return out


def draw_things(rng, sprites, style):
    n = rng.choices((1, 2, 3), (3, 4, 3))[0]
    columns = sorted(rng.sample(range(3), n))
    columns = [COLUMNS[i] for i in columns]
    rows = [rng.choice(ROWS) for _ in range(n)]
    roomy = n == 1 or columns == ["left", "right"]
    picks = rng.sample(sprites.available[style], n)
    if n == 2 and columns == ["left", "right"] and rng.random() < 0.22:
        return [Thing(picks[i], rng.choice(("small", "medium")), "meets", "none", columns[i],
                      rows[0]) for i in range(2)], "still"
    if n > 1 and rng.random() < 0.15:
        return [Thing(picks[i], rng.choice(("small", "medium")), "stands", "none", columns[i],
                      rows[i]) for i in range(n)], rng.choice(("left", "right"))
    things = []
    for i in range(n):
        motions = allowed_motions(columns[i], rows[i], columns, rows)
        if sprites.turning[sprites.index[style][picks[i]]] < MIN_TURNING:
            del motions["spins"]
        m = rng.choices(list(motions), [MOTION_WEIGHTS[k] for k in motions])[0]
        size = rng.choice(("small", "medium", "large") if roomy else ("small", "medium"))
        if m in ("grows", "shrinks"):
            size = "medium"
        things.append(Thing(picks[i], size, m, rng.choice(motions[m]), columns[i], rows[i]))
    return things, "still"


def draw_background(rng, things, sprites, style):
    """One that differs from the things' colours; after a few tries whatever comes."""
    numbers = [sprites.index[style][t.name] for t in things]
    for _ in range(12):
        kind = rng.choice(KINDS)
        pair = rng.sample(range(len(COLOURS)), 2)[:2 if kind == "gradient" else 1]
        if all(sprites.contrast[n, c] > MIN_CONTRAST for n in numbers for c in pair):
            break
    return Background(kind, COLOURS[pair[0]], COLOURS[pair[1]] if len(pair) == 2 else "")


def draw_lengths(rng, frames, n, least):
    """n whole numbers that sum to frames, each at least `least`."""
    weights = [rng.gammavariate(3, 1) for _ in range(n)]
    free = frames - n * least
    ends = [0]
    for w in weights:
        ends.append(ends[-1] + w)
    cuts = [round(free * e / ends[-1]) for e in ends]
    return [least + b - a for a, b in zip(cuts, cuts[1:])]


def draw_clip(seed, frames, sprites, style=None, seen=None, max_scenes=MAX_SCENES):
    """The slots of a clip of `frames` frames of which `seen` (all) will be looked at."""
    rng = random.Random(seed)
    style = style or rng.choice(sorted(sprites.index))
    seen = min(seen or frames, frames)
    least = math.ceil(MIN_FRAMES * frames / seen)
    n = rng.randint(1, max(1, min(max_scenes, frames // least)))
    clip, first = Clip(seed, frames, style), 0
    for i, length in enumerate(draw_lengths(rng, frames, n, min(least, frames))):
        things, camera = draw_things(rng, sprites, style)
        scene = Scene(draw_background(rng, things, sprites, style),
                      rng.choice(("cut", "fade")) if i else "start", camera, things, first,
                      first + length - 1)
        # A cut between two scenes of one background would be hard to see.
        while i and scene.background == clip.scenes[-1].background:
            scene.background = draw_background(rng, things, sprites, style)
        clip.scenes.append(scene)
        first += length
    return clip


# --- movement -------------------------------------------------------------------------------------

def ramp(rng, u, begin, end):
    """0 to 1 between two moments near begin and end, smooth at both."""
    a = begin + rng.random() * 0.12
    b = end - rng.random() * 0.12
    p = np.clip((u - a) / (b - a), 0, 1)
    return p * p * (3 - 2 * p)


def beyond(direction, x, y, half):
    """The place outside the picture from which a thing comes or to which it goes."""
    return {"left": (-half, y), "right": (SIDE + half, y), "top": (x, -half),
            "bottom": (x, SIDE + half)}[direction]


def place_of(rng, t, size):
    """The middle of a thing's cell, somewhat beside it, the thing inside the picture."""
    half = size / 2 + 2
    x = COLUMN_X[t.column] + rng.uniform(-8, 8)
    y = ROW_Y[t.row] + rng.uniform(-8, 8)
    return min(max(x, half), SIDE - half), min(max(y, half), SIDE - half)


def track(rng, t, index, u):
    """x, y, size and angle of a thing at the moments u of its scene."""
    size = rng.uniform(*SIZE_PIXELS[t.size])
    x, y = place_of(rng, t, size)
    one = np.ones_like(u)
    xs, ys, sizes, angles = x * one, y * one, size * one, rng.uniform(-5, 5) * one
    frames = len(u)
    if t.motion in ("enters", "leaves"):
        ox, oy = beyond(t.direction, x, y, size / 2)
        p = ramp(rng, u, 0, 0.8) if t.motion == "enters" else 1 - ramp(rng, u, 0.2, 1)
        xs, ys = ox + (x - ox) * p, oy + (y - oy) * p
    elif t.motion == "crosses":
        p = ramp(rng, u, -0.12, 1.12)
        xs = -8 + (SIDE + 16) * (p if t.direction == "right" else 1 - p)
    elif t.motion in ("rises", "falls"):
        up = t.motion == "rises"
        room = y - size / 2 if up else SIDE - size / 2 - y
        way = rng.uniform(0.8, 1) * max(room, 50)
        ys = y + (-way if up else way) * ramp(rng, u, 0, 1)
    elif t.motion in ("grows", "shrinks"):
        p = ramp(rng, u, 0, 1)
        small, large = rng.uniform(0.55, 0.65), rng.uniform(1.2, 1.35)
        sizes = size * (small + (large - small) * (p if t.motion == "grows" else 1 - p))
    elif t.motion == "spins":
        turns = min(rng.uniform(0.9, 1.8), 0.36 * (frames - 1))
        angles = angles + 360 * turns * u * rng.choice((-1, 1))
    elif t.motion == "bounces":
        n = 2 if frames < 9 else rng.randint(2, 4)
        ys = y - rng.uniform(42, 60) * np.abs(np.sin(math.pi * n * u))
    elif t.motion == "meets":
        stop = SIDE / 2 + (-0.52 if index == 0 else 0.52) * size
        xs = x + (stop - x) * ramp(rng, u, 0, 0.9)
        ys = ROW_Y[t.row] * one
    return np.stack([xs, ys, sizes, angles], 1)


def shade(rng, colour):
    rgb = np.array(RGB[colour], np.float32)
    return np.clip(rgb + rng.uniform(-10, 10) + np.array([rng.uniform(-8, 8) for _ in range(3)]),
                   0, 255)


def background_row(rng, b):
    """What does not change during a scene: kind, both colours, period and angle of the pattern."""
    first = shade(rng, b.colour)
    if b.kind == "gradient":
        second = shade(rng, b.second)
    else:  # a lighter or darker shade of the same
        by = rng.uniform(28, 42) * (1 if first.mean() < 128 else -1)
        second = np.clip(first + by, 0, 255)
    angle = rng.choice((0, 45, 90, 135)) + rng.uniform(-6, 6) if b.kind == "striped" else 0
    return [KINDS.index(b.kind), *first, *second, rng.uniform(26, 40), angle]


def light(scene, following, u):
    """Brightness: a fade goes through the dark at both sides of the border."""
    width = min(max(5 / len(u), 0.08), 0.25)
    out = np.ones_like(u)
    if scene.transition == "fade":
        out *= np.clip(u / width, 0.35, 1)
    if following is not None and following.transition == "fade":
        out *= np.clip((1 - u) / width, 0.35, 1)
    return out


def moments(scene, i, u):
    """The time of thing i: that of its scene, or 0 to 1 within a short event (see `hard`)."""
    events = getattr(scene, "events", ())
    if not events:
        return u
    begin, end = events[i]
    return np.clip((u - begin) / (end - begin), 0, 1)


def lay_out(clip, sprites, seen=None):
    """The frames' arrays: backgrounds [seen, len(BACKGROUND)], things [seen, MAX_OBJECTS,
    len(SPRITE)] and the numbers of the things' names [seen, MAX_OBJECTS], -1 for none. Which frames
    are seen: evenly from the first to the last, rounded down."""
    rng = random.Random(clip.seed * 7919 + 1)
    n = clip.frames
    ground = np.zeros((n, len(BACKGROUND)), np.float32)
    things = np.zeros((n, MAX_OBJECTS, len(SPRITE)), np.float32)
    things[..., 0] = -1
    labels = np.full((n, MAX_OBJECTS), -1, np.int16)
    noise = rng.choice((0, 0, rng.uniform(0, 8)))
    for s, scene in enumerate(clip.scenes):
        rows = slice(scene.first, scene.last + 1)
        u = np.linspace(0, 1, scene.last - scene.first + 1) if scene.last > scene.first else \
            np.zeros(1)
        shake = np.array([[rng.uniform(-1, 1), rng.uniform(-1, 1)] for _ in u]) * rng.choice((0, 1))
        if scene.camera != "still":
            shake[:, 0] += (0.5 - u) * PAN * (1 if scene.camera == "right" else -1)
        ground[rows, :9] = background_row(rng, scene.background)
        ground[rows, 9:11] = shake + (rng.uniform(0, 40), rng.uniform(0, 40))
        following = clip.scenes[s + 1] if s + 1 < len(clip.scenes) else None
        ground[rows, 11] = light(scene, following, u)
        for i, t in enumerate(scene.things):
            xysa = track(rng, t, i, moments(scene, i, u))
            xysa[:, :2] += shake
            things[rows, i, 0] = sprites.index[clip.style][t.name]
            things[rows, i, 1:] = xysa
            labels[rows, i] = sprites.number[t.name]
    ground[:, 12] = noise
    ground[:, 13] = [rng.random() for _ in range(n)]
    if seen is not None and seen != n:
        pick = np.floor(np.linspace(0, n - 1, seen)).astype(int)
        ground, things, labels = ground[pick], things[pick], labels[pick]
    return ground, things, labels
