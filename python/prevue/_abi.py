"""The layout of libprevue for ctypes. Written by make_abi.py from include/prevue/prevue.h: do not edit."""

from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
    c_uint, c_uint8, c_uint64, c_void_p,
)
from typing import Any, Dict, List, Tuple


class Struct(Structure):
    """A C struct. Assigning to a field that it does not have is an error, and so is a number too large for it."""

    def __setattr__(self, name: str, value: Any) -> None:
        getattr(type(self), name)
        super().__setattr__(name, value)
        kept = getattr(self, name)  # ctypes drops the bits that do not fit
        if type(kept) is int and hasattr(value, "__index__") and kept != value:
            raise OverflowError("%s: the number %d is too large, or negative" % (name, value))


PV_OK = 0
PV_E_ARG = 1
PV_E_NOMEM = 2
PV_E_IO = 3
PV_E_FORMAT = 4
PV_E_UNSUPPORTED = 5
PV_E_LIMIT = 6
PV_E_CANCELLED = 7
PV_E_DEVICE = 8
PV_E_DRAFTER = 9
PV_E_NOT_FINITE = 10
PV_E_PREEMPTED = 11
PV_THREAD_STACK = 262144
PV_TYPE_F32 = 0
PV_TYPE_F16 = 1
PV_TYPE_BF16 = 2
PV_TYPE_Q8_0 = 3
PV_TYPE_Q4_0 = 4
PV_TYPE_Q4_1 = 5
PV_TYPE_Q5_1 = 6
PV_KV_AUTO = 0
PV_KV_F16 = 1
PV_KV_BF16 = 2
PV_KV_F32 = 3
PV_KV_FP8 = 4
PV_PHASE_VIDEO = 0
PV_PHASE_PREFILL = 1
PV_PHASE_DRAFT_PREFILL = 2
PV_PHASE_CONVERT = 3
PV_PHASE_OPEN = 4
PV_DRAFT_VISION_AUTO = 0
PV_DRAFT_VISION_OWN = 1
PV_DRAFT_VISION_SHARED = 2
PV_TOWER_FILE = 0
PV_TOWER_Q8_0 = 1
PV_DRAFT_NONE = 0
PV_DRAFT_MODEL = 1
PV_DRAFT_SELF = 2
PV_DRAFT_SPARSE = 3
PV_DRAFT_HEAD = 4
PV_DRAFT_NGRAM = 5
PV_DRAFT_RANDOM = 6
PV_DRAFT_ORACLE = 7
PV_DRAFT_CASCADE = 8
PV_DRAFT_COUNT = 9
PV_SHAPE_CHAIN = 0
PV_SHAPE_TREE = 1
PV_SHAPE_DYNAMIC = 2
PV_SHAPE_FITTED = 3
PV_ACCEPT_EXACT = 0
PV_ACCEPT_REJECTION = 1
PV_SCHEDULE_SERIAL = 0
PV_SCHEDULE_PARALLEL = 1
PV_POS_AUTO = 0
PV_POS_COMPACT = 1
PV_POS_ORIGINAL = 2
PV_FRAMES_AUTO = 0
PV_FRAMES_LINSPACE = 1
PV_FRAMES_ARANGE = 2
PV_FRAMES_QWEN = 3
PV_TIME_AUTO = 0
PV_TIME_SECONDS = 1
PV_TIME_WHOLE = 2
PV_TIME_COMPACT = 3
PV_TIME_SECONDS_COMPACT = 4
PV_TIME_UPSTREAM = 5
PV_TIME_TRAINING = 6
PV_SANDBOX_IF_POSSIBLE = 0
PV_SANDBOX_ON = 1
PV_SANDBOX_OFF = 2
PV_FINISH_NONE = 0
PV_FINISH_STOP = 1
PV_FINISH_STOP_STRING = 2
PV_FINISH_LENGTH = 3
PV_FINISH_CANCELLED = 4
PV_FINISH_ERROR = 5
PV_EVENT_PROGRESS = 0
PV_EVENT_TEXT = 1
PV_EVENT_END = 2
PV_SOUND_RATE = 16000
PV_SIGNAL_NONE = 0
PV_SIGNAL_ATTENTION = 1
PV_SIGNAL_VIDEO_ATTENTION = 2
PV_SIGNAL_ALIGNMENT = 3
PV_SIGNAL_DRAFT_ATTENTION = 4
PV_SIDE_MODEL = 0
PV_SIDE_DRAFTER = 1


class pv_error(Struct):
    code: int
    text: bytes
    _fields_ = [
        ("code", c_int),
        ("text", c_char * 512),
    ]



class pv_limits(Struct):
    file_bytes: int
    memory_bytes: int
    context_tokens: int
    video_bytes: int
    frame_pixels: int
    frames: int
    video_seconds: float
    decoded_pixels: int
    decode_seconds: float
    reserved: Any
    _fields_ = [
        ("file_bytes", c_uint64),
        ("memory_bytes", c_uint64),
        ("context_tokens", c_int),
        ("video_bytes", c_uint64),
        ("frame_pixels", c_int64),
        ("frames", c_int),
        ("video_seconds", c_double),
        ("decoded_pixels", c_uint64),
        ("decode_seconds", c_double),
        ("reserved", c_uint64 * 2),
    ]


pv_progress_fn = CFUNCTYPE(c_bool, c_void_p, c_int, c_int64, c_int64)


class pv_model_params(Struct):
    size: int
    path: Any
    mmproj: Any
    head: Any
    threads: int
    cpu_mask: int
    shares_with: Any
    device: Any
    limits: Any
    test: Any
    no_repack: bool
    draft_vocab: int
    draft_text: Any
    ranks: Any
    progress: Any
    progress_user: Any
    adaptor: Any
    draft_vision: int
    tower_type: int
    _fields_ = [
        ("size", c_size_t),
        ("path", c_char_p),
        ("mmproj", c_char_p),
        ("head", c_char_p),
        ("threads", c_int),
        ("cpu_mask", c_uint64),
        ("shares_with", c_void_p),
        ("device", c_char_p),
        ("limits", pv_limits),
        ("test", c_void_p),
        ("no_repack", c_bool),
        ("draft_vocab", c_int),
        ("draft_text", c_char_p),
        ("ranks", c_void_p),
        ("progress", pv_progress_fn),
        ("progress_user", c_void_p),
        ("adaptor", c_char_p),
        ("draft_vision", c_int),
        ("tower_type", c_int),
    ]



class pv_cache_params(Struct):
    dir: Any
    bytes: int
    kv: bool
    warn: Any
    user: Any
    reserved: Any
    _fields_ = [
        ("dir", c_char_p),
        ("bytes", c_uint64),
        ("kv", c_bool),
        ("warn", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("user", c_void_p),
        ("reserved", c_uint64 * 4),
    ]



class pv_engine_params(Struct):
    size: int
    max_context: int
    kv_tokens: int
    max_requests: int
    vision_bytes: int
    chunk: int
    kv_type: int
    draft: Any
    speculate: bool
    cache: Any
    kv_bytes: int
    media_bytes: int
    _fields_ = [
        ("size", c_size_t),
        ("max_context", c_int),
        ("kv_tokens", c_int64),
        ("max_requests", c_int),
        ("vision_bytes", c_int64),
        ("chunk", c_int),
        ("kv_type", c_int),
        ("draft", c_void_p),
        ("speculate", c_bool),
        ("cache", pv_cache_params),
        ("kv_bytes", c_uint64),
        ("media_bytes", c_int64),
    ]



class pv_session_params(Struct):
    size: int
    max_context: int
    chunk: int
    kv_type: int
    draft: Any
    speculate: bool
    cache: Any
    _fields_ = [
        ("size", c_size_t),
        ("max_context", c_int),
        ("chunk", c_int),
        ("kv_type", c_int),
        ("draft", c_void_p),
        ("speculate", c_bool),
        ("cache", pv_cache_params),
    ]



class pv_gen_params(Struct):
    size: int
    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    ignore_stop: bool
    method: Any
    trace: bool
    progress: Any
    progress_user: Any
    on_logits: Any
    logits_user: Any
    _fields_ = [
        ("size", c_size_t),
        ("max_new_tokens", c_int),
        ("temperature", c_float),
        ("top_k", c_int),
        ("top_p", c_float),
        ("min_p", c_float),
        ("seed", c_uint64),
        ("ignore_stop", c_bool),
        ("method", c_void_p),
        ("trace", c_bool),
        ("progress", pv_progress_fn),
        ("progress_user", c_void_p),
        ("on_logits", CFUNCTYPE(None, c_void_p, c_int, POINTER(c_float))),
        ("logits_user", c_void_p),
    ]



class pv_method(Struct):
    size: int
    name: Any
    drafter: int
    view: Any
    shape: int
    accept: int
    schedule: int
    automatic: bool
    window: int
    total: int
    depth: int
    width: int
    tree_file: Any
    ratio: float
    lambda: float
    layer: float
    terms: int
    literal: bool
    text_after: bool
    draft_threads: int
    positions: int
    keep: int
    draft_seed: int
    test: Any
    lossy: Any
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("drafter", c_int),
        ("view", c_char_p),
        ("shape", c_int),
        ("accept", c_int),
        ("schedule", c_int),
        ("automatic", c_bool),
        ("window", c_int),
        ("total", c_int),
        ("depth", c_int),
        ("width", c_int),
        ("tree_file", c_char_p),
        ("ratio", c_double),
        ("lambda", c_double),
        ("layer", c_double),
        ("terms", c_uint),
        ("literal", c_bool),
        ("text_after", c_bool),
        ("draft_threads", c_int),
        ("positions", c_int),
        ("keep", c_int),
        ("draft_seed", c_uint64),
        ("test", c_void_p),
        ("lossy", c_char_p),
    ]



class pv_video_params(Struct):
    size: int
    frames: int
    fps: float
    min_frames: int
    max_frames: int
    start: float
    end: float
    min_pixels: int
    max_pixels: int
    rule: int
    time_rule: int
    limits: Any
    progress: Any
    progress_user: Any
    allow_formats: Any
    sandbox: int
    media_helper: Any
    no_audio: bool
    samples: Any
    n_samples: int
    unsandboxed: Any
    unsandboxed_user: Any
    _fields_ = [
        ("size", c_size_t),
        ("frames", c_int),
        ("fps", c_double),
        ("min_frames", c_int),
        ("max_frames", c_int),
        ("start", c_double),
        ("end", c_double),
        ("min_pixels", c_int64),
        ("max_pixels", c_int64),
        ("rule", c_int),
        ("time_rule", c_int),
        ("limits", POINTER(pv_limits)),
        ("progress", pv_progress_fn),
        ("progress_user", c_void_p),
        ("allow_formats", c_char_p),
        ("sandbox", c_int),
        ("media_helper", c_char_p),
        ("no_audio", c_bool),
        ("samples", POINTER(c_float)),
        ("n_samples", c_size_t),
        ("unsandboxed", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("unsandboxed_user", c_void_p),
    ]



class pv_frame(Struct):
    index: int
    time: float
    width: int
    height: int
    rgb: Any
    _fields_ = [
        ("index", c_int64),
        ("time", c_double),
        ("width", c_int),
        ("height", c_int),
        ("rgb", POINTER(c_uint8)),
    ]



class pv_video_info(Struct):
    width: int
    height: int
    total_frames: int
    fps: float
    duration: float
    frames: int
    lost: int
    sample_fps: float
    cut: int
    _fields_ = [
        ("width", c_int),
        ("height", c_int),
        ("total_frames", c_int64),
        ("fps", c_double),
        ("duration", c_double),
        ("frames", c_int),
        ("lost", c_int),
        ("sample_fps", c_double),
        ("cut", c_int64),
    ]



class pv_stats(Struct):
    size: int
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
    _fields_ = [
        ("size", c_size_t),
        ("prompt_tokens", c_int64),
        ("reused_tokens", c_int64),
        ("tokens", c_int64),
        ("passes", c_int64),
        ("video_tokens", c_int64),
        ("frames", c_int64),
        ("lost_frames", c_int64),
        ("video_s", c_double),
        ("vision_s", c_double),
        ("prefill_s", c_double),
        ("decode_s", c_double),
        ("draft_video_tokens", c_int64),
        ("rounds", c_int64),
        ("proposed", c_int64),
        ("accepted", c_int64),
        ("rejections", c_int64),
        ("draft_rows", c_int64),
        ("draft_slots", c_int64),
        ("view_s", c_double),
        ("draft_prefill_s", c_double),
        ("draft_s", c_double),
        ("verify_s", c_double),
        ("parallel_rounds", c_int64),
        ("startup_tokens", c_int64),
        ("wasted", c_int64),
        ("runs", c_int64),
        ("run_tokens", c_int64),
        ("longest_run", c_int64),
        ("wait_s", c_double),
        ("window", c_int),
        ("draft_threads", c_int),
        ("peak_bytes", c_uint64),
        ("video_kept", c_double),
    ]



class pv_chat_options(Struct):
    size: int
    no_thinking: bool
    _fields_ = [
        ("size", c_size_t),
        ("no_thinking", c_bool),
    ]


pv_text_fn = CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)


class pv_part(Struct):
    text: Any
    path: Any
    data: Any
    data_size: int
    frames: Any
    n_frames: int
    fps: float
    video: Any
    _fields_ = [
        ("text", c_char_p),
        ("path", c_char_p),
        ("data", c_void_p),
        ("data_size", c_size_t),
        ("frames", POINTER(pv_frame)),
        ("n_frames", c_size_t),
        ("fps", c_double),
        ("video", POINTER(pv_video_params)),
    ]



class pv_message(Struct):
    role: Any
    parts: Any
    n_parts: int
    _fields_ = [
        ("role", c_char_p),
        ("parts", POINTER(pv_part)),
        ("n_parts", c_size_t),
    ]



class pv_logprob(Struct):
    id: int
    logprob: float
    _fields_ = [
        ("id", c_int32),
        ("logprob", c_float),
    ]



class pv_token(Struct):
    id: int
    drafted: bool
    logprob: float
    n_top: int
    top: Any
    _fields_ = [
        ("id", c_int32),
        ("drafted", c_bool),
        ("logprob", c_float),
        ("n_top", c_int),
        ("top", POINTER(pv_logprob)),
    ]



class pv_event(Struct):
    kind: int
    text: Any
    len: int
    token: Any
    phase: int
    done: int
    total: int
    finish: int
    status: int
    message: Any
    stop: int
    _fields_ = [
        ("kind", c_int),
        ("text", c_void_p),
        ("len", c_size_t),
        ("token", pv_token),
        ("phase", c_int),
        ("done", c_int64),
        ("total", c_int64),
        ("finish", c_int),
        ("status", c_int),
        ("message", c_char_p),
        ("stop", c_int),
    ]



class pv_request_params(Struct):
    size: int
    messages: Any
    n_messages: int
    chat: Any
    ids: Any
    n_ids: int
    gen: Any
    stop: Any
    n_stop: int
    top_logprobs: int
    notify: Any
    notify_user: Any
    _fields_ = [
        ("size", c_size_t),
        ("messages", POINTER(pv_message)),
        ("n_messages", c_size_t),
        ("chat", POINTER(pv_chat_options)),
        ("ids", POINTER(c_int32)),
        ("n_ids", c_size_t),
        ("gen", POINTER(pv_gen_params)),
        ("stop", POINTER(c_char_p)),
        ("n_stop", c_size_t),
        ("top_logprobs", c_int),
        ("notify", CFUNCTYPE(None, c_void_p)),
        ("notify_user", c_void_p),
    ]



class pv_engine_counts(Struct):
    size: int
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
    _fields_ = [
        ("size", c_size_t),
        ("running", c_int),
        ("queued", c_int),
        ("steps", c_int64),
        ("rows", c_int64),
        ("draft_steps", c_int64),
        ("preemptions", c_int64),
        ("pages", c_int64),
        ("pages_used", c_int64),
        ("pages_cached", c_int64),
        ("page_hits", c_int64),
        ("pages_evicted", c_int64),
        ("disk_files", c_int64),
        ("disk_rows", c_int64),
        ("disk_pages", c_int64),
        ("disk_damaged", c_int64),
        ("media_decoded", c_int64),
        ("media_found", c_int64),
    ]


pv_frame_fn = CFUNCTYPE(c_bool, c_void_p, POINTER(pv_frame))


class pv_drafter_info(Struct):
    name: Any
    preset: Any
    view: Any
    needs_draft: bool
    needs_head: bool
    needs_answer: bool
    reads_prompt: bool
    own_weights: bool
    takes_keep: bool
    reads_kv_cache: bool
    probabilities: bool
    as_self: int
    as_head: int
    _fields_ = [
        ("name", c_char_p),
        ("preset", c_char_p),
        ("view", c_char_p),
        ("needs_draft", c_bool),
        ("needs_head", c_bool),
        ("needs_answer", c_bool),
        ("reads_prompt", c_bool),
        ("own_weights", c_bool),
        ("takes_keep", c_bool),
        ("reads_kv_cache", c_bool),
        ("probabilities", c_bool),
        ("as_self", c_int),
        ("as_head", c_int),
    ]



class pv_view_info(Struct):
    name: Any
    videos: bool
    pictures: bool
    signal: int
    features: bool
    takes_ratio: bool
    takes_lambda: bool
    takes_layer: bool
    takes_terms: bool
    takes_text: bool
    _fields_ = [
        ("name", c_char_p),
        ("videos", c_bool),
        ("pictures", c_bool),
        ("signal", c_int),
        ("features", c_bool),
        ("takes_ratio", c_bool),
        ("takes_lambda", c_bool),
        ("takes_layer", c_bool),
        ("takes_terms", c_bool),
        ("takes_text", c_bool),
    ]



class pv_view_map(Struct):
    frames: int
    height: int
    width: int
    kept: int
    visible: Any
    scores: Any
    kept_rows: float
    kept_frames: float
    all_rows: float
    all_frames: float
    _fields_ = [
        ("frames", c_int),
        ("height", c_int),
        ("width", c_int),
        ("kept", c_int),
        ("visible", POINTER(c_bool)),
        ("scores", POINTER(c_float)),
        ("kept_rows", c_double),
        ("kept_frames", c_double),
        ("all_rows", c_double),
        ("all_frames", c_double),
    ]



class pv_span(Struct):
    side: int
    what: Any
    begin: float
    end: float
    rows: int
    accepted: int
    _fields_ = [
        ("side", c_int),
        ("what", c_char_p),
        ("begin", c_double),
        ("end", c_double),
        ("rows", c_int),
        ("accepted", c_int),
    ]



class pv_convert_params(Struct):
    size: int
    type: int
    one_file: bool
    progress: Any
    progress_user: Any
    adapter: Any
    _fields_ = [
        ("size", c_size_t),
        ("type", c_int),
        ("one_file", c_bool),
        ("progress", pv_progress_fn),
        ("progress_user", c_void_p),
        ("adapter", c_char_p),
    ]


STRUCTS: List[Any] = [
    pv_error,
    pv_limits,
    pv_model_params,
    pv_cache_params,
    pv_engine_params,
    pv_session_params,
    pv_gen_params,
    pv_method,
    pv_video_params,
    pv_frame,
    pv_video_info,
    pv_stats,
    pv_chat_options,
    pv_part,
    pv_message,
    pv_logprob,
    pv_token,
    pv_event,
    pv_request_params,
    pv_engine_counts,
    pv_drafter_info,
    pv_view_info,
    pv_view_map,
    pv_span,
    pv_convert_params,
]

# Name: (result, arguments)
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "pv_limits_server": (None, [POINTER(pv_limits)]),
    "pv_model_params_init": (None, [POINTER(pv_model_params), c_size_t]),
    "pv_session_params_init": (None, [POINTER(pv_session_params), c_size_t]),
    "pv_gen_params_init": (None, [POINTER(pv_gen_params), c_size_t]),
    "pv_video_params_init": (None, [POINTER(pv_video_params), c_size_t]),
    "pv_chat_options_init": (None, [POINTER(pv_chat_options), c_size_t]),
    "pv_ranks_start": (c_int, [POINTER(c_void_p), c_int, POINTER(pv_error)]),
    "pv_ranks_start_draft": (c_int, [POINTER(c_void_p), c_int, POINTER(pv_error)]),
    "pv_ranks_check": (c_int, [c_void_p, POINTER(pv_error)]),
    "pv_ranks_rank": (c_int, [c_void_p]),
    "pv_ranks_count": (c_int, [c_void_p]),
    "pv_ranks_follow": (c_int, [c_void_p, POINTER(pv_error)]),
    "pv_ranks_close": (None, [POINTER(c_void_p)]),
    "pv_ranks_traffic": (None, [c_void_p, POINTER(c_uint64), POINTER(c_uint64), POINTER(c_uint64)]),
    "pv_model_open": (c_int, [POINTER(c_void_p), POINTER(pv_model_params), POINTER(pv_error)]),
    "pv_model_close": (None, [POINTER(c_void_p)]),
    "pv_model_describe": (c_int, [c_void_p, c_int, c_bool, c_bool, POINTER(c_void_p), POINTER(pv_error)]),
    "pv_model_check": (c_int, [c_void_p, POINTER(pv_error)]),
    "pv_free": (None, [c_void_p]),
    "pv_model_vocab_size": (c_int, [c_void_p]),
    "pv_model_max_context": (c_int, [c_void_p]),
    "pv_model_has_tokenizer": (c_bool, [c_void_p]),
    "pv_model_has_vision": (c_bool, [c_void_p]),
    "pv_model_has_audio": (c_bool, [c_void_p]),
    "pv_model_has_head": (c_bool, [c_void_p]),
    "pv_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_bool, POINTER(c_int32), c_size_t, POINTER(c_size_t), POINTER(pv_error)]),
    "pv_token_bytes": (c_void_p, [c_void_p, c_int32, POINTER(c_size_t)]),
    "pv_engine_params_init": (None, [POINTER(pv_engine_params), c_size_t]),
    "pv_engine_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(pv_engine_params), POINTER(pv_error)]),
    "pv_engine_close": (None, [POINTER(c_void_p)]),
    "pv_engine_session": (c_int, [POINTER(c_void_p), c_void_p, POINTER(pv_error)]),
    "pv_request_params_init": (None, [POINTER(pv_request_params), c_size_t]),
    "pv_request_submit": (c_int, [POINTER(c_void_p), c_void_p, POINTER(pv_request_params), POINTER(pv_error)]),
    "pv_request_next": (c_bool, [c_void_p, POINTER(pv_event), c_double]),
    "pv_request_cancel": (None, [c_void_p]),
    "pv_request_wait": (c_int, [c_void_p, POINTER(pv_error)]),
    "pv_request_stats": (None, [c_void_p, POINTER(pv_stats)]),
    "pv_request_spans": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "pv_request_view": (c_int, [c_void_p, c_void_p, POINTER(pv_error)]),
    "pv_request_close": (None, [POINTER(c_void_p)]),
    "pv_engine_stats": (None, [c_void_p, POINTER(pv_engine_counts)]),
    "pv_session_open": (c_int, [POINTER(c_void_p), c_void_p, POINTER(pv_session_params), POINTER(pv_error)]),
    "pv_session_close": (None, [POINTER(c_void_p)]),
    "pv_session_reset": (None, [c_void_p]),
    "pv_session_chat": (c_int, [c_void_p, POINTER(pv_chat_options), POINTER(pv_error)]),
    "pv_add_text": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(pv_error)]),
    "pv_add_ids": (c_int, [c_void_p, POINTER(c_int32), c_size_t, POINTER(pv_error)]),
    "pv_add_video": (c_int, [c_void_p, c_char_p, POINTER(pv_video_params), POINTER(pv_video_info), POINTER(pv_error)]),
    "pv_add_video_data": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(pv_video_params), POINTER(pv_video_info), POINTER(pv_error)]),
    "pv_add_frames": (c_int, [c_void_p, POINTER(pv_frame), c_size_t, c_double, POINTER(pv_video_params), POINTER(pv_error)]),
    "pv_prompt_write": (c_int, [c_void_p, c_char_p, POINTER(pv_error)]),
    "pv_prompt_read": (c_int, [c_void_p, c_char_p, POINTER(pv_error)]),
    "pv_video_frames": (c_int, [c_void_p, c_char_p, POINTER(pv_video_params), pv_frame_fn, c_void_p, POINTER(pv_video_info), POINTER(pv_error)]),
    "pv_video_sound": (c_int, [c_char_p, POINTER(pv_video_params), POINTER(POINTER(c_float)), POINTER(c_size_t), POINTER(pv_error)]),
    "pv_method_find": (c_int, [POINTER(pv_method), c_char_p, POINTER(pv_error)]),
    "pv_method_name": (c_char_p, [c_int]),
    "pv_view_name": (c_char_p, [c_int]),
    "pv_lossy_name": (c_char_p, [c_int]),
    "pv_method_check": (c_int, [POINTER(pv_method), POINTER(pv_error)]),
    "pv_drafter_find": (POINTER(pv_drafter_info), [c_int]),
    "pv_view_find": (POINTER(pv_view_info), [c_char_p]),
    "pv_session_view": (c_int, [c_void_p, POINTER(pv_method), POINTER(pv_view_map), POINTER(pv_error)]),
    "pv_generate": (c_int, [c_void_p, POINTER(pv_gen_params), pv_text_fn, c_void_p, POINTER(pv_error)]),
    "pv_session_answer": (POINTER(c_int32), [c_void_p, POINTER(c_size_t)]),
    "pv_session_stats": (None, [c_void_p, POINTER(pv_stats)]),
    "pv_session_spans": (POINTER(pv_span), [c_void_p, POINTER(c_size_t)]),
    "pv_convert_params_init": (None, [POINTER(pv_convert_params), c_size_t]),
    "pv_convert": (c_int, [c_char_p, c_char_p, POINTER(pv_convert_params), POINTER(pv_error)]),
    "pv_cpu_features": (c_uint64, []),
    "pv_cpu_feature_name": (c_char_p, [c_int]),
    "pv_status_name": (c_char_p, [c_int]),
    "pv_version": (c_char_p, []),
}
