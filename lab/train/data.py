"""Steps of training, made by processes of their own: clips of many lengths, their pictures' arrays
and their conversations, packed into one row of tokens of fixed length (see `model`).

A conversation asks for the description, asks questions, or both in either order, so that the rows
of a question must look at the video and not only at what was said before. The drafter's clips lose
video tokens at random, sometimes preferring those that show a thing, with the positions they had or
closed up: at work it sees what a view of the target leaves.

Seeds below HELD_OUT belong to tests and samples; training never draws one.
"""

import math
import multiprocessing
import os
import queue
import random
import threading

import numpy as np
import torch

from train import wording
from train.model import CELLS, FRAME_TOKENS
from world import words
from world.scene import SIDE, SPRITE, draw_clip, lay_out
from world.slots import MAX_OBJECTS
from world.sprites import HELD_OUT_STYLE, Sprites

HELD_OUT = 1 << 20
MAX_FRAMES = 160
USUAL = 24        # two fifths of the clips have at most so many, for more conversations a step
LONGEST = MAX_FRAMES * FRAME_TOKENS + 1280  # tokens of one conversation at most
MAX_SEQUENCES = 320
PADDING = 1024   # tokens of the sequences that fill a step up
LOSS_ROWS = 16384
ASK = "<|im_end|><|im_start|>assistant\n"


class Step:
    """One step being packed."""

    def __init__(self, frames, tokens):
        self.frames, self.tokens = frames, tokens
        self.ground, self.things, self.labels = [], [], []
        self.ids = np.zeros(tokens, np.int32)
        self.video = np.full(tokens, -1, np.int32)
        self.positions = np.zeros(tokens, np.int32)
        self.starts = [0]
        self.loss_at, self.loss_id = [], []
        self.n_frames = 0

    def room(self):
        return self.tokens - self.starts[-1]

    def add(self, ground, things, labels, head, rows, places, turns):
        """A conversation: ids before the video, numbers of the video rows with their positions
        (counted from the video's beginning; the last is the newline), then turns of (prompt ids,
        answer ids)."""
        at = self.starts[-1]
        n, v = len(head), len(rows)
        self.ids[at:at + n] = head
        self.positions[at:at + n] = np.arange(n)
        self.video[at + n:at + n + v] = rows
        self.positions[at + n:at + n + v] = n + places
        position = n + places[-1] + 1
        at += n + v
        for prompt, answer in turns:
            both = prompt + answer
            self.ids[at:at + len(both)] = both
            self.positions[at:at + len(both)] = position + np.arange(len(both))
            first = at + len(prompt) - 1  # the row that must say the answer's first token
            self.loss_at.extend(range(first, first + len(answer)))
            self.loss_id.extend(answer)
            at += len(both)
            position += len(both)
        self.starts.append(at)
        self.ground.append(ground)
        self.things.append(things)
        self.labels.append(labels)
        self.n_frames += len(ground)

    def finish(self):
        left = self.frames - self.n_frames
        if left:  # frames that nobody looks at
            self.ground.append(np.zeros((left, self.ground[0].shape[1]), np.float32))
            self.things.append(np.full((left, MAX_OBJECTS, len(SPRITE)), -1, np.float32))
            self.labels.append(np.full((left, MAX_OBJECTS), -1, np.int16))
        if self.starts[-1] < self.tokens:
            self.positions[self.starts[-1]:] = np.arange(self.room()) % PADDING
            while self.starts[-1] < self.tokens:
                self.starts.append(min(self.starts[-1] + PADDING, self.tokens))
        n = min(len(self.loss_at), LOSS_ROWS)
        at, ids = np.zeros(LOSS_ROWS, np.int32), np.full(LOSS_ROWS, -100, np.int32)
        at[:n], ids[:n] = self.loss_at[:n], self.loss_id[:n]
        starts = np.full(MAX_SEQUENCES + 1, self.tokens, np.int32)
        starts[:len(self.starts)] = self.starts
        return {"ground": np.concatenate(self.ground), "things": np.concatenate(self.things),
                "labels": np.concatenate(self.labels), "ids": self.ids, "video": self.video,
                "positions": self.positions, "starts": starts, "loss_at": at, "loss_id": ids,
                "clips": len(self.ground)}


def shows_thing(things):
    """[frames, tokens]: whether a video token lies on a thing, about."""
    c = (np.arange(CELLS) + 0.5) * (SIDE / CELLS)
    x, y, size = things[..., 1], things[..., 2], things[..., 3]
    near = (np.abs(c[None, None, None, :] - x[..., None, None]) < size[..., None, None] * 0.55) & \
           (np.abs(c[None, None, :, None] - y[..., None, None]) < size[..., None, None] * 0.55) & \
           (things[..., 0] >= 0)[..., None, None]
    return near.any(1).reshape(len(things), FRAME_TOKENS)


def draw_view(rng, things):
    """The video tokens a drafter keeps of a clip, and the positions they take."""
    total = len(things) * FRAME_TOKENS
    share = rng.random()
    if share < 0.3:
        kept = np.arange(total)
    else:
        ratio = 0 if share < 0.36 else math.exp(rng.uniform(math.log(0.02), math.log(0.6)))
        score = np.random.default_rng(rng.getrandbits(32)).random(total)
        if rng.random() < 0.5:
            score -= rng.choice((0.5, 2.0)) * shows_thing(things).ravel()
        kept = np.sort(np.argpartition(score, max(int(total * ratio), 1) - 1)[:int(total * ratio)])
    if rng.random() < 0.5:
        return kept, np.append(np.arange(len(kept)), len(kept))
    return kept, np.append(kept, total)


class Packer:
    def __init__(self, sprites, tokenizer, frames, tokens, views, reword=False):
        """reword: other wordings of what is asked, most questions about things that are named, and
        more of them before or without a description that answers them (train.wording)."""
        self.sprites, self.tokenizer, self.reword = sprites, tokenizer, reword
        self.frames, self.tokens, self.views = frames, tokens, views
        self.styles = [s for s in sprites.index if s != HELD_OUT_STYLE]
        self.head = self.encode(["<|im_start|>user "])[0]

    def encode(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def turns(self, rng, clip, room, seen):
        """The conversation about a clip, within `room` tokens."""
        asked = words.questions(clip, rng)
        rng.shuffle(asked)
        if self.reword:  # those about a named thing come first, as a rule
            asked.sort(key=lambda q: rng.random() * (0.4 if q[0] in wording.NAMED else 1))
            asked = [(k, wording.reword(rng, k, q), a) for k, q, a in asked]
        asked = [(q, a) for _, q, a in asked[:2 if seen <= 8 else 4 if seen <= 16 else 12]]
        told = (words.PROMPTS[0] if rng.random() < 0.3 else rng.choice(words.PROMPTS),
                words.describe(clip))
        if self.reword:
            told = wording.retell(rng, told[0]), told[1]
        order, first, last = rng.random(), *((0.3, 0.7) if self.reword else (0.5, 0.85))
        pairs = [told] + asked if order < first else asked + [told] if order < last else asked
        texts = []
        for i, (q, a) in enumerate(pairs):
            texts += [("\n" if i == 0 else "<|im_start|>user \n") + q + ASK, a + "<|im_end|>"]
        ids = self.encode(texts)
        turns, used = [], 0
        for prompt, answer in zip(ids[::2], ids[1::2]):
            if used + len(prompt) + len(answer) > room:
                break
            used += len(prompt) + len(answer)
            turns.append((prompt, answer))
        return turns

    def draw_frames(self, rng, longest, left):
        """How many frames of the next clip are seen, and how many it has."""
        most = min(longest, USUAL) if rng.random() < 0.4 else longest
        n = int(math.exp(rng.uniform(math.log(4), math.log(most + 0.99))))
        n = left if left - n < 4 else n
        kind = rng.random()
        if kind < 0.1 and n >= 8:
            return n, rng.randint(4, n - 1)   # fewer than are seen: some come twice
        if kind < 0.25:
            return n, n * rng.randint(2, 3)   # more than are seen
        return n, n

    def pack(self, seed, longest):
        rng = random.Random(seed)
        step = Step(self.frames, self.tokens)
        most = MAX_SEQUENCES - self.tokens // PADDING
        while step.n_frames < self.frames and len(step.starts) < most:
            left = self.frames - step.n_frames
            if left < 4:
                break
            seen, whole = self.draw_frames(rng, min(longest, left), left)
            if seen > MAX_FRAMES:
                seen = whole = MAX_FRAMES
            clip = draw_clip(rng.randrange(HELD_OUT, 1 << 62), whole, self.sprites,
                             rng.choice(self.styles), seen)
            ground, things, labels = lay_out(clip, self.sprites, seen)
            total = seen * FRAME_TOKENS
            rows, places = draw_view(rng, things) if self.views else \
                (np.arange(total), np.arange(total + 1))
            room = min(step.room() - len(rows) - 1 - len(self.head),
                       LONGEST - MAX_FRAMES * FRAME_TOKENS - 64)
            turns = self.turns(rng, clip, room, seen) if room > 0 else []
            if not turns:
                break
            rows = np.append(rows + step.n_frames * FRAME_TOKENS, self.frames * FRAME_TOKENS)
            step.add(ground, things, labels, self.head, rows, places, turns)
        return step.finish()


def work(make, seed, worker, workers, longest, out):
    packer = make()
    i = worker
    while True:
        out.put(packer.pack((seed << 32) + i, longest.value))
        i += workers


class Steps:
    """Packed steps from `workers` processes, brought to the device by a thread. `longest` may be
    raised while it runs."""

    def __init__(self, make, seed, device, workers=None):
        context = multiprocessing.get_context("fork")
        workers = workers or max(1, (os.cpu_count() or 2) - 2)
        self.device = device
        self.longest = context.Value("i", 4)
        self.queue = context.Queue(maxsize=workers)
        self.ready = queue.Queue(maxsize=3)
        self.processes = [context.Process(target=work, daemon=True, args=(
            make, seed, w, workers, self.longest, self.queue)) for w in range(workers)]
        for p in self.processes:
            p.start()
        threading.Thread(target=self.bring, daemon=True).start()

    def bring(self):
        while True:
            try:
                step = self.queue.get(timeout=60)
            except queue.Empty:
                if not any(p.is_alive() for p in self.processes):
                    self.ready.put(None)
                    return
                continue
            self.ready.put({k: v if isinstance(v, int) else self.move(v)
                            for k, v in step.items()})

    def move(self, a):
        t = torch.from_numpy(a)
        return t.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" \
            else t

    def next(self):
        step = self.ready.get()
        if step is None:
            raise SystemExit("every process that makes training data has died")
        return step
