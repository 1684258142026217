"""Models: weights, tokenizer and the device they live on."""

import ctypes
import json
import os
from typing import Any, Dict, List, Optional, Sequence

from . import _abi
from ._guard import Guard
from ._handle import Handle, Owner
from ._library import encode, library
from .errors import ArgumentError, LibraryError


DRAFT_VISION = {
    "auto": _abi.PV_DRAFT_VISION_AUTO,
    "own": _abi.PV_DRAFT_VISION_OWN,
    "shared": _abi.PV_DRAFT_VISION_SHARED,
}
TOWER_TYPES = {"file": _abi.PV_TOWER_FILE, "q8_0": _abi.PV_TOWER_Q8_0}


class Model(Owner):
    """Weights and tokenizer, opened from a GGUF file or a Hugging Face directory.

    Immutable once open, and shared by any number of engines and threads. `head` is a draft head made for this model,
    `threads` 0 means all cores that the process may use, `device` is "cpu", "cuda" or "cuda:1". A draft model usually
    runs on the threads of its target: `shares_with=target`. With `draft_vocab` a drafter scores only so many tokens: the
    most frequent ones of the text file `draft_text`. `adaptor` is a vision adaptor, by which a draft model sees what the
    vision tower of `shares_with` sees; `draft_vision` is "auto" (if the adaptor fits), "own" or "shared". With
    `tower_type` "q8_0" a vision tower of 16 or 32 bits is quantised when it is opened, which may change answers.
    """

    _what = "model"

    def __init__(
        self,
        path: "str | os.PathLike[str]",
        *,
        mmproj: "str | os.PathLike[str] | None" = None,
        head: "str | os.PathLike[str] | None" = None,
        threads: int = 0,
        device: Optional[str] = None,
        shares_with: "Optional[Model]" = None,
        repack: bool = True,
        draft_vocab: int = 0,
        draft_text: "str | os.PathLike[str] | None" = None,
        memory_bytes: int = 0,
        adaptor: "str | os.PathLike[str] | None" = None,
        draft_vision: str = "auto",
        tower_type: str = "file",
    ) -> None:
        if draft_vision not in DRAFT_VISION:
            raise ArgumentError(f"draft_vision is {draft_vision!r}, not one of {', '.join(DRAFT_VISION)}")
        if tower_type not in TOWER_TYPES:
            raise ArgumentError(f"tower_type is {tower_type!r}, not one of {', '.join(TOWER_TYPES)}")
        lib = library()
        params = lib.defaults(_abi.pv_model_params, "pv_model_params_init")
        lender = shares_with._use() if shares_with else None
        params.path = encode(path)
        params.mmproj = encode(mmproj)
        params.head = encode(head)
        params.threads = threads
        params.device = encode(device)
        params.shares_with = lender.pointer if lender else None
        params.no_repack = not repack
        params.draft_vocab = draft_vocab
        params.draft_text = encode(draft_text)
        params.limits.memory_bytes = memory_bytes
        params.adaptor = encode(adaptor)
        params.draft_vision = DRAFT_VISION[draft_vision]
        params.tower_type = TOWER_TYPES[tower_type]
        guard = Guard()
        params.progress = guard.progress
        pointer = ctypes.c_void_p()
        try:
            guard.call("pv_model_open", ctypes.byref(pointer), ctypes.byref(params))
        except BaseException:
            lib.pv_model_close(ctypes.byref(pointer))
            raise
        self._handle = Handle(pointer, lib.pv_model_close, lender)
        self.path = os.fspath(path)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return int(library().pv_model_vocab_size(self._use().pointer))

    @property
    def max_context(self) -> int:
        """Most tokens of prompt and answer that the model was made for."""
        return int(library().pv_model_max_context(self._use().pointer))

    @property
    def has_tokenizer(self) -> bool:
        """Can it read and write text? Otherwise only token ids."""
        return bool(library().pv_model_has_tokenizer(self._use().pointer))

    @property
    def has_vision(self) -> bool:
        """Can it see videos and pictures?"""
        return bool(library().pv_model_has_vision(self._use().pointer))

    @property
    def has_audio(self) -> bool:
        """Can it hear the sound of videos?"""
        return bool(library().pv_model_has_audio(self._use().pointer))

    @property
    def has_head(self) -> bool:
        """Was it opened with a draft head?"""
        return bool(library().pv_model_has_head(self._use().pointer))

    def info(self, context: int = 0, tensors: bool = False) -> Dict[str, Any]:
        """Architecture, types of tensors and the memory needed at `context` tokens, as `prevue inspect --json` has them."""
        lib = library()
        text = ctypes.c_void_p()
        lib.call("pv_model_describe", self._use().pointer, context, True, tensors, ctypes.byref(text))
        try:
            found = json.loads(ctypes.string_at(text.value or 0))
        finally:
            lib.pv_free(text)
        if not isinstance(found, dict):
            raise LibraryError("pv_model_describe gave no object")
        return found

    def check(self) -> None:
        """Read every weight. Raises FormatError, naming the tensor, if one is NaN or infinite."""
        library().call("pv_model_check", self._use().pointer)

    def tokenize(self, text: str, special: bool = False) -> List[int]:
        """Token ids of a text. With `special`, special tokens spelled in it become their ids."""
        lib = library()
        handle = self._use()
        raw = text.encode()
        n = ctypes.c_size_t()
        room = len(raw) + 16
        while True:
            ids = (ctypes.c_int32 * room)()
            lib.call("pv_tokenize", handle.pointer, raw, len(raw), special, ids, room, ctypes.byref(n))
            if n.value <= room:
                return list(ids[: n.value])
            room = n.value

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token, which may be part of a UTF-8 character."""
        handle = self._use()
        n = ctypes.c_size_t()
        at = library().pv_token_bytes(handle.pointer, token, ctypes.byref(n))
        if not at:
            raise ArgumentError("%s has no token %d" % (self.path, token))
        return ctypes.string_at(at, n.value)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        return b"".join(self.token_bytes(t) for t in tokens).decode("utf-8", "replace")

    def __repr__(self) -> str:
        return "<prevue.Model %s%s>" % (self.path, " (closed)" if self.closed else "")
