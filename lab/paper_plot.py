"""Draws the summary of lab/paper: a panel for each sweep, a curve for each view or variant with
its 95 % interval, and the paper's own numbers as hollow diamonds. Standard library only."""

import csv
from html import escape

from paper_sweeps import PAPERS

COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
           "#9c6b4e", "#9498a0", "#1f77b4", "#d62728")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 460, 300, 52, 44, 150, 42


def read(path):
    panels = {}
    with open(path, newline="", encoding="utf-8") as f:
        for r in csv.DictReader(f):
            curve = panels.setdefault(r["panel"], {}).setdefault(r["curve"], [])
            curve.append(tuple(float(r[c]) for c in ("x", "mean", "low", "high")))
    return panels


class Axes:
    """From values to pixels; with `names` the places on the x axis are curves, side by side."""

    def __init__(self, curves, theirs):
        points = [p for ps in curves.values() for p in ps]
        xs = [p[0] for p in points] + [x for ps in theirs.values() for x, _ in ps]
        ys = [v for p in points for v in p[2:]] + [v for ps in theirs.values() for _, v in ps]
        self.names = list(curves) if len(set(xs)) == 1 else None
        self.low, self.high = min(xs), max(xs)
        span = (max(ys) - min(ys)) or 1
        self.bottom, self.top = min(ys) - 0.08 * span, max(ys) + 0.08 * span

    def x(self, value, curve):
        if self.names:
            share = (self.names.index(curve) + 0.5) / len(self.names)
        else:
            share = 0.03 + 0.94 * (value - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return TOP + (self.top - value) / (self.top - self.bottom) * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, size=11, anchor="start", colour="#333"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}">{escape(str(words))}</text>')


def grid(axes, curves, label, figure):
    out = [f'<rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" '
           f'height="{HEIGHT - TOP - BOTTOM}" fill="none" stroke="#bbb"/>']
    for i in range(5):
        v = axes.bottom + (axes.top - axes.bottom) * (i + 0.5) / 5
        y = axes.y(v)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                   'stroke="#eee"/>')
        out.append(text(LEFT - 5, y + 4, f"{v:.2f}" if axes.top < 20 else f"{v:.0f}", 10, "end"))
    if not axes.names:
        for v in sorted({p[0] for ps in curves.values() for p in ps}):
            out.append(text(axes.x(v, None), HEIGHT - BOTTOM + 14, f"{v:g}", 9, "middle"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, label, 11, "middle"))
    out.append(text(LEFT, TOP - 6, figure.replace("_", " "), 10, colour="#777"))
    return out


def curve_of(axes, name, points, colour):
    points = sorted(points)
    place = [(axes.x(p[0], name), axes.y(p[1])) for p in points]
    out = []
    if len(place) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in place)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    for (x, y), p in zip(place, points):
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axes.y(p[2]):.1f}" '
                   f'y2="{axes.y(p[3]):.1f}" stroke="{colour}"/>')
        out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
    return out


def draw_panel(panel, curves):
    theirs = {c: ps for c, ps in panel.theirs.items() if c in curves}
    axes = Axes(curves, theirs)
    out = [text(LEFT, 18, panel.title, 13)] + grid(axes, curves, panel.x, panel.figure)
    for i, (name, points) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        out += curve_of(axes, name, points, colour)
        for x, v in theirs.get(name, ()):
            a, b = axes.x(x, name), axes.y(v)
            out.append(f'<path d="M{a:.1f} {b - 5:.1f} l5 5 l-5 5 l-5 -5 z" fill="white" '
                       f'stroke="{colour}" stroke-width="1.5"/>')
        y = TOP + 10 + 15 * i
        out.append(f'<circle cx="{WIDTH - RIGHT + 12}" cy="{y - 4}" r="4" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 20, y, name, 10))
    if theirs:
        out.append(text(LEFT, 31, "diamonds: " + panel.note, 9, colour="#777"))
    return out


def draw(paper, summary, path):
    found = read(summary)
    panels = [p for p in PAPERS[paper] if p.name in found]
    columns = 2 if len(panels) > 1 else 1
    rows = (len(panels) + columns - 1) // columns
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * WIDTH}" '
           f'height="{rows * HEIGHT}" font-family="sans-serif">',
           '<rect width="100%" height="100%" fill="white"/>']
    for i, panel in enumerate(panels):
        out.append(f'<g transform="translate({i % columns * WIDTH} {i // columns * HEIGHT})">')
        out += draw_panel(panel, found[panel.name])
        out.append("</g>")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out + ["</svg>"]) + "\n")
