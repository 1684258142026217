#!/usr/bin/env python3
"""Writes tests/golden/qwen3_vl_deep/: a tiny Qwen3-VL decoder whose rows of media bring deepstack
vectors, and what transformers computes with them.

The vision tower is not run: rows of media are drawn at random, 1 + K vectors each, given to the text
model as embeddings and as deepstack_visual_embeds. Weights and the form of golden.vec are those of
make_golden.py. Vectors are multiples of 1/64, so that few digits say all of them.
"""

import argparse
import json
import os
import shutil

import torch
import transformers

from make_golden import VISION_3, VISION_IDS, VecWriter, build, extend, margin, positions, save

N_NEW = 12
N_CANDIDATES = 48
PROMPT = 38
GRID = (2, 4, 3)
MEDIA = list(range(6, 18)) + list(range(20, 30))  # two runs, and text between them
K = 2

SPEC = dict(
    dtype=torch.bfloat16, shards=1, seed=77, grid=GRID,
    config=dict(
        architectures=["Qwen3VLForConditionalGeneration"], model_type="qwen3_vl",
        text_config=dict(
            model_type="qwen3_vl_text", hidden_size=32, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=64,
            vocab_size=160, max_position_embeddings=512, rms_norm_eps=1e-6,
            rope_theta=5000000.0, attention_bias=False, hidden_act="silu",
            rope_scaling=dict(mrope_interleaved=True, mrope_section=[4, 2, 2],
                              rope_type="default"),
            bos_token_id=158, eos_token_id=159, dtype="bfloat16"),
        tie_word_embeddings=True,
        vision_config=dict(VISION_3, depth=2, out_hidden_size=32, deepstack_visual_indexes=[0, 1]),
        dtype="bfloat16", **VISION_IDS))


def forward(model, ids, wide, pos):
    """Logits [n, vocab] of the prompt's rows and the tokens after them, and the states between."""
    text = model.model.language_model
    x = text.embed_tokens(ids)
    mask = torch.zeros(len(ids), dtype=torch.bool)
    mask[MEDIA] = True
    x[mask] = wide[:, 0]
    seen, hooks = {}, []

    def keep(name):
        def hook(module, args, kwargs):
            x = args[0] if args else kwargs["hidden_states"]
            seen[name] = x[0].clone()
        return hook

    # What comes into a layer is what left the one before it, its vectors added.
    for i, module in enumerate(list(text.layers)[1:] + [text.norm]):
        hooks.append(module.register_forward_pre_hook(keep(f"hidden.{i}"), with_kwargs=True))
    out = text(inputs_embeds=x[None], position_ids=pos[:, None], use_cache=False,
               attention_mask=torch.ones(1, len(ids), dtype=torch.long),
               visual_pos_masks=mask[None],
               deepstack_visual_embeds=[wide[:, 1 + k] for k in range(K)])
    for h in hooks:
        h.remove()
    return model.lm_head(out.last_hidden_state[0]), seen


def greedy(model, prompt, wide, pos):
    ids, margins, pos = prompt, [], extend(pos, N_NEW)
    for _ in range(N_NEW):
        logits = forward(model, ids, wide, pos[:, :len(ids)])[0][-1]
        margins.append(float(margin(logits)))
        ids = torch.cat([ids, logits.argmax()[None]])
    return ids[len(prompt):], torch.tensor(margins)


def draw(model, seed):
    gen = torch.Generator().manual_seed(seed)
    prompt = torch.randint(0, 158, (PROMPT,), generator=gen)
    scale = float(model.model.language_model.embed_tokens.weight.std())
    wide = torch.randn((len(MEDIA), 1 + K, 32), generator=gen)
    wide[:, 0] *= scale
    return prompt, (wide * 64).round() / 64


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "../../tests/golden"))
    folder = os.path.join(parser.parse_args().out, "qwen3_vl_deep")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(SPEC["config"], f, indent=2)
        f.write("\n")
    model = build(SPEC, folder)
    save(model, SPEC, folder)
    pos = positions(PROMPT, GRID)
    with torch.no_grad():
        # The widest smallest margin, so that rounding does not decide the answer.
        scenes = [draw(model, SPEC["seed"] + i) for i in range(N_CANDIDATES)]
        answers = [greedy(model, *scene, pos) for scene in scenes]
        best = max(range(N_CANDIDATES), key=lambda i: float(answers[i][1].min()))
        prompt, wide = scenes[best]
        ids, margins = answers[best]
        logits, seen = forward(model, prompt, wide, pos)
        flat = forward(model, prompt, wide * torch.tensor([1.0] + [0.0] * K)[:, None], pos)[0]
    print(f"margin {margins.min():.3f}; the vectors change logits by "
          f"{(flat - logits).abs().max():.3f}")
    prompt = prompt.clone()
    prompt[MEDIA] = -1
    rows = torch.tensor([0, 5, 6, 12, 17, 18, 20, 29, 30, PROMPT - 1])
    v = VecWriter(os.path.join(folder, "golden.vec"), [
        f"qwen3_vl_deep: transformers {transformers.__version__}, "
        f"torch {torch.__version__.split('+')[0]}, F32, eager attention",
        "written by tools/golden/deepstack_golden.py; do not edit"])
    v.put("prompt", prompt)
    v.put("positions", pos)
    v.put("wide", wide.reshape(len(MEDIA), -1))
    v.put("greedy", ids)
    v.put("margin", margins)
    v.put("rows", rows)
    for k in sorted(seen):
        v.put(k, seen[k][rows])
    v.put("logits", logits[rows])
    v.close()


if __name__ == "__main__":
    main()
