#!/usr/bin/env python3
"""Writes llava_onevision, qwen2_5_vl_video, qwen2_vl_video and qwen3_vl_video of tests/golden: tiny
random models with a vision tower, and what transformers makes of pictures and videos with them.

Each model is a whole Hugging Face directory: config.json, weights, a tokenizer of some 300 tokens
with the family's special tokens and chat template, the preprocessors' files. Beside it lies one
text file per case (format: README.md beside this script), which follows a prompt from pixels to
greedy ids. Pixels are not stored: both sides make them by one formula (vision_families.py).

Everything is computed in F32 with eager attention from weights rounded to the stored type. The
models are listed in vision_models.py; vision_families.py takes pictures and prompts through
transformers' own processors and chat templates. The words of the questions are searched: of
N_CANDIDATES the ones whose greedy answer has the widest smallest margin, so that rounding in another
engine does not decide it.
"""

import argparse
import json
import math
import os
import random
import shutil

import PIL.Image
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from make_golden import VecWriter, longest_run, margin, write_shard
from tokenizer_golden import SPLIT
from vision_families import Llava, Qwen2, Qwen25, Qwen3, resize_either_way
from vision_models import MODELS, RULES

FAMILIES = dict(llava_onevision=Llava, qwen2_5_vl=Qwen25, qwen2_vl=Qwen2, qwen3_vl=Qwen3)

N_NEW = 16
N_CANDIDATES = 96
MIN_DISTINCT = 8  # different ids in a greedy answer
MAX_RUN = 4       # times one id may follow itself
MIN_MARGIN = 0.01
N_MERGES = 36

WORDS = ("what who where when how is does the a red ball dog man car moves falls walks left right "
         "first last then after before behind room street tell describe count name").split()

# ---- inputs ----

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
            if "norm" in name and name.endswith("weight") or name.endswith("ln_q.weight"):
                x = 1 + 0.2 * x
            elif name.endswith("image_newline"):
                x = 0.8 * x
            elif p.ndim == 1:
                x = 0.2 * x
            elif "position_embedding" in name or "pos_embed" in name:
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


# ---- running ----

def embed(model, ids, width):
    x = model.get_input_embeddings()(ids).detach().clone()
    return torch.nn.functional.pad(x, (0, width - x.shape[1]))


def embeddings(model, inputs, rows):
    """Embeddings of the prompt with the media's rows in place, pictures and videos apart. Where
    these are wider (deepstack), the others end in zeros."""
    config = model.config
    x = embed(model, inputs["input_ids"][0], rows[0][1].shape[1])
    for is_video, token in ((0, config.image_token_id), (1, config.video_token_id)):
        mine = [r for v, r in rows if v == is_video]
        if mine:
            x[inputs["input_ids"][0] == token] = torch.cat(mine)
    return x


def run_at(model, x, pos):
    """Logits of embeddings [n, (1 + K) hidden] at positions [3, n]."""
    three = hasattr(model.model, "rope_deltas")
    x, *deep = x.split(model.get_input_embeddings().embedding_dim, dim=1)
    more = dict(visual_pos_masks=torch.ones((1, len(x)), dtype=torch.bool),
                deepstack_visual_embeds=deep) if deep else {}
    with torch.no_grad():
        hidden = model.model.language_model(
            inputs_embeds=x[None], position_ids=pos[:, None] if three else pos[:1],
            use_cache=False, **more).last_hidden_state
        return model.lm_head(hidden)[0]


def greedy_at(model, x, pos):
    """N_NEW ids and margins from a fresh pass each. New tokens follow the last, as in generate():
    also where that is not the largest position."""
    ids, margins = [], []
    for _ in range(N_NEW):
        logits = run_at(model, x, pos)[-1]
        margins.append(float(margin(logits)))
        ids.append(int(logits.argmax()))
        x = torch.cat([x, embed(model, torch.tensor([ids[-1]]), x.shape[1])])
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
    family = FAMILIES[files["config.json"]["model_type"]](model, folder)
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
