#!/usr/bin/env python3
"""Writes tests/golden/<model>/: tiny random text models and what transformers computes with them.

Each model is a Hugging Face directory (config.json, safetensors) plus golden.vec, a text file of
named matrices (format: README.md beside this script; reader: tests/golden/golden.h). Everything
is computed in F32 with eager attention, from weights already rounded to the type they are stored
in, so an engine that reads the same files sees the same numbers.

Weights depend on the seeds below alone. The prompt is searched: of N_CANDIDATES random ones the
one whose greedy answer has the widest smallest margin between its best two tokens, and enough
different tokens, so that rounding in another engine does not decide the answer.
"""

import argparse
import itertools
import json
import math
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file

N_NEW = 48
N_CANDIDATES = 1024
MIN_DISTINCT = 24  # different ids in a greedy answer
MAX_RUN = 3        # times one id may follow itself

VISION_2_5 = dict(depth=1, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=64,
                  patch_size=4, spatial_merge_size=2, temporal_patch_size=2,
                  fullatt_block_indexes=[0], window_size=16)
VISION_3 = dict(depth=1, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=64,
                patch_size=4, spatial_merge_size=2, temporal_patch_size=2,
                num_position_embeddings=16, deepstack_visual_indexes=[0])
# Ids of the placeholders lie outside the tiny vocabulary: no prompt id may be taken for one.
VISION_IDS = dict(image_token_id=1001, video_token_id=1002, vision_start_token_id=1003,
                  vision_end_token_id=1004)

# `config` is written to config.json as it stands here: the spellings are those of the hub (old and
# new), which transformers must read to the same model.
MODELS = {
    "qwen2": dict(
        dtype=torch.bfloat16, shards=1, seed=24, prompt=44, grid=None,
        config=dict(
            architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=64,
            num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=160, vocab_size=320, max_position_embeddings=512,
            rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True, hidden_act="silu",
            use_sliding_window=False, sliding_window=512, max_window_layers=3,
            bos_token_id=318, eos_token_id=319, torch_dtype="bfloat16")),
    "qwen3": dict(
        dtype=torch.float32, shards=2, seed=51, prompt=37, grid=None,
        config=dict(
            architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=64,
            num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, head_dim=32,
            intermediate_size=96, vocab_size=256, max_position_embeddings=512, rms_norm_eps=1e-6,
            rope_parameters=dict(rope_theta=1000000.0, rope_type="default"),
            attention_bias=False, tie_word_embeddings=False, hidden_act="silu",
            use_sliding_window=False, sliding_window=None, max_window_layers=2,
            bos_token_id=254, eos_token_id=255, dtype="float32")),
    # Sections of the rotation in a row: 2 frequencies turn with t, 3 with y, 3 with x.
    "qwen2_5_vl": dict(
        dtype=torch.float16, shards=1, seed=13, prompt=40, grid=(2, 3, 4),
        config=dict(
            architectures=["Qwen2_5_VLForConditionalGeneration"], model_type="qwen2_5_vl",
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=160, vocab_size=320, max_position_embeddings=512,
            rms_norm_eps=1e-6, rope_theta=1000000.0,
            rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3]), tie_word_embeddings=False,
            hidden_act="silu", use_sliding_window=False, sliding_window=512, max_window_layers=2,
            bos_token_id=318, eos_token_id=319, vision_config=VISION_2_5,
            torch_dtype="float16", **VISION_IDS)),
    # Interleaved: of 16 frequencies 1, 4, ..., 13 turn with y and 2, 5, ..., 14 with x.
    "qwen3_vl": dict(
        dtype=torch.bfloat16, shards=1, seed=41, prompt=39, grid=(2, 4, 3),
        config=dict(
            architectures=["Qwen3VLForConditionalGeneration"], model_type="qwen3_vl",
            text_config=dict(
                model_type="qwen3_vl_text", hidden_size=64, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=96,
                vocab_size=320, max_position_embeddings=512, rms_norm_eps=1e-6,
                rope_theta=5000000.0, attention_bias=False, hidden_act="silu",
                rope_scaling=dict(mrope_interleaved=True, mrope_section=[6, 5, 5],
                                  rope_type="default"),
                bos_token_id=318, eos_token_id=319, dtype="bfloat16"),
            tie_word_embeddings=True, vision_config=VISION_3, dtype="bfloat16", **VISION_IDS)),
    # Experts one by one (the hub's names); the middle layer is dense; weights are not normed.
    "qwen3_moe": dict(
        dtype=torch.bfloat16, shards=1, seed=61, prompt=36, grid=None,
        config=dict(
            architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=32,
            num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
            intermediate_size=40, moe_intermediate_size=16, num_experts=5, num_experts_per_tok=3,
            norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[1], vocab_size=128,
            max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=1000000.0,
            rope_scaling=None, attention_bias=False, tie_word_embeddings=False, hidden_act="silu",
            use_sliding_window=False, sliding_window=None, max_window_layers=3,
            output_router_logits=False, router_aux_loss_coef=0.001,
            bos_token_id=126, eos_token_id=127, torch_dtype="bfloat16")),
    # Every second layer sparse, weights normed, one expert more than a power of two.
    "qwen3_moe_normed": dict(
        dtype=torch.float16, shards=1, seed=73, prompt=36, grid=None,
        config=dict(
            architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=32,
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
            intermediate_size=40, moe_intermediate_size=16, num_experts=9, num_experts_per_tok=2,
            norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[], vocab_size=128,
            max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=1000000.0,
            rope_scaling=None, attention_bias=False, tie_word_embeddings=False, hidden_act="silu",
            use_sliding_window=False, sliding_window=None, max_window_layers=2,
            output_router_logits=False, router_aux_loss_coef=0.001,
            bos_token_id=126, eos_token_id=127, torch_dtype="float16")),
    # Experts in two tensors, transposed, as the hub has them.
    "qwen3_vl_moe": dict(
        dtype=torch.bfloat16, shards=1, seed=81, prompt=39, grid=(2, 4, 3), transposed=True,
        config=dict(
            architectures=["Qwen3VLMoeForConditionalGeneration"], model_type="qwen3_vl_moe",
            text_config=dict(
                model_type="qwen3_vl_moe_text", hidden_size=32, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=48,
                moe_intermediate_size=24, num_experts=5, num_experts_per_tok=3,
                norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                vocab_size=128, max_position_embeddings=512, rms_norm_eps=1e-6,
                rope_theta=5000000.0, attention_bias=False, hidden_act="silu",
                rope_scaling=dict(mrope_interleaved=True, mrope_section=[4, 2, 2],
                                  rope_type="default"),
                bos_token_id=126, eos_token_id=127, dtype="bfloat16"),
            tie_word_embeddings=True, vision_config=dict(VISION_3, out_hidden_size=32),
            dtype="bfloat16", **VISION_IDS)),
}


def build(spec, folder):
    """The model of config.json in `folder`, with our own random weights, in F32."""
    config = transformers.AutoConfig.from_pretrained(folder, attn_implementation="eager")
    model_class = getattr(transformers, spec["config"]["architectures"][0])
    model = model_class._from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    text = spec["config"].get("text_config", spec["config"])
    n_layers = text["num_hidden_layers"]
    gen = torch.Generator().manual_seed(spec["seed"])
    tied = spec["config"]["tie_word_embeddings"]  # then a large embedding makes ids repeat
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if "visual" in name:
                p.zero_()
                continue
            x = torch.randn(p.shape, generator=gen)
            if name.endswith("norm.weight"):
                x = 1 + 0.2 * x
            elif p.ndim == 1:
                x = 0.3 * x
            elif "embed_tokens" in name:
                x = (0.25 if tied else 1.0) * x
            elif "lm_head" in name:
                x = 0.3 * x
            elif "o_proj" in name or "down_proj" in name:
                x = 3 * x / math.sqrt(p.shape[-1] * n_layers)
            elif "mlp.gate.weight" in name:  # a router that is neither flat nor decided
                x = 2 * x / math.sqrt(p.shape[1])
            else:
                x = 1.3 * x / math.sqrt(p.shape[-1])
            p.copy_(x.to(spec["dtype"]).float())
    return model


def write_shard(tensors, path):
    save_file(tensors, path, metadata={"format": "pt"})
    os.chmod(path, 0o644)


def save(model, spec, folder):
    """Text tensors under the names of the hub, in the stored type, in spec["shards"] files."""
    whole = os.path.join(folder, "whole")
    model.save_pretrained(whole)
    tensors = load_file(os.path.join(whole, "model.safetensors"))
    shutil.rmtree(whole)
    tensors = {k: v.to(spec["dtype"]).contiguous() for k, v in sorted(tensors.items())
               if "visual" not in k}
    if spec.get("transposed"):  # as the hub has them; transformers saves what it has in memory
        tensors = {k: v.transpose(1, 2).contiguous() if ".experts." in k else v
                   for k, v in tensors.items()}
    check_experts(tensors, spec)
    n = spec["shards"]
    if n == 1:
        write_shard(tensors, os.path.join(folder, "model.safetensors"))
        return
    total = sum(v.numel() * v.element_size() for v in tensors.values())
    shards, done = [{} for _ in range(n)], 0
    for k, v in tensors.items():
        shards[done * n // total][k] = v
        done += v.numel() * v.element_size()
    weight_map = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{n:05d}.safetensors"
        write_shard(shard, os.path.join(folder, file))
        weight_map.update({k: file for k in shard})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f, indent=1)
        f.write("\n")


def check_experts(tensors, spec):
    """Experts must be saved under the names and in the shapes of the hub's files."""
    text = spec["config"].get("text_config", spec["config"])
    if "num_experts" not in text:
        return
    e, h, i = (text[k] for k in ("num_experts", "hidden_size", "moe_intermediate_size"))
    fused = {k: list(v.shape) for k, v in tensors.items() if ".experts." in k}
    for k, shape in fused.items():
        if spec.get("transposed"):
            assert shape == ([e, h, 2 * i] if k.endswith("gate_up_proj") else [e, i, h]), (k, shape)
        else:
            assert shape == ([h, i] if k.endswith("down_proj.weight") else [i, h]), (k, shape)


def positions(n, grid):
    """[3, n] position numbers: text, a block of grid = (t, y, x) tokens, text again."""
    if grid is None:
        return torch.arange(n).expand(3, n).clone()
    t, y, x = grid
    first, block = 6, t * y * x
    cells = torch.cartesian_prod(torch.arange(t), torch.arange(y), torch.arange(x)).T + first
    cells[0] = (cells[0] - first) * 2 + first  # two ticks a frame, so that t is not the frame
    after = int(cells.max()) + 1
    tail = torch.arange(n - first - block) + after
    return torch.cat([torch.arange(first).expand(3, -1), cells, tail.expand(3, -1)], dim=1)


def forward(model, spec, ids, pos, **kw):
    """Logits etc. of ids [batch, n]; pos [3, n]."""
    pos = pos[:, None].expand(3, ids.shape[0], -1)
    if spec["grid"] is None:
        pos = pos[0]
    mask = torch.ones(ids.shape[0], kw.pop("seen", 0) + ids.shape[1], dtype=torch.long)
    with torch.no_grad():
        return model(input_ids=ids, position_ids=pos, attention_mask=mask, **kw)


def extend(pos, n):
    last = int(pos.max())
    return torch.cat([pos, (last + 1 + torch.arange(n)).expand(3, -1)], dim=1)


def margin(logits):
    top = logits.topk(2, dim=-1).values
    return top[..., 0] - top[..., 1]


def longest_run(ids):
    return max(len(list(group)) for _, group in itertools.groupby(ids))


def search_prompt(model, spec):
    """The candidate prompt with the widest smallest margin (all candidates in one batch)."""
    vocab = model.get_input_embeddings().weight.shape[0]
    n = spec["prompt"]
    gen = torch.Generator().manual_seed(spec["seed"] + 1000)
    prompts = torch.randint(0, vocab - 2, (N_CANDIDATES, n), generator=gen)
    pos = extend(positions(n, spec["grid"]), N_NEW)
    out = forward(model, spec, prompts, pos[:, :n], use_cache=True)
    least, made = torch.full((N_CANDIDATES,), math.inf), []
    for i in range(N_NEW):
        logits = out.logits[:, -1]
        least = torch.minimum(least, margin(logits))
        made.append(logits.argmax(-1))
        out = forward(model, spec, made[-1][:, None], pos[:, n + i:n + i + 1], seen=n + i,
                      use_cache=True, past_key_values=out.past_key_values)
    made = torch.stack(made, dim=1)
    distinct = torch.tensor([len(set(row.tolist())) for row in made])
    longest = torch.tensor([longest_run(row.tolist()) for row in made])
    least[(distinct < MIN_DISTINCT) | (longest > MAX_RUN)] = -1
    best = int(least.argmax())
    assert least[best] > 0, "no prompt with enough different ids"
    print(f"  prompt {best}: margin {least[best]:.3f}, {int(distinct[best])} different ids")
    return prompts[best]


def greedy(model, spec, prompt, pos):
    """N_NEW ids and margins, each from a fresh pass over the whole sequence."""
    ids, margins = prompt, []
    pos = extend(pos, N_NEW)
    for _ in range(N_NEW):
        logits = forward(model, spec, ids[None], pos[:, :len(ids)], use_cache=False).logits[0, -1]
        margins.append(float(margin(logits)))
        ids = torch.cat([ids, logits.argmax()[None]])
    return ids[len(prompt):], torch.tensor(margins)


def taps(model, spec, prompt, pos):
    """Hidden states after each layer, post-norm states, logits and attention of the prompt."""
    text = model.model.language_model if hasattr(model.model, "language_model") else model.model
    seen, hooks = {}, []

    def keep(name):
        def hook(module, args, output):
            seen[name] = (output[0] if isinstance(output, tuple) else output)[0].clone()
        return hook

    for i, layer in enumerate(text.layers):
        hooks.append(layer.register_forward_hook(keep(f"hidden.{i}")))
    hooks.append(text.norm.register_forward_hook(keep("norm")))
    out = forward(model, spec, prompt[None], pos, use_cache=False, output_attentions=True)
    for h in hooks:
        h.remove()
    assert len(out.attentions) == len(text.layers)
    attention = torch.stack([a[0] for a in out.attentions])  # [layer, head, query, key]
    return seen, out.logits[0], attention


class VecWriter:
    """Lines `name f|i rows cols`, each followed by one line per row."""

    def __init__(self, path, head):
        self.file = open(path, "w")
        for line in head:
            self.file.write(f"# {line}\n")

    def put(self, name, x):
        x = x if x.ndim == 2 else x[None]
        whole = not x.dtype.is_floating_point
        self.file.write(f"{name} {'i' if whole else 'f'} {x.shape[0]} {x.shape[1]}\n")
        for row in x.tolist():
            self.file.write(" ".join(str(v) if whole else f"{v:.9g}" for v in row) + "\n")

    def close(self):
        self.file.close()


def write_golden(model, spec, folder, name):
    prompt = search_prompt(model, spec)
    n = len(prompt)
    pos = positions(n, spec["grid"])
    ids, margins = greedy(model, spec, prompt, pos)
    seen, logits, attention = taps(model, spec, prompt, pos)
    assert int(logits[-1].argmax()) == int(ids[0])

    rows = torch.tensor([0, 1, 7, n // 2, n - 2, n - 1])
    queries = torch.tensor([n - 5, n - 3, n - 1])
    # The vision block where there is one, and two keys that not every query sees.
    keys = torch.cat([torch.arange(6, 6 + 24), torch.tensor([n - 4, n - 2])])
    picked = attention[:, :, queries][..., keys]
    renormed = picked / picked.sum(-1, keepdim=True)

    v = VecWriter(os.path.join(folder, "golden.vec"), [
        f"{name}: transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]},"
        " F32, eager attention", "written by tools/golden/make_golden.py; do not edit"])
    v.put("prompt", prompt)
    v.put("positions", pos)
    v.put("greedy", ids)
    v.put("margin", margins)
    v.put("rows", rows)
    for k in sorted(seen):
        v.put(k, seen[k][rows])
    v.put("logits", logits[rows])
    v.put("columns.query", queries)
    v.put("columns.key", keys)
    v.put("columns.all", picked.sum(dim=2).mean(dim=1))  # [layer, key]
    v.put("columns.given", renormed.sum(dim=2).mean(dim=1))
    v.close()
    print(f"  ids {ids.tolist()[:12]}... smallest margin {margins.min():.3f}")
    return prompt, pos, logits


def make(name, out):
    spec = MODELS[name]
    folder = os.path.join(out, name)
    print(name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(spec["config"], f, indent=2)
        f.write("\n")
    model = build(spec, folder)
    save(model, spec, folder)
    prompt, pos, logits = write_golden(model, spec, folder, name)

    # What was written, read back by the library itself, must be the same model.
    model_class = type(model)
    again = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    again.eval()
    same = forward(again, spec, prompt[None], pos, use_cache=False).logits[0]
    assert torch.equal(same, logits), "the saved model differs from the one in memory"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "../../tests/golden"))
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL",
                        help=f"of {', '.join(MODELS)} (default: all)")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()  # the vision towers are left out on purpose
    torch.set_num_threads(1)  # one order of summation
    for name in args.models:
        make(name, args.out)


if __name__ == "__main__":
    main()
