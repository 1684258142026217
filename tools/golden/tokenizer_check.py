"""Compare our tokenizer with the `tokenizers` library on many texts.

    python tools/golden/tokenizer_check.py TOKENIZER.JSON [--count 20000] [--seed 1]

Builds tests/golden/encode_lines.c, encodes hand-picked and random texts with both, compares the
ids, and that the bytes of the ids give back the NFC text. Not part of `make test`: it needs Python
and a real tokenizer.json. Exit status 1 on any difference.
"""
import argparse
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer
from tokenizers.normalizers import NFC

import tokenizer_texts

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def build(out_dir, archive):
    """Compile encode_lines against the library's archive."""
    if not archive:
        subprocess.run(["make", "-s", "build/libprevue.a"], cwd=ROOT, check=True)
        archive = os.path.join(ROOT, "build/libprevue.a")
    out = os.path.join(out_dir, "encode_lines")
    subprocess.run(["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-Iinclude", "-Isrc",
                    "tests/golden/encode_lines.c", archive, "-ljansson", "-lpcre2-8", "-lutf8proc",
                    "-lm", "-pthread", "-o", out], cwd=ROOT, check=True)
    return out


def encode_ours(program, tokenizer_json, texts):
    data = b"".join(struct.pack("<I", len(t)) + t for t in (s.encode() for s in texts))
    done = subprocess.run([program, tokenizer_json], input=data, stdout=subprocess.PIPE, check=True)
    out, at, result = done.stdout, 0, []
    for _ in texts:
        (n,) = struct.unpack_from("<I", out, at)
        ids = list(struct.unpack_from(f"<{n}i", out, at + 4))
        at += 4 + 4 * n
        (n,) = struct.unpack_from("<I", out, at)
        result.append((ids, out[at + 4:at + 4 + n]))
        at += 4 + n
    assert at == len(out)
    return result


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("tokenizer_json")
    ap.add_argument("--count", type=int, default=20000)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--archive", help="a libprevue.a to use instead of building one")
    args = ap.parse_args()

    ref = Tokenizer.from_file(args.tokenizer_json)
    special = [t.content for t in ref.get_added_tokens_decoder().values()]
    rng = random.Random(args.seed)
    texts = tokenizer_texts.hand_picked(special)
    n_hand = len(texts)
    every = tokenizer_texts.every_character()
    texts += every
    texts += [tokenizer_texts.random_text(rng, special) for _ in range(args.count)]
    with tempfile.TemporaryDirectory() as tmp:
        ours = encode_ours(build(tmp, args.archive), args.tokenizer_json, texts)

    bad_ids = bad_bytes = 0
    nfc = NFC()
    for i, (text, (ids, raw)) in enumerate(zip(texts, ours)):
        want = ref.encode(text, add_special_tokens=False).ids
        if ids != want:
            bad_ids += 1
            if bad_ids <= 20:
                print(f"text {i} {ascii(text[:200])}\n  want {want[:40]}\n  got  {ids[:40]}")
        # Around added tokens the text is normalised piece by piece.
        plain = not any(token in text for token in special)
        if ids == want and plain and raw.decode() != nfc.normalize_str(text):
            bad_bytes += 1
            if bad_bytes <= 5:
                print(f"text {i} {ascii(text[:200])}: the bytes of its ids are {raw[:200]!r}")
    print(f"{n_hand} hand-picked, {len(every)} of all characters, {args.count} random texts: "
          f"{bad_ids} with other ids, {bad_bytes} with other bytes")
    return 1 if bad_ids or bad_bytes else 0


if __name__ == "__main__":
    sys.exit(main())
