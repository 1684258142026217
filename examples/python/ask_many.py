#!/usr/bin/env python3
"""Ask several questions about one clip, in two ways.

    python3 ask_many.py MODEL clip.mp4 QUESTION...

A session is a conversation: each question sees the answers before it. Requests are independent of each other and run at
once; they share the video's tokens and the KV cache of its prefix.
"""

import sys

import prevue

if len(sys.argv) < 4:
    sys.exit("usage: ask_many.py MODEL VIDEO QUESTION...")
path, clip, questions = sys.argv[1], prevue.Video(sys.argv[2]), sys.argv[3:]
engine = prevue.Engine(prevue.Model(path), max_context=8192, kv_tokens=32768)

print("one after the other, as a conversation")
with engine.session() as session:
    session.add_video(clip)
    for question in questions:
        answer = session.ask(question, max_tokens=48)
        print("> %s\n%s   (%d of %d prompt tokens reused)" % (
            question, answer.text, answer.stats.reused_tokens, answer.stats.prompt_tokens))

print("all at once")
streams = [engine.stream(clip, question, max_tokens=48) for question in questions]
for question, stream in zip(questions, streams):
    print("> %s\n%s" % (question, stream.answer().text))
