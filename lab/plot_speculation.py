#!/usr/bin/env python3
"""Draws what lab/speculation measured, as SVG: views.svg (accepted tokens a pass over the share
of video tokens pruned, a line for each view) from CSVDIR/views.csv, presets.svg (speed-up of every
preset, by number of frames) from CSVDIR/presets.csv. Columns are found by name, so bench may get
new ones. Axes, lines and labels are those of lab/train/plot.py.
"""

import argparse
import math
import os
import sys
from itertools import groupby

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "train"))
from plot import (Axis, DASHED, GREY, GRID, INK, LABEL_STEP, Line, Panel, draw_axes,  # noqa: E402
                  draw_legend, draw_line, read_rows, rule, stop, text)

# Views and their colours. Solid: the model's attention or states guide them; dashed: nothing does.
GUIDED = {"attention": "#c2622a", "specvlm": "#2b5f9e", "holistic": "#2e8b57",
          "alignment": "#8e44ad"}
BLIND = {"random": "#7f7f7f", "uniform": "#b8860b", "window-back": "#d1495b", "frame": "#17a2b8",
         "fastvid-exact": "#6b8e23", "dycoke-exact": "#b565a7"}
NOTHING = "none"
SHAPES = {"sd": "chain of 5", "sd-tree": "tree of 25"}  # the methods that lab/speculation asks
LEAST_KEPT = 0.001  # where a log axis ends at the latest
VIEWS_PANEL, VIEWS_MARGIN = (330, 250), (46, 104, 46, 46)  # left, right, top, bottom
KINDS = {"serial": "#2b5f9e", "parallel": "#c2622a", "auto": "#2e8b57"}  # schedules
BAR, ROW, BARS, NAMES = 9, 19, 170, 96  # pixels: a bar, its row, the longest bar, methods' names
WRONG = "#c00000"


def number(row, column):
    try:
        return float(row[column])
    except ValueError:
        stop(f"\"{row[column]}\" is not a number of column {column}")


def figure(path, size, body):
    width, height = size
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>', *body, "</svg>"]) + "\n")
    print(f"{path}: {os.path.getsize(path)} bytes")


def by_frames(rows):
    """(frames, its rows), from few frames to many."""
    rows = sorted(rows, key=lambda r: int(r["frames"]))
    return [(n, list(g)) for n, g in groupby(rows, key=lambda r: int(r["frames"]))]


# ---- views ----

def view_lines(rows):
    lines, most = [], 1 - max(number(r, "ratio") for r in rows if r["ratio"])
    for view, colour in {**BLIND, **GUIDED}.items():
        points = sorted((-max(1 - number(r, "ratio"), LEAST_KEPT), number(r, "accepted_per_pass"))
                        for r in rows if r["view"] == view and r["ratio"])
        if points:
            lines.append(Line([(-x, y) for x, y in points], colour, view,
                              DASHED if view in BLIND else "", end=view))
    for r in rows:
        if r["view"] == NOTHING:
            y = number(r, "accepted_per_pass")
            lines.append(Line([(1, y), (max(most, LEAST_KEPT), y)], INK, NOTHING, "1 4",
                              end="no video"))
    return lines


def view_panel(frames, shape, rows, low, high):
    """Shares kept fall to the right on a log axis, so that 0.9, 0.95 and 0.99 lie apart."""
    ratios = sorted({number(r, "ratio") for r in rows if r["ratio"]})
    ticks = [(max(1 - r, LEAST_KEPT), f"{r:g}") for r in ratios]
    steps = [low + i / 2 for i in range(round(2 * (high - low)) + 1)]
    return Panel(f"{frames} frames, {shape}",
                 Axis(1, ticks[-1][0], ticks,
                      "share of the video tokens that the drafter does not see", True),
                 Axis(low, high, [(v, f"{v:g}") for v in steps], ""), view_lines(rows))


def spread(ends, low, high):
    """Places for labels, each as near to its own as the others and the panel allow."""
    places = [max(min(y, high), low) for y, *_ in ends]
    for _ in range(200):
        for i in range(len(places) - 1):
            lack = LABEL_STEP - (places[i + 1] - places[i])
            if lack > 0:
                places[i], places[i + 1] = places[i] - lack / 2, places[i + 1] + lack / 2
        shift = max(low - places[0], 0) - max(places[-1] - high, 0)
        places = [p + shift for p in places]
    return places


def draw_views(p, left, top):
    x0, y1 = left + VIEWS_MARGIN[0], top + VIEWS_MARGIN[2]
    x1, y0 = x0 + VIEWS_PANEL[0], y1 + VIEWS_PANEL[1]
    out, ends = draw_axes(p, x0, y0, x1, y1), []
    for line in p.lines:
        drawn, y = draw_line(p, line, x0, y0, x1, y1)
        out += drawn
        ends.append((y, line.colour, line.end))
    ends.sort()
    for place, (y, colour, name) in zip(spread(ends, y1, y0), ends):
        out += [rule(x1 + 2, y, x1 + 14, place, colour, 0.8),
                text(x1 + 17, place + 4, name, 11, colour)]
    return out


def plot_views(path, out):
    rows = read_rows(path, ("view", "frames", "method", "ratio", "accepted_per_pass"))
    rows = [r for r in rows if r["method"] in SHAPES]
    if not any(r["ratio"] for r in rows):
        stop(f"{path}: has no row of {' or '.join(SHAPES)} with a ratio")
    values = [number(r, "accepted_per_pass") for r in rows]
    low = math.floor(2 * min(values)) / 2
    high = max(math.ceil(2 * max(values)) / 2, low + 0.5)
    panels = [view_panel(frames, shape, group, low, high)
              for frames, some in by_frames(rows) for method, shape in SHAPES.items()
              for group in [[r for r in some if r["method"] == method]]
              if any(r["ratio"] for r in group)]
    cell = [VIEWS_MARGIN[0] + VIEWS_PANEL[0] + VIEWS_MARGIN[1],
            VIEWS_MARGIN[2] + VIEWS_PANEL[1] + VIEWS_MARGIN[3]]
    body = [text(VIEWS_MARGIN[0], 20, "Drafted tokens accepted a pass", 14, INK, weight="bold")]
    body += draw_legend([("guided by the model", GREY, ""), ("not guided", GREY, DASHED)],
                        VIEWS_MARGIN[0] + 290, 16)
    for i, p in enumerate(panels):
        body += draw_views(p, cell[0] * (i % 2), 26 + cell[1] * (i // 2))
    figure(os.path.join(out, "views.svg"),
           (cell[0] * min(2, len(panels)), 26 + cell[1] * ((len(panels) + 1) // 2)), body)


# ---- presets ----

def speeds(rows):
    """[(method, decode speed-up, total speed-up, accepted a pass, schedule, identical)], of the
    clips of one number of frames together; quotients of sums, as bench has them."""
    sums = {}
    for r in rows:
        s = sums.setdefault((r["method"], r["ratio"]), {"schedule": r["schedule"], "wrong": False})
        passes = number(r, "passes") - 1
        for name, v in (("tokens", number(r, "tokens") - 1), ("decode", number(r, "decode_s")),
                        ("total", number(r, "total_s")), ("passes", passes),
                        ("accepted", passes * number(r, "accepted_per_pass"))):
            s[name] = s.get(name, 0) + v
        s["wrong"] = s["wrong"] or r["identical"] != "yes"
    ar = sums.get(("ar", ""))
    if not ar:
        stop("presets.csv: a number of frames has no row of ar")
    return [(method, s["tokens"] / s["decode"] / (ar["tokens"] / ar["decode"]),
             ar["total"] / s["total"], s["accepted"] / max(s["passes"], 1), s["schedule"],
             not s["wrong"]) for (method, _), s in sums.items() if method != "ar"]


def dot(x, y):
    return (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#ffffff" stroke="{INK}" '
            f'stroke-width="1.2"/>')


def draw_bars(found, x0, top, longest):
    """Rows of bars from x0; the line of ar stands at 1."""
    out, one = [], x0 + BARS / longest
    for i, (_, decode, total, accepted, schedule, same) in enumerate(found):
        y, width = top + i * ROW, BARS * decode / longest
        end = x0 + BARS * total / longest
        note = f"{decode:.2f}x, {accepted:.1f}" if same else f"{decode:.2f}x, DIFFERS"
        out += [f'<rect x="{x0:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" '
                f'fill="{KINDS.get(schedule, GREY)}"/>',
                dot(end, y + BAR / 2),
                text(max(x0 + width, end + 4, one) + 5, y + BAR - 0.5, note, 10.5,
                     INK if same else WRONG)]
    return out + [rule(one, top - 7, one, top + len(found) * ROW - 5, INK, 1, "3 3"),
                  text(one, top - 11, "ar", 10.5, INK, "middle"),
                  rule(x0, top - 7, x0, top + len(found) * ROW - 5, GRID)]


def plot_presets(path, out):
    rows = read_rows(path, ("frames", "method", "ratio", "tokens", "passes", "accepted_per_pass",
                            "decode_s", "total_s", "identical", "schedule"))
    groups = [(n, speeds(some)) for n, some in by_frames(rows)]
    longest = max(1, *(v for _, found in groups for _, *both in found for v in both[:2]))
    panel, top = BARS + 100, 106
    names = [m for m, *_ in groups[0][1]]
    body = [text(14, 22, "Speed-up over plain decoding (ar)", 14, INK, weight="bold")]
    body += draw_legend([(f"decoding, {kind}", colour, "") for kind, colour in KINDS.items()],
                        114, 44)
    body += [dot(20, 44), text(28, 48, "end to end", 12, INK)]
    body += [text(NAMES + 14, top + i * ROW + BAR, m, 11, INK, "end") for i, m in enumerate(names)]
    for k, (frames, found) in enumerate(groups):
        x0 = NAMES + 22 + k * panel
        if [m for m, *_ in found] != names:
            stop(f"{path}: the methods of {frames} frames are not those of {groups[0][0]}")
        body += [text(x0, top - 30, f"{frames} frames", 13, INK, weight="bold")]
        body += draw_bars(found, x0, top, longest)
    wrong = any(not same for _, found in groups for *_, same in found)
    end = top + len(names) * ROW + 16
    words = "Some answers are not" if wrong else "All answers are, to the token,"
    body.append(text(14, end, "Behind each bar: decode speed-up, drafted tokens accepted a pass. "
                     f"{words} those of ar.", 11))
    figure(os.path.join(out, "presets.svg"),
           (max(NAMES + 22 + len(groups) * panel, 660), end + 14), body)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("folder", metavar="CSVDIR", help="with views.csv or presets.csv, or both")
    a.add_argument("-o", dest="out", required=True, metavar="DIR")
    args = a.parse_args()
    os.makedirs(args.out, exist_ok=True)
    there = 0
    for name, draw in (("views.csv", plot_views), ("presets.csv", plot_presets)):
        path = os.path.join(args.folder, name)
        if os.path.exists(path):
            draw(path, args.out)
            there += 1
        else:
            print(f"plot: {path}: not there", file=sys.stderr)
    if not there:
        sys.exit(1)


if __name__ == "__main__":
    main()
