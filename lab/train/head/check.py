#!/usr/bin/env python3
"""Checks the head's training code against plain passes of tools/golden's head, which the engine is
checked against too: random heads over random conversations, all kinds of visual rows, both views.

- The first pass, and each pass of the way of a tree, row by row: the same outputs as a fresh pass
  over the rows up to the root and the drafted ones after it.
- Trees: the same tokens, parents and choice; accepted tokens counted along the plain tree.
- What export wrote, read back.
"""

import os
import sys
import tempfile

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, TOOLS)
sys.path.insert(0, os.path.join(TOOLS, "golden"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from head_golden import Head as Plain  # noqa: E402

from train.head.bank import load_bank, save_conversation  # noqa: E402
from train.head.head import Config, Head, export, load  # noqa: E402
from train.head.loss import run_passes, total_loss  # noqa: E402
from train.head.tree import Shape, accepted, grow, Stable  # noqa: E402

D, VOCAB = 32, 50
ROWS, FIRST, BLOCK, ANSWER = 34, 3, 12, 24  # of a conversation; the video; the answer's beginning
TOLERANCE = 2e-4  # relative; four passes without norms make much of rounding


def make_head(visual, norms, seed):
    torch.manual_seed(seed)
    head = Head(Config(D, 4, 2, 8, 48, 1e-6, 1e4, visual, int(visual == "layer"), norms))
    head.requires_grad_(False)
    for p in head.parameters():
        p.normal_(1.0 if p.dim() == 1 else 0.0, 0.2 if p.dim() == 1 else 1.5 / p.shape[-1] ** 0.5)
    return head


def make_data(folder):
    """Three conversations of different length in one group, and all rows of them."""
    whole = []
    for i in range(3):
        n = ROWS + 2 * i
        ids = torch.randint(0, VOCAB, (n,))
        ids[FIRST:FIRST + BLOCK] = -1
        states, visual = torch.randn(n, D), {k: torch.randn(BLOCK, D) for k in
                                             ("embedding", "layer")}
        visual["before"] = states[FIRST - 1:FIRST + BLOCK - 1]
        states, visual = states.half().float(), {k: v.half().float() for k, v in visual.items()}
        save_conversation(os.path.join(folder, f"{i}.safetensors"), ids,
                          torch.arange(n) >= ANSWER, states, visual)
        whole.append((ids, states, visual))
    return whole


class Rows:
    """One conversation's rows, as the plain head takes them."""

    def __init__(self, head, plain, table, whole, full):
        self.plain, self.table = plain, table
        self.ids, states, visual = whole
        z = plain.pair(table[self.ids.clamp(min=0)][1:], states[:-1])
        self.z = torch.cat((z[:1] * 0, z))
        self.seen = self.ids < 0
        kind = head.config.visual
        if kind in ("embedding", "layer"):
            self.z[self.seen] = visual[kind]
        elif kind == "fc":
            self.z[self.seen] = plain.pair(visual["embedding"], visual["before"])
        self.keep = (torch.arange(len(self.ids)) > 0) & (full | ~self.seen)

    def state(self, root, path):
        """The output of the last of: the rows up to root, drafted tokens after it, the first of
        them with the root's output as its state and so on."""
        keep = self.keep.clone()
        keep[root + 1:] = False
        rows, where = [self.z[keep]], keep.nonzero()[:, 0]
        state = self.plain.layer(rows[0], where.expand(3, -1))[-1]
        for i, token in enumerate(path):
            rows.append(self.plain.pair(self.table[token][None], state[None]))
            where = torch.cat((where, torch.tensor([root + 1 + i])))
            state = self.plain.layer(torch.cat(rows), where.expand(3, -1))[-1]
        return state

    def tree(self, root, shape):
        pool = []  # token, parent, score, path

        def expand(parent, score, path):
            logp = F.linear(self.state(root, path), self.table).log_softmax(-1)
            for t in logp.argsort(descending=True)[:shape.width].tolist():
                pool.append((t, parent, score + float(logp[t]), path + [t]))
        expand(-1, 0.0, [])
        level = 0
        for _ in range(shape.depth):
            nodes = sorted(range(level, len(pool)), key=lambda i: -pool[i][2])[:shape.width]
            level = len(pool)
            for i in sorted(nodes):
                expand(i, pool[i][2], pool[i][3])
        kept = sorted(range(len(pool)), key=lambda i: -pool[i][2])[:shape.total - 1]
        return pool, set(kept)


def check_passes(head, batch, rows, kept_rows):
    worst = 0.0
    outputs = run_passes(head, batch, 4, "tree")
    for b, r in enumerate(rows):
        n = len(r.ids)
        for k, t in enumerate(kept_rows[b]):
            for i, out in enumerate(outputs):
                if k and r.ids[t] >= 0 and (i == 0 or t - i >= ANSWER and t < n):
                    want = r.state(t - i, r.ids[t - i + 1:t + 1].tolist())
                    off = (out[b, k] - want).abs().max() / want.abs().max()
                    worst = max(worst, off.item())
    return worst


def check_trees(head, batch, rows, kept_rows, table):
    shape, right = Shape(12, 3, 3), 0
    for at in (ANSWER, ANSWER + 3):
        root = torch.tensor([k.index(at) for k in kept_rows])
        stable = Stable(head, batch)
        tree = grow(stable, lambda i: table[i], lambda x: F.linear(x, table), root, shape)
        for b, r in enumerate(rows):
            pool, kept = r.tree(at, shape)
            got = list(zip(tree[0][b].tolist(), tree[1][b].tolist()))
            assert got == [p[:2] for p in pool], "another tree"
            assert tree[2][b].nonzero()[:, 0].tolist() == sorted(kept), "another choice"
            path = max((pool[i][3] for i in kept), key=len)
            truth = torch.full((len(rows), shape.depth + 1), -1)
            truth[b, :len(path)] = torch.tensor(path)
            assert accepted(*tree, truth)[b] == len(path), "another length"
            right += 1
    return right


def check_export(head):
    with tempfile.TemporaryDirectory() as folder:
        export(head, folder, torch.float32)
        again = load(folder)
        assert again.config == head.config
        assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(),
                                                     head.state_dict().values()))


def main():
    torch.manual_seed(7)
    table = torch.randn(VOCAB, D) * 0.6
    with tempfile.TemporaryDirectory() as folder:
        whole = make_data(folder)
        group = load_bank(folder).groups[0]
    kept = [[t for t in range(len(w[0])) if w[0][t] >= 0 or
             t + 1 < len(w[0]) and w[0][t + 1] >= 0] for w in whole]
    cases = [(v, n) for v in ("none", "embedding", "layer", "fc")
             for n in (("embed", "input", "output"), (), ("embed", "hidden", "input", "output"))]
    for seed, (visual, norms) in enumerate(cases):
        head = make_head(visual, norms, seed)
        spec = dict(config=dict(num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-6))
        plain = Plain(spec, head.state_dict(), dict(rope_theta=1e4))
        for full in (False, True) if visual != "none" else (False,):
            rows = [Rows(head, plain, table, w, full) for w in whole]
            batch = group.cut(0, 3, "cpu", lambda i: table[i], torch.float32, full)
            worst = check_passes(head, batch, rows, kept)
            trees = check_trees(head, batch, rows, kept, table)
            print(f"visual rows {visual}, norms {','.join(norms) or 'none'}, "
                  f"{'full' if full else 'text'}: outputs off {worst:.1e}, {trees} trees equal")
            assert worst < TOLERANCE, "outputs differ"
            loss, _ = total_loss(head, lambda x: F.linear(x, table), batch, 2, "shift",
                                 dict(smooth=1, cross=1, rank=1, distance=1))
            assert loss.isfinite()
        check_export(head)


if __name__ == "__main__":
    main()
