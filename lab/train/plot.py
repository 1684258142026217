#!/usr/bin/env python3
"""Draws the figures of doc/nano.md as SVG: training.svg from the logs that the stages of training
wrote (loss and share right over minutes), accuracy.svg from the CSV of `evaluate` (objects and
motions right by number of frames). The SVG is written directly: text stays text, files stay small,
and the same numbers give the same bytes.
"""

import argparse
import csv
import math
import os
import sys
from dataclasses import dataclass, field
from html import escape

MODELS = {"nano": "#2b5f9e", "nano-draft": "#c2622a"}  # and their colours
TRAINED, UNSEEN = "trained", "twemoji"                 # styles, as evaluate's CSV calls them
INK, GREY, GRID, BAND = "#222222", "#666666", "#e3e3e3", "#f2f4f7"
SMOOTH = 9       # rows of a log that a line averages, four before and four after
PANEL = 330, 200  # pixels of a panel's inside
MARGIN = 58, 62, 40, 46  # around it: left, right, top, bottom
LEGEND = 30      # pixels at the top of a figure
LABEL_STEP = 13  # pixels between two direct labels at least
DASHED = "5 4"


def stop(text):
    sys.exit(f"plot: {text}")


@dataclass
class Axis:
    """From low to high; ticks are (value, text)."""
    low: float
    high: float
    ticks: list
    label: str
    log: bool = False

    def place(self, v, begin, end):
        low, high = self.low, self.high
        if self.log:
            v, low, high = (math.log(max(x, 1e-9)) for x in (v, low, high))
        return begin + (end - begin) * (v - low) / (high - low)


@dataclass
class Line:
    points: list
    colour: str
    name: str
    dash: str = ""
    dots: bool = False
    faint: bool = False  # the numbers that another line is the average of
    end: str = ""        # text beside its last point


@dataclass
class Panel:
    title: str
    x: Axis
    y: Axis
    lines: list
    band: tuple = field(default=())  # (from, to, text): a stretch of x that has a meaning


# ---- axes ----

def nice_step(width, about):
    """The step of 1, 2 or 5 tens that gives about so many ticks."""
    raw = width / about
    ten = 10 ** math.floor(math.log10(raw))
    return next(m * ten for m in (1, 2, 5, 10) if m * ten >= raw * 0.999)


def minutes_axis(end):
    end = max(end, 0.1)
    step = nice_step(end, 6)
    ticks = [(i * step, f"{i * step:g}") for i in range(int(end / step + 1e-6) + 1)]
    return Axis(0, end, ticks, "minutes")


def share_axis(values=(0,)):
    """From 0 where that leaves the lines room enough, else from below the least of them."""
    low = max(v for v in (0, 50, 80, 90) if v == 0 or v <= 100 * min(values) - 2)
    step = round(nice_step(100 - low, 5))
    return Axis(low / 100, 1, [(v / 100, f"{v} %") for v in range(low, 101, step)], "")


def loss_axis(values):
    """A logarithmic one, from a tick to a tick."""
    low, high = min(values), max(values)
    marks = [m * 10.0 ** e for e in range(-6, 5) for m in (1, 2, 5)]
    low = max([m for m in marks if m <= low] or [low])
    high = min([m for m in marks if m >= high] or [high])
    if low == high:
        high = low * 2
    inside = [m for m in marks if low <= m <= high]
    if len(inside) > 7:
        inside = [m for m in inside if f"{m:e}"[0] == "1"]
    return Axis(low, high, [(m, f"{m:g}") for m in inside], "", True)


def frames_axis(numbers):
    pad = 1.12
    return Axis(min(numbers) / pad, max(numbers) * pad, [(n, str(n)) for n in numbers], "frames",
                True)


# ---- SVG ----

def text(x, y, words, size=11, colour=GREY, anchor="start", weight=""):
    bold = f' font-weight="{weight}"' if weight else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
            f'text-anchor="{anchor}"{bold}>{escape(words)}</text>')


def rule(x1, y1, x2, y2, colour=GRID, width=1, dash=""):
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"{dashed}/>')


def draw_axes(p, x0, y0, x1, y1):
    """Grid, ticks and names of a panel whose inside is x0..x1, y0 (bottom)..y1 (top)."""
    out = []
    if p.band:
        a, b = (p.x.place(v, x0, x1) for v in p.band[:2])
        out += [f'<rect x="{a:.1f}" y="{y1:.1f}" width="{b - a:.1f}" height="{y0 - y1:.1f}" '
                f'fill="{BAND}"/>',
                text((a + b) / 2, y1 + 13 if p.y.log else y0 - 6, p.band[2], 10, GREY, "middle")]
    for v, word in p.y.ticks:
        y = p.y.place(v, y0, y1)
        out += [rule(x0, y, x1, y), text(x0 - 7, y + 4, word, anchor="end")]
    for v, word in p.x.ticks:
        x = p.x.place(v, x0, x1)
        out += [rule(x, y0, x, y0 + 4, GREY), text(x, y0 + 17, word, anchor="middle")]
    out += [rule(x0, y0, x1, y0, GREY), text((x0 + x1) / 2, y0 + 33, p.x.label, anchor="middle"),
            text(x0, y1 - 14, p.title, 13, INK, weight="bold")]
    return out


def draw_line(p, line, x0, y0, x1, y1):
    def clip(v):
        return min(max(v, p.y.low), p.y.high)
    at = [(p.x.place(x, x0, x1), p.y.place(clip(y), y0, y1)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    dashed = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    look = 'stroke-width="1" stroke-opacity="0.22"' if line.faint else 'stroke-width="2"'
    out = [f'<polyline points="{path}" fill="none" stroke="{line.colour}" {look} '
           f'stroke-linejoin="round"{dashed}/>']
    if line.dots:
        inside = "#ffffff" if line.dash else line.colour
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{inside}" '
                f'stroke="{line.colour}" stroke-width="1.5"/>' for x, y in at]
    return out, at[-1][1]


def draw_labels(ends, x):
    """Texts beside the lines' ends, pushed apart where they would overlap."""
    ends = sorted(ends)
    ys = [e[0] for e in ends]
    for _ in range(50):
        for i in range(len(ys) - 1):
            lack = LABEL_STEP - (ys[i + 1] - ys[i])
            if lack > 0:
                ys[i], ys[i + 1] = ys[i] - lack / 2, ys[i + 1] + lack / 2
    return [text(x + 8, y + 4, e[2], 11, e[1]) for y, e in zip(ys, ends)]


def draw_panel(p, left, top):
    x0, y1 = left + MARGIN[0], top + MARGIN[2]
    x1, y0 = x0 + PANEL[0], y1 + PANEL[1]
    out, ends = draw_axes(p, x0, y0, x1, y1), []
    for line in sorted(p.lines, key=lambda a: not a.faint):
        drawn, y = draw_line(p, line, x0, y0, x1, y1)
        out += drawn
        if line.end:
            ends.append((y, line.colour, line.end))
    return out + draw_labels(ends, x1)


def draw_legend(entries, left, y):
    out = []
    for name, colour, dash in entries:
        out += [rule(left, y, left + 26, y, colour, 2, dash), text(left + 32, y + 4, name, 12, INK)]
        left += 32 + 6.6 * len(name) + 22
    return out


def figure(path, panels, columns, legend):
    cell = [MARGIN[0] + PANEL[0] + MARGIN[1], MARGIN[2] + PANEL[1] + MARGIN[3]]
    width, height = cell[0] * columns, LEGEND + cell[1] * math.ceil(len(panels) / columns)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    out += draw_legend(legend, MARGIN[0], 20)
    for i, p in enumerate(panels):
        out += draw_panel(p, cell[0] * (i % columns), LEGEND + cell[1] * (i // columns))
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n</svg>\n")
    print(f"{path}: {os.path.getsize(path)} bytes")


# ---- what is drawn ----

def read_rows(path, columns):
    try:
        with open(path, newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
    except OSError as e:
        stop(f"{path}: {e.strerror}")
    if not rows or any(c not in rows[0] for c in columns):
        stop(f"{path}: needs rows with the columns {', '.join(columns)}")
    return rows


def series(path, rows, column):
    try:
        return [(float(r["minutes"]), float(r[column])) for r in rows]
    except ValueError as e:
        stop(f"{path}: {e}")


def smooth(points):
    half, out = SMOOTH // 2, []
    for i, (x, _) in enumerate(points):
        n = min(half, i)  # the first ones change too fast to be averaged with many
        near = points[i - n:i + n + 1]
        out.append((x, sum(y for _, y in near) / len(near)))
    return out


def told_loss(v):
    return f"{v:.2f}" if v >= 0.1 else f"{v:.3f}"


def told_share(v):
    return f"{100 * v:.1f} %"


def pair(points, colour, name, form, dash=""):
    """A log's numbers, faint, and their average with its last value."""
    mean = smooth(points)
    return [Line(points, colour, name, faint=True),
            Line(mean, colour, name, dash, end=form(mean[-1][1]))]


def growth(rows):
    """When the longest clips of stage 2 began to grow, and when they ended to."""
    longest = [int(r["longest"]) for r in rows]
    minutes = [float(r["minutes"]) for r in rows]
    begin = max([m for m, n in zip(minutes, longest) if n == longest[0]])
    end = min([m for m, n in zip(minutes, longest) if n == max(longest)])
    return (begin, end, f"clips grow: {longest[0]} to {max(longest)}") if end > begin else ()


def training_panels(folder):
    """Loss and share right of both models, stage by stage."""
    panels = []
    for stage, told in (("1", ()), ("2", ("tokens_right", "longest"))):
        loss, right, end, band = [], [], 0, ()
        for model, colour in MODELS.items():
            path = os.path.join(folder, f"{model}-stage{stage}.csv")
            rows = read_rows(path, ("minutes", "loss", "things_right", *told))
            points = series(path, rows, "loss")
            loss += pair(points, colour, model, told_loss)
            right += pair(series(path, rows, "things_right"), colour, model, told_share,
                          DASHED if told else "")
            if told:
                right += pair(series(path, rows, "tokens_right"), colour, model, told_share)
                band = band or growth(rows)
            end = max(end, points[-1][0])
        y = loss_axis([v for line in loss for _, v in line.points if v > 0])
        name = ("Stage 1, seeing", "Stage 2, telling")[int(stage) - 1]
        what = "things and next tokens right" if told else "things right"
        panels += [Panel(f"{name}: loss", minutes_axis(end), y, loss, band),
                   Panel(f"{name}: {what}", minutes_axis(end), share_axis(), right, band)]
    return panels


def accuracy_panels(path):
    rows = read_rows(path, ("model", "style", "frames", "slot", "right", "total"))
    panels = []
    for slot, title in (("object", "Objects named right"), ("motion", "Motions named right")):
        lines, numbers = [], set()
        for model, colour in MODELS.items():
            for style, dash in ((TRAINED, ""), (UNSEEN, DASHED)):
                points = sorted({int(r["frames"]): int(r["right"]) / int(r["total"]) for r in rows
                                 if (r["model"], r["style"], r["slot"]) == (model, style, slot)
                                 and int(r["total"])}.items())
                if not points:
                    print(f"plot: {path}: nothing about {slot}s, {model}, style {style}",
                          file=sys.stderr)
                    continue
                numbers |= {n for n, _ in points}
                lines.append(Line(points, colour, model, dash, True, end=told_share(points[-1][1])))
        if not lines:
            stop(f"{path}: has no row that a figure shows")
        y = share_axis([v for line in lines for _, v in line.points])
        panels.append(Panel(title, frames_axis(sorted(numbers)), y, lines))
    return panels


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("logs", metavar="LOGDIR", help="with MODEL-stage1.csv and MODEL-stage2.csv")
    a.add_argument("--results", metavar="FILE", help="CSV of evaluate (LOGDIR/evaluate.csv)")
    a.add_argument("-o", dest="out", required=True, metavar="DIR")
    args = a.parse_args()
    os.makedirs(args.out, exist_ok=True)
    both = [(m, c, "") for m, c in MODELS.items()]
    figure(os.path.join(args.out, "training.svg"), training_panels(args.logs), 2,
           both + [("next tokens right", GREY, ""), ("things right (stage 2)", GREY, DASHED)])
    results = args.results or os.path.join(args.logs, "evaluate.csv")
    if not args.results and not os.path.exists(results):
        print(f"plot: {results}: not there, so no accuracy.svg", file=sys.stderr)
        return
    figure(os.path.join(args.out, "accuracy.svg"), accuracy_panels(results), 2,
           [(f"{m}, {s}", c, d) for m, c in MODELS.items()
            for s, d in (("styles trained on", ""), ("unseen style", DASHED))])


if __name__ == "__main__":
    main()
