"""Write tests/golden/pixels/pixels.vec: what Pillow, torchvision and transformers make of pictures.

    python tools/golden/pixels_golden.py [OUT_DIR]

The pictures themselves come from a formula (tests/golden/pixels.h has the same), so only results are
stored: small ones whole, large ones as a checksum. Format: see README.md. Entries:

    resize.pillow   i  n 7     kind, seed, height, width, new height, new width, checksum
    pillow.K        i  h w*3   whole result of row K of resize.pillow
    resize.float    i  n 6     the same without checksum: torchvision v1, on float tensors
    float.K         i  h w*3   whole result of row K of resize.float
    smart           i  n 7     height, width, factor, min, max, new height, new width (-1: an error)
    tiling          i  n 6     height, width, rows, cols, inner height and width; side 384, 6 x 6
    views           i  n 9     kind, seed, height, width, side, rows, cols, checksum of the views,
                               checksum of the square (mean 0.5); grid 4 x 3
    fill            i  2 3     int(255 * mean) of two means: CLIP's, and 0.2 0.6 0.8
    patches.video   f  rows .  two frames (seeds 1 and 2) of 8 x 16, patch 4, CLIP's mean and std
    patches.image   f  rows .  one (seed 3), used twice
    patches.llava   f  rows .  one (seed 4) of 9 x 15, patch 4, no merging: what Conv2d multiplies
"""
import os
import random
import sys

import numpy as np
import torch
import torchvision.transforms.functional as tv_v1
from PIL import Image
from torchvision.transforms import InterpolationMode
from transformers import Qwen2VLImageProcessor, Qwen2VLVideoProcessor
from transformers.image_processing_utils import get_patch_output_size, select_best_resolution
from transformers.image_utils import ChannelDimension
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil)
from transformers.models.llava_onevision.video_processing_llava_onevision import (
    LlavaOnevisionVideoProcessor)
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

NOISE, HARD, SOFT = range(3)
# Kind, height, width, new height, new width. The first ones are stored whole.
WHOLE = [(HARD, 13, 17, 7, 9), (NOISE, 8, 11, 19, 23), (SOFT, 40, 12, 10, 10), (HARD, 30, 9, 11, 8),
         (NOISE, 1, 1, 3, 5), (HARD, 1, 20, 6, 4), (SOFT, 25, 1, 4, 3), (NOISE, 9, 16, 9, 5),
         (HARD, 16, 9, 5, 9), (SOFT, 100, 150, 12, 12)]
LARGE = [(SOFT, 1080, 1920, 384, 384), (HARD, 480, 854, 384, 384), (NOISE, 360, 200, 84, 112),
         (HARD, 720, 1280, 140, 252), (SOFT, 64, 48, 600, 500), (NOISE, 3000, 2, 3, 9),
         (NOISE, 2, 5000, 9, 1), (HARD, 1, 20000, 2, 3), (HARD, 20000, 1, 3, 2), (NOISE, 1, 2, 1, 9000),
         # Around the point where Pillow changes the order of its passes.
         (HARD, 100, 90, 80, 80), (HARD, 101, 90, 80, 80), (HARD, 99, 90, 80, 80),
         (HARD, 60, 50, 59, 70), (HARD, 60, 50, 61, 70), (HARD, 60, 50, 60, 49)]


def make(kind, seed, height, width):
    """pixels_make of tests/golden/pixels.h."""
    i = np.arange(height * width * 3, dtype=np.uint64)
    x = (i + seed * 0x9E3779B9) * 2654435761 % 2**32
    x = (x ^ (x >> np.uint64(15))) * 0x2C1B3C6D % 2**32
    b = ((x ^ (x >> np.uint64(12))) >> np.uint64(24)).astype(np.int64).reshape(height, width, 3)
    if kind == NOISE:
        return b.astype(np.uint8)
    if kind == HARD:
        return (b // 128 * 255).astype(np.uint8)
    y, x, c = np.ogrid[:height, :width, :3]
    slope = (x * (c + 2) + y * (4 - c)) % 510
    slope = np.where(slope > 255, 510 - slope, slope) + b // 32 - 4
    return np.clip(slope, 0, 255).astype(np.uint8)


def checksum(pixels):
    h = 2166136261
    for v in np.ascontiguousarray(pixels).tobytes():
        h = (h ^ v) * 16777619 & 0xFFFFFFFF
    return h - 2**32 if h >= 2**31 else h


def pillow(a, height, width):
    return np.asarray(Image.fromarray(a).resize((width, height), Image.BICUBIC))


def torch_float(a, height, width):
    t = torch.from_numpy(a).permute(2, 0, 1).contiguous()
    t = tv_v1.resize(t, [height, width], interpolation=InterpolationMode.BICUBIC, antialias=True)
    return t.permute(1, 2, 0).numpy()


class Writer:
    def __init__(self, path):
        self.f = open(path, "w")
        self.f.write("# tools/golden/pixels_golden.py\n")

    def put(self, name, rows, kind="i"):
        rows = np.asarray(rows)
        self.f.write(f"{name} {kind} {rows.shape[0]} {rows.shape[1]}\n")
        for row in rows:
            self.f.write(" ".join(f"{v:.9g}" if kind == "f" else str(int(v)) for v in row) + "\n")


def put_resize(out):
    rng, rows = random.Random(3), []
    cases = WHOLE + LARGE
    cases += [(rng.randrange(3), *(rng.randint(1, 120) for _ in range(4))) for _ in range(60)]
    for seed, (kind, h, w, oh, ow) in enumerate(cases):
        got = pillow(make(kind, seed, h, w), oh, ow)
        rows.append((kind, seed, h, w, oh, ow, checksum(got)))
        if seed < len(WHOLE):
            out.put(f"pillow.{seed}", got.reshape(oh, -1))
    out.put("resize.pillow", rows)
    rows = []
    cases = WHOLE + [(SOFT, 270, 480, 12, 24), (HARD, 90, 160, 20, 30), (NOISE, 5, 7, 25, 35)]
    for seed, (kind, h, w, oh, ow) in enumerate(cases):
        rows.append((kind, seed, h, w, oh, ow))
        out.put(f"float.{seed}", torch_float(make(kind, seed, h, w), oh, ow).reshape(oh, -1))
    out.put("resize.float", rows)


def put_smart(out):
    rng, rows = random.Random(4), []
    cases = [(720, 1280, 28, 100352, 602112), (720, 1280, 28, 3136, 200704), (14, 14, 28, 3136, 10**6),
             (10, 1000, 28, 3136, 12845056), (42, 70, 28, 1, 10**6), (70, 98, 28, 1, 10**6),
             (200, 1, 28, 3136, 10**6), (201, 1, 28, 3136, 10**6), (4000, 20, 28, 3136, 50176)]
    while len(cases) < 300:
        factor = rng.choice([28, 28, 32])
        low = rng.choice([3136, 100352, 4 * factor * factor])
        h, w = (int(2 ** rng.uniform(1, 13)) for _ in range(2))
        if rng.random() < 0.3:  # halves, where rounding is to the even one
            h, w = (factor * rng.randint(0, 60) + factor // 2 for _ in range(2))
        cases.append((h, w, factor, low, int(low * rng.uniform(1.05, 100))))
    for h, w, factor, low, high in cases:
        try:
            size = smart_resize(h, w, factor, low, high)
        except ValueError:
            size = (-1, -1)
        rows.append((h, w, factor, low, high, *size))
    out.put("smart", rows)


def grid(side, rows, cols):
    return [[side * a, side * b] for a in range(1, rows + 1) for b in range(1, cols + 1)]


def tiling(height, width, resolutions, side):
    best = select_best_resolution((height, width), resolutions)
    shape = np.zeros((3, height, width), dtype=np.uint8)
    inner = get_patch_output_size(shape, best, ChannelDimension.FIRST)
    return (best[0] // side, best[1] // side, *inner)


def put_tiles(out):
    rng, rows = random.Random(5), []
    sizes = [(384, 384), (1, 1), (1, 5000), (3000, 2), (1080, 1920), (768, 1152), (769, 1151)]
    sizes += [tuple(int(2 ** rng.uniform(3, 12)) for _ in range(2)) for _ in range(120)]
    for h, w in sizes:
        rows.append((h, w, *tiling(h, w, grid(384, 6, 6), 384)))
    out.put("tiling", rows)

    rows, ref = [], LlavaOnevisionImageProcessorPil(
        image_mean=[0.5] * 3, image_std=[0.5] * 3, do_rescale=False, do_normalize=False)
    sizes = [(32, 32), (1, 40), (70, 2), (33, 31), (96, 128), (20, 90)]
    sizes += [tuple(rng.randint(4, 150) for _ in range(2)) for _ in range(14)]
    for seed, (h, w) in enumerate(sizes):
        side, kind = rng.choice([32, 27]), seed % 3
        a, size = make(kind, seed, h, w), {"height": side, "width": side}
        views = ref([Image.fromarray(a)], size=size, image_grid_pinpoints=grid(side, 4, 3),
                    return_tensors="np")["pixel_values"][0].transpose(0, 2, 3, 1)
        two = ref([[Image.fromarray(a), Image.fromarray(a)]], size=size, return_tensors="np")
        square = two["pixel_values"][0][0].transpose(1, 2, 0)
        t = tiling(h, w, grid(side, 4, 3), side)
        assert views.shape == (1 + t[0] * t[1], side, side, 3) and views.dtype == np.uint8
        rows.append((kind, seed, h, w, side, t[0], t[1], checksum(views), checksum(square)))
    out.put("views", rows)
    means = [[0.48145466, 0.4578275, 0.40821073], [0.2, 0.6, 0.8]]
    out.put("fill", [[int(x * 255) for x in mean] for mean in means])


def put_patches(out):
    sizes = dict(patch_size=4, temporal_patch_size=2, merge_size=2, do_resize=False)
    two = np.stack([make(NOISE, 1, 8, 16), make(NOISE, 2, 8, 16)])
    got = Qwen2VLVideoProcessor(**sizes)([torch.from_numpy(two).permute(0, 3, 1, 2)],
                                         return_tensors="np")
    out.put("patches.video", got["pixel_values_videos"], "f")
    got = Qwen2VLImageProcessor(**sizes)([Image.fromarray(make(NOISE, 3, 8, 16))],
                                         return_tensors="np")
    out.put("patches.image", got["pixel_values"], "f")
    one = torch.from_numpy(make(NOISE, 4, 9, 15)).permute(2, 0, 1)[None]
    got = LlavaOnevisionVideoProcessor(do_resize=False)([one], return_tensors="pt")
    pixels = got["pixel_values_videos"][0]
    out.put("patches.llava", torch.nn.functional.unfold(pixels, 4, stride=4)[0].T.numpy(), "f")


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "tests/golden/pixels")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "pixels.vec")
    out = Writer(path)
    put_resize(out)
    put_smart(out)
    put_tiles(out)
    put_patches(out)
    out.f.close()
    print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
