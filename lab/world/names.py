"""English grammar of the objects' names: which article a name takes, and whether its verb stands in
the plural.

Rules decide most names (the last word of the head ends in s, the first letter is a vowel); the sets
below hold those that the rules get wrong, found by reading through all names of the sprites. Names
are told as they are written in the manifest, capitals kept.
"""

import re
from functools import lru_cache

# The head of a name ends before one of these: "nest with eggs" is one nest.
TAIL = re.compile(r" (?:with|without|of|on|in|at|over|behind|showing|facing|tilted) ")
SINGULAR_ENDS = ("ss", "us", "is", "os")  # glass, cactus, tennis, rhinoceros
PLURAL = {"skis"}

# What cannot be counted takes "some" and a verb in the singular.
MASS = {
    "bacon", "badminton", "baguette bread", "bowling", "bread", "broccoli", "building construction",
    "butter", "camping", "canned food", "construction", "cooked rice", "cooking", "curry rice",
    "custard", "dna", "field hockey", "fire", "fog", "garlic", "high voltage", "ice", "ice hockey",
    "lacrosse", "luggage", "mate", "meat on bone", "money with wings", "oden", "ping pong",
    "popcorn", "pouring liquid", "sake", "salt", "shaved ice", "soap", "spaghetti", "sushi",
    "tennis", "thread", "wood", "yarn",
}

# A first letter that does not sound as it is written.
LIKE_CONSONANT = ("euro", "ewe", "one", "uni")
LIKE_VOWEL = ("hour", "x-ray")


@lru_cache(maxsize=None)
def is_plural(name):
    """Whether the verb of this name stands in the plural: the peanuts stand, the fox stands."""
    head = TAIL.split(name)[0]
    if name in PLURAL:
        return True
    if name in MASS:
        return False
    return head.endswith("s") and not head.endswith(SINGULAR_ENDS)


@lru_cache(maxsize=None)
def article(name):
    """The article a name takes when it follows directly: a, an or some."""
    if name in MASS or is_plural(name):
        return "some"
    low = name.lower()
    vowel = low[0] in "aeiou" and not low.startswith(LIKE_CONSONANT)
    return "an" if vowel or low.startswith(LIKE_VOWEL) else "a"


def with_article(name):
    """a fox, an axe, some peanuts"""
    return article(name) + " " + name


def from_manifest(path, style=None):
    """The names of a sprites' manifest (style, file, name, group) in its order, each once."""
    found = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            columns = line.rstrip("\n").split("\t")
            if len(columns) >= 3 and (style is None or columns[0] == style):
                found[columns[2]] = True
    return list(found)
