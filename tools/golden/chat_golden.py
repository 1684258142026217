#!/usr/bin/env python3
"""Writes tests/golden/chat/cases.txt: conversations, and the prompts that the chat templates of Qwen3
and Qwen3-VL make of them, rendered by transformers.

    chat_golden.py FOLDER

FOLDER has the templates as the hub has them: qwen3.jinja (Qwen3-0.6B), qwen3_vl.jinja (an Instruct
model) and qwen3_vl_thinking.jinja. They are not kept in this repository.

A case is a line `case TEMPLATE on|off` (thinking), a line for each message, and `want TEXT`. A message
is its role, a space and its parts, separated by `|`: V a video, P a picture, tTEXT. A backslash and n
stands for a newline. Reader: tests/unit/test_chat_golden.c.
"""

import argparse
import os

from transformers.utils.chat_template_utils import render_jinja_template

THOUGHT = "<think>\nhm, two\n</think>\n\n"
TALKS = [
    [("user", "tHi")],
    [("user", "t\n What do you see?\n")],
    [("system", "tBe brief."), ("user", "tHi")],
    [("user", "tA"), ("assistant", "tB"), ("user", "tC")],
    [("system", "tS"), ("user", "tA"), ("assistant", "t" + THOUGHT + "B\n"), ("user", "tC"),
     ("assistant", "tno thoughts"), ("user", "tD")],
    [("user", "tA"), ("assistant", "t<think>\n\n</think>\n\nB"), ("user", "tC")],
    [("user", "tA"), ("assistant", "t</think>B</think>\n\n\nC</thin"), ("user", "t</think>\nD")],
    [("user", "tA"), ("assistant", "t" + THOUGHT), ("user", "t")],
]
SIGHTS = [
    [("user", "V|tDescribe it.")],
    [("user", "tDescribe it.|V")],
    [("user", "tFirst |P|t, then\n|V|t?")],
    [("user", "V|P|V|tWhich?|P")],
    [("user", "V|tA|tB"), ("assistant", "tC"), ("user", "P")],
    [("system", "tS"), ("user", "tA|V"), ("assistant", "t" + THOUGHT[:12] + "|t" + THOUGHT[12:]
                                          + "|t\n|t\nB"), ("user", "P|tC")],
]


def part(text):
    if text in ("V", "P"):
        return {"type": "video" if text == "V" else "image"}
    return {"type": "text", "text": text[1:]}


def message(role, parts, plain):
    content = [part(p) for p in parts.split("|")]
    return {"role": role, "content": content[0]["text"] if plain else content}


def escape(text):
    assert "\\" not in text
    return text.replace("\n", "\\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "../../tests/golden/chat/cases.txt"))
    parser.add_argument("folder")
    args = parser.parse_args()
    with open(args.out, "w") as out:
        out.write("# written by tools/golden/chat_golden.py; do not edit\n")
        for name in ("qwen3", "qwen3_vl", "qwen3_vl_thinking"):
            with open(os.path.join(args.folder, name + ".jinja")) as f:
                template = f.read()
            text_only = name == "qwen3"
            for talk in TALKS + ([] if text_only else SIGHTS):
                for thinking in (True, False) if text_only else (True,):
                    messages = [message(role, parts, text_only) for role, parts in talk]
                    want = render_jinja_template(
                        conversations=[messages], chat_template=template,
                        add_generation_prompt=True, enable_thinking=thinking)[0][0]
                    out.write(f"case {name} {'on' if thinking else 'off'}\n")
                    for role, parts in talk:
                        out.write(f"{role} {escape(parts)}\n")
                    out.write(f"want {escape(want)}\n")


if __name__ == "__main__":
    main()
