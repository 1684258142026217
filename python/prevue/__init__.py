"""prevue runs video language models, several times faster and without changing the answer.

    import prevue

    model = prevue.Model("models/nano.gguf", head="models/nano-head.gguf")
    engine = prevue.Engine(model)
    print(engine.describe("samples/64-frames.mp4").text)

Three classes: a Model is the weights, an Engine answers many questions on a model at once, a Session is a conversation.
Everything that fails raises a PrevueError with the library's sentence. Objects may be dropped or closed in any order.
"""

import os

from ._engine import Engine, Stream, View
from ._generate import Answer, Method, Token, methods, views
from ._library import library
from ._media import Frame, Frames, Video, VideoInfo, frames, sound
from ._model import Model
from ._session import Session, SessionStream
from ._stats import EngineStats, Stats
from .errors import (
    ArgumentError,
    CancelledError,
    DeviceError,
    DrafterError,
    FileError,
    FormatError,
    LibraryError,
    LimitError,
    OutOfMemoryError,
    PrevueError,
    UnsupportedError,
)

__version__ = "0.1.0"


def library_version() -> str:
    """Version of the C library that is loaded."""
    return str(library().pv_version().decode())


def library_path() -> str:
    """The file that the C library was loaded from."""
    return library().path


def default_model() -> str:
    """The small model "nano" that comes with prevue: in ./models, in the source tree, or where it was installed.

    It knows only a synthetic world of moving emoji (models/README.md), and shows the engine at work without a download.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    directory = os.path.dirname(library().path)
    places = [os.curdir, os.path.join(here, "..", ".."), os.path.join(directory, "..")]
    for up in ("..", os.path.join("..", "..")):
        places.append(os.path.join(directory or "/usr/lib", up, "share", "prevue"))
    places += ["/usr/local/share/prevue", "/usr/share/prevue"]
    for place in places:
        path = os.path.join(place, "models", "nano.gguf")
        if os.path.isfile(path):
            return os.path.abspath(path)
    raise FileError("models/nano.gguf is neither here, nor in the source tree, nor installed")


__all__ = [
    "Answer", "ArgumentError", "CancelledError", "DeviceError", "DrafterError", "Engine", "EngineStats", "FileError",
    "FormatError", "Frame", "Frames", "LibraryError", "LimitError", "Method", "Model", "OutOfMemoryError",
    "PrevueError", "Session", "SessionStream", "Stats", "Stream", "Token", "UnsupportedError", "Video", "VideoInfo",
    "View", "default_model", "frames", "library_path", "library_version", "methods", "sound", "views",
]
