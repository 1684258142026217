#!/usr/bin/env python3
"""Writes trained weights of the nano family as a Hugging Face directory.

The trainer keeps its own names and a few shapes of its own (train.model); this file alone knows how
transformers' LlavaOnevision classes, and so prevue, call the same tensors, and what must lie beside
them: configuration, preprocessors, tokenizer, chat template. Names are those of the hub, which
every version of the library reads. A checkpoint that is not exactly the model asked for is refused.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from train.model import GRID, IMAGE, PATCH, SHAPES, Nano  # noqa: E402

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
ASPECT = "anyres_max_4"
PINPOINTS = [[h * IMAGE, w * IMAGE] for h in (1, 2) for w in (1, 2)]
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.json",
                   "chat_template.jinja"]

# Names of train.model -> names of the hub; {0} is the number of a block.
TOWER = "vision_tower.vision_model."
NAMES = [
    (r"tower\.(patch_embedding\.\w+)", TOWER + "embeddings.{0}"),
    (r"tower\.(position_embedding)", TOWER + "embeddings.{0}.weight"),
    (r"tower\.blocks\.(\d+)\.(layer_norm.*)", TOWER + "encoder.layers.{0}.{1}"),
    (r"tower\.blocks\.(\d+)\.(fc.*)", TOWER + "encoder.layers.{0}.mlp.{1}"),
    (r"tower\.blocks\.(\d+)\.(\w+_proj.*)", TOWER + "encoder.layers.{0}.self_attn.{1}"),
    (r"(linear_[12]\..*)", "multi_modal_projector.{0}"),
    (r"newline", "image_newline"),
    (r"embed\.weight", "language_model.model.embed_tokens.weight"),
    (r"blocks\.(\d+)\.(\w+layernorm\.weight)", "language_model.model.layers.{0}.{1}"),
    (r"blocks\.(\d+)\.((?:gate|up|down)_proj\.weight)", "language_model.model.layers.{0}.mlp.{1}"),
    (r"blocks\.(\d+)\.([qkvo]_proj\..*)", "language_model.model.layers.{0}.self_attn.{1}"),
    (r"norm\.weight", "language_model.model.norm.weight"),
]


def stop(text):
    sys.exit(f"export_hf: {text}")


# ---- weights ----

def some(names):
    """A few of many names, for a message."""
    names = sorted(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def read_checkpoint(path, model):
    """The state of `model`: every tensor of it, nothing else, finite, in F32."""
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as e:
        stop(f"{path}: cannot be read as safetensors: {e}")
    with torch.device("meta"):
        expected = {k: tuple(v.shape) for k, v in Nano(model).state_dict().items()}
    missing, unknown = expected.keys() - state.keys(), state.keys() - expected.keys()
    if missing or unknown:
        parts = [f"{some(names)} {word}" for names, word in
                 ((missing, "missing"), (unknown, "unknown")) if names]
        stop(f"{path}: not the weights of {model}: {'; '.join(parts)}")
    for name, shape in expected.items():
        if tuple(state[name].shape) != shape:
            stop(f"{path}: {name} is {list(state[name].shape)}, {model} has {list(shape)}")
        if not state[name].isfinite().all():
            stop(f"{path}: {name} holds numbers that are not finite")
    return {k: v.float() for k, v in state.items()}


def hub_name(name):
    for pattern, target in NAMES:
        m = re.fullmatch(pattern, name)
        if m:
            return target.format(*m.groups())
    raise KeyError(name)  # a module that train.model gained and this file does not know


def hub_tensors(state, shape):
    """The state under the hub's names."""
    out = {hub_name(k): v for k, v in state.items()}
    assert len(out) == len(state)
    h = shape.tower_hidden
    patch = TOWER + "embeddings.patch_embedding.weight"
    out[patch] = out[patch].view(h, 3, PATCH, PATCH)
    # The class has this layer and the decoder reads the state before it: it was never trained.
    out[TOWER + "post_layernorm.weight"] = torch.ones(h)
    out[TOWER + "post_layernorm.bias"] = torch.zeros(h)
    return out


def write_weights(tensors, kind, path):
    for name, t in tensors.items():
        if t.abs().max() > torch.finfo(TYPES[kind]).max:
            stop(f"{name} has numbers too large for {kind}")
    save_file({k: t.to(TYPES[kind]).contiguous() for k, t in sorted(tensors.items())}, path,
              metadata={"format": "pt"})


# ---- the files beside them ----

def special_ids(folder, vocab):
    """Ids of the tokens that the configuration names, from tokenizer.json."""
    path = folder / "tokenizer.json"
    try:
        tok = json.loads(path.read_text(encoding="utf-8"))
        ids = {t["content"]: t["id"] for t in tok["added_tokens"]}
        largest = max([*tok["model"]["vocab"].values(), *ids.values()])
    except (OSError, ValueError, KeyError, TypeError) as e:
        stop(f"{path}: cannot be read as a tokenizer: {e!r}")
    if missing := [t for t in TOKENS if t not in ids]:
        stop(f"{path}: {', '.join(missing)} missing among the special tokens")
    if largest >= vocab:
        stop(f"{path}: has ids up to {largest}, the model {vocab} rows")
    return ids


def text_config(s, ids, kind):
    assert s.heads * s.head_dim == s.hidden, "Qwen2's head size is hidden / heads"
    return dict(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", attention_dropout=0.0,
        bos_token_id=ids["<|endoftext|>"], eos_token_id=ids["<|im_end|>"], hidden_act="silu",
        hidden_size=s.hidden, intermediate_size=s.ffn, max_position_embeddings=s.max_positions,
        max_window_layers=s.layers, num_attention_heads=s.heads, num_hidden_layers=s.layers,
        num_key_value_heads=s.kv_heads, rms_norm_eps=s.norm_eps, rope_theta=s.rope_theta,
        sliding_window=s.max_positions, tie_word_embeddings=True, torch_dtype=kind,
        use_sliding_window=False, vocab_size=s.vocab)


def vision_config(s):
    return dict(
        model_type="siglip_vision_model", hidden_act="gelu_pytorch_tanh",
        hidden_size=s.tower_hidden, image_size=IMAGE, intermediate_size=s.tower_ffn,
        layer_norm_eps=1e-6, num_attention_heads=s.tower_heads, num_channels=3,
        num_hidden_layers=s.tower_layers, patch_size=PATCH, vision_use_head=False)


def side_files(s, ids, kind):
    """Content of the JSON files by name, as llava-hf's directories spell it."""
    half = [0.5, 0.5, 0.5]
    pixels = dict(do_convert_rgb=True, do_normalize=True, do_rescale=True, do_resize=True,
                  image_mean=half, image_std=half, resample=3, rescale_factor=1 / 255,
                  size=dict(height=IMAGE, width=IMAGE), processor_class="LlavaOnevisionProcessor")
    kind = str(TYPES[kind]).removeprefix("torch.")
    return {
        "config.json": dict(
            architectures=["LlavaOnevisionForConditionalGeneration"],
            model_type="llava_onevision", ignore_index=-100, image_grid_pinpoints=PINPOINTS,
            image_token_index=ids["<image>"], video_token_index=ids["<video>"],
            projector_hidden_act="gelu", text_config=text_config(s, ids, kind),
            tie_word_embeddings=True, torch_dtype=kind, use_image_newline_parameter=True,
            vision_aspect_ratio=ASPECT, vision_config=vision_config(s), vision_feature_layer=-1,
            vision_feature_select_strategy="full"),
        "generation_config.json": dict(
            bos_token_id=ids["<|endoftext|>"], do_sample=False, eos_token_id=ids["<|im_end|>"],
            pad_token_id=ids["<|endoftext|>"]),
        "preprocessor_config.json": dict(
            image_processor_type="LlavaOnevisionImageProcessor", image_grid_pinpoints=PINPOINTS,
            **pixels),
        "video_preprocessor_config.json": dict(
            video_processor_type="LlavaOnevisionVideoProcessor", do_sample_frames=False, **pixels),
        "processor_config.json": dict(
            image_token="<image>", num_image_tokens=GRID * GRID,
            processor_class="LlavaOnevisionProcessor", video_token="<video>",
            vision_aspect_ratio=ASPECT, vision_feature_select_strategy="full"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="safetensors file of the model's state")
    parser.add_argument("--model", required=True, choices=SHAPES)
    parser.add_argument("--tokenizer", required=True, type=Path, metavar="DIR",
                        help="what lab/train/tokenizer.py wrote")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="OUTDIR")
    parser.add_argument("--type", default="f32", choices=TYPES, help="default: f32")
    args = parser.parse_args()

    shape = SHAPES[args.model]
    ids = special_ids(args.tokenizer, shape.vocab)
    for name in TOKENIZER_FILES:
        if not (args.tokenizer / name).is_file():
            stop(f"{args.tokenizer}: has no {name}")
    tensors = hub_tensors(read_checkpoint(args.checkpoint, args.model), shape)
    args.output.mkdir(parents=True, exist_ok=True)
    write_weights(tensors, args.type, args.output / "model.safetensors")
    for name, value in side_files(shape, ids, args.type).items():
        (args.output / name).write_text(json.dumps(value, indent=1) + "\n")
    for name in TOKENIZER_FILES:
        shutil.copyfile(args.tokenizer / name, args.output / name)
    n = sum(t.numel() for t in tensors.values())
    print(f"{args.output}: {args.model}, {n} parameters in {len(tensors)} tensors, {args.type}")


if __name__ == "__main__":
    main()
