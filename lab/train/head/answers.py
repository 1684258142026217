"""Conversations about clips that nano has with itself, many at once: greedy answers, and the states
that a head learns from.

Clips of a batch have one number of frames, so their rows up to the video's end have one length.
From there on every step gives each conversation one token: the next of a question, or what the
target says. So all stay abreast, whatever their questions are, and a plain rectangular cache will
do. Clips whose conversations will have about one length are put together.
"""

import multiprocessing
import os
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from train.data import ASK, HELD_OUT
from train.head.bank import Group
from train.model import FRAME_TOKENS, GRID, rotate
from world import words
from world.scene import draw_clip, lay_out

MAX_TEXT = 448        # rows of text of a conversation, beside the few before the video
CACHE_ROWS = 3 << 20  # of all conversations of a batch
FORWARD_ROWS = 1 << 17
MAX_BATCH = 2048
OF_JOB = 64
ROUND = 2              # batches that are sorted together
PAINTED = 256         # frames at once
STILL = 0             # "frames" of a still picture
TEXT_PER_TOKEN = 4.6  # characters, for a guess at lengths


@dataclass
class Item:
    """A clip to talk about: its arrays, and the prompts of the turns as token ids."""
    ground: np.ndarray
    things: np.ndarray
    turns: list
    guess: float = 0.0
    told: str = ""
    seed: int = 0


# ---- clips and prompts, by processes of their own ----

def draw_prompts(rng, clip, told_only):
    """Texts of the prompts of a conversation, and a guess at the length of its answers."""
    told = words.describe(clip)
    asked = words.questions(clip, rng)
    rng.shuffle(asked)
    first = (words.PROMPTS[0] if rng.random() < 0.3 else rng.choice(words.PROMPTS), told)
    rest = [(q, a) for _, q, a in asked[:rng.randint(1, 3)]]
    order = rng.random()
    pairs = [(words.PROMPTS[0], told)] if told_only else [first] + rest if order < 0.6 else \
        rest + [first] if order < 0.85 else rest
    return [q for q, _ in pairs], sum(len(q) + len(a) + 24 for q, a in pairs)


class Maker:
    """Makes items; a worker process has one."""

    def __init__(self, sprites, tokenizer):
        self.sprites, self.tokenizer = sprites, tokenizer
        self.styles = sorted(sprites.index)

    def encode(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def make(self, seed, frames, scenes=None, told_only=False):
        """A conversation about a clip of so many frames, or about a still picture. A seed below
        HELD_OUT gives the clip that lab/world/render has under it, if scenes are not limited."""
        rng = random.Random(seed + 1)
        style = None if seed < HELD_OUT else rng.choice(self.styles)
        more = {"max_scenes": scenes} if scenes else {}
        clip = draw_clip(seed, frames or 4, self.sprites, style, **more)
        ground, things, _ = lay_out(clip, self.sprites, frames or 4)
        if frames == STILL:
            ground, things = ground[2:3], things[2:3]
        prompts, guess = draw_prompts(rng, clip, told_only)
        texts = [("<|im_start|>user " if i else "") + "\n" + p + ASK
                 for i, p in enumerate(prompts)]
        return Item(ground, things, self.encode(texts), guess / TEXT_PER_TOKEN,
                    words.describe(clip), seed)


def work(maker, jobs, out):
    torch.set_num_threads(1)
    for job in iter(jobs.get, None):
        out.put((job[0], [maker.make(*args) for args in job[1]]))


class Items:
    """Lists of items from many processes, in the order of the jobs. Start before the device is
    used: the processes are forks."""

    def __init__(self, maker, jobs, workers=None):
        """jobs: lists of arguments of Maker.make."""
        context = multiprocessing.get_context("fork")
        self.count, self.early = len(jobs), {}
        todo = context.Queue()
        self.done = context.Queue(maxsize=16)
        workers = workers or max(1, (os.cpu_count() or 2) - 2)
        for job in enumerate(jobs):
            todo.put(job)
        self.processes = []
        for _ in range(workers):
            todo.put(None)
            self.processes.append(context.Process(target=work, args=(maker, todo, self.done),
                                                  daemon=True))
            self.processes[-1].start()

    def stop(self):
        for p in self.processes:
            p.terminate()

    def __iter__(self):
        for i in range(self.count):
            while i not in self.early:
                number, items = self.done.get(timeout=300)
                self.early[number] = items
            yield self.early.pop(i)


# ---- the target ----

class Target:
    """nano on a device, with what its generation needs."""

    def __init__(self, model, painter, tokenizer, device, dtype):
        self.model, self.painter, self.device = model.to(device, dtype), painter, device
        # cuDNN's attention is planned anew for every length, which costs more than an answer.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.dtype, self.middle = dtype, model.shape.layers // 2
        self.head_ids = tokenizer.encode("<|im_start|>user ", add_special_tokens=False).ids
        self.stop = tokenizer.token_to_id("<|im_end|>")

    def see(self, items):
        """Video tokens [clips, rows, d], the newline at the end; of stills, as LLaVA-OneVision
        takes a picture: the whole without pooling, then its one tile with a newline a row."""
        ground, things = (torch.from_numpy(np.concatenate([getattr(i, k) for i in items]))
                          for k in ("ground", "things"))
        n, still, out = len(ground), items[0].things.shape[0] == 1, []
        short = -n % PAINTED if self.device.type == "cuda" else 0  # one shape for the compiler
        ground, things = (torch.cat((t, t[:1].expand(short, *t.shape[1:]))) for t in
                          (ground, things))
        for i in range(0, n, PAINTED):
            pixels, _ = self.painter(*(t[i:i + PAINTED].to(self.device)
                                       for t in (ground, things)))
            out.append(self.tower(pixels.to(self.dtype), still))
        x = torch.cat(out)[:n]
        newline = self.model.newline.to(x.dtype)
        if still:
            rows = torch.cat((x.view(n, GRID, GRID, -1), newline.expand(n, GRID, 1, -1)), 2)
            return torch.cat((x, rows.flatten(1, 2)), 1)
        x = x.reshape(len(items), -1, x.shape[-1])
        return torch.cat((x, newline.expand(len(items), 1, -1)), 1)

    def tower(self, pixels, still):
        if not still:
            return self.model.see(pixels)
        m = self.model
        return m.linear_2(F.gelu(m.linear_1(m.tower(pixels))))

    def forward(self, x, cache, at, wanted=()):
        """Rows [batch, n, d] that lie behind `at` rows of the cache -> normalised states, and
        the residual stream after so many layers of `wanted`."""
        m, (b, n, _) = self.model, x.shape
        cos, sin = (t[:, 0] for t in m.angles(torch.arange(at, at + n, device=x.device)))
        kept = {}
        for i, block in enumerate(m.blocks):
            if i in wanted:
                kept[i] = x
            y = block.input_layernorm(x)
            q, k, v = (p(y).view(b, n, -1, block.head_dim).transpose(1, 2)
                       for p in (block.q_proj, block.k_proj, block.v_proj))
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            keys, values = cache[i]
            keys[:, :, at:at + n], values[:, :, at:at + n] = k, v
            x = x + block.o_proj(attend(q, keys[:, :, :at + n], values[:, :, :at + n]))
            y = block.post_attention_layernorm(x)
            x = x + block.down_proj(F.silu(block.gate_proj(y)) * block.up_proj(y))
        return m.norm(x), kept

    def embed(self, ids):
        return self.model.embed(ids)

    def lm_head(self, states):
        return F.linear(states, self.model.embed.weight.to(states.dtype))


def attend(q, k, v):
    """[batch, heads, n, dim] over fewer heads of keys -> [batch, n, heads * dim]. One row a
    sequence: the heads that share keys become the rows, and nothing is repeated."""
    b, heads, n, dim = q.shape
    if n == 1:
        y = F.scaled_dot_product_attention(q.view(b, k.shape[1], -1, dim), k, v)
        return y.reshape(b, 1, heads * dim)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return y.transpose(1, 2).reshape(b, n, -1)


# ---- conversations ----

class Script:
    """What each conversation says next: the tokens of its questions, one after the other, and
    between them the target's own until it stops."""

    def __init__(self, items, device):
        n, turns = len(items), max(len(i.turns) for i in items)
        ends = np.zeros((n, turns + 1), np.int64)
        for row, item in zip(ends, items):
            sizes = [len(t) for t in item.turns]
            row[1:] = np.cumsum(sizes + [0] * (turns - len(sizes)))
        ids = np.zeros((n, int(ends.max()) + 1), np.int64)
        for row, item in zip(ids, items):
            flat = [t for turn in item.turns for t in turn]
            row[:len(flat)] = flat
        self.ids, self.ends = (torch.from_numpy(a).to(device) for a in (ids, ends))
        self.turns = torch.tensor([len(i.turns) for i in items], device=device)
        self.turn = torch.zeros(n, dtype=torch.long, device=device)
        self.at = torch.zeros_like(self.turn)

    def next(self, said, stop):
        """Tokens of this step, given what the target would say; whether each is its own; whether
        each conversation still goes on."""
        end = self.ends.gather(1, (self.turn + 1).clamp(max=self.ends.shape[1] - 1)[:, None])[:, 0]
        own = self.at >= end
        ids = torch.where(own, said, self.ids.gather(1, self.at[:, None])[:, 0])
        self.at = torch.where(own, self.at, self.at + 1)
        on = self.turn < self.turns
        self.turn = torch.where(own & (said == stop), self.turn + 1, self.turn)
        return ids, own & on, on


@torch.no_grad()
def converse(target, items, keep_visual, max_text=MAX_TEXT, name=""):
    """A Group of all conversations about the items."""
    dev, dtype, n = target.device, target.dtype, len(items)
    s = target.model.shape
    seen = target.see(items)
    head = target.embed(torch.tensor(target.head_ids, device=dev)).to(dtype)
    first = len(head) + seen.shape[1]
    cache = [[torch.empty(n, s.kv_heads, first + max_text, s.head_dim, device=dev, dtype=dtype)
              for _ in range(2)] for _ in range(s.layers)]
    kept = len(head) + 1  # rows before the text: its beginning, and the last of the video
    states = torch.zeros(n, kept + max_text, s.hidden, device=dev, dtype=dtype)
    visual = {k: torch.empty_like(seen) for k in ("embedding", "layer")} if keep_visual else None
    part = max(1, FORWARD_ROWS // first)
    for i in range(0, n, part):
        x = torch.cat((head.expand(len(seen[i:i + part]), -1, -1), seen[i:i + part]), 1)
        h, mid = target.forward(x, [[t[i:i + part] for t in c] for c in cache], 0,
                                (target.middle,))
        states[i:i + part, :kept - 1], states[i:i + part, kept - 1] = h[:, :kept - 1], h[:, -1]
        if keep_visual:
            visual["embedding"][i:i + part] = seen[i:i + part]
            visual["layer"][i:i + part] = mid[target.middle][:, len(head):]
    ids = torch.full((n, kept + max_text), -1, dtype=torch.int32, device=dev)
    ids[:, :kept - 1] = torch.tensor(target.head_ids, device=dev)
    made = torch.zeros(n, kept + max_text, dtype=torch.bool, device=dev)
    lengths = talk(target, Script(items, dev), cache, first, kept, ids, made, states)
    positions = torch.cat((torch.arange(kept - 1, device=dev),
                           torch.arange(first - 1, first + max_text, device=dev)))
    if visual:
        at = torch.arange(len(head), first, device=dev)
        visual["positions"] = at.expand(n, -1)
        visual["valid"] = torch.ones(n, len(at), dtype=torch.bool, device=dev)
    return Group(ids, positions.int().expand(n, -1), states, made, lengths, visual, name)


def talk(target, script, cache, first, kept, ids, made, states):
    """All turns of all conversations; fills in ids, made and states behind the `kept` rows and
    returns how many rows each has."""
    n, room = ids.shape[0], ids.shape[1] - kept
    said = torch.zeros(n, dtype=torch.long, device=ids.device)
    lengths = torch.full((n,), kept, device=ids.device)
    for step in range(room):
        token, own, on = script.next(said, target.stop)
        if step % 16 == 0 and not bool(on.any()):
            break
        ids[:, kept + step], made[:, kept + step] = token.int(), own
        lengths += on
        h, _ = target.forward(target.embed(token)[:, None].to(states.dtype), cache, first + step)
        states[:, kept + step] = h[:, 0]
        said = target.lm_head(h[:, 0]).argmax(-1)
    return lengths.cpu().numpy()


def batch_size(frames):
    """Conversations whose cache the device holds."""
    rows = max(frames, 9) * FRAME_TOKENS + MAX_TEXT
    return max(1, min(MAX_BATCH, CACHE_ROWS // rows))


def jobs_of(frames, clips, seed, scenes=None, told_only=False):
    """Jobs of Items: the arguments of so many clips."""
    return [[(seed + i, frames, scenes, told_only) for i in range(a, min(a + OF_JOB, clips))]
            for a in range(0, clips, OF_JOB)]


def batches(items, frames, clips):
    """Batches of the next so many clips, all of so many frames, out of `items`, an iterator over
    lists. Of each few batches, conversations of about one length lie together."""
    size, found = batch_size(frames), []
    while len(found) < clips:
        found += next(items)
    for i in range(0, clips, ROUND * size):
        some = sorted(found[i:i + ROUND * size], key=lambda i: i.guess)
        for j in range(0, len(some), size):
            yield some[j:j + size]
