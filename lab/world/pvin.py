"""Writes a clip's frames and a prompt as prevue's prepared prompt (doc/formats.md, version 3) for
the nano family: one video, one question."""

import struct

SIDE = 256
FAMILY, PATCH, MERGE, STEP, VOCABULARY = 1, 16, 1, 1, 3072  # nano: a small LLaVA-OneVision
FRAME_TOKENS = 64
VIDEO = -1  # in the ids: the rows of the first medium
MASK = (1 << 64) - 1


def checksum(data):
    data += bytes(-len(data) % 8)
    s = 0xcbf29ce484222325
    for (w,) in struct.iter_unpack("<Q", data):
        s = (s ^ w) * 0x100000001b3 & MASK
        s ^= s >> 32
    return s


def prompt_ids(tokenizer, question):
    """The ids of a user's message with one video before the question, and of the answer's head.
    tokenizer: a tokenizers.Tokenizer of lab/train/tokenizer."""
    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids
    return encode("<|im_start|>user ") + [VIDEO] + \
        encode("\n" + question + "<|im_end|><|im_start|>assistant\n")


def write_pvin(path, tokenizer, frames, question):
    """frames: arrays of SIDE x SIDE x 3 bytes."""
    ids = prompt_ids(tokenizer, question)
    pixels = [bytes(f.tobytes()) for f in frames]
    n = len(pixels)
    body = struct.pack("<6i", FAMILY, PATCH, MERGE, STEP, SIDE, VOCABULARY)
    body += struct.pack("<5i", len(ids), 1, 0, n, 0)
    body += struct.pack("<9if", 1, 0, n, SIDE, SIDE, SIDE, SIDE, 0, n * FRAME_TOKENS + 1, 0.0)
    body += struct.pack(f"<{len(ids)}i", *ids) + b"".join(pixels)
    with open(path, "wb") as f:
        f.write(b"PVIN" + struct.pack("<IQQ", 3, 24 + len(body), checksum(body)) + body)
