"""Means over clips with bootstrap intervals, from the rows of `prevue-lab bench --csv`.

A figure of several clips is a quotient of sums (doc/bench.md), so long answers weigh more; the
interval is that of the quotient when clips are drawn again, with replacement. Of every method also
its difference from plain drafting with the whole video, on the same drawn clips (paired)."""

import csv
import random

RESAMPLES = 2000
SEED = 24
COLUMNS = ("panel", "curve", "x", "method", "clips", "tokens", "figure", "mean", "low", "high",
           "difference", "difference_low", "difference_high")

# figure: (numerator, denominator) of a row
PARTS = {
    "accepted_per_pass": lambda r: (accepted(r), rounds(r)),
    "mean_run": lambda r: (accepted(r) + rounds(r) - float(r["rejections"]),
                           float(r["rejections"])),
    "tokens_per_pass": lambda r: (float(r["tokens"]), float(r["passes"])),
    "acceptance": lambda r: (accepted(r), accepted(r) + float(r["rejections"])),
    "agreement": lambda r: (float(r["agreement"] or 1), 1),
    "same_text": lambda r: (float(r["agreement"] or 1) >= 1, 1),
    "video_kept": lambda r: (float(r["video_kept"] or 1), 1),
    "decode_ms": lambda r: (1e3 * float(r["decode_s"]), float(r["tokens"]) - 1),
    "prefill_s": lambda r: (float(r["prefill_s"]), 1),
    "total_s": lambda r: (float(r["total_s"]), 1),
}


def rounds(r):
    return float(len(r["accepted_by_round"].split()))


def accepted(r):
    return float(r["accepted_per_pass"]) * rounds(r)


def quotient(pairs):
    top, below = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    return top / max(below, 1)


def interval(values):
    values = sorted(values)
    return values[int(0.025 * len(values))], values[int(0.975 * len(values)) - 1]


def by_method(rows):
    out = {}
    for r in rows:
        out.setdefault(r["method"], {})[r["clip"]] = r
    return out


def estimate(mine, base, draws, part):
    """(mean, low, high) of a method, and of its difference from the base on the same clips."""
    mine = [part(r) for r in mine]
    base = [part(r) for r in base] if base else None
    mean = quotient(mine)
    samples, differences = [], []
    for draw in draws:
        one = quotient([mine[i] for i in draw])
        samples.append(one)
        if base:
            differences.append(one - quotient([base[i] for i in draw]))
    low, high = interval(samples)
    if not base:
        return mean, low, high, "", "", ""
    return (mean, low, high, mean - quotient(base), *interval(differences))


def summarise(rows, panels, path):
    found = by_method(rows)
    clips = sorted({r["clip"] for r in rows})
    clips = [c for c in clips if all(c in of for of in found.values())]
    rng = random.Random(SEED)
    draws = [[rng.randrange(len(clips)) for _ in clips] for _ in range(RESAMPLES)]
    out = []
    for panel in panels:
        points = [(curve, x, m) for curve, ps in panel.points.items() for x, m in ps if m in found]
        base = next((m for curve, _, m in points if curve == "full"), None)
        base = base or ("sd" if "sd" in found else None)
        for curve, x, m in points:
            mine = [found[m][c] for c in clips]
            other = [found[base][c] for c in clips] if base and base != m else None
            numbers = estimate(mine, other, draws, PARTS[panel.figure])
            out.append((panel.name, curve, x, m, len(clips),
                        int(sum(float(r["tokens"]) for r in mine)), panel.figure,
                        *(f"{v:.4f}" if v != "" else "" for v in numbers)))
    with open(path, "w", newline="", encoding="utf-8") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(COLUMNS)
        w.writerows(out)
