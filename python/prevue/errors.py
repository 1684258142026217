"""What can go wrong. Each error carries the library's own sentence, which names the file and what disagreed."""

from typing import Dict, Type

from . import _abi


class PrevueError(Exception):
    """A call of the library failed; str() is its sentence."""


class ArgumentError(PrevueError, ValueError):
    """Something was asked for that has no meaning."""


class OutOfMemoryError(PrevueError, MemoryError):
    """There is not enough memory."""


class FileError(PrevueError, OSError):
    """A file could not be opened, read or written."""


class FormatError(PrevueError, ValueError):
    """A file's contents disagree with its format or with themselves."""


class UnsupportedError(PrevueError):
    """Well formed, but not something that this build of the library can run."""


class LimitError(PrevueError):
    """A limit (context, file size, memory) would be exceeded."""


class CancelledError(PrevueError):
    """The call was stopped."""


class DeviceError(PrevueError):
    """The device failed."""


class DrafterError(PrevueError):
    """The drafter failed, while the model itself is fine."""


class LibraryError(PrevueError, ImportError):
    """libprevue was not found, or is not the one that this package was made for."""


BY_STATUS: Dict[int, Type[PrevueError]] = {
    _abi.PV_E_ARG: ArgumentError,
    _abi.PV_E_NOMEM: OutOfMemoryError,
    _abi.PV_E_IO: FileError,
    _abi.PV_E_FORMAT: FormatError,
    _abi.PV_E_UNSUPPORTED: UnsupportedError,
    _abi.PV_E_LIMIT: LimitError,
    _abi.PV_E_CANCELLED: CancelledError,
    _abi.PV_E_DEVICE: DeviceError,
    _abi.PV_E_DRAFTER: DrafterError,
    _abi.PV_E_NOT_FINITE: FormatError,
}


def error_of(status: int, sentence: str) -> PrevueError:
    """The exception for a status of the library."""
    return BY_STATUS.get(status, PrevueError)(sentence)
