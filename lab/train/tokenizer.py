"""Train the nano family's tokenizer: a byte-level BPE of 3072 entries in the form of Qwen2's.

    python3 lab/train/tokenizer.py --sprites DIR -o DIR

The corpus is the text of the synthetic world (descriptions, questions, answers, prompts) with the
names of the objects given extra weight, so that most words of a name are one token: what the model
has to see in the pixels should be few decisions. Normaliser, split rule, decoder and control tokens
are those of Qwen2.5, with <image> and <video> behind them as LLaVA-OneVision has it; all of these
stand at the end of the vocabulary. Files: tokenizer.json, tokenizer_config.json, and the chat
template as chat_template.jinja (what transformers writes) and chat_template.json (older form).
"""

import argparse
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from world import names as grammar  # noqa: E402
from world import words  # noqa: E402

SIZE = 3072
STYLE = "fluent-emoji-flat"  # its names are the world's objects
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>",
           "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
           "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
           "<image>", "<video>"]
CLIPS = 4000
INSIDE, OPENING = 400, 20  # weight of a name after a space, and at the beginning of a text
CONTENTS = "{%% for content in message['content'] | selectattr('type', 'equalto', '%s') %%}"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{# Render all images first #}" + CONTENTS % "image" + "{{ '<image>' }}{% endfor %}"
    "{# Render all video then #}" + CONTENTS % "video" + "{{ '<video>' }}{% endfor %}"
    "{# Render all text next #}{% if message['role'] != 'assistant' %}" + CONTENTS % "text"
    + "{{ '\\n' + content['text'] }}{% endfor %}{% else %}" + CONTENTS % "text"
    + "{% generation %}{{ '\\n' + content['text'] }}{% endgeneration %}{% endfor %}{% endif %}"
    "{{'<|im_end|>'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def corpus(names):
    """Texts of the world, the same at every call."""
    rng = random.Random(4)
    for _ in range(50):
        yield from words.PROMPTS
        yield from ("user", "assistant", "system", " user", " assistant", "\n")
    for name in names:
        for _ in range(INSIDE):
            yield " " + name
        for _ in range(OPENING):
            yield name
    for _ in range(CLIPS):
        clip = words.random_clip(rng, names)
        yield words.describe(clip)
        for _, question, answer in words.questions(clip, rng):
            yield question
            yield answer


def train(names):
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                              use_regex=False)
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=SIZE - len(CONTROL), min_frequency=2,
                                  show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(corpus(names), trainer)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in CONTROL])
    return tok


def write(tok, out):
    os.makedirs(out, exist_ok=True)
    tok.save(os.path.join(out, "tokenizer.json"), pretty=False)
    keys = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    added = json.loads(tok.to_str())["added_tokens"]
    config = {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(t["id"]): {k: t[k] for k in keys} for t in added},
        "additional_special_tokens": CONTROL[1:2] + CONTROL[3:],
        "bos_token": None, "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": 32768,
        "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
    }
    for name, data in (("tokenizer_config.json", config),
                       ("chat_template.json", {"chat_template": CHAT_TEMPLATE})):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            json.dump(data, f, indent=1, ensure_ascii=False)
            f.write("\n")
    with open(os.path.join(out, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(CHAT_TEMPLATE)


def check(tok, names):
    """The size, the place of the control tokens, and that the world's text survives."""
    assert tok.get_vocab_size() == SIZE, f"{tok.get_vocab_size()} entries, not {SIZE}"
    assert [tok.token_to_id(t) for t in CONTROL] == list(range(SIZE - len(CONTROL), SIZE))
    rng, lengths = random.Random(5), {}
    for _ in range(2000):
        clip = words.random_clip(rng, names)
        text = words.describe(clip)
        ids = tok.encode(text).ids
        assert tok.decode(ids) == text, text
        lengths.setdefault(len(clip.scenes), []).append(len(ids))
    for scenes, found in sorted(lengths.items()):
        print(f"description of {scenes} scenes: tokens least {min(found)}, mean "
              f"{sum(found) / len(found):.0f}, most {max(found)}")
    counts = [len(tok.encode(" " + name).ids) for name in names]
    per_word = [len(tok.encode(" " + word).ids) for name in names for word in name.split()]
    print(f"{len(names)} names after a space: {sum(counts) / len(counts):.2f} tokens each, "
          f"{sum(c == 1 for c in counts)} are one, {sum(c == 2 for c in counts)} two, most "
          f"{max(counts)}; a word of a name {sum(per_word) / len(per_word):.2f}")


def main():
    parser = argparse.ArgumentParser(description="Train the tokenizer of the nano family.")
    parser.add_argument("--sprites", required=True, metavar="DIR", help="folder of manifest.tsv")
    parser.add_argument("-o", "--output", required=True, metavar="DIR")
    args = parser.parse_args()
    names = grammar.from_manifest(os.path.join(args.sprites, "manifest.tsv"), STYLE)
    tok = train(names)
    check(tok, names)
    write(tok, args.output)
    print(f"{tok.get_vocab_size()} entries to {args.output}")


if __name__ == "__main__":
    main()
