"""Reads a GGUF file's numbers and tensors, and makes of models/nano.gguf the PyTorch model that it
was exported from: a head must learn from the weights that the engine runs, rounded as they are.
"""

import re
import struct

import numpy as np
import torch

from train.common import load_weights
from train.model import PATCH, SHAPES, Nano

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}
STRING, ARRAY = 8, 9
F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8
BLOCK = 32  # numbers of a block of Q8_0 and Q4_0, after a scale in F16

# Names of the file -> names of train.model; {0} is the number of a block.
NAMES = [
    (r"v\.patch_embd\.(\w+)", "tower.patch_embedding.{0}"),
    (r"v\.position_embd\.weight", "tower.position_embedding"),
    (r"v\.image_newline", "newline"),
    (r"v\.blk\.(\d+)\.ln(\d)\.(\w+)", "tower.blocks.{0}.layer_norm{1}.{2}"),
    (r"v\.blk\.(\d+)\.attn_out\.(\w+)", "tower.blocks.{0}.out_proj.{1}"),
    (r"v\.blk\.(\d+)\.attn_([qkv])\.(\w+)", "tower.blocks.{0}.{1}_proj.{2}"),
    (r"v\.blk\.(\d+)\.ffn_up\.(\w+)", "tower.blocks.{0}.fc1.{1}"),
    (r"v\.blk\.(\d+)\.ffn_down\.(\w+)", "tower.blocks.{0}.fc2.{1}"),
    (r"mm\.0\.(\w+)", "linear_1.{0}"),
    (r"mm\.2\.(\w+)", "linear_2.{0}"),
    (r"token_embd\.weight", "embed.weight"),
    (r"output_norm\.weight", "norm.weight"),
    (r"blk\.(\d+)\.attn_norm\.weight", "blocks.{0}.input_layernorm.weight"),
    (r"blk\.(\d+)\.attn_([qkv])\.(\w+)", "blocks.{0}.{1}_proj.{2}"),
    (r"blk\.(\d+)\.attn_output\.weight", "blocks.{0}.o_proj.weight"),
    (r"blk\.(\d+)\.ffn_norm\.weight", "blocks.{0}.post_attention_layernorm.weight"),
    (r"blk\.(\d+)\.ffn_(gate|up|down)\.weight", "blocks.{0}.{1}_proj.weight"),
]


class Reader:
    """fields: what the header says, by key; tensors: name -> (shape, rows first; type; offset)."""

    def __init__(self, path):
        self.data, self.at = np.memmap(path, np.uint8, "r"), 0
        if bytes(self.data[:4]) != b"GGUF":
            raise SystemExit(f"{path}: not a GGUF file")
        self.at = 4
        version, tensors, fields = self.take("I"), self.take("Q"), self.take("Q")
        if version not in (2, 3):
            raise SystemExit(f"{path}: GGUF of version {version}, not 2 or 3")
        self.fields = dict((self.string(), self.value(self.take("I"))) for _ in range(fields))
        self.tensors = {}
        for _ in range(tensors):
            name = self.string()
            shape = [self.take("Q") for _ in range(self.take("I"))]
            self.tensors[name] = (shape[::-1], self.take("I"), self.take("Q"))
        align = self.fields.get("general.alignment", 32)
        self.begin = (self.at + align - 1) // align * align

    def take(self, kind):
        n = struct.calcsize("<" + kind)
        self.at += n
        return struct.unpack("<" + kind, self.data[self.at - n:self.at])[0]

    def string(self):
        n = self.take("Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            kind, n = self.take("I"), self.take("Q")
            return [self.value(kind) for _ in range(n)]
        return self.take(SCALARS[kind])

    def tensor(self, name):
        """In F32."""
        shape, kind, offset = self.tensors[name]
        n, at = int(np.prod(shape)), self.begin + offset
        if kind in (F32, F16):
            a = self.data[at:at + n * (4 if kind == F32 else 2)].view("<f4" if kind == F32
                                                                      else "<f2")
        elif kind == Q8_0:
            rows = self.data[at:at + n // BLOCK * (BLOCK + 2)].reshape(-1, BLOCK + 2)
            scale = np.ascontiguousarray(rows[:, :2]).view("<f2").astype(np.float32)
            a = rows[:, 2:].view(np.int8) * scale
        elif kind == Q4_0:
            rows = self.data[at:at + n // BLOCK * (BLOCK // 2 + 2)].reshape(-1, BLOCK // 2 + 2)
            scale = np.ascontiguousarray(rows[:, :2]).view("<f2").astype(np.float32)
            low_high = np.concatenate((rows[:, 2:] & 15, rows[:, 2:] >> 4), 1)
            a = (low_high.astype(np.int8) - 8) * scale
        else:
            raise SystemExit(f"{name}: a tensor of type {kind}, which this reader does not know")
        return torch.from_numpy(np.array(a, np.float32).reshape(shape))


def nano_name(name):
    for pattern, target in NAMES:
        m = re.fullmatch(pattern, name)
        if m:
            return target.format(*m.groups())
    return None


def load_nano(path, shape="nano"):
    """The model of a .safetensors file as training saves it, or of a GGUF file that prevue made of
    an export of the nano family."""
    model = Nano(SHAPES[shape])
    if path.endswith(".safetensors"):
        load_weights(model, path)
    else:
        model.load_state_dict(gguf_state(path), strict=True)
    return model.eval().requires_grad_(False)


def gguf_state(path):
    file, state = Reader(path), {}
    for name in file.tensors:
        own = nano_name(name)
        if own and not name.startswith("v.post_ln"):
            state[own] = file.tensor(name)
    patch = "tower.patch_embedding.weight"
    state[patch] = state[patch].reshape(-1, 3 * PATCH * PATCH)
    return state
