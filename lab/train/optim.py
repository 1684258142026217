"""Muon for the matrices of the blocks, AdamW for the rest.

Muon steps along the momentum with its singular values made equal (Newton-Schulz iteration), which
takes about half as many steps here as AdamW. Matrices of one shape are stacked, so a model costs a
handful of launches.
"""

import torch


def orthogonalise(g, steps=5):
    """[n, rows, columns] -> about U V^T of each."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.95, weight_decay=0.02):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for shape, ps in shapes.items():
                grads = torch.stack([p.grad for p in ps]).float()
                buffer = self.state[ps[0]].setdefault("momentum", torch.zeros_like(grads))
                buffer.lerp_(grads, 1 - group["momentum"])
                update = orthogonalise(grads.lerp(buffer, group["momentum"]))
                scale = 0.2 * max(shape) ** 0.5 * group["lr"]  # the size of an AdamW step
                torch._foreach_mul_(ps, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(ps, list(update.unbind(0)), alpha=-scale)


class Optimiser:
    """Both, with one learning rate; parameters under `slow` learn at that share of it."""

    def __init__(self, named, lr, slow=None, slow_share=0.3):
        def of_muon(n, p):
            return p.dim() == 2 and "blocks." in n or n.startswith("linear_") and p.dim() == 2
        groups = {(m, s): [] for m in (True, False) for s in (True, False)}
        for n, p in named:
            if p.requires_grad:
                groups[bool(of_muon(n, p)), bool(slow and n.startswith(slow))].append(p)
        self.shares = {True: slow_share, False: 1.0}
        self.lr = lr
        self.muon = Muon([dict(params=groups[True, s], share=self.shares[s])
                          for s in (True, False) if groups[True, s]], lr)
        self.adam = torch.optim.AdamW(
            [dict(params=groups[False, s], share=self.shares[s])
             for s in (True, False) if groups[False, s]], lr, betas=(0.9, 0.98), weight_decay=0.0,
            fused=all(p.is_cuda for p in groups[False, False]))

    def step(self, factor):
        """One step at `factor` of the learning rate; clears the gradients."""
        for o in (self.muon, self.adam):
            for g in o.param_groups:
                g["lr"] = self.lr * factor * g["share"]
            o.step()
            o.zero_grad(set_to_none=True)
