"""Counts and times of an answer, and of an engine."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stats:
    """What one answer took. Times are in seconds. prevue.h (struct pv_stats) explains each number."""

    prompt_tokens: int
    reused_tokens: int
    tokens: int
    passes: int
    video_tokens: int
    frames: int
    lost_frames: int
    video_s: float
    vision_s: float
    prefill_s: float
    decode_s: float
    draft_video_tokens: int
    rounds: int
    proposed: int
    accepted: int
    rejections: int
    draft_rows: int
    draft_slots: int
    view_s: float
    draft_prefill_s: float
    draft_s: float
    verify_s: float
    parallel_rounds: int
    startup_tokens: int
    wasted: int
    runs: int
    run_tokens: int
    longest_run: int
    wait_s: float
    window: int
    draft_threads: int
    peak_bytes: int
    video_kept: float

    @property
    def tokens_per_pass(self) -> float:
        """Tokens that one pass of the model yields: 1 without speculation, more with it."""
        return self.tokens / self.passes if self.passes else 0.0

    @property
    def acceptance(self) -> float:
        """Share of the proposed tokens that the model accepted."""
        return self.accepted / self.proposed if self.proposed else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Speed of decoding, without the prompt."""
        return self.tokens / self.decode_s if self.decode_s > 0 else 0.0


@dataclass(frozen=True)
class EngineStats:
    """How an engine does. prevue.h (struct pv_engine_counts) explains each number."""

    running: int
    queued: int
    steps: int
    rows: int
    draft_steps: int
    preemptions: int
    pages: int
    pages_used: int
    pages_cached: int
    page_hits: int
    pages_evicted: int
    disk_files: int
    disk_rows: int
    disk_pages: int
    disk_damaged: int
    media_decoded: int
    media_found: int


def take(kind: Any, c: Any) -> Any:
    """A dataclass from the struct whose fields have the same names."""
    return kind(**{name: getattr(c, name) for name in kind.__dataclass_fields__})
