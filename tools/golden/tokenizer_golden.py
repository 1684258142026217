"""Write tests/golden/tokenizer: a small tokenizer like Qwen2.5's, and texts with their ids.

    python tools/golden/tokenizer_golden.py [OUT_DIR]

A byte-level BPE of some 800 merges is trained on the texts below, with the normalizer, split rule
and kinds of added tokens of Qwen2.5's tokenizer.json. Files:

    tokenizer.json            the whole; merges as pairs of strings
    vocab.json, merges.txt    the same tokens and merges in the older form
    tokenizer_config.json     what goes with that form: added tokens, named tokens, chat template
    cases.vec                 per case: `text` (hex), `nfc` (hex, when it differs), `ids`,
                              and `plain` (ids with control tokens not recognised, when other)
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers import models, normalizers, processors, trainers

import tokenizer_texts

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
           "<|video_pad|>"]
ADDED = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<thinker>", "ünï"]

CORPUS = """
The video shows a person walking down the street while the camera moves from left to right.
Then the frame changes and we're inside a room; it's small, and there isn't anyone in it. You are a
helpful assistant. They've placed a red ball on the table, and I'll describe what happens: the ball
rolls, falls and bounces three times. system user assistant What do you see in this video?
def main(argc, argv):\n    for i in range(10):\n        print(i, argv[i])\n    return 0\n
int x = 42; /* comment */ if (x > 10) { x += 1; }\n\n\thttp://example.com/index.html?id=12345
你好，世界！视频中有一个人在走路。今天天气很好，我们去公园。日本語のテキストです。カメラが動く。
한국어 문장입니다. Привет, как дела? Это видео. Γειά σου Κόσμε. café naïve déjà vu Straße
مرحبا بالعالم שלום עולם नमस्ते दुनिया 😀😃👍🏽🇩🇪👩‍👩‍👧‍👦 ... --- !!! ??? 1999 2024 3.14
""" * 3


def build():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                              use_regex=False)
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=256 + 800, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    texts = CORPUS.split("\n") + [CORPUS] + tokenizer_texts.pieces() * 2
    tok.train_from_iterator(texts, trainer)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in CONTROL])
    tok.add_tokens([AddedToken(t, normalized=False, special=False) for t in ADDED])
    return tok


def texts_for(tok):
    rng = random.Random(20)
    special = CONTROL + ADDED
    texts = tokenizer_texts.hand_picked(special)
    texts += [tokenizer_texts.random_text(rng, special) for _ in range(400)]
    seen, out = set(), []
    for t in texts:
        if t not in seen and len(t) <= 300:
            seen.add(t)
            out.append(t)
    return out


def without_control(tok):
    """The same tokenizer with control tokens taken for text."""
    other = Tokenizer.from_str(tok.to_str())
    other.encode_special_tokens = True
    return other


def write_cases(path, tok):
    plain_tok, nfc = without_control(tok), normalizers.NFC()
    with open(path, "w") as f:
        for text in texts_for(tok):
            ids = tok.encode(text, add_special_tokens=False).ids
            plain = plain_tok.encode(text, add_special_tokens=False).ids
            has_added = any(t in text for t in CONTROL + ADDED)
            f.write(f"text {text.encode().hex()}\n")
            if not has_added and nfc.normalize_str(text) != text:
                f.write(f"nfc {nfc.normalize_str(text).encode().hex()}\n")
            f.write("ids " + " ".join(map(str, ids)) + "\n")
            if plain != ids:
                f.write("plain " + " ".join(map(str, plain)) + "\n")


def write_old_form(out, tok):
    data = json.loads(tok.to_str())
    vocab = {k: v for k, v in sorted(data["model"]["vocab"].items(), key=lambda kv: kv[1])}
    with open(os.path.join(out, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump(vocab, f, ensure_ascii=False)
    with open(os.path.join(out, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n")
        for m in data["model"]["merges"]:
            f.write((m if isinstance(m, str) else " ".join(m)) + "\n")
    keys = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    config = {
        "added_tokens_decoder": {str(t["id"]): {k: t[k] for k in keys}
                                 for t in data["added_tokens"]},
        "bos_token": None, "eos_token": "<|im_end|>",
        "pad_token": {"content": "<|endoftext|>", "lstrip": False},
        "chat_template": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' "
                         "+ message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
                         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "tokenizer_class": "Qwen2Tokenizer",
    }
    with open(os.path.join(out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1, ensure_ascii=False)


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "tests/golden/tokenizer")
    os.makedirs(out, exist_ok=True)
    tok = build()
    tok.save(os.path.join(out, "tokenizer.json"), pretty=False)
    write_old_form(out, tok)
    write_cases(os.path.join(out, "cases.vec"), tok)
    print(f"{tok.get_vocab_size()} tokens, {sum(os.path.getsize(os.path.join(out, f)) for f in os.listdir(out))} bytes")


if __name__ == "__main__":
    main()
