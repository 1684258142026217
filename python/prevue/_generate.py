"""How an answer is made, and what it is."""

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple, Union

from . import _abi
from ._guard import Progress
from ._library import encode, library
from ._stats import Stats
from .errors import ArgumentError

if TYPE_CHECKING:
    from typing_extensions import TypedDict

    class Options(TypedDict, total=False):
        """Keyword arguments of describe, stream and ask."""

        max_tokens: int
        temperature: float
        top_k: int
        top_p: float
        min_p: float
        seed: int
        method: "Union[str, Method, None]"
        on_progress: Optional[Progress]


FINISHES = {
    _abi.PV_FINISH_STOP: "stop",
    _abi.PV_FINISH_STOP_STRING: "stop_string",
    _abi.PV_FINISH_LENGTH: "length",
    _abi.PV_FINISH_CANCELLED: "cancelled",
    _abi.PV_FINISH_ERROR: "error",
}
# What a caller may change of a preset.
METHOD_FIELDS = (
    "view window total depth width tree_file ratio lambda layer terms literal text_after draft_threads keep draft_seed"
).split()


class Method:
    """A way to draft: a preset by its name (prevue.methods() lists them), with some of its numbers changed.

        Method("specvlm", ratio=0.8)

    Whatever the method, the text stays the same; only the speed changes.
    """

    def __init__(self, name: str, **changes: Any) -> None:
        self.name = name
        self.changes = changes
        self._struct = _abi.pv_method()
        self._struct.size = ctypes.sizeof(self._struct)
        library().call("pv_method_find", ctypes.byref(self._struct), encode(name))
        for field, value in changes.items():
            if field not in METHOD_FIELDS:
                raise ArgumentError("Method has no %s (it has %s)" % (field, ", ".join(METHOD_FIELDS)))
            setattr(self._struct, field, encode(value) if isinstance(value, str) else value)
        library().call("pv_method_check", ctypes.byref(self._struct))

    def __repr__(self) -> str:
        return "prevue.Method(%s)" % ", ".join([repr(self.name)] + ["%s=%r" % c for c in self.changes.items()])


def _names(function: str) -> List[str]:
    found: List[str] = []
    while True:
        name = getattr(library(), function)(len(found))
        if name is None:
            return found
        found.append(name.decode())


def methods() -> List[str]:
    """Names of the presets for Method and for the keyword `method`."""
    return _names("pv_method_name")


def views() -> List[str]:
    """Names of the views: which video tokens a drafter sees."""
    return _names("pv_view_name")


@dataclass(frozen=True)
class Token:
    """One token of an answer. `logprob` and `top` (id and log-probability of the likeliest) where they were asked for."""

    id: int
    drafted: bool
    logprob: Optional[float] = None
    top: Tuple[Tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Answer:
    """A finished answer.

    `finish` says why it ended: "stop" (the model ended it), "stop_string" (a string of `stop`, which is `stopped_by`),
    "length" (max_tokens or the context was reached) or "cancelled".
    """

    text: str
    ids: List[int]
    finish: str
    stats: Stats
    tokens: List[Token]
    stopped_by: Optional[str] = None

    def __str__(self) -> str:
        return self.text


def gen_params(
    keep: List[Any],
    usual: Optional[str],
    max_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    method: Union[str, Method, None] = None,
    on_progress: Optional[Progress] = None,
) -> Any:
    """The struct; `usual` is the method when none is given, None plain decoding. Progress is the caller's affair."""
    params = library().defaults(_abi.pv_gen_params, "pv_gen_params_init")
    params.max_new_tokens = max_tokens
    params.temperature = temperature
    params.top_k = top_k
    params.top_p = top_p
    params.min_p = min_p
    params.seed = seed
    chosen = method if method is not None else usual
    if chosen is not None:
        found = chosen if isinstance(chosen, Method) else Method(chosen)
        keep.append(found)
        params.method = ctypes.addressof(found._struct)
    return params


def check_strings(stop: Union[str, Sequence[str]]) -> List[bytes]:
    """Stop strings as the library takes them."""
    return [s.encode() for s in ([stop] if isinstance(stop, str) else stop)]
