"""Write tests/golden/mel/mel.vec: what transformers' WhisperFeatureExtractor makes of sounds.

    python tools/golden/mel_golden.py [OUT_DIR]

The sounds come from a formula (tests/golden/signals.h has the same), so only features are stored, and
of these some frames of each sound and the mean of each band. Format: see README.md. Entries:

    sounds          i  n 2     kind, samples
    frames          i  n m     which frames are stored of each
    features.K      f  m 128   these frames of row K of sounds
    means.K         f  1 128   mean over all 3000 frames
"""
import os
import sys

import numpy as np
from transformers import WhisperFeatureExtractor

NOISE, TONE, SWEEP, CLICKS, SILENCE = range(5)
CHUNK = 480000
SOUNDS = [(NOISE, CHUNK), (TONE, CHUNK), (SWEEP, 112345), (CLICKS, 479900), (CLICKS, 1), (SILENCE, 16000)]
FRAMES = [[0, 1, 1234, 2998, 2999], [0, 7, 1500, 2998, 2999], [0, 3, 350, 702, 703], [0, 12, 100, 2998, 2999],
          [0, 1, 2, 3, 4], [0, 50, 100, 101, 2999]]


def signal(kind, n):
    """signal_fill of tests/golden/signals.h."""
    i = np.arange(n, dtype=np.uint64)
    t, turn = i / 16000.0, 6.283185307179586
    if kind == NOISE:
        x = i * 2654435761 % 2**32
        x = (x ^ (x >> np.uint64(15))) * 0x2C1B3C6D % 2**32
        x = x ^ (x >> np.uint64(12))
        return ((x >> np.uint64(8)).astype(np.float32) / np.float32(2**24) - np.float32(0.5)).astype(np.float32)
    if kind == TONE:
        return (0.8 * np.sin(turn * 440 * t)).astype(np.float32)
    if kind == SWEEP:
        return (0.5 * np.sin(turn * (100 * t + 500 * t * t))).astype(np.float32)
    if kind == CLICKS:
        return np.where(i % 1000 == 0, 1.0 / (1 + i // 1000), 1e-5 * np.sin(turn * 3000 * t)).astype(np.float32)
    return np.zeros(n, np.float32)


def features(extractor, samples):
    """By numpy, in double precision as far as it goes; torch's path rounds to single earlier."""
    padded = np.zeros((1, CHUNK), np.float32)
    padded[0, :len(samples)] = samples
    return np.asarray(extractor._np_extract_fbank_features(padded, "cpu"))[0]


def write(f, name, kind, matrix):
    f.write(f"{name} {kind} {len(matrix)} {len(matrix[0])}\n")
    for row in matrix:
        f.write(" ".join(f"{x:.6f}" if kind == "f" else str(int(x)) for x in row) + "\n")


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "tests", "golden", "mel")
    extractor = WhisperFeatureExtractor(feature_size=128)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "mel.vec"), "w") as f:
        f.write("# tools/golden/mel_golden.py: log-mel features of transformers' WhisperFeatureExtractor\n")
        write(f, "sounds", "i", SOUNDS)
        write(f, "frames", "i", FRAMES)
        for k, (kind, n) in enumerate(SOUNDS):
            x = signal(kind, n)
            got = features(extractor, x)
            called = np.asarray(extractor(x, sampling_rate=16000, return_tensors="np")["input_features"])[0]
            print(f"sound {k}: the extractor's own call differs by {np.abs(got - called).max():.2e}")
            assert got.shape == (128, 3000) and called.shape == got.shape
            write(f, f"features.{k}", "f", got[:, FRAMES[k]].T)
            write(f, f"means.{k}", "f", [got.astype(np.float64).mean(axis=1)])


if __name__ == "__main__":
    main()
