#!/usr/bin/env python3
"""Describe a video, printing the words as they come.

    python3 describe_clip.py clip.mp4 [QUESTION] [--model MODEL] [--head HEAD] [--draft MODEL]
"""

import argparse

import prevue

parser = argparse.ArgumentParser()
parser.add_argument("video")
parser.add_argument("question", nargs="?", default="Describe the video.")
parser.add_argument("--model", help="GGUF file or Hugging Face directory (default: nano, the small one that comes with prevue)")
parser.add_argument("--head", help="a draft head made for the model")
parser.add_argument("--draft", help="a smaller model of the family")
parser.add_argument("--frames", type=int, default=0, help="how many frames the model sees (default: as the model has it)")
parser.add_argument("--max-tokens", type=int, default=128)
args = parser.parse_args()

model = prevue.Model(args.model or prevue.default_model(), head=args.head)
draft = prevue.Model(args.draft, shares_with=model) if args.draft else None
engine = prevue.Engine(model, draft=draft)
video = prevue.Video(args.video, frames=args.frames)
with engine.stream(video, args.question, max_tokens=args.max_tokens) as stream:
    for piece in stream:
        print(piece, end="", flush=True)
    stats = stream.answer().stats
print()
print("%d tokens in %d passes, %.1f tokens/s" % (stats.tokens, stats.passes, stats.tokens_per_second))
