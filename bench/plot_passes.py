#!/usr/bin/env python3
"""Draws an answer as SVG: its words, grouped by the pass of the model that produced them, coloured by
who proposed them. Needs Python alone.

    prevue serve &
    curl http://127.0.0.1:8080/v1/chat/completions -d '{"prevue": {"method": "sd"}, "messages": ...}' >reply.json
    bench/plot_passes.py reply.json -o doc/speculation/passes.svg
"""
import argparse
import json
from xml.sax.saxutils import escape

# Widths of Helvetica's characters in thousandths of the font size; textLength makes up for other fonts.
WIDTH = {" ": 278, ".": 278, ",": 278, "-": 333, "'": 191, "I": 278, "m": 833, "w": 722, "M": 833, "W": 944}
WIDTH.update({c: 222 for c in "ijl"})
WIDTH.update({c: 278 for c in "ft"})
WIDTH.update({c: 500 for c in "ckvxyz"})
WIDTH["s"], WIDTH["r"] = 500, 333
SIZE, GAP, PAD, ROW, SIDE = 13, 7, 4, 27, 900
DRAFTED, OWN, INK = "#cfe8d5", "#f6c9a0", "#222222"


def width(text):
    return sum(WIDTH.get(c, 667 if c.isupper() else 556) for c in text) * SIZE / 1000


def tokens(reply):
    """(text, proposed by the drafter) of each token of the first answer."""
    choice = reply["choices"][0]
    text, at = choice["message"]["content"].encode(), 0
    for drafted, length in zip(choice["prevue"]["drafted"], choice["prevue"]["lengths"]):
        yield text[at:at + length].decode(errors="replace"), drafted == "1"
        at += length


def passes(reply):
    """Tokens by pass: a pass ends with the token that the model added itself."""
    group = []
    for piece, drafted in tokens(reply):
        group.append((piece, drafted))
        if not drafted:
            yield group
            group = []
    if group:
        yield group


def piece_svg(x, y, piece, drafted):
    w, shown = width(piece), piece.strip()
    blank = (len(piece) - len(piece.lstrip())) * width(" ")
    yield f'<rect x="{x:.1f}" y="{y - 14:.0f}" width="{w:.1f}" height="19" fill="{DRAFTED if drafted else OWN}"/>'
    if shown:
        yield (f'<text x="{x + blank:.1f}" y="{y}" textLength="{width(shown):.1f}" lengthAdjust="spacingAndGlyphs">'
               f'{escape(shown)}</text>')


def draw(reply):
    groups = list(passes(reply))
    info = reply["choices"][0]["prevue"]
    body, x, y = [], 12, 86
    for group in groups:
        w = sum(width(piece) for piece, _ in group) + 2 * PAD
        if x + w > SIDE - 12:
            x, y = 12, y + ROW
        inner = x + PAD
        for piece, drafted in group:
            body += piece_svg(inner, y, piece, drafted)
            inner += width(piece)
        body.append(f'<rect x="{x:.1f}" y="{y - 17}" width="{w:.1f}" height="25" rx="5" fill="none" stroke="#777777"/>')
        x += w + GAP
    head = [f'<text x="12" y="24" font-size="15" font-weight="bold">The same {info["tokens"]} tokens in {info["passes"]} '
            f'passes of the model; without a drafter it takes {info["tokens"]}</text>']
    at = 12
    for colour, label in ((DRAFTED, "proposed by the drafter, confirmed by the model"),
                          (OWN, "the model's own token, one for each pass"), (None, "one pass of the model")):
        style = f'fill="{colour}"' if colour else 'fill="none" stroke="#777777"'
        head.append(f'<rect x="{at:.0f}" y="40" width="18" height="15" rx="{0 if colour else 5}" {style}/>')
        head.append(f'<text x="{at + 24:.0f}" y="52">{label}</text>')
        at += 24 + width(label) + 24
    height = y + 20
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIDE}" height="{height}" '
                      f'viewBox="0 0 {SIDE} {height}" font-family="Helvetica, Arial, sans-serif" font-size="{SIZE}" fill="{INK}">',
                      f'<rect width="{SIDE}" height="{height}" fill="#ffffff"/>', *head, *body, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reply", help="a reply of /v1/chat/completions, not streamed")
    parser.add_argument("-o", required=True, metavar="SVG")
    args = parser.parse_args()
    with open(args.reply) as file:
        svg = draw(json.load(file))
    with open(args.o, "w") as file:
        file.write(svg)


if __name__ == "__main__":
    main()
