#!/usr/bin/env python3
"""Writes tests/golden/head_*/: tiny random draft heads and what they make of a target's states.

Each is a directory in EAGLE's layout (config.json, model.safetensors) plus head.vec (format:
README.md beside this script; reader: tests/golden/golden.h). The target is one of the text models
of make_golden.py, which must be there already; its rows of a video are random embeddings. All is
computed in F32 by the plain implementation below, without a cache: every node of a draft tree is a
fresh pass over the prompt and the node's path.

The prompt is searched: of N_CANDIDATES random ones the first whose trees hang on no choice closer
than MIN_GAP, so that rounding in another engine does not change them.
"""

import argparse
import json
import os
import shutil

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

from make_golden import MODELS, VecWriter, positions

N_ROWS, FIRST, BLOCK = 40, 6, 24   # rows of the prompt; of these a video of BLOCK from FIRST on
N_ANSWER = 4                       # tokens of the answer when the second tree grows
TOTAL, DEPTH, WIDTH = 20, 3, 4
N_CANDIDATES, MIN_GAP = 400, 5e-3

HEADS = {
    # As EAGLE's: no norm before attention, a bias in the FC, as many KV heads as heads.
    "head_eagle": dict(
        target="qwen2", seed=3, dtype=torch.float16, input_norm=False, fc_bias=True,
        qkv_bias=False, qk_norm=False, norms=False, copies=True,
        config=dict(model_type="llama", hidden_size=64, num_hidden_layers=1,
                    num_attention_heads=4, intermediate_size=96, rms_norm_eps=1e-6,
                    hidden_act="silu", vocab_size=320, bias=True, visual_rows="fc")),
    # As MSD's: the layer of Qwen2 whole, no bias in the FC; video rows are their embeddings.
    "head_msd": dict(
        target="qwen2", seed=5, dtype=torch.bfloat16, input_norm=True, fc_bias=False,
        qkv_bias=True, qk_norm=False, norms=False, copies=False,
        config=dict(model_type="qwen2", hidden_size=64, num_hidden_layers=1,
                    num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
                    rms_norm_eps=1e-6, rope_theta=10000.0, hidden_act="silu", bias=False)),
    # All that is optional, on positions of three numbers; video rows are a middle layer's states.
    "head_layer": dict(
        target="qwen2_5_vl", seed=8, dtype=torch.float32, input_norm=True, fc_bias=True,
        qkv_bias=False, qk_norm=True, norms=True, copies=False,
        config=dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                    intermediate_size=64, rms_norm_eps=1e-5, rope_positions="target",
                    visual_rows="layer", visual_layer=1, target="qwen2_5_vl")),
    # EAGLE-3 as SpecForge writes it, on states of three places of the target, the embeddings among
    # them; a fifth of the target's tokens.
    "head_eagle3": dict(
        target="qwen2_5_vl", seed=11, dtype=torch.bfloat16, eagle3=True, copies=True,
        features=(0, 1, 2),
        config=dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_size=64,
                    num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                    intermediate_size=24, rms_norm_eps=1e-6, hidden_act="silu",
                    rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3]), rope_theta=10000.0,
                    tie_word_embeddings=False, torch_dtype="bfloat16", vocab_size=320,
                    draft_vocab_size=64, eagle_aux_hidden_state_layer_ids=[0, 1, 2])),
}


class Head:
    """The head on tensors [rows, d]; `state` is its state dict in F32."""

    layer_name = "layers.0."

    def __init__(self, spec, state, target_config):
        c = spec["config"]
        self.c, self.w = c, state
        self.heads = c["num_attention_heads"]
        self.kv = c.get("num_key_value_heads", self.heads)
        self.dim = state["layers.0.self_attn.q_proj.weight"].shape[0] // self.heads
        self.theta = c.get("rope_theta", target_config["rope_theta"])
        scaling = target_config.get("rope_scaling") or {}
        own = c.get("rope_positions", "index") == "target"
        self.sections = scaling.get("mrope_section") if own else None

    def norm(self, x, name):
        w = self.w.get(name)
        if w is None:
            return x
        return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]))

    def pair(self, embedding, hidden):
        both = torch.cat([self.norm(embedding, "embed_norm.weight"),
                          self.norm(hidden, "hidden_norm.weight")], dim=-1)
        return F.linear(both, self.w["fc.weight"], self.w.get("fc.bias"))

    def rotate(self, x, pos):
        """x [rows, heads, dim], pos [3, rows]."""
        half = self.dim // 2
        freq = self.theta ** (-torch.arange(half, dtype=torch.float64) * 2 / self.dim)
        axis = torch.zeros(half, dtype=torch.long)
        if self.sections:
            axis = torch.repeat_interleave(torch.arange(3), torch.tensor(self.sections))
        angle = (pos.double()[axis].T * freq).float()[:, None]
        a, b = x[..., :half], x[..., half:]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def feature(self, states, mids, embeds):
        """What the head reads of the target's rows."""
        return states

    def split(self, x):
        """What q, k and v are made of, and the residual."""
        return self.norm(x, "layers.0.input_layernorm.weight"), x

    def finish(self, x):
        return self.norm(x, "norm.weight")

    def logits(self, target, state):
        return target.lm_head(state)

    def tokens(self, logits):
        return logits

    def linear(self, x, name):
        name = self.layer_name + name
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def layer(self, x, pos):
        """Rows of input [n, d] at pos [3, n] -> rows of output, each seeing those before it."""
        n = x.shape[0]
        y, x = self.split(x)
        q = self.linear(y, "self_attn.q_proj").view(n, self.heads, self.dim)
        k = self.linear(y, "self_attn.k_proj").view(n, self.kv, self.dim)
        v = self.linear(y, "self_attn.v_proj").view(n, self.kv, self.dim)
        q = self.rotate(self.norm(q, self.layer_name + "self_attn.q_norm.weight"), pos)
        k = self.rotate(self.norm(k, self.layer_name + "self_attn.k_norm.weight"), pos)
        k, v = (t.repeat_interleave(self.heads // self.kv, dim=1) for t in (k, v))
        score = torch.einsum("qhd,khd->hqk", q, k) / self.dim ** 0.5
        score = score.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
        att = torch.einsum("hqk,khd->qhd", score.softmax(-1), v).reshape(n, -1)
        x = x + self.linear(att, "self_attn.o_proj")
        y = self.norm(x, self.layer_name + "post_attention_layernorm.weight")
        y = F.silu(self.linear(y, "mlp.gate_proj")) * self.linear(y, "mlp.up_proj")
        return self.finish(x + self.linear(y, "mlp.down_proj"))


class Head3(Head):
    """EAGLE-3. An input row is the token's embedding and the feature, side by side; the output is
    the stream before the last norm, which is the next row's feature."""

    layer_name = "midlayer."

    def __init__(self, spec, state, target_config):
        c = spec["config"]
        self.c, self.w = c, state
        self.heads, self.kv, self.dim = (c["num_attention_heads"], c["num_key_value_heads"],
                                         c["head_dim"])
        self.theta, self.sections = c["rope_theta"], c["rope_scaling"]["mrope_section"]
        d2t = state["d2t"].long()
        self.ids = torch.arange(len(d2t)) + d2t
        self.features = spec["features"]
        self.norm_residual = False

    def feature(self, states, mids, embeds):
        """What the head reads of the target's rows, fused."""
        places = [embeds] + mids
        self.read = torch.cat([places[k] for k in self.features], dim=-1)
        return F.linear(self.read, self.w["fc.weight"])

    def pair(self, embedding, hidden):
        return torch.cat([embedding, hidden], dim=-1)

    def split(self, x):
        d = self.c["hidden_size"]
        e, g = x[:, :d], x[:, d:]
        wide = torch.cat([self.norm(e, "midlayer.input_layernorm.weight"),
                          self.norm(g, "midlayer.hidden_norm.weight")], dim=-1)
        return wide, wide[:, d:] if self.norm_residual else g

    def finish(self, x):
        return x

    def logits(self, target, state):
        return F.linear(self.norm(state, "norm.weight"), self.w["lm_head.weight"])

    def tokens(self, logits):
        """Logits of the whole vocabulary."""
        whole = torch.full((self.c["vocab_size"],), float("-inf"))
        whole[self.ids] = logits
        return whole


def make_state3(spec):
    """Random weights of EAGLE-3; the draft vocabulary is every fifth token, or the one after it."""
    c, gen = spec["config"], torch.Generator().manual_seed(spec["seed"])
    d, ffn, n = c["hidden_size"], c["intermediate_size"], c["draft_vocab_size"]
    q, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]

    def matrix(rows, cols, scale=1.0):
        return scale * torch.randn(rows, cols, generator=gen) / cols ** 0.5

    def vector():
        return 1 + 0.2 * torch.randn(d, generator=gen)

    a, m = "midlayer.self_attn.", "midlayer.mlp."
    s = {"fc.weight": matrix(d, len(spec["features"]) * d, 2.0),
         a + "q_proj.weight": matrix(q, 2 * d, 1.5), a + "k_proj.weight": matrix(kv, 2 * d, 1.5),
         a + "v_proj.weight": matrix(kv, 2 * d), a + "o_proj.weight": matrix(d, q),
         m + "gate_proj.weight": matrix(ffn, d), m + "up_proj.weight": matrix(ffn, d),
         m + "down_proj.weight": matrix(d, ffn), "lm_head.weight": matrix(n, d, 4.0),
         "midlayer.input_layernorm.weight": vector(), "midlayer.hidden_norm.weight": vector(),
         "midlayer.post_attention_layernorm.weight": vector(), "norm.weight": vector()}
    s = {k: v.to(spec["dtype"]) for k, v in s.items()}
    ids = 5 * torch.arange(n) + torch.randint(0, 2, (n,), generator=gen)
    s["d2t"] = ids - torch.arange(n)
    s["t2d"] = torch.zeros(c["vocab_size"], dtype=torch.bool)
    s["t2d"][ids] = True
    return s


def make_state(spec):
    """Random weights, rounded to the type they are stored in."""
    if spec.get("eagle3"):
        return make_state3(spec)
    c, gen = spec["config"], torch.Generator().manual_seed(spec["seed"])
    d, ffn, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    dim, kv = c.get("head_dim", d // heads), c.get("num_key_value_heads", heads)

    def matrix(rows, cols, scale=1.0):
        return scale * torch.randn(rows, cols, generator=gen) / cols ** 0.5

    def vector(n, mean):
        return mean + 0.2 * torch.randn(n, generator=gen)

    a, m = "layers.0.self_attn.", "layers.0.mlp."
    s = {"fc.weight": matrix(d, 2 * d, 2.0),
         a + "q_proj.weight": matrix(heads * dim, d, 1.5),
         a + "k_proj.weight": matrix(kv * dim, d, 1.5), a + "v_proj.weight": matrix(kv * dim, d),
         a + "o_proj.weight": matrix(d, heads * dim), m + "gate_proj.weight": matrix(ffn, d),
         m + "up_proj.weight": matrix(ffn, d), m + "down_proj.weight": matrix(d, ffn),
         "layers.0.post_attention_layernorm.weight": vector(d, 1)}
    if spec["fc_bias"]:
        s["fc.bias"] = vector(d, 0)
    if spec["input_norm"]:
        s["layers.0.input_layernorm.weight"] = vector(d, 1)
    for x, rows in (("q", heads * dim), ("k", kv * dim), ("v", kv * dim)):
        if spec["qkv_bias"]:
            s[f"{a}{x}_proj.bias"] = vector(rows, 0)
        if spec["qk_norm"] and x != "v":
            s[f"{a}{x}_norm.weight"] = vector(dim, 1)
    for name in ("embed_norm", "hidden_norm", "norm") if spec["norms"] else ():
        s[name + ".weight"] = vector(d, 1)
    return {k: v.to(spec["dtype"]) for k, v in s.items()}


class Target:
    def __init__(self, out, name):
        self.spec = MODELS[name]
        self.config = self.spec["config"]
        cls = getattr(transformers, self.config["architectures"][0])
        self.model = cls.from_pretrained(os.path.join(out, name), dtype=torch.float32,
                                         attn_implementation="eager").eval()
        inner = self.model.model
        self.text = inner.language_model if hasattr(inner, "language_model") else inner
        self.table = self.model.get_input_embeddings().weight.detach()

    def lm_head(self, x):
        return F.linear(x, self.model.get_output_embeddings().weight.detach())

    def run(self, embeds, pos):
        """Post-norm states and the residual stream after each layer, [n, d] each."""
        mids, hooks = [], []
        for layer in self.text.layers:
            hooks.append(layer.register_forward_hook(
                lambda m, a, o: mids.append((o[0] if isinstance(o, tuple) else o).clone())))
        p = pos[:, None] if self.spec["grid"] else pos[:1]
        with torch.no_grad():
            out = self.text(inputs_embeds=embeds[None], position_ids=p, use_cache=False)
        for h in hooks:
            h.remove()
        return out.last_hidden_state[0], [m.reshape(embeds.shape) for m in mids]


class Scene:
    """A prompt of text, a block of video rows and text, and the target's answer to it."""

    def __init__(self, target, seed):
        gen = torch.Generator().manual_seed(seed)
        vocab = target.table.shape[0]
        self.target = target
        self.ids = torch.randint(0, vocab - 2, (N_ROWS,), generator=gen)
        self.video = (torch.arange(N_ROWS) >= FIRST) & (torch.arange(N_ROWS) < FIRST + BLOCK)
        self.embeds = target.table[self.ids].clone()
        scale = target.table.std()
        self.embeds[self.video] = scale * torch.randn(BLOCK, self.embeds.shape[1], generator=gen)
        self.pos = positions(N_ROWS, target.spec["grid"])
        self.answer = []
        while len(self.answer) < N_ANSWER:
            states, _ = target.run(*self.whole())
            self.answer.append(int(target.lm_head(states[-1]).argmax()))

    def whole(self, n_answer=None):
        """Embeddings and positions of prompt and answer."""
        a = torch.tensor(self.answer[:n_answer], dtype=torch.long)
        last = int(self.pos.max())
        more = (last + 1 + torch.arange(len(a))).expand(3, -1)
        return torch.cat([self.embeds, self.target.table[a]]), torch.cat([self.pos, more], dim=1)


def head_rows(head, scene, n_answer, full):
    """Input rows of the head and their positions, with the answer's first n_answer tokens."""
    c, (embeds, pos) = head.c, scene.whole(n_answer)
    states, mids = scene.target.run(embeds, pos)
    z = head.pair(embeds[1:], head.feature(states, mids, embeds)[:-1])
    z = torch.cat([z[:1] * 0, z])
    v = torch.zeros(len(embeds), dtype=torch.bool)
    v[:N_ROWS] = scene.video
    kind = c.get("visual_rows", "fc" if isinstance(head, Head3) else "embedding")
    if kind == "embedding":
        z[v] = embeds[v]
    elif kind == "layer":
        z[v] = mids[c["visual_layer"] - 1][v]
    if not head.sections and c.get("rope_positions", "index") == "index":
        pos = torch.arange(len(embeds)).expand(3, -1)
    keep = torch.arange(len(embeds)) > 0
    if not full:
        keep &= ~v
    return z[keep], pos[:, keep]


class Gap:
    """The closest choice so far."""

    def __init__(self):
        self.least = float("inf")

    def best(self, scores, k):
        """Indices of the k best, best first."""
        s, i = torch.sort(scores, descending=True, stable=True)
        if len(s) > k:
            self.least = min(self.least, float(s[k - 1] - s[k]))
        return i[:k].tolist()

    def order(self, scores, k):
        """The same, and their order counts."""
        s, _ = torch.sort(scores, descending=True)
        self.least = min(self.least, float((s[:k] - s[1:k + 1]).min()))
        return self.best(scores, k)


def grow(head, scene, n_answer, full, gap):
    """The dynamic tree: ids, parents (rows, 0 the root) and scores."""
    target = scene.target
    base, pos = head_rows(head, scene, n_answer, full)
    pool = []  # (token, parent in pool, depth, score, path of input rows, output state)

    def expand(parent, score, depth, path):
        rows = torch.cat([base] + path) if path else base
        steps = torch.arange(1, len(path) + 1)
        where = torch.cat([pos, pos[:, -1:] + steps], dim=1)
        state = head.layer(rows, where)[-1]
        logp = head.tokens(head.logits(target, state)).log_softmax(-1)
        for t in gap.order(logp, WIDTH):
            z = head.pair(target.table[t][None], state[None])
            pool.append((t, parent, depth + 1, score + float(logp[t]), path + [z]))
        return state

    expand(-1, 0.0, 0, [])
    level = 0
    for _ in range(DEPTH):
        nodes = list(range(level, len(pool)))
        level = len(pool)
        front = gap.best(torch.tensor([pool[i][3] for i in nodes]), WIDTH)
        for i in sorted(nodes[f] for f in front):
            expand(i, pool[i][3], pool[i][2], pool[i][4])
    chosen = sorted(gap.best(torch.tensor([p[3] for p in pool]), TOTAL - 1))
    row = {i: r + 1 for r, i in enumerate(chosen)}
    return ([pool[i][0] for i in chosen],
            [0 if pool[i][1] < 0 else row[pool[i][1]] for i in chosen],
            [pool[i][3] for i in chosen])


def trees(head, scene):
    gap = Gap()
    found = {}
    for full in (False, True):
        for n in (1, N_ANSWER):
            found[full, n] = grow(head, scene, n, full, gap)
            if gap.least < MIN_GAP:
                return None, gap
    return found, gap


def search(head, target):
    for seed in range(N_CANDIDATES):
        scene = Scene(target, 1000 + seed)
        found, gap = trees(head, scene)
        if found:
            print(f"  prompt {seed}: gap {gap.least:.4f}")
            return scene, found
    raise SystemExit("no prompt whose trees are safe from rounding")


def write(name, out):
    spec = HEADS[name]
    folder = os.path.join(out, name)
    print(name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(spec["config"], f, indent=2)
        f.write("\n")
    state = make_state(spec)
    target = Target(out, spec["target"])
    if spec["copies"]:  # others store what is the target's too; a few rows do
        state["embed_tokens.weight"] = target.table[:8].to(spec["dtype"])
    save_file({k: v.contiguous() for k, v in sorted(state.items())},
              os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    read = load_file(os.path.join(folder, "model.safetensors"))
    kind = Head3 if spec.get("eagle3") else Head
    head = kind(spec, {k: v.float() for k, v in read.items()}, target.config)
    with torch.no_grad():
        scene, found = search(head, target)
        put(folder, name, head, scene, found)


def further(head, scene, v):
    """Two more tokens, each on the head's own state of the one before: ids, and three rows of
    logits."""
    rows, pos = head_rows(head, scene, N_ANSWER, False)
    ids, logits = [], []
    for _ in range(3):
        state = head.layer(rows, pos)[-1]
        logits.append(head.logits(scene.target, state))
        ids.append(int(head.ids[logits[-1].argmax()]))
        z = head.pair(scene.target.table[ids[-1]][None], state[None])
        rows, pos = torch.cat([rows, z]), torch.cat([pos, pos[:, -1:] + 1], dim=1)
    v.put("further.ids", torch.tensor(ids[:2]))
    v.put("further.logits", torch.stack(logits))


def put(folder, name, head, scene, found):
    embeds, pos = scene.whole()
    states, _ = scene.target.run(embeds, pos)
    v = VecWriter(os.path.join(folder, "head.vec"), [
        f"{name}: torch {torch.__version__.split('+')[0]}, F32",
        "written by tools/golden/head_golden.py; do not edit"])
    v.put("prompt", torch.where(scene.video, torch.tensor(-1), scene.ids))
    v.put("positions", pos)
    v.put("video", scene.embeds[scene.video])
    v.put("answer", torch.tensor(scene.answer))
    v.put("shape", torch.tensor([TOTAL, DEPTH, WIDTH]))
    if isinstance(head, Head3):  # a few rows: each is as wide as all that the head reads
        head_rows(head, scene, N_ANSWER, True)
        rows = torch.tensor([FIRST + BLOCK, N_ROWS + N_ANSWER - 1])
        v.put("state.rows", rows)
        v.put("states", head.read[rows])
        v.put("draft.ids", head.ids)
        further(head, scene, v)
        head.norm_residual = True  # the same head with norm_before_residual: the last row
        state = head.layer(*head_rows(head, scene, N_ANSWER, False))[-1]
        v.put("residual.logits", head.logits(scene.target, state))
        head.norm_residual = False
    else:
        v.put("states", states)
    for full in (False, True):
        word = "full" if full else "text"
        rows, where = head_rows(head, scene, N_ANSWER, full)
        made = head.layer(rows, where)
        v.put(f"{word}.states", made)
        v.put(f"{word}.logits", head.logits(scene.target, made[-N_ANSWER:]))
        for n in (1, N_ANSWER):
            ids, parents, scores = found[full, n]
            v.put(f"{word}.{n}.ids", torch.tensor(ids))
            v.put(f"{word}.{n}.parents", torch.tensor(parents))
            v.put(f"{word}.{n}.scores", torch.tensor(scores))
    v.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "../../tests/golden"))
    parser.add_argument("heads", nargs="*", default=list(HEADS), metavar="HEAD",
                        help=f"of {', '.join(HEADS)} (default: all)")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # one order of summation
    for name in args.heads:
        write(name, args.out)


if __name__ == "__main__":
    main()
