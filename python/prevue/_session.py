"""Conversations. An answer is made by a thread of its own, so that Python can iterate over it, cancel it or get Ctrl-C."""

import ctypes
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, Iterator, List, Optional

from . import _abi
from ._generate import Answer, Token, gen_params
from ._guard import PHASES, Guard, Progress
from ._handle import Handle, Owner, engine_thread
from ._library import library
from ._media import Frames, Prepared, VideoInfo, VideoLike, video_info
from ._stats import Stats, take
from .errors import ArgumentError, CancelledError, PrevueError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._engine import Engine
    from ._generate import Options

SLICE = 0.1


class _Work:
    """One answer being made. It knows nothing of the objects that users see, so that these can be dropped meanwhile."""

    def __init__(self, handle: Handle, gen: Any, keep: List[Any], busy: Any) -> None:
        self.handle = handle
        self.gen = gen
        self.keep = keep
        self.pieces: "queue.SimpleQueue[Any]" = queue.SimpleQueue()  # bytes, (phase, done, total), None at the end
        self.stop = False
        self.error: Optional[PrevueError] = None
        self.answer: Optional[Answer] = None
        self.busy = busy
        self.thread = threading.Thread(target=self._run, name="prevue-answer", daemon=True)

    # Both run on the engine's thread.
    def _on_text(self, _: Any, text: int, length: int) -> bool:
        engine_thread.inside = True
        try:
            self.pieces.put(ctypes.string_at(text, length))
            return not self.stop
        finally:
            engine_thread.inside = False

    def _on_progress(self, _: Any, phase: int, done: int, total: int) -> bool:
        engine_thread.inside = True
        try:
            self.pieces.put((PHASES.get(phase, ""), done, total))
            return not self.stop
        finally:
            engine_thread.inside = False

    def _run(self) -> None:
        lib = library()
        cancelled = False
        text = _abi.pv_text_fn(self._on_text)
        self.gen.progress = _abi.pv_progress_fn(self._on_progress)
        try:
            lib.call("pv_generate", self.handle.pointer, ctypes.byref(self.gen), text, None)
        except CancelledError:
            cancelled = True
        except PrevueError as e:
            self.error = e
        if self.error is None:
            self.answer = self._take_answer(cancelled)
        self.busy.release()
        self.pieces.put(None)

    def _take_answer(self, cancelled: bool) -> Answer:
        lib = library()
        n = ctypes.c_size_t()
        at = lib.pv_session_answer(self.handle.pointer, ctypes.byref(n))
        ids = [int(at[i]) for i in range(n.value)]
        stats = _abi.pv_stats()
        stats.size = ctypes.sizeof(stats)
        lib.pv_session_stats(self.handle.pointer, ctypes.byref(stats))
        full = len(ids) >= self.gen.max_new_tokens
        finish = "cancelled" if cancelled else "length" if full else "stop"
        return Answer("", ids, finish, take(Stats, stats), [Token(i, False) for i in ids])


def _abandon(work: _Work) -> None:
    """Nobody wants the answer any more: stop it, and wait until the session is free."""
    work.stop = True
    if not getattr(engine_thread, "inside", False) and work.thread is not threading.current_thread():
        work.thread.join()


class SessionStream:
    """An answer of a session on its way: iterate over it for the pieces of its text. Dropping it cancels it."""

    def __init__(self, work: _Work, on_progress: Optional[Progress]) -> None:
        self._work = work
        self._on_progress = on_progress
        self._text: List[str] = []
        self._ended = False
        self._abandon = weakref.finalize(self, _abandon, work)
        work.thread.start()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while not self._ended:
            try:
                piece = self._work.pieces.get(timeout=SLICE)
            except queue.Empty:
                continue
            if piece is None:
                self._ended = True
                self._work.thread.join()
            elif isinstance(piece, bytes):
                text = piece.decode("utf-8", "replace")
                self._text.append(text)
                return text
            elif self._on_progress:
                self._on_progress(*piece)
        if self._work.error is not None:
            raise self._work.error
        raise StopIteration

    def cancel(self) -> None:
        """Stop it, from any thread. What it has said until then stays in the conversation."""
        self._work.stop = True

    def close(self) -> None:
        """Stop it and wait for its end."""
        self._abandon()

    def answer(self) -> Answer:
        """Wait for the end. Raises what went wrong."""
        for _ in self:
            pass
        found = self._work.answer
        if found is None:
            raise ArgumentError("this stream has no answer")
        return Answer("".join(self._text), found.ids, found.finish, found.stats, found.tokens)

    def __enter__(self) -> "SessionStream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Session(Owner):
    """A conversation on an engine: add videos, then ask. One thread uses it at a time.

        with engine.session() as session:
            session.add_video("clip.mp4")
            print(session.ask("What happens?"))
            print(session.ask("And then?"))
    """

    _what = "session"

    def __init__(self, engine: "Engine") -> None:
        lib = library()
        handle = engine._use()
        pointer = ctypes.c_void_p()
        lib.call("pv_engine_session", ctypes.byref(pointer), handle.pointer)
        self._handle = Handle(pointer, lib.pv_session_close, handle)
        self._usual = engine.usual_method
        self._busy = threading.Lock()

    def _take(self) -> Handle:
        """The handle, for this thread alone; to be given back by releasing _busy."""
        handle = self._use()
        if not self._busy.acquire(blocking=False):
            raise ArgumentError("this session is still answering")
        return handle

    def add_video(self, video: VideoLike, on_progress: Optional[Progress] = None) -> Optional[VideoInfo]:
        """Put a video or picture before the next question. Returns what was found in the file; None for frames."""
        guard = Guard(on_progress)
        prepared = Prepared(video, guard)
        params = ctypes.byref(prepared.params)
        info = _abi.pv_video_info()
        handle = self._take()
        try:
            if prepared.frames is not None:
                guard.call("pv_add_frames", handle.pointer, prepared.frames, len(prepared.frames), prepared.fps, params)
                return None
            if prepared.data is not None:
                guard.call(
                    "pv_add_video_data", handle.pointer, prepared.data, len(prepared.data), params, ctypes.byref(info)
                )
            else:
                guard.call("pv_add_video", handle.pointer, prepared.path, params, ctypes.byref(info))
        finally:
            self._busy.release()
        return video_info(info)

    def add_frames(self, pixels: Any, fps: float, samples: Any = None) -> None:
        """Put frames in memory before the next question: an array of bytes [n, height, width, 3]. See Frames."""
        self.add_video(Frames(pixels, fps, samples))

    def add_text(self, role: str, text: str) -> None:
        """Append a message of "system", "user" or "assistant"."""
        handle = self._take()
        try:
            library().call("pv_add_text", handle.pointer, role.encode(), text.encode())
        finally:
            self._busy.release()

    def stream(self, question: Optional[str] = None, **options: "Unpack[Options]") -> SessionStream:
        """Ask, and iterate over the answer; None: answer what was added. Options as those of Engine.stream()."""
        on_progress = options.get("on_progress")
        keep: List[Any] = []
        gen = gen_params(keep, self._usual, **options)
        if question is not None:
            self.add_text("user", question)
        handle = self._take()
        return SessionStream(_Work(handle, gen, keep, self._busy), on_progress)

    def ask(self, question: Optional[str] = None, **options: "Unpack[Options]") -> Answer:
        """Ask, and wait for the answer."""
        with self.stream(question, **options) as stream:
            return stream.answer()

    def reset(self) -> None:
        """Forget the conversation. What it shares with the next one is still found in the KV cache."""
        handle = self._take()
        try:
            library().pv_session_reset(handle.pointer)
        finally:
            self._busy.release()
