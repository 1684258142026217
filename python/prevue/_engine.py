"""Engines, and the requests that they answer."""

import ctypes
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Union

from . import _abi
from ._generate import FINISHES, Answer, Token, check_strings, gen_params
from ._guard import PHASES, Guard, Progress
from ._handle import Handle, Owner
from ._library import encode, library
from ._media import Prepared, VideoLike, as_list
from ._model import Model
from ._stats import EngineStats, Stats, take
from .errors import ArgumentError, PrevueError, error_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._generate import Options
    from ._session import Session

# Seconds of one wait in the library: Python handles signals (Ctrl-C) between two of them.
SLICE = 0.1


@dataclass(frozen=True)
class View:
    """Which tokens of the prompt's first video the drafter saw.

    `visible` is an array of bool [frames, height, width] (units in time, tokens of each), `scores` one of float32 in the
    same shape where the view has them. numpy.asarray takes both.
    """

    frames: int
    height: int
    width: int
    kept: int
    visible: "memoryview[bool]"
    scores: "Optional[memoryview[float]]"


class Stream(Owner):
    """An answer on its way: iterate over it for the pieces of its text, each of whole characters.

    It is being made from the moment it was asked for, whether or not anyone iterates. Dropping it cancels it.
    """

    _what = "stream"

    def __init__(self, handle: Handle, keep: List[Any], stop: List[bytes], on_progress: Optional[Progress]) -> None:
        self._handle = handle
        self._keep = keep
        self._stop = stop
        self._on_progress = on_progress
        self._text: List[str] = []
        self._tokens: List[Token] = []
        self._answer: Optional[Answer] = None
        self._error: Optional[PrevueError] = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        event = _abi.pv_event()
        lib = library()
        while self._answer is None and self._error is None:
            handle = self._use()
            if not lib.pv_request_next(handle.pointer, ctypes.byref(event), SLICE):
                continue
            if event.kind == _abi.PV_EVENT_TEXT:
                piece = self._take_text(event)
                if piece:
                    return piece
            elif event.kind == _abi.PV_EVENT_END:
                self._take_end(event, handle)
            elif self._on_progress:
                self._on_progress(PHASES.get(event.phase, ""), event.done, event.total)
        if self._error is not None:
            raise self._error
        raise StopIteration

    def _take_text(self, event: Any) -> str:
        token = event.token
        if token.id >= 0:
            top = tuple((token.top[i].id, token.top[i].logprob) for i in range(token.n_top))
            self._tokens.append(Token(token.id, token.drafted, token.logprob if self._logprobs else None, top))
        if not event.len:
            return ""
        piece = ctypes.string_at(event.text, event.len).decode("utf-8", "replace")
        self._text.append(piece)
        return piece

    _logprobs = False

    def _take_end(self, event: Any, handle: Handle) -> None:
        if event.finish == _abi.PV_FINISH_ERROR:
            self._error = error_of(event.status, (event.message or b"").decode("utf-8", "replace"))
            return
        stats = _abi.pv_stats()
        stats.size = ctypes.sizeof(stats)
        library().pv_request_stats(handle.pointer, ctypes.byref(stats))
        stopped_by = self._stop[event.stop].decode() if 0 <= event.stop < len(self._stop) else None
        self._answer = Answer(
            "".join(self._text), [t.id for t in self._tokens], FINISHES[event.finish], take(Stats, stats),
            self._tokens, stopped_by,
        )

    def cancel(self) -> None:
        """Stop it, from any thread. It ends within one step of the model; what it has said until then stays."""
        library().pv_request_cancel(self._use().pointer)

    def answer(self) -> Answer:
        """Wait for the end. Raises what went wrong."""
        for _ in self:
            pass
        if self._answer is None:
            raise ArgumentError("this stream has no answer")
        return self._answer

    def view(self) -> View:
        """After the end: what the drafter saw of the first video. ArgumentError where nobody drafted."""
        if self._answer is None:
            raise ArgumentError("the answer has not ended")
        handle = self._use()
        c = _abi.pv_view_map()
        library().call("pv_request_view", handle.pointer, ctypes.addressof(c))
        shape = (c.frames, c.height, c.width)
        n = c.frames * c.height * c.width
        visible = memoryview(ctypes.string_at(c.visible, n)).cast("?", shape)
        scores = memoryview(ctypes.string_at(c.scores, 4 * n)).cast("f", shape) if c.scores else None
        return View(c.frames, c.height, c.width, c.kept, visible, scores)


class _Prompt:
    """Messages as the library's structs."""

    def __init__(self, messages: Sequence[Dict[str, Any]], guard: Guard) -> None:
        self.keep: List[Any] = []
        self.messages = (_abi.pv_message * len(messages))()
        for c, message in zip(self.messages, messages):
            parts = [self._part(p, guard) for p in self._split(message)]
            array = (_abi.pv_part * len(parts))(*parts)
            self.keep.append(array)
            c.role = str(message.get("role", "user")).encode()
            c.parts = array
            c.n_parts = len(parts)

    @staticmethod
    def _split(message: Dict[str, Any]) -> List[Any]:
        content = message.get("content", [])
        return list(content) if isinstance(content, (list, tuple)) else [{"text": content}]

    def _part(self, part: Any, guard: Guard) -> Any:
        c = _abi.pv_part()
        if isinstance(part, dict) and "text" in part:
            c.text = str(part["text"]).encode()
            return c
        video = Prepared(part["video"] if isinstance(part, dict) and "video" in part else part, guard)
        self.keep.append(video)
        c.path = video.path
        if video.data is not None:
            c.data = ctypes.cast(ctypes.c_char_p(video.data), ctypes.c_void_p)
            c.data_size = len(video.data)
        if video.frames is not None:
            c.frames = video.frames
            c.n_frames = len(video.frames)
            c.fps = video.fps
        c.video = ctypes.pointer(video.params)
        return c


class Engine(Owner):
    """Runs many answers on one model at once, on a thread of its own.

    `draft` is a smaller model that drafts for it. Answers share the beginnings of their prompts, videos included. With
    `cache_dir` what is computed from videos is kept for later runs, with `cache_kv` the KV cache too. Without further
    word the method is "auto" if there is a draft model or the model has a draft head, else plain decoding; the text is
    the same in both cases. Any number of threads may use an engine.
    """

    _what = "engine"

    def __init__(
        self,
        model: Model,
        *,
        draft: Optional[Model] = None,
        speculate: Optional[bool] = None,
        max_context: int = 0,
        kv_tokens: int = 0,
        max_requests: int = 0,
        cache_dir: "str | os.PathLike[str] | None" = None,
        cache_kv: bool = False,
        cache_bytes: int = 0,
    ) -> None:
        lib = library()
        handle = model._use()
        drafter = draft._use() if draft else None
        params = lib.defaults(_abi.pv_engine_params, "pv_engine_params_init")
        params.max_context = max_context
        params.kv_tokens = kv_tokens
        params.max_requests = max_requests
        params.draft = drafter.pointer if drafter else None
        can_draft = draft is not None or model.has_head
        params.speculate = can_draft if speculate is None else speculate
        params.cache.dir = encode(cache_dir)
        params.cache.kv = cache_kv
        params.cache.bytes = cache_bytes
        pointer = ctypes.c_void_p()
        lib.call("pv_engine_open", ctypes.byref(pointer), handle.pointer, ctypes.byref(params))
        self._handle = Handle(pointer, lib.pv_engine_close, handle, drafter)
        self.usual_method = "auto" if can_draft else None

    def submit(
        self,
        messages: Sequence[Dict[str, Any]],
        *,
        stop: Union[str, Sequence[str]] = (),
        logprobs: Optional[int] = None,
        **options: "Unpack[Options]",
    ) -> Stream:
        """Ask with a whole conversation, and return the answer's stream at once.

        A message is a dict with "role" ("system", "user" or "assistant") and "content": a text, or a list of
        {"text": ...} and {"video": ...}. Videos are decoded here, before it returns. The answer ends before a string of
        `stop`. `logprobs` asks for the log-probability of each token and those of so many of the likeliest.
        """
        lib = library()
        handle = self._use()
        keep: List[Any] = []
        on_progress = options.get("on_progress")
        guard = Guard(on_progress)
        prompt = _Prompt(messages, guard)
        gen = gen_params(keep, self.usual_method, **options)
        strings = check_strings(stop)
        params = lib.defaults(_abi.pv_request_params, "pv_request_params_init")
        params.messages = prompt.messages
        params.n_messages = len(prompt.messages)
        params.gen = ctypes.pointer(gen)
        params.stop = (ctypes.c_char_p * len(strings))(*strings)
        params.n_stop = len(strings)
        params.top_logprobs = -1 if logprobs is None else logprobs
        pointer = ctypes.c_void_p()
        try:
            guard.call("pv_request_submit", ctypes.byref(pointer), handle.pointer, ctypes.byref(params))
        except BaseException:
            lib.pv_request_close(ctypes.byref(pointer))
            raise
        stream = Stream(Handle(pointer, lib.pv_request_close, handle), keep, strings, on_progress)
        stream._logprobs = logprobs is not None
        return stream

    def stream(
        self,
        video: "Union[VideoLike, Sequence[VideoLike], None]",
        question: str = "Describe the video.",
        *,
        stop: Union[str, Sequence[str]] = (),
        logprobs: Optional[int] = None,
        **options: "Unpack[Options]",
    ) -> Stream:
        """Ask about a video, or several, and iterate over the answer:

            for piece in engine.stream("clip.mp4"):
                print(piece, end="", flush=True)

        Options: max_tokens (256), temperature (0: the likeliest token every time), top_k, top_p, min_p, seed, method (a
        name or a Method) and on_progress(phase, done, total).
        """
        content: List[Any] = [{"video": v} for v in as_list(video)]
        content.append({"text": question})
        return self.submit([{"role": "user", "content": content}], stop=stop, logprobs=logprobs, **options)

    def describe(
        self,
        video: "Union[VideoLike, Sequence[VideoLike], None]",
        question: str = "Describe the video.",
        *,
        stop: Union[str, Sequence[str]] = (),
        logprobs: Optional[int] = None,
        **options: "Unpack[Options]",
    ) -> Answer:
        """Ask about a video, or several, and wait for the answer. Options as those of stream()."""
        with self.stream(video, question, stop=stop, logprobs=logprobs, **options) as stream:
            answer: Answer = stream.answer()
        return answer

    def session(self) -> "Session":
        """A conversation: its videos are decoded once, and its prompt is read once."""
        from ._session import Session

        return Session(self)

    def stats(self) -> EngineStats:
        """How the engine does."""
        counts = _abi.pv_engine_counts()
        counts.size = ctypes.sizeof(counts)
        library().pv_engine_stats(self._use().pointer, ctypes.byref(counts))
        found: EngineStats = take(EngineStats, counts)
        return found
