"""Calls of the library that read files, which Ctrl-C can end."""

import ctypes
import queue
import sys
import threading
import warnings
from typing import Any, Callable, Optional

from . import _abi
from ._library import library

PHASES = {
    _abi.PV_PHASE_VIDEO: "video",
    _abi.PV_PHASE_PREFILL: "prefill",
    _abi.PV_PHASE_DRAFT_PREFILL: "draft_prefill",
}
#: Called with the name of a phase ("video", "prefill", "draft_prefill"), how much of it is done, and the total.
Progress = Callable[[str, int, int], Any]


#: Of pv_video_params.unsandboxed.
Unsandboxed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Once:
    """True for the first caller, of whichever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def first(self) -> bool:
        """Whether nobody has asked before."""
        return self._lock.acquire(blocking=False)


warned_of_no_sandbox = Once()


def warn_of_no_sandbox(why: str) -> None:
    """Once in a process, in the line of the program that called this package."""
    if not warned_of_no_sandbox.first():
        return
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn("decoding without a sandbox: %s" % why, RuntimeWarning, stacklevel=level)


class Guard:
    """Makes one call of the library on a thread of its own, while the caller's thread waits and reports progress.

    The library's callbacks must not run on Python's main thread: Ctrl-C raises KeyboardInterrupt in the Python code that
    this thread runs next, and ctypes prints and drops whatever a callback raises before its first statement. Here the
    exception ends the wait: the call is told to stop, and when it has returned, the exception is raised again.
    """

    def __init__(self, on_progress: Optional[Progress] = None) -> None:
        self._on_progress = on_progress
        self._events: "queue.SimpleQueue[Any]" = queue.SimpleQueue()  # functions for the caller's thread, None at the end
        self._stop = False
        self._error: Optional[BaseException] = None
        self.progress = _abi.pv_progress_fn(self._progress)
        self.unsandboxed = Unsandboxed(self._unsandboxed)

    def _progress(self, _: Any, phase: int, done: int, total: int) -> bool:
        on_progress = self._on_progress
        if on_progress:
            self._events.put(lambda: on_progress(PHASES.get(phase, ""), done, total))
        return not self._stop

    def _unsandboxed(self, _: Any, why: int) -> None:
        text = ctypes.string_at(why).decode("utf-8", "replace")
        self._events.put(lambda: warn_of_no_sandbox(text))

    def run(self, function: Callable[[], Any]) -> bool:
        """For other callbacks: run it; False, which stops the library, when it has failed or the caller gave up."""
        try:
            function()
        except BaseException as e:
            self._error = e
            self._stop = True
        return not self._stop

    def _work(self, name: str, arguments: Any) -> None:
        try:
            if not self._stop:
                library().call(name, *arguments)
        except BaseException as e:
            self._error = self._error or e
        finally:
            self._events.put(None)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library; raise what it says, or what a callback or Ctrl-C raised."""
        thread = threading.Thread(target=self._work, args=(name, arguments), name="prevue-media", daemon=True)
        try:
            thread.start()
            for event in iter(self._events.get, None):
                event()
        except BaseException:
            self._stop = True
            raise
        finally:
            _wait(thread)
        if self._error is not None:
            raise self._error


def _wait(thread: threading.Thread) -> None:
    """Wait until it ends, whatever signals arrive: it uses memory of the caller. One that has not begun makes no call."""
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt:
            pass
