"""How many tokens a verification of a head's draft trees gives, without a target: its greedy
answers are known, so what of a tree it would accept is known too, and its states are at hand.

The tree is EAGLE-2's: level by level the `width` best nodes grow `width` children each, and of all
nodes ever made the `total` - 1 best by the product of their probabilities are verified, after the
root. A chain is a tree of width 1. Ties go to the lower token, then to the older node.
"""

from dataclasses import dataclass

import torch

from train.head.loss import run_passes


@dataclass
class Shape:
    total: int = 30   # rows of a verification, the root's among them
    depth: int = 3    # levels after the first
    width: int = 8


def best(scores, n):
    """The n largest of each row, ties to the lower place: values and places."""
    values, at = torch.sort(scores, dim=-1, descending=True, stable=True)
    return values[..., :n], at[..., :n]


def pick(x, at):
    """Rows `at` [batch, n] of x [batch, m, ...]."""
    return x.gather(1, at.view(*at.shape, *[1] * (x.dim() - 2)).expand(*at.shape, *x.shape[2:]))


class Stable:
    """What a batch of conversations gives to every tree: keys and values of the true rows, and
    the head's outputs there."""

    def __init__(self, head, batch):
        self.batch, self.head = batch, head
        self.outputs = run_passes(head, batch, 1, "shift")[0]
        z = head.pair(batch["embeddings"], batch["before"])
        k, v = head.project(z, batch["positions"], "k", "v")
        keys, values, self.visual = [k], [v], None
        if batch["visual"] is not None:
            seen = batch["visual"]
            k, v = head.project(head.visual_rows(seen), seen["positions"], "k", "v")
            keys, values, self.visual = [k] + keys, [v] + values, seen
        self.keys, self.values = torch.cat(keys, 1), torch.cat(values, 1)

    def mask(self, root, position):
        """[batch, keys] that the nodes of trees with these roots see."""
        text = self.batch["valid"] & (torch.arange(self.batch["valid"].shape[1],
                                                   device=root.device) <= root[:, None])
        if self.visual is None:
            return text
        seen = self.visual["valid"] & (self.visual["positions"] < position[:, None])
        return torch.cat((seen, text), 1)


def grow(stable, embed, lm_head, root, shape):
    """Trees on rows `root` [batch]: tokens, parents (number of a node, -1: the root) and whether
    a node is verified, [batch, nodes]."""
    head, batch, w = stable.head, stable.batch, shape.width
    n = len(root)
    feature = pick(stable.outputs, root[:, None])
    position = batch["positions"].gather(1, root[:, None])[:, 0]
    score, token = best(lm_head(feature[:, 0]).float().log_softmax(-1), w)
    tokens, scores, parents = [token], [score], [torch.full_like(token, -1)]
    feature = feature.expand(-1, w, -1)
    sees = stable.mask(root, position)[:, None].expand(-1, w, -1)
    line = torch.zeros(n, w, 0, dtype=torch.bool, device=root.device)  # of the tree's own keys
    keys, values = stable.keys, stable.values
    own = torch.eye(w, dtype=torch.bool, device=root.device).expand(n, -1, -1)
    number = torch.arange(w, device=root.device).expand(n, -1)
    for level in range(1, shape.depth + 1):
        z = head.pair(embed(token).to(feature.dtype), feature)
        q, k, v = head.project(z, (position + level)[:, None].expand(-1, w), "q", "k", "v")
        keys, values = torch.cat((keys, k), 1), torch.cat((values, v), 1)
        line = torch.cat((line, own), 2)
        out = head.finish(z, q, keys, values, torch.cat((sees, line), 2))
        more, child = best(lm_head(out).float().log_softmax(-1), w)
        begin = sum(t.shape[1] for t in tokens)
        tokens.append(child.flatten(1))
        scores.append((score[..., None] + more).flatten(1))
        parents.append(number.repeat_interleave(w, 1))
        at = best(scores[-1], w)[1].sort(-1).values
        score = scores[-1].gather(1, at)
        number, token = begin + at, tokens[-1].gather(1, at)
        feature, line = pick(out, at // w), pick(line, at // w)
    scores = torch.cat(scores, 1)
    kept = torch.zeros_like(scores, dtype=torch.bool)
    kept.scatter_(1, best(scores, shape.total - 1)[1], True)
    return torch.cat(tokens, 1), torch.cat(parents, 1), kept


def accepted(tokens, parents, kept, truth):
    """How many tokens of truth [batch, levels] a path from the root has in the verified tree."""
    node = torch.full_like(tokens[:, 0], -1)
    count = torch.zeros_like(node)
    going = torch.ones_like(node, dtype=torch.bool)
    for level in range(truth.shape[1]):
        hit = kept & (parents == node[:, None]) & (tokens == truth[:, level, None])
        going = going & hit.any(1)
        node = torch.where(going, hit.int().argmax(1), node)
        count = count + going
    return count


@torch.no_grad()
def measure(head, embed, lm_head, group, shape, view, device, dtype=torch.float32, at_once=64):
    """(tokens after the first, verifications) of all first answers of a group."""
    totals, full = [0, 0], view == "full"
    if full and head.config.visual == "none":
        raise SystemExit("a head that was trained without rows of a video has no full view")
    for first in range(0, len(group), at_once):
        last = min(first + at_once, len(group))
        batch = group.cut(first, last, device, embed, dtype, full)
        if full and batch["visual"] is None:
            raise SystemExit(f"{group.name}: the rows of its videos were not kept")
        stable = Stable(head, batch)
        made = group.made[first:last, :batch["ids"].shape[1]]
        start = made.int().argmax(1)
        end = last_of_run(made, start)
        root, end = start.to(device), end.to(device)
        levels = torch.arange(1, shape.depth + 2, device=device)
        while bool((root < end).any()):
            active = root < end
            tree = grow(stable, embed, lm_head, root, shape)
            at = root[:, None] + levels
            truth = batch["ids"].gather(1, at.clamp(max=batch["ids"].shape[1] - 1))
            truth = torch.where(at <= end[:, None], truth, -1)
            step = torch.minimum(accepted(*tree, truth) + 1, end - root) * active
            totals[0] += int(step.sum())
            totals[1] += int(active.sum())
            root = root + step
    return totals


def last_of_run(made, start):
    """The last row of the answer that begins at start."""
    n = made.shape[1]
    at = torch.arange(n)[None]
    broken = (~made) & (at > start[:, None])
    return torch.where(broken.any(1), broken.int().argmax(1) - 1, n - 1)
