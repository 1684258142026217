"""What a head is trained on: passes over true states and over the head's own, and the losses of
ViSpec, which Sparrow follows.

Pass 1 gives every row the target's state of the row before. The passes after it give a row what
the head itself made of the row before, as a draft does. Two ways:

- `shift` (the paper's MTP): all text rows at once take the outputs of the pass before.
- `tree`: as a draft really grows. Row t of pass i hangs on a root i - 1 tokens back: up to the root
  it sees the keys of pass 1, then one row each of passes 2 to i.

A pass is asked for the target's next-token probabilities at each row of an answer.
"""

import torch
import torch.nn.functional as F

RANKED = 10
# Weights: regression of the state, cross-entropy, order of the best, distance of probabilities.
STAGES = {
    "vispec": (dict(smooth=1.0, cross=0.1, rank=0.01), dict(distance=10.0, rank=0.1)),
    "cross": (dict(cross=1.0, smooth=0.1), dict(cross=1.0, distance=1.0)),
}


def shifted(x, by):
    """Row t gets what row t - by had; the first ones nothing."""
    return F.pad(x[:, :x.shape[1] - by], (0,) * (2 * (x.dim() - 2)) + (by, 0))


def text_mask(valid, back=0):
    """[batch, rows, rows]: rows that are tokens, up to the one `back` before; always itself where
    back is 0, so that no row of padding is left with nothing to see."""
    n = valid.shape[1]
    at = torch.arange(n, device=valid.device)
    mask = valid[:, None] & (at[None, :] <= at[:, None] - back)[None]
    return mask | torch.eye(n, dtype=torch.bool, device=valid.device) if back == 0 else mask


def run_passes(head, batch, steps, way):
    """Outputs [batch, rows, d] of each pass. batch: embeddings, before (the target's state of the
    row before), positions, valid; visual: None, or a dict of rows with positions and valid."""
    z = head.pair(batch["embeddings"], batch["before"])
    pos, valid = batch["positions"], batch["valid"]
    fixed_k, fixed_v, fixed_mask = [], [], []
    if batch["visual"] is not None and head.config.visual != "none":
        v = batch["visual"]
        k, x = head.project(head.visual_rows(v), v["positions"], "k", "v")
        fixed_k, fixed_v = [k], [x]
        fixed_mask = [v["valid"][:, None] & (v["positions"][:, None] < pos[:, :, None])]
    outputs, drafted = [], []
    for i in range(steps):
        if i:
            own = torch.cat((batch["before"][:, :1], outputs[-1][:, :-1]), 1)
            z = head.pair(batch["embeddings"], own.to(z.dtype))
        q, k, v = head.project(z, pos, "q", "k", "v")
        if i == 0 or way == "shift":
            first, masks = (k, v), [text_mask(valid)]
            keys, values = [k], [v]
        else:
            drafted.append((k, v))
            masks = [text_mask(valid, i)] + \
                [torch.eye(pos.shape[1], dtype=torch.bool, device=pos.device)[None]
                 .expand(len(pos), -1, -1)] * i
            keys = [first[0]] + [shifted(d[0], i - 1 - j) for j, d in enumerate(drafted)]
            values = [first[1]] + [shifted(d[1], i - 1 - j) for j, d in enumerate(drafted)]
        mask = torch.cat([m.expand(len(pos), -1, -1) for m in fixed_mask + masks], 2)
        outputs.append(head.finish(z, q, torch.cat(fixed_k + keys, 1),
                                   torch.cat(fixed_v + values, 1), mask))
    return outputs


def parts_of(out, state, logits, teacher, keep):
    """The mean losses of the rows to keep (without asking the device how many these are): outputs
    and the target's states [rows, d], logits of both."""
    w = keep.float() / keep.sum().clamp(min=1)
    p, log_q = teacher.softmax(-1), logits.log_softmax(-1)
    # Plackett-Luce: the likelihood of the target's best tokens in their order.
    best = logits.gather(-1, teacher.topk(RANKED, -1).indices)
    rest = torch.logcumsumexp(best.flip(-1), -1).flip(-1)
    each = {"smooth": F.smooth_l1_loss(out.float(), state.float(), reduction="none").mean(-1),
            "cross": -(p * log_q).sum(-1), "rank": (rest - best).sum(-1),
            "distance": (p - log_q.exp()).abs().sum(-1),
            "right": (logits.argmax(-1) == teacher.argmax(-1)).float()}
    return {k: (x * w).sum() for k, x in each.items()}


def total_loss(head, lm_head, batch, steps, way, weights):
    """The sum over the passes, and the parts of each, with the share of rows whose best token is
    the target's. batch adds: states (the target's own), rows (flat numbers of the rows with a
    loss), since (of each such row, how many rows of the answer lie before it)."""
    outputs = run_passes(head, batch, steps, way)
    rows, since = batch["rows"], batch["since"]
    state = batch["states"].flatten(0, 1)[rows]
    with torch.no_grad():
        teacher = lm_head(state).float()
    loss, told = 0.0, []
    for i, out in enumerate(outputs):
        out = out.flatten(0, 1)[rows]
        # In the way of a tree, a row whose root would lie in the prompt is never drafted.
        keep = since >= (i if way == "tree" else 0)
        parts = parts_of(out, state, lm_head(out).float(), teacher, keep)
        loss = loss + sum(weights[k] * parts[k] for k in weights)
        told.append(parts)
    return loss, told
