"""How right a generated text is about a clip, slot by slot.

Scene k of the text is held against scene k of the truth; inside a scene the i-th object against the
i-th, or, where the numbers of objects differ, equal names first and the rest in their order. Every
slot counts on its own: a motion can be right of an object that is misnamed. What the text leaves
out is wrong; what it adds costs the counts.
"""

import os
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from world import words  # noqa: E402

SLOTS = ("object", "motion", "direction", "place", "size", "background", "transition", "camera",
         "scenes", "order", "count")


def align(truth, found):
    """For each true object the found one that stands for it, or None."""
    if len(truth) == len(found):
        return list(found)
    left, out = list(found), [None] * len(truth)
    for i, thing in enumerate(truth):
        out[i] = next((other for other in left if other.name == thing.name), None)
        if out[i] is not None:
            left = [other for other in left if other is not out[i]]
    for i in range(len(truth)):
        if out[i] is None and left:
            out[i] = left.pop(0)
    return out


def _things(truth, found, mark):
    """The slots of a scene's objects. found is a list of objects, empty for a missing scene."""
    for thing, other in zip(truth, align(truth, found)):
        mark("object", other and other.name == thing.name)
        mark("motion", other and other.motion == thing.motion)
        if thing.direction != "none":  # a motion without directions has none to be right about
            mark("direction", other and other.direction == thing.direction)
        mark("place", other and (other.column, other.row) == (thing.column, thing.row))
        mark("size", other and other.size == thing.size)
    mark("count", len(truth) == len(found))


def _order(clip, found):
    """Of all pairs of objects that clip and text both name (names that are told once in each):
    (pairs in the true order, pairs)."""
    true = [thing.name for scene in clip.scenes for thing in scene.things]
    told = [thing.name for scene in found for thing in scene.things]
    common = [name for name in true if true.count(name) == 1 and told.count(name) == 1]
    at = [told.index(name) for name in common]
    pairs = [at[i] < at[j] for j in range(len(at)) for i in range(j)]
    return sum(pairs), len(pairs)


def score(clip, text):
    """slot -> (right, total) for the description that a model wrote of a clip."""
    found = words.parse(text)
    right, total = dict.fromkeys(SLOTS, 0), dict.fromkeys(SLOTS, 0)

    def mark(slot, ok):
        right[slot] += bool(ok)
        total[slot] += 1

    for k, scene in enumerate(clip.scenes):
        other = found[k] if k < len(found) else None
        mark("background", other and other.background == scene.background)
        if k:
            mark("transition", other and other.transition == scene.transition)
        mark("camera", other and other.camera == scene.camera)
        _things(scene.things, other.things if other else [], mark)
    mark("scenes", len(found) == len(clip.scenes))
    right["order"], total["order"] = _order(clip, found)
    return {slot: (right[slot], total[slot]) for slot in SLOTS}


def _normal(text):
    return " ".join(text.lower().split()).rstrip(".! ")


def score_answer(truth, text):
    """Whether an answer is the right one, but for capitals, spaces and the full stop."""
    return _normal(truth) == _normal(text)


def add(total, one):
    """Adds the score of a clip to a total (a dict, at first empty) and gives it back."""
    for slot, (right, count) in one.items():
        before = total.get(slot, (0, 0))
        total[slot] = before[0] + right, before[1] + count
    return total


def table(totals):
    """Totals of several columns (name -> total) as a Markdown table in per cent."""
    slots = [slot for slot in SLOTS if any(slot in total for total in totals.values())]
    slots += sorted({slot for total in totals.values() for slot in total} - set(slots))
    lines = ["| slot | " + " | ".join(str(name) for name in totals) + " |",
             "|---|" + "---:|" * len(totals)]
    for slot in slots:
        cells = []
        for total in totals.values():
            right, count = total.get(slot, (0, 0))
            cells.append(f"{100 * right / count:.1f} %" if count else "-")
        lines.append(f"| {slot} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _check(count):
    """Right texts score full marks, and a text that is wrong in one thing loses just that."""
    import copy
    import random
    rng, total = random.Random(4), {}
    for _ in range(count):
        clip = words.random_clip(rng, words.HARD_NAMES)
        one = score(clip, words.describe(clip))
        assert all(right == of for right, of in one.values()), one
        wrong = copy.deepcopy(clip)
        thing = wrong.scenes[0].things[0]
        thing.name = "unheard of"
        two = score(clip, words.describe(wrong))
        assert two["object"] == (one["object"][0] - 1, one["object"][1]), two
        assert all(two[slot] == one[slot] for slot in SLOTS if slot not in ("object", "order"))
        del wrong.scenes[-1].things[-1]
        if wrong.scenes[-1].things and wrong.scenes[-1].things[0].motion != "meets":
            three = score(clip, words.describe(wrong))
            assert three["count"][0] == one["count"][0] - 1, three
            assert three["motion"][0] < one["motion"][0] and three["motion"][1] == one["motion"][1]
        empty = score(clip, "")
        assert all(right == 0 and of == one[slot][1] for slot, (right, of) in empty.items()
                   if slot != "order"), empty
        add(total, two)
    assert score_answer("a fox", " A  fox.") and not score_answer("a fox", "an ox")
    print(table({"one name wrong": total}))


if __name__ == "__main__":
    _check(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
