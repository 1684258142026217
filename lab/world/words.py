"""Slots to English and back: the description of a clip, its questions with their answers, and the
parser that reads slots out of a text that a model wrote.

    python3 lab/world/words.py --check N [--sprites DIR]

Everything that is told is a function of the slots alone: which of several phrasings is taken
follows from the number of scenes, the number of the scene and of the object in it, so that a model
can be right about every word. Sizes are told as "little" and "big" and a medium size is not told,
because the names themselves use "small" and "large" ("small airplane"). Every verb phrase is one
that no name contains, and names hold neither commas nor full stops; so text parses without a list
of names.
"""

import os
import re
import sys

if not __package__:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from world import slots  # noqa: E402
from world.names import article, is_plural, with_article  # noqa: E402

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
           "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
           "eighteen")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")

SIZE_WORDS = {"small": "little ", "medium": "", "large": "big "}
# cell (column, row): where something is, and where it starts to move from
PLACES = {
    ("left", "top"): "at the top left",
    ("middle", "top"): "at the top",
    ("right", "top"): "at the top right",
    ("left", "middle"): "on the left",
    ("middle", "middle"): "in the middle",
    ("right", "middle"): "on the right",
    ("left", "bottom"): "at the bottom left",
    ("middle", "bottom"): "at the bottom",
    ("right", "bottom"): "at the bottom right",
}
ORIGINS = {cell: "from the " + place.split(" the ")[1] + (" side" if place[:2] == "on" else "")
           for cell, place in PLACES.items()}
COMING = {"left": "from the left", "right": "from the right", "top": "from above",
          "bottom": "from below"}
GOING = {"left": "to the left", "right": "to the right", "top": "upwards", "bottom": "downwards"}

# motion: (verb of one, verb of several, what follows). In what follows, P is the place, O the
# origin, R the row, C where from and G where to.
VERBS = {
    "stands": (("stands", "stand", "P"), ("rests", "rest", "P"), ("can be seen",) * 2 + ("P",)),
    "enters": (("enters", "enter", "C and stops P"), ("comes in", "come in", "C and stays P"),
               ("arrives", "arrive", "C and halts P")),
    "crosses": (("crosses", "cross", "G along the R"), ("passes", "pass", "G along the R"),
                ("travels", "travel", "G along the R")),
    "rises": (("rises", "rise", "O"), ("floats up", "float up", "O"), ("climbs", "climb", "O")),
    "falls": (("falls", "fall", "O"), ("sinks", "sink", "O"), ("tumbles", "tumble", "O")),
    "grows": (("grows", "grow", "P"), ("gets bigger", "get bigger", "P"),
              ("swells", "swell", "P")),
    "shrinks": (("shrinks", "shrink", "P"), ("gets smaller", "get smaller", "P"),
                ("dwindles", "dwindle", "P")),
    "spins": (("spins", "spin", "P"), ("turns round", "turn round", "P"),
              ("rotates", "rotate", "P")),
    "bounces": (("bounces", "bounce", "P"), ("jumps up and down", "jump up and down", "P"),
                ("hops", "hop", "P")),
    "leaves": (("leaves", "leave", "G O"), ("goes away", "go away", "G O"),
               ("moves out", "move out", "G O")),
}
MEETINGS = ("move towards each other along the R and meet",
            "approach each other along the R and meet",
            "come together along the R and meet")

BACKGROUNDS = {
    "plain": ("a plain {0} background", "a background of plain {0}"),
    "gradient": ("a gradient background from {0} to {1}", "a background that blends {0} into {1}"),
    "striped": ("a striped {0} background", "a background with {0} stripes"),
    "dotted": ("a dotted {0} background", "a background with {0} dots"),
    "checked": ("a checked {0} background", "a background with {0} checks"),
}
OPENINGS = (
    "This video shows one single scene from its beginning to its end.",
    "This video shows two scenes, one after the other.",
    "There are three scenes in this video.",
    "The video takes us through four scenes.",
    "Five scenes follow one another in this video.",
    "This video is made of six short scenes.",
)
BEGINNINGS = {
    "cut": ("Then a cut leads to the {0} scene, with {1}.", "After a cut, the {0} scene has {1}.",
            "The {0} scene comes with a cut and shows {1}."),
    "fade": ("Then a fade leads to the {0} scene, with {1}.",
             "After a fade, the {0} scene has {1}.",
             "The {0} scene comes with a fade and shows {1}."),
}
PANS = ("The camera pans to the {0}.", "Meanwhile the camera moves to the {0}.")

PROMPTS = (
    "Describe this video.",
    "Describe the video in detail.",
    "What happens in this video?",
    "Describe the video.",
    "Describe this clip.",
    "Describe the clip in detail.",
    "Please describe this video.",
    "Please describe the video in detail.",
    "Can you describe this video?",
    "Could you describe what happens in the video?",
    "What happens in the video?",
    "What is happening in this video?",
    "What is going on in this clip?",
    "What do you see in this video?",
    "What does this video show?",
    "What is this video about?",
    "What can be seen in the video?",
    "Tell me what happens in this video.",
    "Tell me about this video.",
    "Give a description of this video.",
    "Give a detailed description of the video.",
    "Write a description of this clip.",
    "Explain what you see in the video.",
    "Summarise this video.",
)


# ---------------------------------------------------------------- slots to text

def _object(thing):
    """a fox, a big axe, some little peanuts"""
    size = SIZE_WORDS[thing.size]
    art = article(thing.name)
    if size and art == "an":
        art = "a"
    return art + " " + size + thing.name


def _follow(pattern, thing):
    """What follows a verb: the letters of a pattern filled in."""
    if pattern == "P":
        return PLACES[thing.column, thing.row]
    if pattern == "O":
        return ORIGINS[thing.column, thing.row]
    words = {"P": PLACES[thing.column, thing.row], "R": thing.row,
             "O": ORIGINS[thing.column, thing.row],
             "C": COMING.get(thing.direction, ""), "G": GOING.get(thing.direction, "")}
    return " ".join([words.get(word, word) for word in pattern.split(" ")])


def _clause(thing, turn):
    """What one object does, without the full stop; turn chooses the phrasing."""
    one, many, pattern = VERBS[thing.motion][turn % 3]
    verb = many if is_plural(thing.name) else one
    return _object(thing) + " " + verb + " " + _follow(pattern, thing)


def _meeting(first, second, index):
    return (_object(first) + " from the left and " + _object(second) + " from the right "
            + MEETINGS[index % 3].replace("R", first.row))


def _sentence(clause):
    return clause[0].upper() + clause[1:] + "."


def _actions(scene, index):
    """The sentences of a scene's objects and camera."""
    things = scene.things
    if len(things) == 2 and things[0].motion == "meets":
        parts = [_meeting(things[0], things[1], index)]
    else:
        parts = [_clause(thing, index + i) for i, thing in enumerate(things)]
    if len(parts) == 2 and index % 2:
        parts = [parts[0] + ", while " + parts[1]]
    elif len(parts) == 3 and index % 3 == 1:
        parts = [parts[0] + ", " + parts[1] + ", and " + parts[2]]
    elif len(parts) == 3 and index % 3 == 2:
        parts = [parts[0], parts[1] + ", while " + parts[2]]
    told = [_sentence(part) for part in parts]
    if scene.camera != "still":
        told.append(PANS[index % 2].format(scene.camera))
    return " ".join(told)


def _ordinal(index, count):
    return "last" if index == count - 1 and count > 2 else ORDINALS[index]


def _beginning(scene, index, count):
    """The sentence that begins a scene and tells its background."""
    ground = scene.background
    told = BACKGROUNDS[ground.kind][index % 2].format(ground.colour, ground.second)
    if index == 0:
        if count == 1:
            return "The whole scene plays on " + told + "."
        return ("The first scene has " if count % 2 else "It starts on ") + told + "."
    return BEGINNINGS[scene.transition][index % 3].format(_ordinal(index, count), told)


def _closing(clip):
    things = [thing for scene in clip.scenes for thing in scene.things]
    first, last = things[0].name, things[-1].name
    number = NUMBERS[len(things)]
    if len(things) == 1:
        return ("In all, just one object appears in the whole video from first to last, and that "
                "is the " + first + ".")
    if len(clip.scenes) == 1:
        return (f"In all, {number} objects appear in the whole video: the {first} is the first one "
                f"and the {last} is the last one.")
    return f"In all, {number} objects appear, with the {first} first and the {last} last."


def describe(clip):
    """The description of a clip, one paragraph."""
    count = len(clip.scenes)
    told = [OPENINGS[count - 1]]
    for index, scene in enumerate(clip.scenes):
        told.append(_beginning(scene, index, count))
        told.append(_actions(scene, index))
    if count == 1 and clip.scenes[0].camera == "still":
        told.append("The camera stays still all the time.")
    told.append(_closing(clip))
    return " ".join(told)


# ---------------------------------------------------------------- text to slots

def _longest_first(words):
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


def _invert(table):
    return {phrase: key for key, phrase in table.items()}


_MOTION_OF = {form: motion for motion, verbs in VERBS.items() for verb in verbs
              for form in verb[:2]}
_PLACE_OF, _ORIGIN_OF = _invert(PLACES), _invert(ORIGINS)
_COMING_OF, _GOING_OF = _invert(COMING), _invert(GOING)
_SIZE_OF = {"little": "small", "big": "large"}
_SOMETHING = r"(?:an?|some) (?:(big|little) )?(.+?)"
_COLOUR = "(" + "|".join(slots.COLOURS) + ")"

_SENTENCES = re.compile(r"(?<=[.!?])\s+")
_CLAUSES = re.compile(r"(?:;|,)(?: while| and)? (?=(?:an?|some) )")
_THING = re.compile(r"^" + _SOMETHING + r"(?: (" + _longest_first(_MOTION_OF) + r")\b(.*))?$", re.I)
_MEETING = re.compile(r"^" + _SOMETHING + r" from the left and " + _SOMETHING
                      + r" from the right\b(.*)$", re.I)
_PLACE = re.compile(r"\b(" + _longest_first(_PLACE_OF) + r")\b")
_ORIGIN = re.compile(r"\b(" + _longest_first(_ORIGIN_OF) + r")\b")
_COMING = re.compile(r"\b(" + _longest_first(_COMING_OF) + r")\b")
_GOING = re.compile(r"\b(" + _longest_first(_GOING_OF) + r")\b")
_ROW = re.compile(r"\balong the (top|middle|bottom)\b")
_PAN = re.compile(r"\bthe camera (?:pans|moves) to the (left|right)\b", re.I)
_GROUND = re.compile(r"\bbackground\b")
_KINDS = tuple((kind, re.compile(form.replace("{0}", _COLOUR).replace("{1}", _COLOUR)))
               for kind, forms in BACKGROUNDS.items() for form in forms)
_LOOSE_KIND = re.compile(r"\b(plain|gradient|blends|stripe|dot|check)")
_STEMS = {"blends": "gradient", "stripe": "striped", "dot": "dotted", "check": "checked"}


def _find(regex, table, text, default):
    found = regex.search(text)
    return table[found.group(1)] if found else default


def _read_background(sentence):
    for kind, regex in _KINDS:
        found = regex.search(sentence)
        if found:
            second = found.group(2) if kind == "gradient" else ""
            return slots.Background(kind, found.group(1), second)
    kind = _LOOSE_KIND.search(sentence)  # not as we would write it: take what there is
    colours = re.findall(r"\b" + _COLOUR + r"\b", sentence) + ["", ""]
    kind = _STEMS.get(kind.group(1), kind.group(1)) if kind else ""
    return slots.Background(kind, colours[0], colours[1] if kind == "gradient" else "")


def _read_scene(sentence):
    found = re.search(r"\b(cut|fade)", sentence)
    return slots.Scene(_read_background(sentence), found.group(1) if found else "start", "still")


def _size(word):
    return _SIZE_OF[word.lower()] if word else "medium"


def _read_meeting(sentence):
    found = _MEETING.match(sentence)
    if not found or " meet" not in found.group(5):
        return []
    row = _ROW.search(found.group(5))
    row = row.group(1) if row else ""
    return [slots.Thing(found.group(2), _size(found.group(1)), "meets", "none", "left", row),
            slots.Thing(found.group(4), _size(found.group(3)), "meets", "none", "right", row)]


def _read_thing(clause):
    """One object, or None. A clause without a verb we know still names its object."""
    found = _THING.match(clause)
    if not found:
        return None
    size, name, verb, rest = found.groups()
    thing = slots.Thing(name, _size(size), _MOTION_OF[verb.lower()] if verb else "", "none", "", "")
    if not verb:
        return thing
    pattern = VERBS[thing.motion][0][2]
    if "O" in pattern:
        thing.column, thing.row = _find(_ORIGIN, _ORIGIN_OF, rest, ("", ""))
    elif "P" in pattern:
        thing.column, thing.row = _find(_PLACE, _PLACE_OF, rest, ("", ""))
    if "C" in pattern:
        thing.direction = _find(_COMING, _COMING_OF, rest, "")
    if "G" in pattern:
        thing.direction = _find(_GOING, _GOING_OF, rest, "")
    if "R" in pattern:
        row = _ROW.search(rest)
        thing.row = row.group(1) if row else ""
        thing.column = {"right": "left", "left": "right"}.get(thing.direction, "")
    return thing


def _read_actions(sentence):
    things = _read_meeting(sentence)
    if things:
        return things
    return [thing for thing in map(_read_thing, _CLAUSES.split(sentence)) if thing]


def parse(text):
    """The scenes that a text tells. Reads what a model wrote: what it cannot read is left out, or
    is an empty string where a part of an object or a background is missing."""
    scenes = []
    for sentence in _SENTENCES.split(text.strip()):
        sentence = sentence.rstrip(".!? ")
        if sentence.startswith("In all"):
            continue
        if _GROUND.search(sentence):
            scenes.append(_read_scene(sentence))
            continue
        pan = _PAN.search(sentence)
        things = [] if pan else _read_actions(sentence)
        if (pan or things) and not scenes:
            scenes.append(slots.Scene(slots.Background("", ""), "start", "still"))
        if pan:
            scenes[-1].camera = pan.group(1).lower()
        elif things:
            scenes[-1].things.extend(things)
    return scenes


# ---------------------------------------------------------------- questions

# What an object does, as a question asks it, of one and as an answer of several: (one, several).
DEEDS = {
    "stands": ("stands still", "stand still"), "enters": ("enters C", "enter C"),
    "crosses": ("crosses G", "cross G"), "rises": ("rises", "rise"), "falls": ("falls", "fall"),
    "grows": ("grows", "grow"), "shrinks": ("shrinks", "shrink"), "spins": ("spins", "spin"),
    "bounces": ("bounces", "bounce"), "leaves": ("leaves G", "leave G"),
}
PASSING = ("enters", "crosses", "leaves")  # may be seen where another object stays
STAYING = ("stands", "grows", "shrinks", "spins", "bounces")

# {0} is what is asked about, {1} "in the second scene" or "in the video".
ASK = {
    "what": ("Which object {0} {1}?", "What {0} {1}?", "Which thing {0} {1}?"),
    "where": ("Where {0} {1}?", "At which place {0} {1}?"),
    "motion": ("What {0} {1}?", "How {0} move {1}?"),
    "things": ("How many objects are {1}?", "How many objects can you count {1}?",
               "How many things are there {1}?"),
    "all": ("How many objects are there in all?", "How many objects appear in total?",
            "How many things does the video show in all?"),
    "scenes": ("How many scenes are there?", "How many scenes does the video have?",
               "Of how many scenes is the video made?"),
    "order": ("Which appears first, the {0} or the {1}?", "Which comes first, the {0} or the {1}?",
              "What is seen first, the {0} or the {1}?"),
    "colour": ("What colour is the background {1}?", "Which colour does the background have {1}?",
               "What is the colour of the background {1}?"),
    "background": ("What kind of background is there {1}?", "Which kind of background is {1}?",
                   "What does the background look like {1}?"),
    "camera": ("Does the camera move {1}?", "What does the camera do {1}?",
               "How does the camera move {1}?"),
    "transition": ("How does the {0} scene begin?", "How does the {0} scene start?",
                   "Does the {0} scene begin with a cut or a fade?"),
    "scene": ("What happens in the {0} scene?", "What can be seen in the {0} scene?",
              "Describe the {0} scene.", "Tell me about the {0} scene."),
    "list": ("List the objects in order.", "Which objects appear? List them in order.",
             "Name all objects in their order.", "List all the objects."),
}


def _pick(rng, options):
    return options[int(rng.random() * len(options))]


def _deed(thing, several=False):
    words = DEEDS[thing.motion][several]
    if words[-1] == "C":
        return words[:-1] + COMING[thing.direction]
    if words[-1] == "G":
        return words[:-1] + GOING[thing.direction]
    return words


def _any_ordinal(rng, index, count):
    return "last" if index == count - 1 and count > 1 and rng.random() < 0.5 else ORDINALS[index]


def _inside(rng, index, count):
    if count == 1:
        return _pick(rng, ("in the video", "in this video", "in the clip"))
    return "in the " + _any_ordinal(rng, index, count) + " scene"


def _ask_what(clip, rng, index, deeds):
    """Questions that a single object of a scene answers."""
    things, count = clip.scenes[index].things, len(clip.scenes)
    out = []
    for thing in things:
        answer = with_article(thing.name)
        where = _inside(rng, index, count)
        if len(things) == 1:  # "What is in the video?" would sound like a prompt for a description
            form = _pick(rng, ASK["what"] if count > 1 else ASK["what"][:1])
            out.append(("what", form.format("is", where), answer))
        if thing.motion == "meets":
            continue
        deed = _deed(thing)
        if sum(_deed(t) == deed for t in things if t.motion != "meets") == 1:
            if deeds[deed] == 1 and rng.random() < 0.5:
                where = _pick(rng, ("in the video", "in this video", "in the clip"))
            out.append(("what", _pick(rng, ASK["what"]).format(deed, where), answer))
        passing = any([t is not thing and t.row == thing.row and t.motion in PASSING
                       for t in things])
        if thing.motion in STAYING and not passing:
            place = "is " + PLACES[thing.column, thing.row]
            where = _inside(rng, index, count)
            out.append(("what", _pick(rng, ASK["what"]).format(place, where), answer))
    return out


def _ask_named(clip, rng, index, thing):
    """Where an object is and what it does, where its name is the only one in the clip."""
    where, several = _inside(rng, index, len(clip.scenes)), is_plural(thing.name)
    if rng.random() < 0.5:
        where = _pick(rng, ("in the video", "in this video", "in the clip"))
    does, name = "do" if several else "does", "the " + thing.name
    pronoun = "they" if several else "it"
    place = PLACES[thing.column, thing.row]
    if thing.motion in STAYING:
        asked, answer = ("are " if several else "is ") + name, place
    elif thing.motion == "enters":
        asked, answer = f"{does} {name} stop", place
    elif thing.motion == "crosses":
        asked, answer = f"{does} {name} cross", "along the " + thing.row
    elif thing.motion == "meets":
        asked, answer = f"{does} {name} move", "along the " + thing.row
    else:
        asked, answer = f"{does} {name} start", place
    out = [("where", _pick(rng, ASK["where"]).format(asked, where), answer)]
    if thing.motion == "meets":
        other = [t for t in clip.scenes[index].things if t is not thing][0]
        deed = ("meet " if several else "meets ") + with_article(other.name)
    else:
        deed = _deed(thing, several)
    form = _pick(rng, ASK["motion"])
    asked = f"{does} {name}" + ("" if form.startswith("How") else " do")
    out.append(("motion", form.format(asked, where), pronoun + " " + deed))
    return out


def _ask_scene(clip, rng, index):
    """Questions about a scene as a whole."""
    scene, count = clip.scenes[index], len(clip.scenes)
    ground = scene.background
    colour = ground.colour
    if ground.kind == "gradient":
        colour = f"{ground.colour} at the top and {ground.second} at the bottom"
    pan = "no, it stays still" if scene.camera == "still" else "yes, it pans to the " + scene.camera
    asked = [("count", "things", NUMBERS[len(scene.things)]), ("colour", "colour", colour),
             ("background", "background", ground.kind), ("camera", "camera", pan)]
    out = []
    for kind, key, answer in asked:
        form = _pick(rng, ASK[key])
        if key == "camera" and not form.startswith("Does"):
            answer = answer.split(", ")[1]
        out.append((kind, form.format("", _inside(rng, index, count)), answer))
    if index:
        form = _pick(rng, ASK["transition"]).format(_any_ordinal(rng, index, count))
        out.append(("transition", form, "with a " + scene.transition))
    if count > 1:
        form = _pick(rng, ASK["scene"]).format(_any_ordinal(rng, index, count))
        out.append(("scene", form, _actions(scene, index)))
    return out


def _ask_order(rng, unique):
    """Which of two objects of different scenes comes first: one pair, drawn at random."""
    first = _pick(rng, unique)
    others = [entry for entry in unique if entry[0] != first[0]]
    if not others:
        return []
    second = _pick(rng, others)
    answer = min(first, second, key=lambda entry: entry[0])[1].name
    form = _pick(rng, ASK["order"]).format(first[1].name, second[1].name)
    return [("order", form, "the " + answer)]


def questions(clip, rng):
    """All that can be asked about a clip and has one right answer: (kind, question, answer). rng
    (random.Random) chooses the phrasings of the questions and the pair of the kind "order"."""
    entries = [(index, thing) for index, scene in enumerate(clip.scenes) for thing in scene.things]
    names, deeds = {}, {}
    for _, thing in entries:
        names[thing.name] = names.get(thing.name, 0) + 1
        if thing.motion != "meets":
            deed = _deed(thing)
            deeds[deed] = deeds.get(deed, 0) + 1
    unique = [entry for entry in entries if names[entry[1].name] == 1]
    out = [("count", _pick(rng, ASK["all"]), NUMBERS[len(entries)]),
           ("count", _pick(rng, ASK["scenes"]), NUMBERS[len(clip.scenes)]),
           ("list", _pick(rng, ASK["list"]), ", ".join([thing.name for _, thing in entries]))]
    for index in range(len(clip.scenes)):
        out += _ask_what(clip, rng, index, deeds)
        out += _ask_scene(clip, rng, index)
    for index, thing in unique:
        if thing.name == "camera":  # "the camera" is the one that films
            continue
        out += _ask_named(clip, rng, index, thing)
    if unique:
        out += _ask_order(rng, unique)
    return out


# ---------------------------------------------------------------- check

HARD_NAMES = ("fox", "axe", "peanuts", "small airplane", "bow and arrow", "camera", "skis", "T-Rex",
              "umbrella with rain drops", "sun behind large cloud", "magnifying glass tilted left",
              "1st place medal", "flag in hole", "orange book", "fallen leaf", "hourglass done",
              "spaghetti", "fork and knife with plate", "camera with flash", "playground slide")


def _random_thing(rng, names, motion, column):
    direction = rng.choice(slots.MOTIONS[motion])
    if motion == "crosses":
        column = "left" if direction == "right" else "right"
    return slots.Thing(rng.choice(names), rng.choice(slots.SIZES), motion, direction, column,
                       rng.choice(slots.ROWS))


def _random_things(rng, names):
    """Objects of a scene by the rules of slots: columns differ, from left to right."""
    motions = [motion for motion in slots.MOTIONS if motion != "meets"]
    if rng.random() < 0.1:
        pair = [_random_thing(rng, names, "meets", column) for column in ("left", "right")]
        pair[1].row = pair[0].row
        return pair
    wanted = rng.randint(1, slots.MAX_OBJECTS)
    still = rng.random() < 0.2
    things = {}
    for column in rng.sample(slots.COLUMNS, wanted):
        motion = "stands" if still else rng.choice(motions)
        thing = _random_thing(rng, names, motion, column)
        things.setdefault(thing.column, thing)
    return [things[column] for column in slots.COLUMNS if column in things]


def random_clip(rng, names):
    """A clip of slots alone, uniform over what slots allows: for checks and for the tokenizer's
    corpus, not the distribution that the model is trained on."""
    clip = slots.Clip(0, 0, "")
    for index in range(rng.randint(1, slots.MAX_SCENES)):
        kind = rng.choice(slots.KINDS)
        first, second = rng.sample(slots.COLOURS, 2)
        ground = slots.Background(kind, first, second if kind == "gradient" else "")
        scene = slots.Scene(ground, rng.choice(slots.TRANSITIONS) if index else "start", "still",
                            _random_things(rng, names))
        if len(scene.things) > 1 and all(t.motion == "stands" for t in scene.things):
            scene.camera = rng.choice(slots.CAMERAS)
        clip.scenes.append(scene)
    return clip


def _check_names(names):
    verbs = re.compile(r"(?: |^)(?:" + _longest_first(_MOTION_OF) + r")(?: |$)| from the |[.,;!?]",
                       re.I)
    for name in names:
        assert not verbs.search(" " + name.partition(" ")[2] + " "), name
        assert not re.match(r"(?:big|little) ", name) and "background" not in name, name


def _check_broken(text, rng):
    """A text with words lost, doubled or swapped parses without an error, and one that breaks off
    gives no scene that the whole does not have."""
    words = text.split(" ")
    for _ in range(4):
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        words[i:i + 1] = rng.choice(([], [words[i]] * 2, [words[j]], [""]))
        words = words or ["."]
        parse(" ".join(words))
    assert len(parse(text[:rng.randrange(len(text))])) <= len(parse(text))


def _check_clip(clip, rng):
    """The round trip and the answers of one clip; gives back its text."""
    text = describe(clip)
    assert text == describe(clip) and len(PROMPTS) == len(set(PROMPTS))
    assert parse(text) == clip.scenes, (text, clip.scenes, parse(text))
    _check_broken(text, rng)
    asked = {}
    for _ in range(3):
        for kind, question, answer in questions(clip, rng):
            assert question not in PROMPTS, question
            assert asked.setdefault(question, answer) == answer, (text, question, answer)
            assert "{" not in question + answer and "  " not in question + answer, question
            if kind not in ("scene", "list"):
                assert len(answer.split()) <= 9, answer
            if kind == "scene":
                assert answer in text
    return text


def _check(count, names):
    import random
    import time
    rng = random.Random(4)
    _check_names(names)
    lengths, many, kinds = {}, [], {}
    for i in range(count):
        clip = random_clip(rng, names)
        text = _check_clip(clip, rng)
        lengths.setdefault(len(clip.scenes), []).append(len(re.findall(r"\w+|[.,:]", text)))
        if i < 3:
            print(text)
            for entry in questions(clip, rng):
                print("   ", *entry, sep=" | ")
        for kind, _, _ in questions(clip, rng):
            kinds[kind] = kinds.get(kind, 0) + 1
        if len(clip.scenes) == slots.MAX_SCENES:
            many.append(clip)
    for scenes, found in sorted(lengths.items()):
        print(f"{scenes} scenes: words and stops least {min(found)}, mean "
              f"{sum(found) / len(found):.0f}, most {max(found)}")
    start = time.perf_counter()
    for clip in many:
        describe(clip)
        questions(clip, rng)
    print("questions by kind:", kinds)
    print(f"{count} clips, {len(names)} names: round trip and answers right; "
          f"{(time.perf_counter() - start) / max(len(many), 1) * 1e3:.2f} ms for a clip of "
          f"{slots.MAX_SCENES} scenes")


def main():
    import argparse
    from world.names import from_manifest
    parser = argparse.ArgumentParser(description="Check that descriptions parse back to slots.")
    parser.add_argument("--check", type=int, metavar="N", required=True, help="clips to check")
    parser.add_argument("--sprites", help="folder with manifest.tsv, for all names")
    args = parser.parse_args()
    names = HARD_NAMES
    if args.sprites:
        names = from_manifest(os.path.join(args.sprites, "manifest.tsv"))
    _check(args.check, names)


if __name__ == "__main__":
    main()
