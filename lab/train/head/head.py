"""The draft head: z = FC(embedding of a token, the target's state of the row before it), one layer
of a decoder over these, and the target's own LM head on what comes out. Names of the tensors are
those of the files that prevue reads (doc/heads.md).

A row of the video, where the head has such rows at all, is never asked for anything: it only gives
a key and a value. So rows come in two kinds here: text, in padded rectangles, with all of a layer,
and visual, with their keys and values alone.
"""

import json
import math
import os
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from train.model import RMSNorm

VISUAL = ("none", "embedding", "layer", "fc")
NORMS = ("embed", "hidden", "input", "output")


@dataclass
class Config:
    """The head's shape. visual: what a visual row is in training (head.VISUAL), `none` for a head
    that never had one."""
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    rms_norm_eps: float
    rope_theta: float
    visual: str = "none"
    visual_layer: int = 0
    norms: tuple = ("embed", "input", "output")
    fc_bias: bool = True
    qkv_bias: bool = True
    target: str = ""


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, q, kv = c.hidden_size, c.num_attention_heads, c.num_key_value_heads
        self.q_proj = nn.Linear(d, q * c.head_dim, bias=c.qkv_bias)
        self.k_proj = nn.Linear(d, kv * c.head_dim, bias=c.qkv_bias)
        self.v_proj = nn.Linear(d, kv * c.head_dim, bias=c.qkv_bias)
        self.o_proj = nn.Linear(q * c.head_dim, d, bias=False)


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, f = c.hidden_size, c.intermediate_size
        self.gate_proj, self.up_proj = (nn.Linear(d, f, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(f, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), MLP(c)
        if "input" in c.norms:
            self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)


def rotate(x, positions, theta):
    """Rotary positions of [batch, rows, heads, dim]; positions [batch, rows]."""
    half = x.shape[-1] // 2
    inv = theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angle = (positions.float()[..., None] * inv)[:, :, None]
    a, b = x.float().chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Head(nn.Module):
    def __init__(self, config):
        super().__init__()
        c = self.config = config
        d = c.hidden_size
        self.fc = nn.Linear(2 * d, d, bias=c.fc_bias)
        self.layers = nn.ModuleList([Layer(c)])
        for name, module in (("embed", "embed_norm"), ("hidden", "hidden_norm"),
                             ("output", "norm")):
            setattr(self, module, RMSNorm(d, c.rms_norm_eps) if name in c.norms else None)
        self.initialise()

    def initialise(self):
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.7 / math.sqrt(p.shape[1]))
        for m in self.modules():
            if isinstance(m, nn.Linear) and m.bias is not None:
                nn.init.zeros_(m.bias)
        nn.init.zeros_(self.layers[0].self_attn.o_proj.weight)
        nn.init.zeros_(self.layers[0].mlp.down_proj.weight)

    def pair(self, embeddings, hidden):
        """FC's input rows -> the layer's."""
        e = self.embed_norm(embeddings) if self.embed_norm else embeddings
        h = self.hidden_norm(hidden) if self.hidden_norm else hidden
        return self.fc(torch.cat((e, h), -1))

    def project(self, z, positions, *parts):
        """Some of q, k, v of rows [batch, rows, d], turned to their positions (v is not)."""
        layer, c = self.layers[0], self.config
        y = layer.input_layernorm(z) if "input" in c.norms else z
        out = []
        for p in parts:
            x = getattr(layer.self_attn, p + "_proj")(y).view(*z.shape[:2], -1, c.head_dim)
            out.append(x if p == "v" else rotate(x, positions, c.rope_theta))
        return out

    def finish(self, z, q, k, v, mask):
        """The rest of the layer, given all keys and values; mask [batch or 1, rows, keys]."""
        layer, c = self.layers[0], self.config
        group = c.num_attention_heads // c.num_key_value_heads
        k, v = (t.repeat_interleave(group, 2) if group > 1 else t for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), mask[:, None])
        x = z + layer.self_attn.o_proj(y.transpose(1, 2).reshape(*z.shape[:2], -1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.norm(x) if self.norm else x

    def visual_rows(self, visual):
        """The layer's input rows of a video: {"embedding", "layer", "before": [batch, rows, d]}."""
        kind = self.config.visual
        return self.pair(visual["embedding"], visual["before"]) if kind == "fc" else visual[kind]


def begin_like(head, layer, norm):
    """Starts a head as the target's last layer, which its own is a mirror of, behind an FC that
    passes the state on. `layer` maps names of the head's tensors to the target's, `norm` is its
    last norm's weight."""
    own = dict(head.layers[0].named_parameters())
    with torch.no_grad():
        for name, p in layer.items():
            if name in own and own[name].shape == p.shape:
                own[name].copy_(p)
        d = head.config.hidden_size
        head.fc.weight[:, d:].add_(torch.eye(d, device=head.fc.weight.device))
        if head.norm is not None:
            head.norm.weight.copy_(norm)


# ---- files ----

def export(head, folder, kind=torch.float16):
    """config.json and model.safetensors, which `prevue convert` takes."""
    c = asdict(head.config)
    visual, norms = c.pop("visual"), c.pop("norms")
    layer, _ = c.pop("visual_layer"), c.pop("qkv_bias")
    c.update(architectures=["PrevueHead"], model_type="prevue_head", num_hidden_layers=1,
             rope_positions="index", bias=c.pop("fc_bias"), training_norms=list(norms),
             training_visual_rows=visual)
    if visual != "none":
        c["visual_rows"] = visual
    if visual == "layer":
        c["visual_layer"] = layer
    os.makedirs(folder, exist_ok=True)
    state = {k: v.detach().to("cpu", kind).contiguous() for k, v in head.state_dict().items()}
    save_file(state, os.path.join(folder, "model.safetensors.part"), metadata={"format": "pt"})
    os.replace(os.path.join(folder, "model.safetensors.part"),
               os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(c, f, indent=1)
        f.write("\n")


def load(folder):
    """A head that `export` wrote."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    state = load_file(os.path.join(folder, "model.safetensors"))
    names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
             "intermediate_size", "rms_norm_eps", "rope_theta")
    head = Head(Config(**{n: c[n] for n in names}, visual=c["training_visual_rows"],
                       visual_layer=c.get("visual_layer", 0), norms=tuple(c["training_norms"]),
                       fc_bias="fc.bias" in state, target=c.get("target", ""),
                       qkv_bias="layers.0.self_attn.q_proj.bias" in state))
    head.load_state_dict({k: v.float() for k, v in state.items()})
    return head
