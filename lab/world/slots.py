"""What a clip of the synthetic world is made of: the slots that its description tells, and nothing
about pixels.

A clip is a list of scenes, a scene a background, a way of beginning, a camera and one to three
objects in their order of mention: from left to right, by where each is first seen. Objects of one
scene stand in different columns, so the order is never in doubt. `words` turns slots into text and
text back into slots, `scene` draws them at random and gives them movement, `raster` paints.
"""

from dataclasses import dataclass, field

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "grey", "white",
           "black")
KINDS = ("plain", "gradient", "striped", "dotted", "checked")  # of a background
TRANSITIONS = ("cut", "fade")                                  # "start" for the first scene
CAMERAS = ("still", "left", "right")                           # the way the camera pans
SIZES = ("small", "medium", "large")
COLUMNS = ("left", "middle", "right")
ROWS = ("top", "middle", "bottom")
MAX_SCENES = 6
MAX_OBJECTS = 3  # of one scene

# motion: the directions it knows. An object that enters comes *from* its direction, one that
# crosses or leaves goes *to* it. Two objects that meet are the only ones of their scene, move
# towards each other along one row and end side by side.
MOTIONS = {
    "stands": ("none",),
    "enters": ("left", "right", "top", "bottom"),
    "crosses": ("left", "right"),
    "rises": ("none",),
    "falls": ("none",),
    "grows": ("none",),
    "shrinks": ("none",),
    "spins": ("none",),
    "bounces": ("none",),
    "meets": ("none",),
    "leaves": ("left", "right", "top", "bottom"),
}


@dataclass
class Background:
    kind: str
    colour: str
    second: str = ""  # of a gradient: the colour at the bottom, another one


@dataclass
class Thing:
    """An object of a scene. Its column and row are where it stays; where it moves along them, the
    cell of its beginning (rises, falls, leaves, crosses, meets) or of its end (enters)."""
    name: str
    size: str
    motion: str
    direction: str
    column: str
    row: str


@dataclass
class Scene:
    background: Background
    transition: str  # "start", or how it follows the scene before
    camera: str      # pans only over scenes where two or more objects all stand
    things: list = field(default_factory=list)
    first: int = 0   # its frames, both included
    last: int = 0


@dataclass
class Clip:
    seed: int
    frames: int
    style: str
    scenes: list = field(default_factory=list)
