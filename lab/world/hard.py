"""Clips that are harder than those of training, with the same slots, words and scores.

similar  all objects of a clip are among the twelve whose pictures look most alike: the nearest
         neighbours of one sprite in 12 x 12 pixels. Naming one of them takes a closer look.
events   one or two scenes in which nothing moves for most of the time: every motion happens within
         an eighth of its scene, at a moment of its own.
both     similar objects, short events.

Training draws from all 832 names at once and lets a motion last for a whole scene, so a model that
is right there can be wrong here. Everything is a function of kind, seed, frames and style.
"""

import copy
import dataclasses
import random

import numpy as np

from world import words
from world.scene import MIN_FRAMES, draw_clip
from world.slots import Scene
from world.sprites import BORDER, SIDE

KINDS = ("similar", "events", "both")
ALIKE = 12            # objects of a clip of similar ones
CELLS = 12            # a side of the pictures that are compared
EVENT = 1 / 8         # of a scene, but at least MIN_FRAMES frames
NAMED = ("where", "motion", "what", "order")  # kinds of questions about one object


class EventScene(Scene):
    """A scene whose i-th thing moves only between events[i] = (begin, end) of its time."""
    events = ()


def thumbnails(sprites, style):
    """[names, CELLS x CELLS x 4]: the sprites of a style, averaged; rows as sprites.available."""
    number = [sprites.index[style][name] for name in sprites.available[style]]
    side = SIDE + 2 * BORDER
    flat = sprites.words.view(np.uint32).reshape(-1, sprites.size)[number, :side * side]
    flat = flat.reshape(-1, side, side)[:, BORDER:-BORDER, BORDER:-BORDER]
    rgba = np.stack([flat >> shift & 255 for shift in (0, 8, 16, 24)], -1).astype(np.float32)
    step = SIDE // CELLS
    rgba = rgba.reshape(-1, CELLS, step, CELLS, step, 4).mean((2, 4))
    return rgba.reshape(len(number), -1)


def alike(sprites, style, rng):
    """The names of a random sprite and of those nearest to it."""
    known = sprites.__dict__.setdefault("thumbnails", {})
    if style not in known:
        known[style] = thumbnails(sprites, style)
    pictures = known[style]
    distance = ((pictures - pictures[rng.randrange(len(pictures))]) ** 2).sum(1)
    nearest = np.argsort(distance, kind="stable")[:ALIKE]
    return sorted(sprites.available[style][i] for i in nearest)


def draw(kind, seed, frames, sprites, style=None):
    """A clip of a kind of KINDS."""
    rng = random.Random(seed * 31 + 7)
    style = style or rng.choice(sorted(sprites.index))
    narrowed = sprites
    if kind != "events":
        narrowed = copy.copy(sprites)
        narrowed.available = {**sprites.available, style: alike(sprites, style, rng)}
    clip = draw_clip(seed, frames, narrowed, style, max_scenes=6 if kind == "similar" else 2)
    if kind != "similar":
        clip.scenes = [with_events(scene, rng) for scene in clip.scenes]
    return clip


def with_events(scene, rng):
    """The scene with a short time for each motion; two things that meet do so together."""
    out = EventScene(**{f.name: getattr(scene, f.name) for f in dataclasses.fields(Scene)})
    length = scene.last - scene.first + 1
    share = min(1.0, max(EVENT, MIN_FRAMES / length))
    begins = [rng.random() * (1 - share) for _ in scene.things]
    if scene.things[0].motion == "meets":
        begins = begins[:1] * len(begins)
    out.events = tuple((b, b + share) for b in begins)
    return out


def questions(clip):
    """Those that are about one object: (kind, question, answer)."""
    asked = words.questions(clip, random.Random(clip.seed))
    return [q for q in asked if q[0] in NAMED]


def truth(clip, fps):
    """What lab/world/render writes of a clip, with the questions of `questions`."""
    return {**dataclasses.asdict(clip), "fps": fps, "description": words.describe(clip),
            "questions": [dict(zip(("kind", "question", "answer"), q)) for q in questions(clip)]}
