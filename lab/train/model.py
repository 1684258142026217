"""The nano family in PyTorch, written for training: SigLIP tower, two-layer projector, 2 x 2
pooling and a Qwen2 decoder, as LLaVA-OneVision has them, over *packed* sequences.

All clips of a step lie one after the other in one row of tokens of fixed length; attention is told
where each begins. So clips of 4 and of 128 frames share a step, no shape ever changes, and one
compilation of a tower block and a decoder block serves the whole training. `export_hf` gives the
weights the names that transformers knows.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

IMAGE = 256          # pixels of a frame's side
PATCH = 16
GRID = IMAGE // PATCH
CELLS = GRID // 2    # of a side after pooling
FRAME_TOKENS = CELLS * CELLS
VOCAB = 3072


@dataclass(frozen=True)
class Shape:
    tower_hidden: int
    tower_layers: int
    tower_heads: int
    tower_ffn: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    head_dim: int = 64
    vocab: int = VOCAB
    rope_theta: float = 100000.0
    max_positions: int = 32768
    norm_eps: float = 1e-6


SHAPES = {
    "nano": Shape(384, 6, 6, 1536, 512, 8, 8, 4, 1248),
    "nano-draft": Shape(192, 4, 3, 768, 256, 3, 4, 1, 448),
    "test": Shape(64, 2, 1, 128, 128, 2, 2, 1, 128),
}


class TowerBlock(nn.Module):
    """A layer of SigLIP: full attention inside a frame, gelu-tanh, biases everywhere."""

    def __init__(self, s):
        super().__init__()
        h = s.tower_hidden
        self.heads = s.tower_heads
        self.layer_norm1 = nn.LayerNorm(h, eps=1e-6)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(h, h) for _ in range(4))
        self.layer_norm2 = nn.LayerNorm(h, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(h, s.tower_ffn), nn.Linear(s.tower_ffn, h)

    def forward(self, x):
        f, n, h = x.shape
        y = self.layer_norm1(x)
        q, k, v = (p(y).view(f, n, self.heads, -1).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out_proj(y.transpose(1, 2).reshape(f, n, h))
        return x + self.fc2(F.gelu(self.fc1(self.layer_norm2(x)), approximate="tanh"))


class Tower(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.patch_embedding = nn.Linear(3 * PATCH * PATCH, s.tower_hidden)
        self.position_embedding = nn.Parameter(torch.randn(GRID * GRID, s.tower_hidden) * 0.02)
        self.blocks = nn.ModuleList(TowerBlock(s) for _ in range(s.tower_layers))

    def forward(self, pixels):
        """[frames, 3, IMAGE, IMAGE] in -1..1 -> [frames, GRID * GRID, hidden]."""
        f = pixels.shape[0]
        x = pixels.view(f, 3, GRID, PATCH, GRID, PATCH).permute(0, 2, 4, 1, 3, 5)
        x = self.patch_embedding(x.reshape(f, GRID * GRID, -1))
        x = x + self.position_embedding.to(x.dtype)
        for block in self.blocks:
            x = block(x)
        return x


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def packed_attention(q, k, v, starts, longest):
    """Causal attention of [tokens, heads, dim] inside the sequences that begin at `starts`."""
    if q.is_cuda:
        from torch.nn.attention.varlen import varlen_attn
        return varlen_attn(q, k, v, starts, starts, longest, longest, window_size=(-1, 0))
    out = torch.empty_like(q)
    group = q.shape[1] // k.shape[1]
    for a, b in zip(starts[:-1].tolist(), starts[1:].tolist()):
        if b > a:
            one = (t[a:b].transpose(0, 1)[None] for t in
                   (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
            out[a:b] = F.scaled_dot_product_attention(*one, is_causal=True)[0].transpose(0, 1)
    return out


class DecoderBlock(nn.Module):
    """A layer of Qwen2: RMSNorm, biases on q, k and v, rotary positions, gated SiLU."""

    def __init__(self, s):
        super().__init__()
        self.head_dim = s.head_dim
        q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
        self.input_layernorm = RMSNorm(s.hidden, s.norm_eps)
        self.q_proj = nn.Linear(s.hidden, q)
        self.k_proj = nn.Linear(s.hidden, kv)
        self.v_proj = nn.Linear(s.hidden, kv)
        self.o_proj = nn.Linear(q, s.hidden, bias=False)
        self.post_attention_layernorm = RMSNorm(s.hidden, s.norm_eps)
        self.gate_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.up_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x, cos, sin, starts, longest):
        n = x.shape[0]
        y = self.input_layernorm(x)
        q, k, v = (p(y).view(n, -1, self.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = packed_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, starts, longest)
        x = x + self.o_proj(y.reshape(n, -1))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Nano(nn.Module):
    def __init__(self, shape):
        super().__init__()
        s = self.shape = SHAPES[shape] if isinstance(shape, str) else shape
        self.tower = Tower(s)
        self.linear_1 = nn.Linear(s.tower_hidden, s.hidden)
        self.linear_2 = nn.Linear(s.hidden, s.hidden)
        self.newline = nn.Parameter(torch.randn(s.hidden) * 0.02)
        self.embed = nn.Embedding(s.vocab, s.hidden)
        self.blocks = nn.ModuleList(DecoderBlock(s) for _ in range(s.layers))
        self.norm = RMSNorm(s.hidden, s.norm_eps)
        self.initialise()

    def initialise(self):
        for name, p in self.named_parameters():
            if name == "embed.weight":
                nn.init.normal_(p, std=0.02)
            elif p.dim() == 2 and "position" not in name:
                nn.init.normal_(p, std=0.7 / math.sqrt(p.shape[1]))
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        for b in self.tower.blocks:
            nn.init.zeros_(b.out_proj.weight)
            nn.init.zeros_(b.fc2.weight)
        for b in self.blocks:
            nn.init.zeros_(b.o_proj.weight)
            nn.init.zeros_(b.down_proj.weight)

    def compile(self):
        for b in [*self.tower.blocks, *self.blocks]:
            b.compile()

    def see(self, pixels, learn=True):
        """[frames, 3, IMAGE, IMAGE] -> the frames' tokens [frames, FRAME_TOKENS, hidden]. Where the
        tower need not learn, its backward pass is saved."""
        with torch.set_grad_enabled(learn and torch.is_grad_enabled()):
            x = self.tower(pixels)
        x = self.linear_2(F.gelu(self.linear_1(x)))
        f, _, h = x.shape
        # LLaVA's bilinear resize from 16 to 8 falls on the middle of 2 x 2 patches: their mean.
        x = x.view(f, CELLS, 2, CELLS, 2, h)
        return ((x[:, :, 0, :, 0] + x[:, :, 0, :, 1] + x[:, :, 1, :, 0] + x[:, :, 1, :, 1])
                * 0.25).reshape(f, FRAME_TOKENS, h)

    def angles(self, positions):
        half = self.shape.head_dim // 2
        inv = self.shape.rope_theta ** (-torch.arange(half, device=positions.device) / half)
        a = positions.float()[:, None] * inv
        return a.cos()[:, None], a.sin()[:, None]

    def decode(self, x, positions, starts, longest):
        """Embeddings [tokens, hidden] of packed sequences -> normalised hidden states."""
        cos, sin = self.angles(positions)
        for b in self.blocks:
            x = b(x, cos, sin, starts, longest)
        return self.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.embed.weight.to(hidden.dtype))
