"""Finds libprevue, loads it once, and calls it.

ctypes, and not cffi, because it comes with Python: the package needs nothing else. Calls through it release the GIL, so
other threads of Python run while one waits for the engine.
"""

import ctypes
import os
import subprocess
import threading
from typing import Any, Iterator, List, Optional

from . import _abi
from .errors import LibraryError, error_of

SONAME = "libprevue.so.0"
_HERE = os.path.dirname(os.path.abspath(__file__))
_lock = threading.Lock()
_library: Optional["Library"] = None


def _candidates() -> Iterator[str]:
    """Where the library may be, in the order in which they are tried."""
    yield os.path.join(_HERE, SONAME)  # built and copied here by pip install
    yield os.path.join(_HERE, "..", "..", "build", SONAME)  # used in place, in the source tree
    yield SONAME  # as the dynamic linker finds it
    yield os.path.join("/usr/local/lib", SONAME)  # after make install without ldconfig
    try:
        libdir = subprocess.run(
            ["pkg-config", "--variable=libdir", "prevue"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return
    yield os.path.join(libdir.strip(), SONAME)


def _open() -> "tuple[str, ctypes.CDLL]":
    named = os.environ.get("PREVUE_LIBRARY")
    if named:
        try:
            return named, ctypes.CDLL(named)
        except OSError as e:
            raise LibraryError("PREVUE_LIBRARY names %s, which cannot be loaded: %s" % (named, e)) from None
    tried: List[str] = []
    for path in _candidates():
        if os.sep in path and not os.path.exists(path):
            continue
        try:
            loaded = ctypes.CDLL(path)
            return os.path.realpath(path) if os.sep in path else _where(path), loaded
        except OSError as e:
            tried.append(str(e))
    raise LibraryError(
        "%s was not found: install prevue, or set PREVUE_LIBRARY to the file%s"
        % (SONAME, " (" + "; ".join(tried) + ")" if tried else "")
    )


def _where(name: str) -> str:
    """The file of a library that the dynamic linker found by its name, as the kernel has it mapped."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = line.rstrip("\n").rpartition(" ")[2]
                if os.path.basename(path).startswith(name):
                    return path
    except OSError:
        pass
    return name


class Library:
    """The loaded library. Its functions are attributes, with their types set."""

    def __init__(self) -> None:
        self.path, self.cdll = _open()
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            function = getattr(self.cdll, name, None)
            if function is not None:  # an older library lacks some
                function.restype = result
                function.argtypes = arguments
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        """Asked for what is not set above."""
        raise LibraryError("%s has no function %s: it is older than this package" % (self.path, name))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a status and takes an error last; raise what it says."""
        err = _abi.pv_error()
        status = getattr(self, name)(*arguments, ctypes.byref(err))
        if status:
            raise error_of(status, err.text.decode("utf-8", "replace"))

    def defaults(self, kind: Any, init: str) -> Any:
        """A struct of parameters with the library's defaults."""
        params = kind()
        getattr(self, init)(ctypes.byref(params), ctypes.sizeof(params))
        return params


def library() -> Library:
    """The library, loaded at the first call. Raises LibraryError."""
    global _library
    with _lock:
        if _library is None:
            _library = Library()
        return _library


def encode(text: "str | os.PathLike[str] | None") -> Optional[bytes]:
    """A path or a text as the library takes it."""
    return None if text is None else os.fsencode(os.fspath(text))
