"""Compare resizing, tiles, patches and sizes with Pillow, torchvision and transformers.

    python tools/golden/pixels_check.py [--count 300] [--seed 1] [--program PATH] [--speed]

Sends random pictures of random sizes through tests/golden/pixels_cli.c and the reference, and
prints for each kind of work the largest and the mean difference. Not part of `make test`: it needs
Python, torch, torchvision, transformers and Pillow. Exit status 1 when a bound is broken.
"""
import argparse
import os
import subprocess
import sys
import time

import numpy as np
import torch
import torchvision.transforms.functional as tv_v1
from PIL import Image
from torchvision.transforms import InterpolationMode
from transformers import Qwen2VLImageProcessor, Qwen2VLVideoProcessor
from transformers.models.llava_onevision.image_processing_llava_onevision import (
    LlavaOnevisionImageProcessor)
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil)
from transformers.models.llava_onevision.video_processing_llava_onevision import (
    LlavaOnevisionVideoProcessor)
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PILLOW, FLOAT, TILES, SQUARE, PATCHES, SMART = range(6)
CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]


def picture(rng, height, width, kind):
    """noise, black-and-white noise (overshoots), or a soft picture with some edges."""
    if kind == 0:
        return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == 1:
        return (rng.integers(0, 2, (height, width, 3)) * 255).astype(np.uint8)
    y, x = np.mgrid[:height, :width].astype(np.float64)
    a, b, c = rng.uniform(5, 60, 3)
    soft = [127 + 100 * np.sin(x / a + y / b), 127 + 90 * np.cos(y / c), 60 + 120 * (x * y % 97 < 48)]
    noise = rng.normal(0, 4, (height, width, 3))
    return np.clip(np.stack(soft, -1) + noise, 0, 255).astype(np.uint8)


class Ours:
    """The program, one request at a time."""

    def __init__(self, program, repeats=1):
        self.p = subprocess.Popen([program, str(repeats)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)

    def ask(self, what, pixels, numbers, height=0, width=0):
        if pixels is not None:
            height, width = pixels.shape[:2]
        head = [what, height, width] + list(numbers)
        head += [0] * (8 - len(head))
        self.p.stdin.write(np.array(head, dtype="<i4").tobytes())
        if pixels is not None:
            self.p.stdin.write(np.ascontiguousarray(pixels).tobytes())
        self.p.stdin.flush()
        return np.frombuffer(self.p.stdout.read(32), dtype="<i4")

    def read(self, shape, dtype=np.uint8):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self.p.stdout.read(size), dtype=dtype).reshape(shape)

    def resize(self, what, pixels, height, width):
        assert self.ask(what, pixels, [height, width])[0] == 0
        return self.read((height, width, 3))


class Tally:
    """Differences of one kind of work, against its bounds."""

    def __init__(self, name, most, mean=None):
        self.name, self.most, self.mean = name, most, mean
        self.cases = self.cells = self.differ = 0
        self.largest = self.total = self.worst_mean = 0.0

    def add(self, ours, theirs, what):
        if ours.shape != theirs.shape:
            print(f"{self.name} {what}: shape {ours.shape}, reference {theirs.shape}")
            self.largest = np.inf
            return
        d = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        self.cases += 1
        self.cells += d.size
        self.differ += int((d > 0).sum())
        self.total += float(d.sum())
        if d.size >= 1000:
            self.worst_mean = max(self.worst_mean, float(d.mean()))
        if d.max() > self.most:
            print(f"{self.name} {what}: differs by {d.max():g}")
        self.largest = max(self.largest, float(d.max()))

    def report(self):
        ok = self.cases and self.largest <= self.most and (
            self.mean is None or self.worst_mean <= self.mean)
        print(f"{'ok  ' if ok else 'FAIL'} {self.name}: {self.cases} cases, {self.cells} values, "
              f"{self.differ} differ, largest {self.largest:g} (bound {self.most:g}), mean "
              f"{self.total / max(self.cells, 1):.3g}, worst mean of a case {self.worst_mean:.3g}")
        return ok


def random_sizes(rng, count):
    """Up, down, unchanged axes, one-pixel sides, extreme scales."""
    edge = [(1, 1, 1, 1), (1, 1, 40, 30), (1, 50, 20, 9), (50, 1, 9, 20), (2, 3, 100, 100),
            (300, 200, 1, 1), (3000, 2, 5, 5), (2, 5000, 7, 3), (5, 4, 700, 2), (64, 64, 64, 20),
            (64, 64, 20, 64), (64, 64, 64, 64), (1080, 1920, 384, 384), (720, 1280, 560, 1008),
            (480, 854, 384, 384), (384, 384, 385, 383), (1, 65535, 1, 3), (65535, 1, 3, 1),
            (1, 3, 1, 65535)]
    out = list(edge)
    while len(out) < count + len(edge):
        top = int(rng.choice([20, 100, 400, 900]))
        out.append(tuple(int(v) for v in rng.integers(1, top, 4)))
    return out


def check_resize(ours, rng, count):
    pillow = Tally("pixels, Pillow", 0)
    real = Tally("pixels, torchvision v1 (float)", 1, 0.02)
    for i, (h, w, oh, ow) in enumerate(random_sizes(rng, count)):
        a = picture(rng, h, w, i % 3)
        want = np.asarray(Image.fromarray(a).resize((ow, oh), Image.BICUBIC))
        pillow.add(ours.resize(PILLOW, a, oh, ow), want, (h, w, oh, ow))
        if ow == 1:
            continue  # torch 2.15 goes wrong there: two calls, one per side, give what we give
        t = torch.from_numpy(a).permute(2, 0, 1).contiguous()
        want = tv_v1.resize(t, [oh, ow], interpolation=InterpolationMode.BICUBIC, antialias=True)
        real.add(ours.resize(FLOAT, a, oh, ow), want.permute(1, 2, 0).numpy(), (h, w, oh, ow))
    return [pillow, real]


def check_views(ours, rng, count):
    """Tiles and squares against both of transformers' implementations."""
    tallies = {}
    plain = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3, do_rescale=False, do_normalize=False)
    refs = [("Pillow", LlavaOnevisionImageProcessorPil(**plain), 0),
            ("torch", LlavaOnevisionImageProcessor(**plain), 2)]
    for name, _, most in refs:
        tallies[name] = (Tally(f"tiles, transformers on {name}", most),
                         Tally(f"squares, transformers on {name}", most))
    for i in range(count):
        top = int(rng.choice([60, 500, 1500, 2500]))
        h, w = (int(v) for v in rng.integers(1, top, 2))
        if i < 3:
            h, w = [(1, 900), (2000, 3), (1, 1)][i]
        side = int(rng.choice([384, 336]))
        grid = [[side * a, side * b] for a in range(1, 7) for b in range(1, 7)]
        size = {"height": side, "width": side}
        soft = picture(rng, h, w, 2)
        for name, ref, _ in refs:
            # Where black and white overshoot, the order of the passes shows: see tiles.h.
            a = picture(rng, h, w, i % 3) if name == "Pillow" else soft
            head = ours.ask(TILES, a, [side, 6])
            got = ours.read((1 + int(head[1] * head[2]), side, side, 3))
            want = ref([Image.fromarray(a)], image_grid_pinpoints=grid, size=size,
                       return_tensors="np")["pixel_values"][0]
            tallies[name][0].add(got, want.transpose(0, 2, 3, 1), (h, w, side))
            ours.ask(SQUARE, a, [side])
            got = ours.read((side, side, 3))
            two = [[Image.fromarray(a), Image.fromarray(a)]]
            want = ref(two, size=size, return_tensors="np")["pixel_values"]
            tallies[name][1].add(got, want[0][0].transpose(1, 2, 0), (h, w, side))
    return [t for pair in tallies.values() for t in pair]


def add_relative(tally, got, want, what):
    """A difference of 1 is a millionth of the value (of 1e-3 where that is smaller)."""
    scale = 1e6 / np.maximum(np.abs(want.astype(np.float64)), 1e-3)
    tally.add(got * scale, want * scale, what)


def check_patches(ours, rng, count):
    video = Tally("patches of videos, millionths", 1)
    image = Tally("patches of pictures, millionths", 1)
    llava = Tally("patches of LLaVA frames, millionths", 1)
    qwen_video, qwen_image = Qwen2VLVideoProcessor(), Qwen2VLImageProcessor()
    siglip = LlavaOnevisionVideoProcessor(image_mean=CLIP_MEAN, image_std=CLIP_STD)
    for _ in range(count):
        h, w = (28 * int(v) for v in rng.integers(1, 9, 2))
        a = rng.integers(0, 256, (2, h, w, 3), dtype=np.uint8)
        t = torch.from_numpy(a).permute(0, 3, 1, 2)
        head = ours.ask(PATCHES, a.reshape(2 * h, w, 3), [14, 2, 2])
        got = ours.read((int(head[1]), int(head[2])), np.float32)
        want = qwen_video([t], do_resize=False, return_tensors="np")["pixel_values_videos"]
        add_relative(video, got, want, (h, w))

        head = ours.ask(PATCHES, np.concatenate([a[0], a[0]]), [14, 2, 2])
        got = ours.read((int(head[1]), int(head[2])), np.float32)
        want = qwen_image([Image.fromarray(a[0])], do_resize=False, return_tensors="np")
        add_relative(image, got, want["pixel_values"], (h, w))

        h, w = (int(v) for v in rng.integers(14, 200, 2))
        a = rng.integers(0, 256, (1, h, w, 3), dtype=np.uint8)
        head = ours.ask(PATCHES, a[0], [14, 1, 1])
        got = ours.read((int(head[1]), int(head[2])), np.float32)
        t = torch.from_numpy(a).permute(0, 3, 1, 2)
        pixels = siglip([t], do_resize=False, return_tensors="pt")["pixel_values_videos"][0]
        # What a convolution of stride 14 multiplies, in the order of its outputs.
        want = torch.nn.functional.unfold(pixels, 14, stride=14)[0].T.numpy()
        add_relative(llava, got, want, (h, w))
    return [video, image, llava]


def check_smart(ours, rng, count):
    tally = Tally("sizes, smart_resize", 0)
    for _ in range(count):
        h, w = (int(v) for v in np.exp(rng.uniform(0, np.log(8000), 2)))
        factor = int(rng.choice([28, 32, 14]))
        low = int(rng.choice([3136, 100352, 4 * factor * factor]))
        high = int(low * rng.uniform(1.05, 200))
        head = ours.ask(SMART, None, [factor, low, high], h, w)
        try:
            want = (0, *smart_resize(h, w, factor, low, high))
        except ValueError:
            want = (1, 0, 0)
        tally.add(np.array([bool(head[0]), *head[1:3]]), np.array(want), (h, w, factor, low, high))
    return [tally]


def speed(program):
    """Pillow's CPU time beside ours."""
    rng = np.random.default_rng(0)
    a = picture(rng, 1080, 1920, 2)
    pil, best = Image.fromarray(a), 1e9
    for _ in range(20):
        began = time.process_time()
        pil.resize((384, 384), Image.BICUBIC)
        best = min(best, time.process_time() - began)
    print(f"Pillow 1920 x 1080 to 384 x 384: {1e3 * best:.3f} ms")
    torch.set_num_threads(1)
    t, best = torch.from_numpy(a).permute(2, 0, 1).contiguous(), 1e9
    for _ in range(20):
        began = time.process_time()
        tv_v1.resize(t, [384, 384], interpolation=InterpolationMode.BICUBIC, antialias=True)
        best = min(best, time.process_time() - began)
    print(f"torchvision v1 1920 x 1080 to 384 x 384: {1e3 * best:.3f} ms")
    ours = Ours(program, 20)
    ours.resize(PILLOW, a, 384, 384)
    ours.resize(FLOAT, a, 384, 384)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--count", type=int, default=300)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--program", help="a built pixels_cli; else make builds one")
    ap.add_argument("--speed", action="store_true", help="only time one resizing")
    args = ap.parse_args()
    program = args.program
    if not program:
        subprocess.run(["make", "-s", "build/pixels_cli"], cwd=ROOT, check=True)
        program = os.path.join(ROOT, "build/pixels_cli")
    if args.speed:
        return speed(program)
    ours, rng = Ours(program), np.random.default_rng(args.seed)
    tallies = check_resize(ours, rng, args.count)
    tallies += check_views(ours, rng, max(args.count // 15, 3))
    tallies += check_patches(ours, rng, max(args.count // 15, 3))
    tallies += check_smart(ours, rng, 20 * args.count)
    return 0 if all([t.report() for t in tallies]) else 1


if __name__ == "__main__":
    sys.exit(main())
