"""Videos and pictures, on their way into a prompt and out of a file."""

import ctypes
import os
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Union

from . import _abi
from ._guard import Guard
from ._library import encode, library
from ._model import Model
from .errors import ArgumentError

RULES = {
    "auto": _abi.PV_FRAMES_AUTO,
    "linspace": _abi.PV_FRAMES_LINSPACE,
    "arange": _abi.PV_FRAMES_ARANGE,
    "qwen": _abi.PV_FRAMES_QWEN,
}
SANDBOXES = {
    "auto": _abi.PV_SANDBOX_IF_POSSIBLE,
    "on": _abi.PV_SANDBOX_ON,
    "off": _abi.PV_SANDBOX_OFF,
}


@dataclass(frozen=True)
class Video:
    """A video or picture, and which of its frames the model sees.

    `source` is a path, or the bytes of a file. `frames` says how many frames are taken, or `fps` how many a second
    (within `min_frames` and `max_frames`), from second `start` to `end`; what is left out is done as the model's family
    does it. `sandbox` "auto" decodes in a helper process that can open no file, and warns once, with RuntimeWarning, where
    the system has no sandbox for it; "on" insists.
    `untrusted` applies the limits of a server to size, duration and decoding time.
    """

    source: "Union[str, os.PathLike[str], bytes]"
    frames: int = 0
    fps: float = 0.0
    min_frames: int = 0
    max_frames: int = 0
    start: float = 0.0
    end: float = 0.0
    min_pixels: int = 0
    max_pixels: int = 0
    frame_rule: str = "auto"
    audio: bool = True
    sandbox: str = "auto"
    untrusted: bool = False
    allow_formats: Optional[str] = None


@dataclass(frozen=True)
class Frames:
    """Frames in memory: `pixels` is an array of bytes [n, height, width, 3] in RGB, `fps` how many there are a second.

    A numpy array will do, and anything else that has the buffer protocol, such as a memoryview of that shape. All frames
    are used. One picture is an array [height, width, 3]. `samples`: their sound, an array of float32 with 16,000 samples a
    second, for a model that hears.
    """

    pixels: Any
    fps: float = 0.0
    samples: Any = None


VideoLike = Union[str, "os.PathLike[str]", bytes, Video, Frames]


@dataclass(frozen=True)
class Frame:
    """One frame as the model sees it, or as the file has it."""

    index: int
    time: float
    width: int
    height: int
    rgb: bytes

    @property
    def pixels(self) -> memoryview:
        """The bytes as an array [height, width, 3]; numpy.asarray takes it."""
        return memoryview(self.rgb).cast("B", (self.height, self.width, 3))


@dataclass(frozen=True)
class VideoInfo:
    """What a video file is, and what was taken from it."""

    width: int
    height: int
    total_frames: int
    fps: float
    duration: float
    frames: int
    lost: int
    sample_fps: float
    cut: int


def choice(words: "dict[str, int]", value: str, what: str) -> int:
    """The number of a word."""
    if value not in words:
        raise ArgumentError('unknown %s "%s" (use %s)' % (what, value, ", ".join(words)))
    return words[value]


def contiguous(array: Any, code: Any, what: str) -> memoryview:
    """The elements of an array in C order, copied only where they do not lie so."""
    try:
        view = memoryview(array)
    except TypeError:
        try:
            import numpy
        except ImportError:
            raise ArgumentError("%s: an array with the buffer protocol is needed, not %s" % (what, type(array).__name__)) from None
        view = numpy.asarray(array).data
    if view.format not in (code, "@" + code, "<" + code):
        raise ArgumentError('%s: elements must be of type "%s", not "%s"' % (what, code, view.format))
    if not view.c_contiguous:
        view = memoryview(view.tobytes()).cast(code, tuple(view.shape or ()))
    return view


def address(view: memoryview, keep: List[Any]) -> int:
    """Where the elements lie; what holds them there is added to `keep`."""
    flat = view.cast("B")
    if flat.readonly:
        raw = ctypes.c_char_p(flat.obj) if isinstance(flat.obj, bytes) and flat.nbytes == len(flat.obj) else None
        if raw is None:
            raw = ctypes.c_char_p(bytes(flat))
        keep.append(raw)
        return ctypes.cast(raw, ctypes.c_void_p).value or 0
    held = (ctypes.c_ubyte * flat.nbytes).from_buffer(flat)
    keep.append(held)
    return ctypes.addressof(held)


class Prepared:
    """A video as the library's structs; `keep` holds what they point to."""

    def __init__(self, video: VideoLike, guard: Guard) -> None:
        lib = library()
        self.keep: List[Any] = [guard]
        self.params = lib.defaults(_abi.pv_video_params, "pv_video_params_init")
        self.path: Optional[bytes] = None
        self.data: Optional[bytes] = None
        self.frames: Any = None
        self.fps = 0.0
        if isinstance(video, Frames):
            self._set_frames(video)
        else:
            self._set_video(video if isinstance(video, Video) else Video(video))
        self.params.progress = guard.progress
        self.params.unsandboxed = guard.unsandboxed

    def _set_video(self, video: Video) -> None:
        p = self.params
        if isinstance(video.source, (bytes, bytearray, memoryview)):
            self.data = bytes(video.source)
        else:
            self.path = encode(video.source)
        for name in ("frames", "fps", "min_frames", "max_frames", "start", "end", "min_pixels", "max_pixels"):
            setattr(p, name, getattr(video, name))
        p.rule = choice(RULES, video.frame_rule, "frame_rule")
        p.sandbox = choice(SANDBOXES, video.sandbox, "sandbox")
        p.no_audio = not video.audio
        p.allow_formats = encode(video.allow_formats)
        if video.untrusted:
            limits = _abi.pv_limits()
            library().pv_limits_server(ctypes.byref(limits))
            p.limits = ctypes.pointer(limits)

    def _set_frames(self, video: Frames) -> None:
        view = contiguous(video.pixels, "B", "frames")
        if view.ndim == 3:
            view = view.cast("B").cast("B", (1,) + tuple(view.shape or ()))
        shape = tuple(view.shape or ())
        if len(shape) != 4 or shape[3] != 3 or 0 in shape:
            raise ArgumentError("frames: the shape must be [n, height, width, 3], not %s" % list(shape))
        n, height, width = shape[:3]
        at = address(view, self.keep)
        size = height * width * 3
        self.frames = (_abi.pv_frame * n)()
        self.fps = video.fps
        for i, frame in enumerate(self.frames):
            frame.index = i
            frame.time = i / video.fps if video.fps > 0 else 0.0
            frame.width = width
            frame.height = height
            frame.rgb = ctypes.cast(at + i * size, ctypes.POINTER(ctypes.c_uint8))
        if video.samples is not None:
            sound = contiguous(video.samples, "f", "samples")
            self.params.samples = ctypes.cast(address(sound, self.keep), ctypes.POINTER(ctypes.c_float))
            self.params.n_samples = sound.nbytes // 4


def as_list(video: "Union[VideoLike, Sequence[VideoLike], None]") -> List[VideoLike]:
    """One video or several."""
    if video is None:
        return []
    if isinstance(video, (list, tuple)):
        return list(video)
    return [video]  # type: ignore[list-item]


def video_info(c: Any) -> VideoInfo:
    """The struct as a value of Python."""
    return VideoInfo(**{name: getattr(c, name) for name in VideoInfo.__dataclass_fields__})


def frames(video: "Union[str, os.PathLike[str], Video]", model: Optional[Model] = None) -> List[Frame]:
    """The frames of a file that a prompt would take, as `model` sees them (resized); without one, as the file has them."""
    guard = Guard()
    prepared = Prepared(video, guard)
    if prepared.path is None:
        raise ArgumentError("frames: the video must be a file")
    handle = model._use() if model else None
    found: List[Frame] = []

    def take(_: Any, frame: Any) -> bool:
        def copy() -> None:
            f = frame.contents
            pixels = ctypes.string_at(f.rgb, f.width * f.height * 3)
            found.append(Frame(f.index, f.time, f.width, f.height, pixels))

        return guard.run(copy)

    guard.call(
        "pv_video_frames", handle.pointer if handle else None, prepared.path, ctypes.byref(prepared.params),
        _abi.pv_frame_fn(take), None, None,
    )
    return found


def sound(video: "Union[str, os.PathLike[str], Video]") -> "memoryview[float]":
    """What a model that hears would hear of a file: float32, 16,000 samples a second. Empty where there is no sound."""
    guard = Guard()
    prepared = Prepared(video, guard)
    if prepared.path is None:
        raise ArgumentError("sound: the video must be a file")
    lib = library()
    samples = ctypes.POINTER(ctypes.c_float)()
    n = ctypes.c_size_t()
    try:
        guard.call("pv_video_sound", prepared.path, ctypes.byref(prepared.params), ctypes.byref(samples), ctypes.byref(n))
        raw = ctypes.string_at(samples, n.value * 4) if n.value else b""
    finally:
        lib.pv_free(samples)
    return memoryview(raw).cast("f")
