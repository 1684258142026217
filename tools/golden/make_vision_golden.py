#!/usr/bin/env python3
"""Writes tests/golden/llava_onevision and tests/golden/qwen2_5_vl_video: tiny random models with a
vision tower, and what transformers makes of pictures and videos with them.

Each model is a whole Hugging Face directory: config.json, weights, a tokenizer of some 300 tokens
with the family's special tokens and chat template, the preprocessors' files. Beside it lies one
text file per case (format: README.md beside this script), which follows a prompt from pixels to
greedy ids. Pixels are not stored: both sides make them by one formula (`pixels` below).

Everything is computed in F32 with eager attention from weights rounded to the stored type. Pictures
and prompts go through transformers' own processors and chat templates. The words of the questions
are searched: of N_CANDIDATES the ones whose greedy answer has the widest smallest margin, so that
rounding in another engine does not decide it.
"""

import argparse
import json
import math
import os
import random
import shutil

import numpy as np
import PIL.Image
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers
from torchvision.transforms import InterpolationMode, functional
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
from transformers.video_utils import VideoMetadata

from make_golden import VecWriter, longest_run, margin, write_shard
from tokenizer_golden import SPLIT

N_NEW = 16
N_CANDIDATES = 96
MIN_DISTINCT = 8  # different ids in a greedy answer
MAX_RUN = 4       # times one id may follow itself
MIN_MARGIN = 0.01
N_MERGES = 36
SIDE = 74  # LLaVA: 5 patches of 14 and 4 pixels that nobody reads

WORDS = ("what who where when how is does the a red ball dog man car moves falls walks left right "
         "first last then after before behind room street tell describe count name").split()

LLAVA_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{# Render all images first #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>' }}{% endfor %}"
    "{# Render all video then #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'video') %}"
    "{{ '<video>' }}{% endfor %}"
    "{# Render all text next #}"
    "{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ '\\n' + content['text'] }}{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ '\\n' + content['text'] }}{% endgeneration %}{% endfor %}{% endif %}"
    "{{'<|im_end|>'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

QWEN_TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}<|im_end|>\n{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}"
    "<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in content %}"
    "{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

QWEN_CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>",
                "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
LLAVA_CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]


def video(seed, frames, height, width, fps=2.0):
    return dict(video=1, seed=seed, frames=frames, height=height, width=width, fps=fps)


def image(seed, height, width):
    return dict(video=0, seed=seed, frames=1, height=height, width=width, fps=0.0)


# ---- the two models ----

def text_config(vocab, hidden, heads, kv_heads, tied):
    return dict(hidden_size=hidden, num_hidden_layers=2, num_attention_heads=heads,
                num_key_value_heads=kv_heads, intermediate_size=96, vocab_size=vocab,
                max_position_embeddings=1024, rms_norm_eps=1e-6, rope_theta=1000000.0,
                tie_word_embeddings=tied, hidden_act="silu", use_sliding_window=False,
                sliding_window=1024, max_window_layers=2)


PINPOINTS = [[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE], [SIDE, 3 * SIDE]]


def llava_files(ids, vocab):
    """config.json and the others as llava-hf's directories spell them."""
    half = [0.5, 0.5, 0.5]
    pixels_of = dict(do_convert_rgb=True, do_normalize=True, do_rescale=True, do_resize=True,
                     image_mean=half, image_std=half, resample=3,
                     rescale_factor=0.00392156862745098, size=dict(height=SIDE, width=SIDE),
                     processor_class="LlavaOnevisionProcessor")
    return {
        "config.json": dict(
            architectures=["LlavaOnevisionForConditionalGeneration"],
            model_type="llava_onevision", ignore_index=-100, image_grid_pinpoints=PINPOINTS,
            image_token_index=ids["<image>"], video_token_index=ids["<video>"],
            projector_hidden_act="gelu", tie_word_embeddings=True,
            text_config=dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"],
                             bos_token_id=ids["<|endoftext|>"], eos_token_id=ids["<|im_end|>"],
                             torch_dtype="float16", **text_config(vocab, 64, 4, 2, True)),
            use_image_newline_parameter=True, vision_aspect_ratio="anyres_max_2",
            vision_config=dict(model_type="siglip_vision_model", hidden_size=48, image_size=SIDE,
                               intermediate_size=76, num_attention_heads=4, num_hidden_layers=3,
                               patch_size=14, vision_use_head=False),
            vision_feature_layer=-1, vision_feature_select_strategy="full",
            torch_dtype="float16"),
        "preprocessor_config.json": dict(
            image_processor_type="LlavaOnevisionImageProcessor", image_grid_pinpoints=PINPOINTS,
            **pixels_of),
        "video_preprocessor_config.json": dict(
            video_processor_type="LlavaOnevisionVideoProcessor", **pixels_of),
        "processor_config.json": dict(
            image_token="<image>", num_image_tokens=25, processor_class="LlavaOnevisionProcessor",
            video_token="<video>", vision_aspect_ratio="anyres_max_2",
            vision_feature_select_strategy="full"),
    }


def qwen_files(ids, vocab):
    """The same as Qwen's directories spell it: text keys on top, no nested text_config."""
    pixels_of = dict(min_pixels=784, max_pixels=12845056, patch_size=14, temporal_patch_size=2,
                     merge_size=2, image_mean=[0.48145466, 0.4578275, 0.40821073],
                     image_std=[0.26862954, 0.26130258, 0.27577711],
                     processor_class="Qwen2_5_VLProcessor")
    return {
        "config.json": dict(
            architectures=["Qwen2_5_VLForConditionalGeneration"], model_type="qwen2_5_vl",
            attention_dropout=0.0, bos_token_id=ids["<|endoftext|>"],
            eos_token_id=ids["<|im_end|>"], vision_start_token_id=ids["<|vision_start|>"],
            vision_end_token_id=ids["<|vision_end|>"], vision_token_id=ids["<|vision_pad|>"],
            image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
            **text_config(vocab, 48, 3, 1, False),
            vision_config=dict(depth=3, hidden_act="silu", hidden_size=40, intermediate_size=52,
                               num_heads=2, in_chans=3, out_hidden_size=48, patch_size=14,
                               spatial_merge_size=2, spatial_patch_size=14, window_size=112,
                               fullatt_block_indexes=[1], tokens_per_second=2,
                               temporal_patch_size=2),
            rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3]), torch_dtype="bfloat16"),
        "preprocessor_config.json": dict(image_processor_type="Qwen2VLImageProcessor", **pixels_of),
        "video_preprocessor_config.json": dict(video_processor_type="Qwen2VLVideoProcessor",
                                               do_sample_frames=False, cap_pixels_per_frame=False,
                                               **pixels_of),
    }


# A case: media in the order they are given, `turns`: a second question follows, `rules`: the answer
# by Qwen's own time rule too.
MODELS = {
    "llava_onevision": dict(
        dtype=torch.float16, seed=2007, control=LLAVA_CONTROL, template=LLAVA_TEMPLATE,
        files=llava_files, tower="vision_tower",
        cases=dict(
            video=dict(media=[video(1, 4, SIDE, SIDE)]),
            resized=dict(media=[video(2, 3, 40, 56)]),
            wide=dict(media=[image(3, 50, 130)]),       # 1 x 2 tiles, rows cut off
            large=dict(media=[image(4, 140, 110)]),     # 2 x 2 tiles, columns cut off, shrunk
            pictures=dict(media=[image(5, 50, 90), image(6, 100, 70)]),  # each a grey square
            mixed=dict(media=[video(7, 2, SIDE, SIDE), image(8, 70, 200), video(9, 2, 50, 80)]),
            turns=dict(media=[video(10, 2, SIDE, SIDE)], turns=True))),
    "qwen2_5_vl_video": dict(
        dtype=torch.bfloat16, seed=11, control=QWEN_CONTROL, template=QWEN_TEMPLATE,
        files=qwen_files, tower="visual",
        cases=dict(
            video=dict(media=[video(1, 5, 168, 280)]),  # windows of 4 x 4 units in 6 x 10
            image=dict(media=[image(2, 224, 84)]),      # 8 x 3
            resized=dict(media=[image(3, 100, 133)]),
            resized_video=dict(media=[video(21, 2, 47, 66, 4.0)]),
            mixed=dict(media=[video(4, 2, 84, 56), image(5, 56, 140), video(6, 4, 56, 112, 1.0)]),
            # Time goes further than the sides and than the text: the rules for positions differ.
            slow=dict(media=[video(7, 10, 28, 56, 0.15)], rules=True),
            turns=dict(media=[video(8, 4, 112, 84)], turns=True))),
}

# Qwen2.5-VL's rules for positions, as include/prevue/prevue.h names them.
RULES = ["seconds", "whole", "compact", "seconds_compact"]


# ---- inputs ----

def pixels(m):
    """[frames, height, width, 3] of 8 bits: slopes and noise. The same in test_golden_vision.c."""
    t, y, x, c = np.indices((m["frames"], m["height"], m["width"], 3), dtype=np.uint32)
    seed = np.uint32(m["seed"])
    h = (t * np.uint32(7919) + y * np.uint32(104729) + x * np.uint32(1299709)
         + c * np.uint32(15485863) + seed * np.uint32(32452843))
    h = (h ^ (h >> np.uint32(15))) * np.uint32(2246822519)
    h = h ^ (h >> np.uint32(13))
    slope = (3 * y + 2 * x + 16 * t + 50 * c + 9 * seed) & np.uint32(127)
    return (slope + (h >> np.uint32(25))).astype(np.uint8)


def pil(rgb):
    return PIL.Image.fromarray(rgb)


pillow_resize = PIL.Image.Image.resize


def resize_either_way(self, size, *args, **kw):
    """Pillow 13 takes the vertical pass first for some sizes, older versions for none, and 8 bits
    lie between the passes: only sizes are used for which all of them agree."""
    out = pillow_resize(self, size, *args, **kw)
    columns = pillow_resize(self, (size[0], self.height), *args, **kw)
    same = pillow_resize(columns, size, *args, **kw).tobytes() == out.tobytes()
    assert same, f"{self.height} x {self.width} depends on the version of Pillow"
    return out


def build_tokenizer(control):
    """A byte-level BPE as Qwen2's, with a few merges."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                              use_regex=False)
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + N_MERGES, min_frequency=1, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    texts = ["system user assistant You are a helpful assistant."] * 8
    tok.train_from_iterator(texts + [" ".join(WORDS)] * 4 + [" \n", "\n\n"] * 40, trainer)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    return tok


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def write_tokenizer(spec, folder):
    tok = build_tokenizer(spec["control"])
    tok.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    ids = {t: tok.token_to_id(t) for t in spec["control"]}
    write_json(folder, "tokenizer_config.json", dict(
        added_tokens_decoder={str(i): dict(content=t, lstrip=False, normalized=False, rstrip=False,
                                           single_word=False, special=True)
                              for t, i in ids.items()},
        bos_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>", errors="replace",
        model_max_length=1024, tokenizer_class="Qwen2Tokenizer"))
    write_json(folder, "chat_template.json", dict(chat_template=spec["template"]))
    return ids, tok.get_vocab_size()


def build_model(spec, folder):
    """The model of config.json with our own random weights, rounded to the stored type."""
    config = transformers.AutoConfig.from_pretrained(folder, attn_implementation="eager")
    model_class = getattr(transformers, config.architectures[0])
    model = model_class._from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    gen = torch.Generator().manual_seed(spec["seed"])
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            x = torch.randn(p.shape, generator=gen)
            fan_in = math.prod(p.shape[1:])
            if "norm" in name and name.endswith("weight") or "ln_q" in name:
                x = 1 + 0.2 * x
            elif name.endswith("image_newline"):
                x = 0.8 * x
            elif p.ndim == 1:
                x = 0.2 * x
            elif "position_embedding" in name:
                x = 0.5 * x
            elif "embed_tokens" in name:
                x = (0.3 if config.tie_word_embeddings else 1.0) * x
            elif "lm_head" in name:
                x = 0.3 * x
            elif "o_proj" in name or "down_proj" in name or "fc2" in name:
                x = 2 * x / math.sqrt(fan_in)
            else:
                x = 1.4 * x / math.sqrt(fan_in)
            p.copy_(x.to(spec["dtype"]).float())
    return model


def save_model(model, spec, folder):
    whole = os.path.join(folder, "whole")
    model.save_pretrained(whole)
    tensors = load_file(os.path.join(whole, "model.safetensors"))
    shutil.rmtree(whole)
    # The hub's spelling, which the library reads but no longer writes.
    tensors = {k.replace("vision_tower.", "vision_tower.vision_model."): v
               for k, v in tensors.items()}
    write_shard({k: v.to(spec["dtype"]).contiguous() for k, v in sorted(tensors.items())},
                os.path.join(folder, "model.safetensors"))


# ---- one family each: from pixels to what the model takes ----

class Llava:
    """Still pictures are resized by Pillow, inside transformers' processor for it; frames of
    videos by Pillow before they are handed over, since that processor has no such variant."""

    def __init__(self, model, folder):
        self.model = model
        self.processor = transformers.LlavaOnevisionProcessor(
            image_processor=LlavaOnevisionImageProcessorPil.from_pretrained(folder),
            tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
            video_processor=transformers.LlavaOnevisionVideoProcessor.from_pretrained(folder),
            chat_template=LLAVA_TEMPLATE,
            **json.load(open(os.path.join(folder, "processor_config.json"))))
        self.after_answer = "<|im_end|>"

    def inputs(self, text, media):
        images = [pil(pixels(m)[0]) for m in media if not m["video"]]
        videos = [[pil(f).resize((SIDE, SIDE), PIL.Image.BICUBIC) for f in pixels(m)]
                  for m in media if m["video"]]
        return self.processor(text=[text], images=[images] if images else None,
                              videos=[np.stack(v) for v in videos] or None, return_tensors="pt")

    def patches(self, inputs, i, is_video):
        """Rows of the patch convolution's input, and the frames or views they came from."""
        views = inputs["pixel_values_videos" if is_video else "pixel_values"][i]
        if not is_video and len(inputs["image_sizes"]) > 1:
            views = views[:1]
        rows = torch.nn.functional.unfold(views, 14, stride=14)  # [views, 588, 25]
        return rows.transpose(1, 2).flatten(0, 1), views

    def features(self, inputs, i, is_video, views):
        """The tower's output before the projector, and the rows of the prompt."""
        body = self.model.model
        with torch.no_grad():
            tower = body.vision_tower(views, output_hidden_states=True).hidden_states[-1]
            if is_video:
                rows = body.get_video_features(inputs["pixel_values_videos"][i:i + 1])
                return tower.flatten(0, 1), rows.pooler_output[0]
            rows = body.get_image_features(inputs["pixel_values"], inputs["image_sizes"],
                                           batch_num_images=inputs["batch_num_images"])
        return tower.flatten(0, 1), rows.pooler_output[i]

    def positions(self, inputs):
        n = inputs["input_ids"].shape[1]
        return torch.arange(n).expand(3, -1)

    def rule_positions(self, inputs, media, rule):
        return None


class Qwen:
    """Still pictures are resized by Pillow, inside transformers' processor for it; frames of
    videos by torchvision in F32 before they are handed over, as qwen-vl-utils does it."""

    def __init__(self, model, folder):
        self.model = model
        self.processor = transformers.Qwen2_5_VLProcessor(
            image_processor=Qwen2VLImageProcessorPil.from_pretrained(folder),
            tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
            video_processor=transformers.Qwen2VLVideoProcessor.from_pretrained(folder),
            chat_template=QWEN_TEMPLATE)
        self.after_answer = "<|im_end|>\n"

    def frames(self, m):
        rgb = torch.from_numpy(pixels(m)).permute(0, 3, 1, 2)
        size = list(smart_resize(m["height"], m["width"], 28, 784, 12845056))
        exact = torch.nn.functional.interpolate(rgb.double(), size, mode="bicubic", antialias=True)
        half = (exact - exact.floor() - 0.5).abs()[(exact > 0) & (exact < 255)]
        assert half.min() > 1e-4, "rounding in F32 could decide a pixel: take another seed"
        return functional.resize(rgb, size, InterpolationMode.BICUBIC, antialias=True)

    def inputs(self, text, media):
        images = [pil(pixels(m)[0]) for m in media if not m["video"]]
        videos = [m for m in media if m["video"]]
        meta = [VideoMetadata(total_num_frames=m["frames"], fps=m["fps"],
                              frames_indices=list(range(m["frames"]))) for m in videos]
        return self.processor(text=[text], images=images or None,
                              videos=[self.frames(m) for m in videos] or None,
                              video_metadata=meta or None, return_tensors="pt")

    def patches(self, inputs, i, is_video):
        grid = inputs["video_grid_thw" if is_video else "image_grid_thw"]
        rows = inputs["pixel_values_videos" if is_video else "pixel_values"]
        first = int(grid[:i].prod(-1).sum())
        rows = rows[first:first + int(grid[i].prod())]
        return rows, (rows, grid[i:i + 1])

    def features(self, inputs, i, is_video, views):
        visual = self.model.model.visual
        rows, grid = views
        order = []
        # The permutation is undone by following numbered rows through it.
        numbered = torch.arange(len(rows))[:, None].float()
        inner = visual.permute_input_for_window_attn
        visual.permute_input_for_window_attn = lambda x, index, seq_len: (
            order.append(inner(numbered, index, seq_len)), inner(x, index, seq_len))[1]
        with torch.no_grad():
            out = visual(rows, grid_thw=grid)
        del visual.permute_input_for_window_attn
        tower = torch.empty_like(out.last_hidden_state)
        tower[order[0][:, 0].long()] = out.last_hidden_state
        return tower, out.pooler_output

    def positions(self, inputs):
        pos, _ = self.model.model.get_rope_index(
            inputs["input_ids"], inputs["mm_token_type_ids"],
            image_grid_thw=inputs.get("image_grid_thw"),
            video_grid_thw=inputs.get("video_grid_thw"),
            second_per_grid_ts=inputs.get("second_per_grid_ts"))
        return pos[:, 0]

    def rule_positions(self, inputs, media, rule):
        """Our own words of the rules; `seconds_compact` must be what the library does."""
        kinds = inputs["mm_token_type_ids"][0].tolist()
        images, videos = (iter(inputs.get(k, [])) for k in ("image_grid_thw", "video_grid_thw"))
        seconds = iter(2 / m["fps"] for m in media if m["video"])
        out, at, k = [], 0, 0
        while k < len(kinds):
            if kinds[k] == 0:
                out.append((at, at, at))
                at, k = at + 1, k + 1
                continue
            t, h, w = (int(v) for v in next(videos if kinds[k] == 2 else images))
            step = next(seconds) if kinds[k] == 2 else 0.0
            if rule in ("whole", "compact"):
                step = float(int(step))
            times = [int(np.float32(i) * np.float32(2 * step)) for i in range(t)]
            cells = [(at + times[i], at + y, at + x)
                     for i in range(t) for y in range(h // 2) for x in range(w // 2)]
            out += cells
            k += len(cells)
            at = at + max(h, w) // 2 if rule.endswith("compact") else max(map(max, cells)) + 1
        return torch.tensor(out).T


# ---- running ----

def embeddings(model, inputs, rows):
    """Embeddings of the prompt with the media's rows in place, pictures and videos apart."""
    config = model.config
    x = model.get_input_embeddings()(inputs["input_ids"])[0].detach().clone()
    for is_video, token in ((0, config.image_token_id), (1, config.video_token_id)):
        mine = [r for v, r in rows if v == is_video]
        if mine:
            x[inputs["input_ids"][0] == token] = torch.cat(mine)
    return x


def run_at(model, x, pos):
    """Logits of embeddings [n, hidden] at positions [3, n]."""
    three = hasattr(model.model, "rope_deltas")
    with torch.no_grad():
        hidden = model.model.language_model(
            inputs_embeds=x[None], position_ids=pos[:, None] if three else pos[:1],
            use_cache=False).last_hidden_state
        return model.lm_head(hidden)[0]


def greedy_at(model, x, pos):
    """N_NEW ids and margins from a fresh pass each. New tokens follow the last, as in generate():
    also where that is not the largest position."""
    ids, margins = [], []
    for _ in range(N_NEW):
        logits = run_at(model, x, pos)[-1]
        margins.append(float(margin(logits)))
        ids.append(int(logits.argmax()))
        new = model.get_input_embeddings()(torch.tensor([ids[-1]])).detach()
        x = torch.cat([x, new])
        pos = torch.cat([pos, pos[:, -1:] + 1], dim=1)
    return torch.tensor(ids), torch.tensor(margins)


def generate(model, inputs):
    n = inputs["input_ids"].shape[1]
    if hasattr(model.model, "rope_deltas"):
        model.model.rope_deltas = None
    with torch.no_grad():
        out = model.generate(**inputs, do_sample=False, max_new_tokens=N_NEW, use_cache=True,
                             pad_token_id=0)
    return out[0, n:]


def prompt_text(family, media, question, first=True):
    content = [dict(type="video" if m["video"] else "image") for m in media]
    messages = [dict(role="user", content=content + [dict(type="text", text=question)])]
    if not first:
        messages.insert(0, dict(role="system", content=[dict(type="text", text="X")]))
    text = family.processor.apply_chat_template(messages, add_generation_prompt=True)
    return text if first else text[text.index("<|im_start|>user"):]


def questions(seed):
    rng = random.Random(seed)
    for _ in range(N_CANDIDATES):
        yield " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 5))).capitalize() + "?"


def rank_answer(ids, margins, n_spelled):
    """Varied answers first, then those that are furthest from any doubt. None: the answer ends, or
    has tokens that are not text."""
    ids = ids.tolist()
    least = float(margins.min())
    varied = len(set(ids)) >= MIN_DISTINCT and longest_run(ids) <= MAX_RUN and least > MIN_MARGIN
    return (varied, least) if max(ids) < n_spelled else None


def encode(family, media, inputs):
    """Per medium, in the order given: patches, tower's output, rows of the prompt."""
    seen, parts = {0: 0, 1: 0}, []
    for m in media:
        i, is_video = seen[m["video"]], m["video"]
        seen[is_video] += 1
        patches, views = family.patches(inputs, i, is_video)
        parts.append((patches, *family.features(inputs, i, is_video, views)))
    return parts


def solve(family, media, text, parts=None, tail=None):
    """What the model sees of a prompt; `parts`: what encode() gave for these media before."""
    inputs = family.inputs(text, media)
    if tail is not None:
        inputs["input_ids"] = torch.cat([inputs["input_ids"], tail[None]], dim=1)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if "mm_token_type_ids" in inputs:
            more = torch.zeros_like(tail)[None]
            inputs["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], more], dim=1)
    parts = parts or encode(family, media, inputs)
    x = embeddings(family.model, inputs, [(m["video"], p[2]) for m, p in zip(media, parts)])
    return inputs, x


def search(seed, n_spelled, make):
    """The best of some questions. make(question): (result, ids, margins)."""
    best = None
    for q in questions(seed):
        result, ids, margins = make(q)
        rank = rank_answer(ids, margins, n_spelled)
        if rank and (best is None or rank > best[0]):
            best = (rank, q, result, ids, margins)
    assert best and best[0][1] > MIN_MARGIN, "no question with a good answer"
    return (best[0][1],) + best[1:]


# ---- writing ----

def spread(n, k):
    """k of n rows, both ends among them."""
    return torch.unique(torch.linspace(0, n - 1, k).round().long())


def mix(rows):
    """One number of each row in which every place has its own weight."""
    w = (torch.arange(rows.shape[1]) * 37 % 101 - 50) / 50
    return (rows.double() @ w.double()).float()[:, None]


def put_bytes(v, name, text):
    v.put(name, torch.tensor(list(text.encode())))


def put_media(v, media, parts, detail):
    v.put("media", torch.tensor([[m["video"], m["seed"], m["frames"], m["height"], m["width"],
                                  round(1000 * m["fps"]), len(p[0]), len(p[2])]
                                 for m, p in zip(media, parts)]))
    for i, (patches, tower, rows) in enumerate(parts):
        v.put(f"mix.{i}", mix(patches).T)
        if detail:
            at = spread(len(patches), 2)
            v.put(f"patch_rows.{i}", at[1:])
            v.put(f"patches.{i}", patches[at[1:]])
        at = spread(len(tower), 6 if detail else 2)
        v.put(f"tower_rows.{i}", at)
        v.put(f"tower.{i}", tower[at])
        at = spread(len(rows), 14 if detail else 6)
        v.put(f"token_rows.{i}", at)
        v.put(f"tokens.{i}", rows[at])


def put_answer(v, prefix, model, inputs, x, pos, ids, margins):
    n = len(x)
    rows = torch.tensor([n // 2, n - 1])
    logits = run_at(model, x, pos)[rows]
    assert int(logits[-1].argmax()) == int(ids[0])
    v.put(prefix + "prompt", inputs["input_ids"][0])
    v.put(prefix + "logit_rows", rows)
    v.put(prefix + "logits", logits)
    v.put(prefix + "greedy", ids)
    v.put(prefix + "margin", margins)


def put_positions(v, prefix, family, inputs, media, pos):
    for rule in RULES:
        mine = family.rule_positions(inputs, media, rule)
        if mine is not None:
            v.put(f"{prefix}pos.{rule}", mine)
            assert rule != "seconds_compact" or torch.equal(mine, pos), "not the library's rule"


def write_case(name, case, family, folder, n_spelled, seed):
    media, model = case["media"], family.model
    parts = encode(family, media, family.inputs(prompt_text(family, media, ""), media))

    def first(question):
        inputs, x = solve(family, media, prompt_text(family, media, question), parts)
        pos = family.positions(inputs)
        ids, margins = greedy_at(model, x, pos)
        return (inputs, x, pos), ids, margins

    score, question, (inputs, x, pos), ids, margins = search(
        f"{name}{seed}", n_spelled, first)
    assert torch.equal(generate(model, inputs), ids), "generate() answers otherwise"
    v = VecWriter(os.path.join(folder, name + ".vec"), [
        f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, F32, "
        "eager attention", "written by tools/golden/make_vision_golden.py; do not edit"])
    put_bytes(v, "question", question)
    put_media(v, media, parts, name in ("video", "large"))
    put_answer(v, "", model, inputs, x, pos, ids, margins)
    put_positions(v, "", family, inputs, media, pos)
    if case.get("rules"):  # the answer by Qwen's own rule, which differs here
        mine = family.rule_positions(inputs, media, "seconds")
        put_answer(v, "seconds.", model, inputs, x, mine, *greedy_at(model, x, mine))
    if case.get("turns"):
        score = min(score, write_turn(v, name, family, media, parts, question, ids, n_spelled,
                                      seed))
    v.close()
    print(f"  {name}: {x.shape[0]} rows, {[len(p[2]) for p in parts]} of media, margin "
          f"{score:.3f}, \"{question}\", {ids.tolist()[:6]}...")


def write_turn(v, name, family, media, parts, question, answer, n_spelled, seed):
    """A second question behind the first answer as it was given, ids and all."""
    def second(text):
        more = family.after_answer + prompt_text(family, [], text, first=False)
        tail = family.processor.tokenizer(more, add_special_tokens=False,
                                          return_tensors="pt")["input_ids"][0]
        inputs, x = solve(family, media, prompt_text(family, media, question), parts,
                             torch.cat([answer, tail]))
        pos = family.positions(inputs)
        ids, margins = greedy_at(family.model, x, pos)
        return (inputs, x, pos), ids, margins

    score, text, (inputs, x, pos), ids, margins = search(
        f"{name}{seed} again", n_spelled, second)
    assert torch.equal(generate(family.model, inputs), ids), "generate() answers otherwise"
    put_bytes(v, "question2", text)
    put_answer(v, "turn2.", family.model, inputs, x, pos, ids, margins)
    put_positions(v, "turn2.", family, inputs, media, pos)
    return score


def make(name, out, seed):
    spec = dict(MODELS[name])
    spec["seed"] += 1000 * seed
    folder = os.path.join(out, name)
    print(name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    ids, n_tokens = write_tokenizer(spec, folder)
    vocab = (n_tokens + 15) // 8 * 8  # as on the hub, more rows than tokens
    files = spec["files"](ids, vocab)
    for file, value in files.items():
        write_json(folder, file, value)
    save_model(build_model(spec, folder), spec, folder)
    # What was written, as the library itself reads it back.
    model_class = getattr(transformers, files["config.json"]["architectures"][0])
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    family = (Qwen if "qwen" in name else Llava)(model, folder)
    for case_name, case in spec["cases"].items():
        write_case(case_name, case, family, folder, n_tokens - len(spec["control"]), seed)
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"  {vocab} rows of vocabulary, {size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "../../tests/golden"))
    parser.add_argument("--seed", type=int, default=0, help="other weights and questions")
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL",
                        help=f"of {', '.join(MODELS)} (default: all)")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # one order of summation
    PIL.Image.Image.resize = resize_either_way
    for name in args.models:
        make(name, args.out, args.seed)


if __name__ == "__main__":
    main()
