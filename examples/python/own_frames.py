#!/usr/bin/env python3
"""Ask about frames that your program made itself: a numpy array, or any buffer of bytes [n, height, width, 3] in RGB.

    python3 own_frames.py [MODEL]

With OpenCV, whose channels are in the other order: prevue.Frames(numpy.stack(frames)[..., ::-1], fps).
"""

import sys

import prevue

FRAMES, FPS, SIDE, RADIUS = 16, 8.0, 128, 20


def draw(frame):
    """A red disc on grey that moves from left to right."""
    centre = RADIUS + frame * (SIDE - 2 * RADIUS) // (FRAMES - 1)
    pixels = bytearray([160, 160, 160] * SIDE * SIDE)
    for y in range(SIDE):
        for x in range(SIDE):
            if (x - centre) ** 2 + (y - SIDE // 2) ** 2 < RADIUS**2:
                pixels[3 * (y * SIDE + x) : 3 * (y * SIDE + x) + 3] = bytes([220, 30, 30])
    return bytes(pixels)


try:
    import numpy

    video = numpy.stack([numpy.frombuffer(draw(i), numpy.uint8).reshape(SIDE, SIDE, 3) for i in range(FRAMES)])
except ImportError:  # it works without
    video = memoryview(b"".join(draw(i) for i in range(FRAMES))).cast("B", (FRAMES, SIDE, SIDE, 3))

model = prevue.Model(sys.argv[1] if len(sys.argv) > 1 else prevue.default_model())
engine = prevue.Engine(model, max_context=8192)
print(engine.describe(prevue.Frames(video, FPS), max_tokens=64).text)
