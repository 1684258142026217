"""Owners of the library's objects.

A Handle closes its object when the last reference to it is gone, and keeps the handles of what the object borrows (an
engine borrows its model) alive until then. So objects may be dropped or closed in any order: close() only gives up one
reference. Python closes what is left at its exit, the newest first.
"""

import ctypes
import os
import queue
import threading
import weakref
from typing import Any, Callable, Optional, Tuple

from .errors import ArgumentError

# Set while Python code runs on an engine's own thread (a callback). Closing an object there would wait for that very
# thread, and the garbage collector may want to close one at any time: it is handed to another thread.
engine_thread = threading.local()
_closers: "queue.SimpleQueue[Tuple[Any, ...]]" = queue.SimpleQueue()
_closer: Optional[threading.Thread] = None
_closer_lock = threading.Lock()


def _close_later(job: Tuple[Any, ...]) -> None:
    global _closer
    _closers.put(job)
    with _closer_lock:
        if _closer is None:
            _closer = threading.Thread(target=_run_closer, name="prevue-closer", daemon=True)
            _closer.start()


def _run_closer() -> None:
    while True:
        _close(*_closers.get())


def _close(function: Callable[[Any], None], pointer: ctypes.c_void_p, borrowed: Tuple[Any, ...], pid: int) -> None:
    """Close the object, then let go of what it borrowed."""
    if pid != os.getpid():
        return  # a forked child has none of the engine's threads
    if getattr(engine_thread, "inside", False):
        _close_later((function, pointer, borrowed, pid))
        return
    function(ctypes.byref(pointer))


class Handle:
    """A reference to an object of the library; `borrowed` are the handles that it needs."""

    def __init__(self, pointer: ctypes.c_void_p, close: Callable[[Any], None], *borrowed: "Optional[Handle]") -> None:
        self.pointer = pointer
        weakref.finalize(self, _close, close, ctypes.c_void_p(pointer.value), borrowed, os.getpid())


class Owner:
    """Base of the classes that users see: has a handle until it is closed."""

    _handle: Optional[Handle] = None
    _what = "object"

    def _use(self) -> Handle:
        """The handle. The caller keeps it in a variable as long as the library works with it."""
        handle = self._handle
        if handle is None:
            raise ArgumentError("this %s is closed" % self._what)
        return handle

    @property
    def closed(self) -> bool:
        """Was close() called?"""
        return self._handle is None

    def close(self) -> None:
        """Give it up. Its memory is freed as soon as nothing uses it any more; closing twice is fine."""
        self._handle = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
