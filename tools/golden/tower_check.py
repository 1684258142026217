"""Compare our vision towers with transformers at the widths of the real models.

    python tools/golden/tower_check.py [--archive LIBPREVUE.A] [--seed N] [llava qwen qwen2 qwen3 ...]
    python tools/golden/tower_check.py windows      # the table of tests/unit/test_windows.c

Tiny fixtures (make_vision_golden.py) hide what only long rows, heads of 72 and 80 or many patches
show. So this makes towers of one or two layers as wide as SigLIP so400m (projector to 896),
Qwen2.5-VL's (merger to 2048), Qwen2-VL's (merger to 3584) and that of Qwen3-VL 8B (mergers to 4096,
48 x 48 learned positions), with random weights and a decoder too small to matter, as Hugging
Face directories in a temporary folder; encodes random pixels with both; and prints the relative
error. Not part of `make test`: it needs Python.

The reference is transformers in F32 with the weights rounded to the stored type. In F32 no token may
be off by more than 1e-4 of the tokens' size. In BF16 and F16 we round activations as well, and so
does transformers when it runs in that type: its own error is the yardstick. Exit status 1 when a
bound is broken.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import torch
from transformers import (LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration,
                          Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration, Qwen3VLConfig,
                          Qwen3VLForConditionalGeneration)
from transformers.vision_utils import get_vision_window_index

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
F32_BOUND = 1e-4   # of the worst token
YARDSTICK = 1.25   # times transformers' own error in a 16-bit type

TEXT = dict(num_hidden_layers=1, intermediate_size=64, vocab_size=32, max_position_embeddings=128,
            rms_norm_eps=1e-6, rope_theta=1000000.0, bos_token_id=0, eos_token_id=1)


def build(out_dir, archive):
    """Compile tower_cli against the library's archive."""
    if not archive:
        subprocess.run(["make", "-s", "build/libprevue.a"], cwd=ROOT, check=True)
        archive = os.path.join(ROOT, "build/libprevue.a")
    libs = subprocess.run(["pkg-config", "--libs", "jansson", "libpcre2-8", "libutf8proc",
                           "libavformat", "libavcodec", "libswscale", "libavutil"],
                          stdout=subprocess.PIPE, check=True, text=True).stdout.split()
    out = os.path.join(out_dir, "tower_cli")
    subprocess.run(["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-Iinclude", "-Isrc",
                    "tests/golden/tower_cli.c", archive, *libs, "-lm", "-pthread", "-o", out],
                   cwd=ROOT, check=True)
    return out


def randomise(model, seed):
    """Weights that keep activations near 1, norms near 1, biases that are not zero."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            if p.dim() == 1:
                norm = "norm" in name or "ln_q" in name
                p.copy_(1 + 0.2 * noise if norm and name.endswith("weight") else 0.2 * noise)
            elif "position_embedding" in name or "pos_embed" in name:
                p.copy_(0.5 * noise)
            else:
                p.copy_(noise / p[0].numel() ** 0.5)


def make_llava(side):
    grid = [[384 * a, 384 * b] for a in range(1, 7) for b in range(1, 7)]
    config = LlavaOnevisionConfig(
        vision_config=dict(model_type="siglip_vision_model", hidden_size=1152, image_size=side,
                           patch_size=14, num_attention_heads=16, intermediate_size=4304,
                           num_hidden_layers=1, vision_use_head=False),
        text_config=dict(model_type="qwen2", hidden_size=896, num_attention_heads=14,
                         num_key_value_heads=2, tie_word_embeddings=True, **TEXT),
        image_token_index=2, video_token_index=3, image_grid_pinpoints=grid,
        vision_feature_layer=-1, vision_feature_select_strategy="full",
        vision_aspect_ratio="anyres_max_9", tie_word_embeddings=True)
    return LlavaOnevisionForConditionalGeneration(config)


def make_qwen():
    config = Qwen2_5_VLConfig(
        vision_config=dict(depth=2, hidden_size=1280, num_heads=16, intermediate_size=3420,
                           out_hidden_size=2048, patch_size=14, temporal_patch_size=2,
                           spatial_merge_size=2, window_size=112, fullatt_block_indexes=[1],
                           tokens_per_second=2, in_chans=3),
        text_config=dict(hidden_size=2048, num_attention_heads=16, num_key_value_heads=2,
                         rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]), **TEXT),
        image_token_id=2, video_token_id=3, vision_start_token_id=4, vision_end_token_id=5)
    return Qwen2_5_VLForConditionalGeneration(config)


MEDIA_IDS = dict(image_token_id=2, video_token_id=3, vision_start_token_id=4, vision_end_token_id=5)


def make_qwen2():
    config = Qwen2VLConfig(
        vision_config=dict(depth=2, embed_dim=1280, num_heads=16, mlp_ratio=4, hidden_size=3584,
                           patch_size=14, temporal_patch_size=2, spatial_merge_size=2, in_chans=3),
        text_config=dict(hidden_size=3584, num_attention_heads=28, num_key_value_heads=4,
                         rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]), **TEXT),
        **MEDIA_IDS)
    return Qwen2VLForConditionalGeneration(config)


def make_qwen3():
    config = Qwen3VLConfig(
        vision_config=dict(depth=2, hidden_size=1152, num_heads=16, intermediate_size=4304,
                           out_hidden_size=4096, patch_size=16, temporal_patch_size=2,
                           spatial_merge_size=2, num_position_embeddings=2304, in_channels=3,
                           deepstack_visual_indexes=[0]),
        text_config=dict(TEXT, num_hidden_layers=2, hidden_size=4096, num_attention_heads=32,
                         num_key_value_heads=8, head_dim=128,
                         rope_scaling=dict(rope_type="default", mrope_section=[24, 20, 20],
                                           mrope_interleaved=True)),
        tie_word_embeddings=False, **MEDIA_IDS)
    return Qwen3VLForConditionalGeneration(config)


def save(model, path, dtype):
    """The directory our loader reads; the model's own weights are rounded to dtype too."""
    model.to(TYPES[dtype]).save_pretrained(path)
    model.float()


def encode(model, dtype, run):
    """What transformers makes of it in F32, and in its own type."""
    with torch.no_grad():
        want = run(model, torch.float32).float()
        own = None
        if dtype != "f32":
            own = run(model.to(TYPES[dtype]), TYPES[dtype]).float()
            model.float()
    return want, own


def error(got, want):
    """Root mean square of the difference, and the worst token's, beside the tokens' size."""
    size = want.pow(2).mean().sqrt()
    diff = (got - want).pow(2)
    return (diff.mean().sqrt() / size).item(), (diff.mean(-1).max().sqrt() / size).item()


class Check:
    def __init__(self, program, folder):
        self.program, self.folder, self.bad = program, folder, 0

    def run(self, what, dtype, model_dir, patches, grid, pair, layout=()):
        """patches [n, row], grid (slices, h, w); pair: transformers in F32 and in its type."""
        source, result = (os.path.join(self.folder, f) for f in ("patches", "tokens"))
        want, own = pair
        patches.contiguous().numpy().tofile(source)
        subprocess.run([self.program, model_dir, source, *map(str, grid), result,
                        *map(str, layout)], check=True)
        got = torch.frombuffer(bytearray(open(result, "rb").read()), dtype=torch.float32)
        if got.numel() != want.numel():
            print(f"{what}: {got.numel()} numbers, not {want.numel()}")
            self.bad += 1
            return
        mean, worst = error(got.reshape(want.shape), want)
        text = f"{what:34} {dtype:5} rms {mean:.2e}  worst token {worst:.2e}"
        good = worst <= F32_BOUND
        if own is not None:
            own_mean, own_worst = error(own, want)
            good = mean <= YARDSTICK * own_mean
            text += f"  transformers in {dtype}: {own_mean:.2e} {own_worst:.2e}"
        print(text + ("" if good else "  TOO MUCH"))
        self.bad += not good


def cut_patches(pixels, patch, side):
    """[n, 3, H, W] -> [n * side * side, 3 * patch * patch]"""
    x = pixels[:, :, :side * patch, :side * patch]
    x = x.unfold(2, patch, patch).unfold(3, patch, patch)
    return x.permute(0, 2, 3, 1, 4, 5).reshape(-1, 3 * patch * patch)


def llava_features(model, pixels, dtype):
    tower = model.model.vision_tower(pixels.to(dtype), output_hidden_states=True)
    return model.model.multi_modal_projector(tower.hidden_states[-1])


def check_llava(check, dtype, seed):
    torch.manual_seed(seed)
    model = make_llava(384).eval()
    randomise(model, seed)
    folder = os.path.join(check.folder, f"llava-{dtype}")
    save(model, folder, dtype)
    height, width, rows, cols = 700, 1100, 2, 3  # a still picture, its tiles
    pixels = torch.randn(1 + rows * cols, 3, 384, 384)
    patches, grid = cut_patches(pixels, 14, 27), (len(pixels), 27, 27)

    def tower(m, t):
        return llava_features(m, pixels, t).reshape(-1, 896)

    def pooled(m, t):
        return m.model.apply_pooling(llava_features(m, pixels, t)).reshape(-1, 896)

    def still(size, views):
        def run(m, t):
            packed, _ = m.model.pack_image_features(
                [llava_features(m, pixels[:views], t)], torch.tensor([size]),
                image_newline=m.model.image_newline)
            return packed[0]
        return run

    check.run("SigLIP, 7 frames", dtype, folder, patches, grid, encode(model, dtype, tower))
    check.run("SigLIP, 7 frames pooled", dtype, folder, patches, grid,
              encode(model, dtype, pooled), ["pool"])
    check.run("SigLIP, picture of 2 x 3 tiles", dtype, folder, patches, grid,
              encode(model, dtype, still((height, width), 7)),
              ["stitch", height, width, rows, cols])


def check_shrunk(check, seed):
    """A picture of so many tiles that its tokens are shrunk; narrow, since only the layout counts."""
    torch.manual_seed(seed)
    model = make_llava(384).eval()
    randomise(model, seed)
    folder = os.path.join(check.folder, "llava-shrunk")
    save(model, folder, "f32")
    height, width, rows, cols = 1700, 1500, 5, 4
    pixels = torch.randn(1 + rows * cols, 3, 384, 384)

    def run(m, t):
        sizes = torch.tensor([[height, width]])
        parts = [llava_features(m, p, t) for p in pixels.split(3)]
        packed, _ = m.model.pack_image_features([torch.cat(parts)], sizes,
                                                image_newline=m.model.image_newline)
        return packed[0]

    check.run("SigLIP, picture of 5 x 4, shrunk", "f32", folder, cut_patches(pixels, 14, 27),
              (len(pixels), 27, 27), encode(model, "f32", run),
              ["stitch", height, width, rows, cols])


# What is checked: the model, its name, floats of a patch.
QWENS = dict(qwen=(make_qwen, "Qwen2.5-VL", 1176), qwen2=(make_qwen2, "Qwen2-VL", 1176),
             qwen3=(make_qwen3, "Qwen3-VL", 1536))
GRIDS = ((2, 26, 38), (3, 12, 22), (1, 52, 76), (5, 2, 4))


def check_qwen(check, which, dtype, seed):
    torch.manual_seed(seed)
    make, name, row = QWENS[which]
    model = make().eval()
    randomise(model, seed)
    folder = os.path.join(check.folder, f"{which}-{dtype}")
    save(model, folder, dtype)
    for grid in GRIDS:
        patches = torch.randn(grid[0] * grid[1] * grid[2], row)

        def tower(m, t):
            out = m.model.visual(patches.to(t), grid_thw=torch.tensor([grid]))
            return torch.cat([out.pooler_output, *getattr(out, "deepstack_features", [])], dim=1)

        what = name + ", %d slices of %d x %d" % grid
        check.run(what, dtype, folder, patches, grid, encode(model, dtype, tower))


def print_windows():
    """rows, cols, side, windows, FNV-1a of order and bounds in units."""
    for side in (4, 1, 3):
        for rows, cols in ((1, 1), (1, 5), (4, 4), (4, 5), (5, 4), (8, 8), (9, 3), (12, 21),
                           (20, 36), (7, 50), (33, 2), (16, 17)):
            order, bounds = get_vision_window_index(torch.tensor([[1, rows * 2, cols * 2]]), 2,
                                                    side * 2 * 14, 14)
            h = 0xcbf29ce484222325
            for v in order.tolist() + [b // 4 for b in bounds.tolist()]:
                for byte in v.to_bytes(4, "little"):
                    h = (h ^ byte) * 0x100000001b3 % 2**64
            print(f"{{ {rows}, {cols}, {side}, {len(bounds) - 1}, 0x{h:016x}u }},")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("what", nargs="*", default=["llava", *QWENS])
    ap.add_argument("--archive", help="a libprevue.a to use instead of building one")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--types", nargs="*", default=list(TYPES))
    args = ap.parse_args()
    if args.what == ["windows"]:
        print_windows()
        return 0
    with tempfile.TemporaryDirectory() as tmp:
        check = Check(build(tmp, args.archive), tmp)
        for dtype in args.types:
            if "llava" in args.what:
                check_llava(check, dtype, args.seed)
            for which in QWENS:
                if which in args.what:
                    check_qwen(check, which, dtype, args.seed)
        if "llava" in args.what and "f32" in args.types:
            check_shrunk(check, args.seed)
    return 1 if check.bad else 0


if __name__ == "__main__":
    sys.exit(main())
