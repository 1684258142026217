#!/usr/bin/env python3
"""Writes tests/golden/salmonn2_plus: a tiny random model that sees and hears, and what it makes of
features of sound, alone and beside a video.

No published code runs here. The encoder is transformers' WhisperEncoder; the Q-Former is written
out below and must equal transformers' Blip2QFormerModel, which has the same parts; decoder and
tower are transformers' Qwen2.5-VL. How sound and pictures take turns in a prompt, and positions in
both ways, are written out from the published description of the model.
"""

import argparse
import json
import math
import os

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers.models.blip_2.modeling_blip_2 import Blip2QFormerConfig, Blip2QFormerModel
from transformers.models.whisper.modeling_whisper import WhisperConfig, WhisperEncoder

MEL, HIDDEN, POSITIONS, WINDOW = 10, 32, 100, 25
Q_HIDDEN, Q_HEADS, Q_FFN = 24, 2, 36
TOKENS = POSITIONS // WINDOW
VOCAB, OUT, PATCH = 160, 32, 4
START, END, IMAGE, VIDEO, AUDIO = 150, 151, 152, 153, 154
GREEDY = 12

CONFIG = dict(
    architectures=["video_SALMONN2_plus"], model_type="qwen2_5_vl", bos_token_id=148,
    eos_token_id=149, vision_start_token_id=START, vision_end_token_id=END, image_token_id=IMAGE,
    video_token_id=VIDEO, audio_token_id=AUDIO, hidden_size=OUT, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=1, intermediate_size=48, vocab_size=VOCAB,
    max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=False,
    hidden_act="silu", use_sliding_window=False, sliding_window=512, max_window_layers=2,
    rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3]), torch_dtype="bfloat16",
    vision_config=dict(depth=2, hidden_act="silu", hidden_size=16, intermediate_size=20,
                       num_heads=2, in_chans=3, out_hidden_size=OUT, patch_size=PATCH,
                       spatial_merge_size=2, spatial_patch_size=PATCH, window_size=16,
                       fullatt_block_indexes=[1], tokens_per_second=2, temporal_patch_size=2),
    audio_config=dict(model_type="whisper", num_mel_bins=MEL, d_model=HIDDEN, encoder_layers=2,
                      encoder_attention_heads=2, encoder_ffn_dim=40, activation_function="gelu",
                      max_source_positions=POSITIONS, second_per_window=0.5, second_stride=0.5,
                      qformer_config=dict(model_type="bert", hidden_size=Q_HIDDEN,
                                          num_hidden_layers=2, num_attention_heads=Q_HEADS,
                                          intermediate_size=Q_FFN, hidden_act="gelu",
                                          layer_norm_eps=1e-12, encoder_width=HIDDEN,
                                          cross_attention_freq=1, query_length=1)))

PREPROCESSOR = dict(image_processor_type="Qwen2VLImageProcessor", min_pixels=64, max_pixels=65536,
                    patch_size=PATCH, temporal_patch_size=2, merge_size=2,
                    image_mean=[0.48145466, 0.4578275, 0.40821073],
                    image_std=[0.26862954, 0.26130258, 0.27577711])

# name, pairs of frames, their size, frames a second, chunks of sound
CASES = [("both", 3, 16, 24, 1.5, 2), ("short", 4, 16, 8, 0.5, 1), ("sound", 0, 0, 0, 0, 2),
         ("silent", 2, 8, 16, 0.8, 0)]


def hashed(*index):
    """32 bits that look random; the same in test_golden_sound.c."""
    h = sum(np.uint32(p) * i.astype(np.uint32) for p, i in zip((7919, 104729, 1299709, 15485863),
                                                             index))
    h = (h ^ (h >> np.uint32(15))) * np.uint32(2246822519)
    return h ^ (h >> np.uint32(13))


def features(chunk):
    """[1, MEL, 2 * POSITIONS] between -1 and 1."""
    i, t = np.indices((MEL, 2 * POSITIONS))
    h = hashed(i, t, np.full_like(i, chunk))
    return torch.tensor((h % 2001).astype(np.float32) / 1000 - 1)[None]


def pixels(frames, height, width):
    t, y, x, c = np.indices((frames, height, width, 3))
    return (hashed(t, y, x, c) >> np.uint32(24)).astype(np.uint8)


def patches(rgb):
    """Rows as Qwen's processor makes them: merged patches side by side, a pair of frames each."""
    mean, std = (torch.tensor(PREPROCESSOR[k]) for k in ("image_mean", "image_std"))
    x = (torch.tensor(rgb).float() / 255 - mean) / std
    t, h, w = len(rgb) // 2, rgb.shape[1] // PATCH, rgb.shape[2] // PATCH
    x = x.permute(0, 3, 1, 2).reshape(t, 2, 3, h // 2, 2, PATCH, w // 2, 2, PATCH)
    return x.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(t * h * w, -1), torch.tensor([[t, h, w]])


def norm(x, p, name, eps=1e-12):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"],
                                          eps)


def linear(x, p, name):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def qformer(frames, p):
    """frames [POSITIONS, HIDDEN] -> [TOKENS, OUT], one window after the other."""
    out = []
    for window in frames.reshape(TOKENS, WINDOW, HIDDEN):
        q = norm(p["q_tokens"][0], p, "qformer.bert.embeddings.LayerNorm")
        for layer in range(2):
            name = f"qformer.bert.encoder.layer.{layer}."
            a = linear(linear(q, p, name + "attention.self.value"), p,
                       name + "attention.output.dense")
            q = norm(q + a, p, name + "attention.output.LayerNorm")
            heads = [linear(x, p, name + f"crossattention.self.{part}").reshape(len(x), Q_HEADS, -1)
                     for part, x in (("query", q), ("key", window), ("value", window))]
            score = torch.einsum("qhd,khd->hqk", *heads[:2]) / math.sqrt(Q_HIDDEN // Q_HEADS)
            a = torch.einsum("hqk,khd->qhd", score.softmax(-1), heads[2]).reshape(1, -1)
            q = norm(q + linear(a, p, name + "crossattention.output.dense"), p,
                     name + "crossattention.output.LayerNorm")
            a = torch.nn.functional.gelu(linear(q, p, name + "intermediate_query.dense"))
            q = norm(q + linear(a, p, name + "output_query.dense"), p,
                     name + "output_query.LayerNorm")
        out.append(linear(q, p, "audio_proj"))
    return torch.cat(out)


def draw_audio(generator):
    """The encoder, and all tensors beside it by their names after "audio."."""
    a = CONFIG["audio_config"]
    encoder = WhisperEncoder(WhisperConfig(
        **{k: v for k, v in a.items() if k not in ("qformer_config", "second_per_window",
                                                   "second_stride", "model_type")},
        attn_implementation="eager"))
    blip = Blip2QFormerModel(Blip2QFormerConfig(
        hidden_size=Q_HIDDEN, num_hidden_layers=2, num_attention_heads=Q_HEADS,
        intermediate_size=Q_FFN, encoder_hidden_size=HIDDEN, cross_attention_frequency=1,
        layer_norm_eps=1e-12, attn_implementation="eager"))
    draw(encoder, generator)
    draw(blip, generator)
    p = {k: v for k, v in encoder.state_dict().items()}
    for k, v in blip.state_dict().items():
        k = k.replace("attention.attention.", "attention.self.")
        k = "embeddings.LayerNorm" + k[9:] if k.startswith("layernorm") else k
        p["qformer.bert." + k] = v
    p["q_tokens"] = rounded(torch.randn(1, 1, Q_HIDDEN, generator=generator))
    p["audio_proj.weight"] = rounded(torch.randn(OUT, Q_HIDDEN, generator=generator) * 0.05)
    p["audio_proj.bias"] = rounded(torch.randn(OUT, generator=generator) * 0.02)
    return encoder.eval(), blip.eval(), p


def rounded(x):
    return x.bfloat16().float()


def draw(module, generator):
    """Norms around 1, biases that are not zero, all of them numbers that BF16 has."""
    with torch.no_grad():
        for name, x in module.named_parameters():
            one = x.ndim == 1 and name.endswith("weight")
            size = 0.1 if x.ndim == 1 else 0.5 / math.sqrt(x[0].numel() ** 0.5)
            x.copy_(rounded(torch.randn(x.shape, generator=generator) * size + one))


def check_qformer(blip, frames, p):
    with torch.no_grad():
        windows = frames.reshape(TOKENS, WINDOW, HIDDEN)
        ours = torch.nn.functional.linear(
            blip(p["q_tokens"].expand(TOKENS, -1, -1),
                 encoder_hidden_states=windows).last_hidden_state[:, 0],
            p["audio_proj.weight"], p["audio_proj.bias"])
    assert (ours - qformer(frames, p)).abs().max() < 1e-5


def counts(steps, spg, sound):
    """Rows of sound after each pair of frames; the last takes the rest."""
    ends = [min(int(np.float32(t) * np.float32(spg) * 2), sound) for t in range(steps)] + [sound]
    return [ends[t + 1] - ends[t] for t in range(steps)]


def block(steps, per, spg, sound):
    if steps == 0:
        return [AUDIO] * sound
    return sum([[VIDEO] * per + [AUDIO] * n for n in counts(steps, spg, sound)], [])


def positions(ids, steps, h, w, spg, sound, training):
    """[3, n] of a prompt with one block after START."""
    s = ids.index(START) + 1
    n = steps * h * w + sound
    at = [(i, i, i) for i in range(s)]
    cell = [(s + (int(np.float32(t) * np.float32(spg) * 2) if training else 2 * t), s + y, s + x)
            for t in range(steps) for y in range(h) for x in range(w)]
    if training and sound:
        video, audio = iter(cell), iter((s + i, s + (0 if steps else i), s + (i if steps else 0))
                                        for i in range(sound))
        at += [next(video) if i == VIDEO else next(audio) for i in ids[s:s + n]]
        after = max(p[0] for p in at[s:]) + 1
    elif cell:
        at += cell
        first = max(map(max, cell)) + 1
        at += [(first + i,) * 3 for i in range(sound)]
        after = first + sound
    else:
        at += [(s + i,) * 3 for i in range(sound)]
        after = s + sound
    at += [(after + i,) * 3 for i in range(len(ids) - s - n)]
    return torch.tensor(at).T


def answer(model, embeds, pos):
    """Greedy ids, each from a pass over everything, and by how much each led."""
    ids, lead = [], []
    with torch.no_grad():
        for _ in range(GREEDY):
            logits = model.lm_head(model.model.language_model(
                inputs_embeds=embeds, position_ids=pos[:, None]).last_hidden_state)[0, -1]
            best = logits.topk(2)
            ids.append(int(best.indices[0]))
            lead.append(float(best.values[0] - best.values[1]))
            embeds = torch.cat([embeds, model.model.language_model.embed_tokens(
                best.indices[:1])[None]], 1)
            pos = torch.cat([pos, pos.max(0).values[-1:].expand(3, 1) + 1], 1)
    return ids, lead


def write_entry(out, name, rows):
    rows = np.atleast_2d(np.asarray(rows))
    whole = np.issubdtype(rows.dtype, np.integer)
    out.write(f"{name} {'i' if whole else 'f'} {rows.shape[0]} {rows.shape[1]}\n")
    for row in rows:
        out.write(" ".join(str(int(v)) if whole else f"{v:.9g}" for v in row) + "\n")


def write_case(out, case, model, rows, generator):
    name, steps, height, width, fps, chunks = case
    h, w, spg = height // PATCH // 2, width // PATCH // 2, 2 / fps if fps else 0
    sound = chunks * TOKENS
    text = torch.randint(0, 140, (9,), generator=generator).tolist()
    ids = text[:4] + [START] + block(steps, h * w, spg, sound) + [END] + text[4:]
    embeds = model.model.language_model.embed_tokens(torch.tensor([ids])).detach().clone()
    if steps:
        x, grid = patches(pixels(2 * steps, height, width))
        with torch.no_grad():
            embeds[0, np.array(ids) == VIDEO] = model.model.visual(x, grid_thw=grid).pooler_output
    if sound:
        embeds[0, np.array(ids) == AUDIO] = torch.cat(rows[:chunks])
    write_entry(out, f"{name}.size", [steps, height, width, int(fps * 1000), chunks])
    write_entry(out, f"{name}.ids", ids)
    for rule, training in (("upstream", False), ("training", True)):
        pos = positions(ids, steps, h, w, spg, sound, training)
        # The first new token follows the last of the prompt.
        greedy, lead = answer(model, embeds, pos)
        write_entry(out, f"{name}.{rule}.pos", pos.numpy())
        write_entry(out, f"{name}.{rule}.greedy", greedy)
        print(name, rule, greedy, "least lead %.3g" % min(lead))
        assert min(lead) > 1e-3, "a near tie: take another seed"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="tests/golden/salmonn2_plus")
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    generator = torch.Generator().manual_seed(args.seed)
    config = {k: v for k, v in CONFIG.items() if k != "audio_config"}
    model = transformers.Qwen2_5_VLForConditionalGeneration(
        transformers.Qwen2_5_VLConfig(**config, attn_implementation="eager")).float().eval()
    draw(model, generator)
    encoder, blip, p = draw_audio(generator)
    frames, rows = [], []
    for chunk in range(2):
        with torch.no_grad():
            frames.append(encoder(features(chunk)).last_hidden_state[0])
        check_qformer(blip, frames[-1], p)
        rows.append(qformer(frames[-1], p).detach())
    tensors = {k.replace("model.language_model.", "model.").replace("model.visual.", "visual."): v
               for k, v in model.state_dict().items()}
    tensors.update(("audio." + k, v) for k, v in p.items())
    save_file({k: v.detach().bfloat16().contiguous() for k, v in tensors.items()},
              os.path.join(args.out, "model.safetensors"), metadata=dict(format="pt"))
    for name, value in (("config.json", CONFIG), ("preprocessor_config.json", PREPROCESSOR)):
        with open(os.path.join(args.out, name), "w") as f:
            json.dump(value, f, indent=1)
            f.write("\n")
    with open(os.path.join(args.out, "sound.vec"), "w") as out:
        out.write("# made by tools/golden/sound_golden.py\n")
        picked = [0, 1, 24, 25, 60, 99]
        write_entry(out, "picked", picked)
        for chunk in range(2):
            write_entry(out, f"frames.{chunk}", frames[chunk][picked].numpy())
            write_entry(out, f"tokens.{chunk}", rows[chunk].numpy())
        for case in CASES:
            write_case(out, case, model, rows, generator)


main()
