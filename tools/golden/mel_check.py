"""Compare log-mel features with transformers' WhisperFeatureExtractor, every value of them.

    python tools/golden/mel_check.py [--count 20] [--seed 1] [--program PATH] [--speed]

Sends sounds of random lengths (noise, tones, clicks, speech-like bursts) through tests/golden/mel_cli.c
and the reference, by numpy and by torch, and prints the largest differences. With --speed it also
times a whole chunk on 1 and 2 threads. Not part of `make test`: it needs Python, torch and
transformers. Exit status 1 when a difference from numpy's features exceeds 1e-4.
"""
import argparse
import os
import subprocess
import sys
import time

import numpy as np
import torch
from transformers import WhisperFeatureExtractor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHUNK = 480000


def sound(rng, kind, n):
    t = np.arange(n) / 16000
    if kind == 0:
        return rng.normal(0, 10 ** rng.uniform(-4, 0), n)
    if kind == 1:
        return sum(10 ** rng.uniform(-5, 0) * np.sin(2 * np.pi * rng.uniform(20, 7900) * t + rng.uniform(0, 6))
                   for _ in range(5))
    if kind == 2:
        return (rng.random(n) < 1e-3) * rng.normal(0, 1, n)
    bursts = np.repeat(rng.random(n // 4000 + 1) < 0.5, 4000)[:n]
    return bursts * np.sin(2 * np.pi * 150 * t + 3 * np.sin(2 * np.pi * 5 * t)) * rng.normal(0.5, 0.1, n)


def ours(program, x, threads=1, repeats=1):
    r = subprocess.run([program, str(threads), str(repeats)], input=x.astype(np.float32).tobytes(),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    return np.frombuffer(r.stdout, np.float32).reshape(128, 3000), r.stderr.decode()


def padded(x):
    return np.pad(x.astype(np.float32), (0, CHUNK - len(x)))[None]


def fastest(f, repeats=10):
    best = 1e9
    for _ in range(repeats):
        began = time.perf_counter()
        f()
        best = min(best, time.perf_counter() - began)
    return best


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--count", type=int, default=20)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--program", help="a built mel_cli; else make builds one")
    ap.add_argument("--speed", action="store_true")
    args = ap.parse_args()
    program = args.program or os.path.join(ROOT, "build", "mel_cli")
    if not args.program:
        subprocess.run(["make", "-s", "-C", ROOT, "build/mel_cli"], check=True)
    rng = np.random.default_rng(args.seed)
    extractor = WhisperFeatureExtractor(feature_size=128)
    worst, worst_torch = 0, 0
    for i in range(args.count):
        n = CHUNK if i % 5 == 0 else int(rng.integers(1, CHUNK))
        x = sound(rng, i % 4, n).astype(np.float32)
        got, _ = ours(program, x)
        worst = max(worst, np.abs(got - extractor._np_extract_fbank_features(padded(x), "cpu")[0]).max())
        worst_torch = max(worst_torch, np.abs(got - extractor._torch_extract_fbank_features(padded(x), "cpu")[0]).max())
    print(f"{args.count} sounds: differs by at most {worst:.2e} from numpy's features, {worst_torch:.2e} from torch's")
    if args.speed:
        x = sound(rng, 3, CHUNK).astype(np.float32)
        for threads in 1, 2:
            torch.set_num_threads(threads)
            print(f"{threads} thread(s), a chunk of 30 s: ours {float(ours(program, x, threads, 20)[1]) * 1e3:.1f} ms, "
                  f"torch {fastest(lambda: extractor._torch_extract_fbank_features(padded(x), 'cpu')) * 1e3:.1f} ms, "
                  f"numpy {fastest(lambda: extractor._np_extract_fbank_features(padded(x), 'cpu'), 2) * 1e3:.0f} ms")
    return int(worst > 1e-4)


if __name__ == "__main__":
    sys.exit(main())
