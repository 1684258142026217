/* prevue: an inference engine for video language models; its speculation never changes the output.
 *
 * Four nouns. A model is the weights, the tokenizer and the device they live on: immutable after
 * opening, shared by any number of engines and threads. An engine runs many answers on one model at
 * once, on a thread of its own. A request is one prompt and its answer. A session is a
 * conversation; one thread uses it at a time.
 *
 * Callbacks during an answer run on the engine's thread. While one runs, that engine does nothing
 * else, so keep them short; they must not call functions that wait for the engine.
 *
 * Every call that can fail returns a status and, when `err` is not NULL, one sentence that names
 * the file and the cause. Zero a struct pv_error before it is used: the first failure stays in it
 * until it is zeroed again. Outputs are untouched on failure. The library never prints, never
 * exits and never reads the environment.
 *
 * A thread that calls the library needs a stack of at least PV_THREAD_STACK bytes, most of which
 * are for the libraries that decode videos. Threads that the library starts have stacks of their
 * own.
 *
 * Structs that begin with `size` may get more fields at their end in later releases. The caller
 * sets `size` to sizeof the struct (pv_..._defaults does this), so a program keeps working with a
 * newer library without being recompiled.
 */
#ifndef PREVUE_H
#define PREVUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PV_API __attribute__((visibility("default")))
#else
#define PV_API
#endif

typedef struct pv_model pv_model;
typedef struct pv_engine pv_engine;
typedef struct pv_request pv_request;
typedef struct pv_session pv_session;
typedef struct pv_ranks pv_ranks;

enum pv_status {
    PV_OK,
    PV_E_ARG,         /* an argument is invalid, or two contradict each other */
    PV_E_NOMEM,       /* out of memory */
    PV_E_IO,          /* a file could not be opened, read or written */
    PV_E_FORMAT,      /* a file's contents disagree with its format or with themselves */
    PV_E_UNSUPPORTED, /* well formed, but not something this build can run */
    PV_E_LIMIT,       /* a limit (context, file size, memory) would be exceeded */
    PV_E_CANCELLED,   /* a callback asked to stop */
    PV_E_DEVICE,      /* the device failed */
    PV_E_DRAFTER,     /* the drafter failed, while the model itself is fine */
    PV_E_NOT_FINITE,  /* a step of the model gave numbers that are not finite */
    PV_E_PREEMPTED    /* inside the library alone: a task has to give its memory back */
};

enum { PV_THREAD_STACK = 256 << 10 };

struct pv_error {
    enum pv_status code;
    char text[512];
};

/* Type of the weights in a file that pv_convert writes. */
enum pv_type {
    PV_TYPE_F32,
    PV_TYPE_F16,
    PV_TYPE_BF16,
    PV_TYPE_Q8_0,
    PV_TYPE_Q4_0,
    PV_TYPE_Q4_1,
    PV_TYPE_Q5_1
};

/* Number type of KV cache entries. AUTO: BF16 on a GPU; on a CPU F16 if the weights are F16 or F32
 * (BF16 would lose precision), otherwise whichever of the two is faster on this CPU. Values beyond
 * the range of F16 are clamped. FP8 needs half the memory of the 16-bit types and is lossy: keys
 * and values are rounded to 4 significant bits (E4M3, with an exponent for each row of a head), so
 * the answer may be another one. AUTO never chooses it. */
enum pv_kv_type { PV_KV_AUTO, PV_KV_F16, PV_KV_BF16, PV_KV_F32, PV_KV_FP8 };

/* Upper limits, checked before anything is decoded or allocated. (To count its frames, a file is
 * opened and its first frame decoded.) Zero means the default, which is given where it is fixed. */
struct pv_limits {
    uint64_t file_bytes;   /* one model file */
    uint64_t memory_bytes; /* KV caches, scratch and pictures of one session */
    int context_tokens;    /* rows of one KV cache */
    uint64_t video_bytes;  /* one video or picture file, or its bytes in memory: 16 GiB */
    int64_t frame_pixels;  /* of one frame as stored: 64 Mi */
    int frames;            /* taken from one video: 1024 */
    double video_seconds;  /* duration of one video: 24 hours */
    /* Of all frames that must be decoded for one video, used or not: 2^44. Checked in advance if
     * the file says which frames depend on which. */
    uint64_t decoded_pixels;
    double
        decode_seconds; /* CPU time of opening and decoding one video, on all threads: 24 hours */
    uint64_t reserved[2];
};

/* Limits for untrusted files, as a server receives them. A video: 512 MiB, one hour, frames of at
 * most 4096 x 4096 pixels, 512 frames used, 64 Gi pixels and 300 seconds of CPU time to decode. A
 * request: 1 GiB of memory for its pictures and decoders. file_bytes and context_tokens keep their
 * defaults. Meant for pv_video_params.limits; as limits of a model, memory_bytes would also bound
 * its KV caches. */
PV_API void pv_limits_server(struct pv_limits *out);

enum pv_phase {
    PV_PHASE_VIDEO,
    PV_PHASE_PREFILL,
    PV_PHASE_DRAFT_PREFILL,
    PV_PHASE_CONVERT,
    PV_PHASE_OPEN
};
/* Progress of a long phase: frames decoded, prompt tokens prefilled by the model or by the drafter
 * (with `auto` in the middle of an answer), bytes of tensors written, or bytes of weights that a
 * model is opened with (and, before them, waiting until its device is free). Return false to stop;
 * the call then returns PV_E_CANCELLED. While a video is opened and decoded this is called about
 * every 20 ms, even if no frame was finished (but never in the middle of a frame); `total` is 0
 * until the number of frames is known. */
typedef bool (*pv_progress_fn)(void *user, enum pv_phase phase, int64_t done, int64_t total);

/* Where a draft model's video tokens come from. */
enum pv_draft_vision {
    PV_DRAFT_VISION_AUTO,  /* SHARED with an adaptor that fits the target, else OWN */
    PV_DRAFT_VISION_OWN,   /* its own vision tower */
    PV_DRAFT_VISION_SHARED /* the target's tokens, by pv_model_params.adaptor: no tower is loaded */
};

/* Type of the matrices of vision towers. Q8_0: those that the file has in F32, F16 or BF16 are
 * quantised when the model is opened, which may change answers; on CPUs they are then multiplied in
 * integers. The patch embedding, norms, biases and positions keep their types. */
enum pv_tower_type { PV_TOWER_FILE, PV_TOWER_Q8_0 };

struct pv_model_params {
    size_t size;
    const char *path;   /* GGUF file or Hugging Face directory */
    const char *mmproj; /* GGUF file of the vision tower; NULL: in `path`, or next to it */
    const char *head;   /* a draft head made for this model: GGUF file or directory; NULL: none */
    int threads;        /* 0: all cores this process may use */
    uint64_t cpu_mask;  /* CPU features allowed, ~0: all (see pv_cpu_features) */
    /* A model opened before, which must outlive this one: both use its threads and, on the same
     * GPU, its device. Meant for a draft model beside its target. NULL: threads of its own. */
    pv_model *shares_with;
    /* "cpu", "cuda", "cuda:1" (a GPU by number) or "cuda:0,cuda:1" (a part of the model on each);
     * NULL: that of `shares_with`, or the CPU. */
    const char *device;
    struct pv_limits limits;
    const struct pv_model_test *test; /* see testing.h; NULL: none */
    /* false: quantised weights are repacked (copied to a layout that this CPU multiplies faster) if
     * there is such a layout and half of the machine's memory is enough. true: they are used in
     * place, from the mapped file. The output is the same. */
    bool no_repack;
    /* > 0: a drafter scores only this many tokens and never proposes others. The drafter is `head`,
     * or without a head this model, which can then only be a draft model. The tokens are the most
     * frequent ones in `draft_text`, a UTF-8 file; of equally frequent ones, and of all if it is
     * NULL, those with the lowest ids, which the tokenizer learnt first. Control tokens are always
     * included. The output is the same. */
    int draft_vocab;
    const char *draft_text;
    /* Processes that run this model together (pv_ranks_start), of which this is rank 0; they must
     * outlive it. NULL: this process alone. On CPUs only. Answers do not depend on it. A model that
     * shares with another runs on rank 0. */
    pv_ranks *ranks;
    /* While it is opened, on the thread that opens it, several times for a matrix of weights that
     * is repacked; PV_E_CANCELLED when it stops; may be NULL. */
    pv_progress_fn progress;
    void *progress_user;
    /* Of a draft model, whose target is `shares_with`: a vision adaptor, which makes its video
     * tokens of the target's. GGUF file or directory; NULL: none. Answers do not depend on it. */
    const char *adaptor;
    enum pv_draft_vision draft_vision;
    enum pv_tower_type tower_type;
};

/* A cache on disk, which several processes may share. A video that is asked about again is neither
 * decoded nor run through the vision tower; with `kv` its prefill is skipped as well. Entries are
 * used only by the same build of the library, with the same weights, on the same kind of CPU or
 * GPU, so answers do not depend on the cache. */
struct pv_cache_params {
    const char *dir; /* created if it does not exist; NULL: no cache on disk */
    uint64_t bytes;  /* of all files; the least recently used ones are removed; 0: 16 GiB */
    bool kv;         /* keep the keys and values of prompts too */
    /* Called, on any thread, with one sentence about a damaged file (which is removed) or about a
     * directory that cannot be written any more. May be NULL. */
    void (*warn)(void *user, const char *sentence);
    void *user;
    uint64_t reserved[4];
};

/* What the requests and sessions of an engine share. Zero means the default. */
struct pv_engine_params {
    size_t size;
    int max_context;      /* tokens of one prompt and answer; 0: the model's, at most 32768 */
    int64_t kv_tokens;    /* KV cache of all requests, running or kept; 0: max_context */
    int max_requests;     /* that run at the same time, others are queued; 0: 16 */
    int64_t vision_bytes; /* memory for results of the vision tower, kept for reuse; 0: 1 GiB, or
                             none if max_requests is 1; negative: none */
    int chunk;            /* rows of one prefill step; 0: 512, on a GPU 8448 */
    enum pv_kv_type kv_type;
    pv_model *draft; /* for methods with a draft model; borrowed; NULL: none */
    bool speculate;  /* make room for methods without one; implied by `draft` */
    struct pv_cache_params cache;
    uint64_t kv_bytes; /* size of the KV cache in bytes, instead of kv_tokens; 0: use kv_tokens */
    /* Memory for the pixels of the videos and pictures used last: a file with the same content and
     * settings is not decoded again. 0: 256 MiB, or none if max_requests is 1; negative: none. */
    int64_t media_bytes;
};

struct pv_session_params {
    size_t size;
    int max_context; /* tokens of prompt and answer together; 0: the model's, at most 32768 */
    int chunk;       /* rows of one prefill step; 0: 512, on a GPU 8448 */
    enum pv_kv_type kv_type;
    pv_model *draft; /* for methods with a draft model; borrowed; NULL: none */
    bool speculate;  /* make room for methods without one; implied by `draft` */
    struct pv_cache_params cache;
};

struct pv_gen_params {
    size_t size;
    int max_new_tokens;
    float temperature; /* 0: greedy */
    int top_k;         /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    uint64_t seed;
    bool ignore_stop;               /* continue after stop tokens, for benchmarks */
    const struct pv_method *method; /* NULL: plain decoding */
    bool trace;                     /* record the spans of pv_session_spans */
    pv_progress_fn progress;        /* of the prefill; may be NULL */
    void *progress_user;
    /* Called with the logits [vocabulary] that choose token `token` of the answer, counted from 0.
     * May be called again after the last token. NULL: not called, which saves time. */
    void (*on_logits)(void *user, int token, const float *logits);
    void *logits_user;
};

/* Speculation: a drafter proposes tokens, the model verifies them in one pass. With `exact`
 * acceptance (the default) the text is the same as with plain decoding, whatever the method. */
enum pv_drafter {
    PV_DRAFT_NONE,    /* plain decoding */
    PV_DRAFT_MODEL,   /* the session's draft model */
    PV_DRAFT_SELF,    /* the model's own weights on a pruned prompt */
    PV_DRAFT_SPARSE,  /* the model, attending to few entries of its KV cache */
    PV_DRAFT_HEAD,    /* the model's draft head, on its hidden states */
    PV_DRAFT_NGRAM,   /* prompt lookup: what followed the same tokens before */
    PV_DRAFT_RANDOM,  /* for tests: any token */
    PV_DRAFT_ORACLE,  /* for tests: a known answer with errors */
    PV_DRAFT_CASCADE, /* prompt lookup, then the draft model; only in the program prevue-lab */
    PV_DRAFT_COUNT    /* number of drafters */
};
enum pv_shape {
    PV_SHAPE_CHAIN,   /* `window` tokens */
    PV_SHAPE_TREE,    /* the tree of 25 tokens, or that of `tree_file` */
    PV_SHAPE_DYNAMIC, /* grown where the drafter is most confident: `total`, `depth`, `width` */
    PV_SHAPE_FITTED   /* dynamic, but its size is chosen each round from measured times: a short
                         chain where rows are expensive, a wide tree where they cost little. The
                         text does not depend on it. Drafters model, self and head; exact
                         acceptance only */
};
enum pv_accept {
    PV_ACCEPT_EXACT,
    PV_ACCEPT_REJECTION /* rejection sampling: the same distribution, not the same text */
};
enum pv_schedule {
    PV_SCHEDULE_SERIAL,  /* drafter and model take turns */
    PV_SCHEDULE_PARALLEL /* the drafter continues, on its own threads, while the model verifies:
                            chains of the drafters model, self, ngram and those for tests */
};
/* Positions of the prompt tokens that the drafter keeps. AUTO: what measured best by family. */
enum pv_draft_pos { PV_POS_AUTO, PV_POS_COMPACT, PV_POS_ORIGINAL };

struct pv_method {
    size_t size;
    const char *name;
    enum pv_drafter drafter;
    const char *view; /* which video tokens the drafter sees: "full", "specvlm", ... */
    enum pv_shape shape;
    enum pv_accept accept;
    enum pv_schedule schedule;
    bool automatic;          /* choose among shapes, schedules and plain decoding by measuring */
    int window;              /* tokens of a chain; 0: 5, or chosen by measuring if parallel */
    int total, depth, width; /* dynamic; 0: 30, 3, 8. Fitted: upper bounds; 0: 32, 15, 4 */
    const char *tree_file;
    double ratio;  /* share of the video tokens that the drafter does not get */
    double lambda; /* view specvlm; 0: 0.4, for Qwen 0.5 */
    double
        layer; /* views holistic and alignment: number of layers of the model that they use, below
                  1 a share of them; 0: holistic all, alignment 20 (0.71 of a model with fewer) */
    unsigned terms;    /* view holistic, bits: 1 attention, 2 time, 4 space; 0: all three */
    bool literal;      /* view holistic: crops of 5 x 5 and the remainder, as published */
    bool text_after;   /* view alignment: only text after the video counts */
    int draft_threads; /* parallel: threads for the drafter; 0: chosen by measuring */
    enum pv_draft_pos positions;
    int keep;                          /* sparse: KV entries of a layer; 0: 1024 */
    uint64_t draft_seed;               /* view random */
    const struct pv_method_test *test; /* see testing.h; NULL: none */
    /* Lossy: the model itself gets only part of each video, so the answer is another one.
     * NAME:RATIO as "fastv:0.5" (names: pv_lossy_name); RATIO is the share of the video's tokens
     * that the last layers do not see, 0 to 0.99. With plain decoding only. No method has it by
     * default. NULL: the model sees all. Must outlive the answer.
     *
     * PV_LOSSY_KV_FP8 prunes nothing and goes with every method: it says that the answer comes from
     * a KV cache of PV_KV_FP8, and is refused if the cache has another type. */
    const char *lossy;
};

#define PV_LOSSY_KV_FP8 "kv-fp8"

/* Which frames of a video are taken. AUTO: the rule of the model's family. */
enum pv_frame_rule {
    PV_FRAMES_AUTO,
    PV_FRAMES_LINSPACE, /* evenly from the first to the last, rounded down (LLaVA-NeXT) */
    PV_FRAMES_ARANGE,   /* every total / N-th, rounded down (Hugging Face) */
    PV_FRAMES_QWEN      /* an even number, evenly from the first to the last (qwen-vl-utils) */
};

/* Temporal positions of video frames. Qwen2.5-VL has the rules SECONDS (AUTO) to SECONDS_COMPACT,
 * video-SALMONN2+ UPSTREAM (AUTO) and TRAINING. */
enum pv_time_rule {
    PV_TIME_AUTO,
    PV_TIME_SECONDS,         /* proportional to seconds: Qwen's own training */
    PV_TIME_WHOLE,           /* seconds per step rounded down first: transformers 4.52 to 5.1 */
    PV_TIME_COMPACT,         /* WHOLE; text continues after the larger side: transformers 5.3 */
    PV_TIME_SECONDS_COMPACT, /* SECONDS; text continues after the larger side: 5.22 */
    PV_TIME_UPSTREAM, /* its released code: two positions per pair of frames, and so for sound */
    PV_TIME_TRAINING  /* its training: positions of frames and sound follow their time */
};

/* Each video file is opened and decoded by a helper process, prevue-media; this library does not
 * contain FFmpeg. In its sandbox the helper can open no file, use no network and start nothing, and
 * pv_limits bounds its memory and CPU time. A file that exploits or crashes it causes one error for
 * one call. The frames are the same with and without the sandbox. Starting a helper costs 30 to 50
 * ms of CPU time. It must be of the same build, and is searched for next to the program, in
 * ../libexec/prevue from there, likewise from the library, and where it was installed. A program
 * that waits for any child process may see it end. */
enum pv_sandbox {
    PV_SANDBOX_IF_POSSIBLE, /* without a sandbox where the system has no filter of system calls */
    PV_SANDBOX_ON,          /* in the sandbox, or not at all */
    PV_SANDBOX_OFF          /* without */
};

/* Zero means what the model's family does. */
struct pv_video_params {
    size_t size;
    int frames;                     /* number of frames; or */
    double fps;                     /* frames per second, */
    int min_frames, max_frames;     /* within these bounds */
    double start, end;              /* seconds; end 0: to the end */
    int64_t min_pixels, max_pixels; /* of one frame as the model sees it (Qwen) */
    enum pv_frame_rule rule;
    enum pv_time_rule time_rule;
    const struct pv_limits
        *limits; /* NULL: those of the model. Limits other than those on videos are ignored here,
                    except memory_bytes: it bounds a message's pictures and a video's decoders */
    pv_progress_fn progress; /* may be NULL */
    void *progress_user;
    /* Containers and codecs that are read besides the usual ones (doc/video.md lists those): FFmpeg
     * names separated by commas; NULL: none. Formats that refer to other files are never read.
     */
    const char *allow_formats;
    enum pv_sandbox sandbox;
    const char *media_helper; /* the program that decodes; NULL: prevue-media, as above */
    bool no_audio;            /* ignore the sound, which audio models use and others never do */
    /* pv_add_frames: mono sound that begins with the first frame, 16,000 samples a second; NULL:
     * none. Ignored for files, which have their own. */
    const float *samples;
    size_t n_samples;
    /* PV_SANDBOX_IF_POSSIBLE decodes a file without a sandbox: `why` says what the system lacks.
     * Called by the thread that loads the file, before it is opened; may be NULL. */
    void (*unsandboxed)(void *user, const char *why);
    void *unsandboxed_user;
};

/* One picture as the model sees it. */
struct pv_frame {
    int64_t index; /* in the order shown, from 0 */
    double time;   /* seconds */
    int width, height;
    const uint8_t *rgb; /* [height, width, 3] */
};

struct pv_video_info {
    int width, height;    /* of the file */
    int64_t total_frames; /* of the file */
    double fps, duration; /* of the file; fps 0: a still picture */
    int frames, lost;     /* used; of these, not decodable and replaced by a neighbour */
    double sample_fps;    /* of the frames used */
    int64_t cut;          /* frames that the file lists but lacks: it is truncated */
};

struct pv_stats {
    size_t size;
    int64_t prompt_tokens, reused_tokens; /* reused: found in the KV cache already */
    int64_t tokens, passes;               /* of the answer; passes of the model that gave them */
    int64_t video_tokens;                 /* of the prompt: rows of videos and pictures */
    int64_t frames, lost_frames;          /* used from files since the last answer */
    double video_s;                       /* decoding and resizing since the last answer */
    double vision_s;                      /* vision and audio towers; not part of other times */
    double prefill_s, decode_s;
    /* Speculation. A round is a draft and the pass of the model that verifies it. */
    int64_t draft_video_tokens; /* of video_tokens, those that the drafter gets */
    int64_t rounds, proposed, accepted;
    int64_t rejections; /* rounds in which a proposed token was rejected */
    /* Work of drafting, without the drafter's prefill: rows run, and KV cache entries (of one
     * layer) that these attended to. */
    int64_t draft_rows, draft_slots;
    double view_s, draft_prefill_s; /* not part of other times */
    double draft_s, verify_s;       /* parts of decode_s; they overlap in the parallel schedule */
    /* The parallel schedule. A run: the tokens accepted between two rejections. */
    int64_t parallel_rounds;
    int64_t startup_tokens; /* drafted before the model's prefill ended */
    int64_t wasted;         /* drafted, then discarded: a token before it was rejected */
    int64_t runs, run_tokens, longest_run;
    double wait_s; /* the model waited for the drafter; part of decode_s */
    int window;    /* the last one used */
    int draft_threads;
    /* Peak memory of the library so far, on the host and on GPUs, without mapped model files and
     * without the weights on GPUs. */
    uint64_t peak_bytes;
    /* Of a lossy answer (pv_method.lossy): the share of the video's tokens whose keys and values a
     * token of the answer reads, the mean over the layers. 0: not lossy. */
    double video_kept;
};

/* How the model's chat template writes a prompt. Defaults: as the template itself does it. */
struct pv_chat_options {
    size_t size;
    bool no_thinking; /* ask for an answer without a chain of thought (enable_thinking=False of
                         Qwen3's template). No effect on templates without thinking */
};

/* Called with whole UTF-8 characters. Return false to stop; pv_generate then returns
 * PV_E_CANCELLED. */
typedef bool (*pv_text_fn)(void *user, const char *utf8, size_t len);

/* Fill a struct of `size` bytes with the defaults. pv_..._defaults at the end of this file return
 * such a struct. */
PV_API void pv_model_params_init(struct pv_model_params *p, size_t size);
PV_API void pv_session_params_init(struct pv_session_params *p, size_t size);
PV_API void pv_gen_params_init(struct pv_gen_params *p, size_t size);
PV_API void pv_video_params_init(struct pv_video_params *p, size_t size);
PV_API void pv_chat_options_init(struct pv_chat_options *p, size_t size);

/* One model over several processes, or ranks (doc/scale.md). n > 1: starts n - 1 more processes on
 * this machine, which like fork() return from this call, too; call it before any thread is started.
 * n 0: the processes that mpirun started; PV_E_UNSUPPORTED in a build without MPI. Rank 0 opens
 * models with pv_model_params.ranks; the others call pv_ranks_follow, which returns when rank 0 has
 * closed its ranks, or with PV_E_IO when a rank has ended before (err is empty if another rank
 * tells), and then close theirs and exit. Use one model with them at a time. */
PV_API enum pv_status pv_ranks_start(pv_ranks **out, int n, struct pv_error *err);
/* The same for a draft model: n processes of its own, 1 or more. This one leads them, and has no
 * part of the model's layers: they run while the target does. */
PV_API enum pv_status pv_ranks_start_draft(pv_ranks **out, int n, struct pv_error *err);
/* Rank 0, from any thread: whether a rank that pv_ranks_start or pv_ranks_start_draft has started
 * has ended (PV_E_IO). Under mpirun always PV_OK: it ends all of them itself. */
PV_API enum pv_status pv_ranks_check(const pv_ranks *ranks, struct pv_error *err);
PV_API int pv_ranks_rank(const pv_ranks *ranks);
PV_API int pv_ranks_count(const pv_ranks *ranks);
PV_API enum pv_status pv_ranks_follow(pv_ranks *ranks, struct pv_error *err);
PV_API void pv_ranks_close(pv_ranks **ranks); /* sets *ranks NULL; NULL is fine */
/* Messages and bytes that rank 0 has sent and received so far. */
PV_API void pv_ranks_traffic(const pv_ranks *ranks, uint64_t *messages, uint64_t *sent,
                             uint64_t *received);

/* On success *out owns the mapped file and a thread pool; close it after its sessions. */
PV_API enum pv_status pv_model_open(pv_model **out, const struct pv_model_params *p,
                                    struct pv_error *err);
PV_API void pv_model_close(pv_model **model); /* sets *model NULL; NULL is fine */

/* Text describing the model, the types of its tensors and the memory it needs at `context` tokens
 * (0: as a session by default); as JSON with `json`, with a list of the tensors with `tensors`. On
 * success the caller owns *text and frees it with pv_free; on failure it is untouched. */
PV_API enum pv_status pv_model_describe(const pv_model *model, int context, bool json, bool tensors,
                                        char **text, struct pv_error *err);
/* Reads every weight of the model. PV_E_FORMAT, naming the tensor, if one is NaN or infinite: such
 * a model cannot answer. Without this call, the first answer fails instead. */
PV_API enum pv_status pv_model_check(const pv_model *model, struct pv_error *err);
PV_API void pv_free(void *p); /* for memory that a function hands to the caller; NULL is fine */
PV_API int pv_model_vocab_size(const pv_model *model);
PV_API int pv_model_max_context(const pv_model *model);
PV_API bool pv_model_has_tokenizer(const pv_model *model);
PV_API bool pv_model_has_vision(const pv_model *model);
PV_API bool pv_model_has_audio(const pv_model *model);
PV_API bool pv_model_has_head(const pv_model *model);

/* Token ids of a text. If `parse_special`, special tokens that are spelled in it become their ids.
 * At most `cap` ids are stored; *n is their total number. */
PV_API enum pv_status pv_tokenize(const pv_model *model, const char *utf8, size_t len,
                                  bool parse_special, int32_t *ids, size_t cap, size_t *n,
                                  struct pv_error *err);
/* The bytes of one token, not NUL-terminated, owned by the model; NULL if there is no such id.
 * They may be part of a UTF-8 character. */
PV_API const char *pv_token_bytes(const pv_model *model, int32_t id, size_t *len);

/* An engine runs any number of sessions and requests on one model, and combines the work of those
 * that run at the same time. Borrows the models. Close it after its sessions and requests. */
PV_API void pv_engine_params_init(struct pv_engine_params *p, size_t size);
PV_API enum pv_status pv_engine_open(pv_engine **out, pv_model *model,
                                     const struct pv_engine_params *p, struct pv_error *err);
PV_API void pv_engine_close(pv_engine **engine); /* sets *engine NULL; NULL is fine */
/* A conversation on an engine. Sessions of one engine may be used by different threads at once. */
PV_API enum pv_status pv_engine_session(pv_session **out, pv_engine *engine, struct pv_error *err);

/* ---- requests: a prompt and its answer, many at a time ---- */

/* A part of a message: text, or a video or picture. */
struct pv_part {
    const char *text; /* NULL: a video or picture, */
    const char *path; /* from a file, */
    const void *data; /* or from a file's bytes in memory, */
    size_t data_size;
    const struct pv_frame *frames; /* or from frames as pv_add_frames takes them */
    size_t n_frames;
    double fps;
    const struct pv_video_params *video; /* NULL: the defaults */
};

/* The model gets a message's videos and pictures first, then the joined text of all its parts. */
struct pv_message {
    const char *role; /* "system", "user" or "assistant" */
    const struct pv_part *parts;
    size_t n_parts;
};

enum pv_finish {
    PV_FINISH_NONE,        /* it has not ended */
    PV_FINISH_STOP,        /* a stop token of the model */
    PV_FINISH_STOP_STRING, /* one of the request's stop strings */
    PV_FINISH_LENGTH,      /* max_new_tokens were generated, or the context is full */
    PV_FINISH_CANCELLED,
    PV_FINISH_ERROR
};

struct pv_logprob {
    int32_t id;
    float logprob; /* of the model, before temperature and filters */
};

struct pv_token {
    int32_t id;
    bool drafted;  /* a drafter had proposed it */
    float logprob; /* if top_logprobs >= 0 */
    int n_top;
    const struct pv_logprob *top; /* the most likely tokens, in descending order */
};

enum pv_event_kind {
    PV_EVENT_PROGRESS, /* progress of a long phase; only the newest is kept */
    PV_EVENT_TEXT,     /* a token, and text that is now final: maybe none, or of earlier tokens */
    PV_EVENT_END       /* the last one */
};

/* Pointers are valid until the next event is taken, those of the last one until the request is
 * closed. */
struct pv_event {
    enum pv_event_kind kind;
    const char *text; /* TEXT: whole UTF-8 characters */
    size_t len;
    struct pv_token token; /* TEXT; id -1: text without a token */
    enum pv_phase phase;   /* PROGRESS */
    int64_t done, total;
    enum pv_finish finish; /* END */
    enum pv_status status; /* END: not PV_OK with CANCELLED and ERROR */
    const char *message;   /* END: the error message, else "" */
    int stop;              /* END: which stop string; -1: none */
};

struct pv_request_params {
    size_t size;
    /* The prompt: messages, or ready token ids. Copied or read before pv_request_submit returns. */
    const struct pv_message *messages;
    size_t n_messages;
    const struct pv_chat_options *chat; /* of the messages; NULL: the defaults */
    const int32_t *ids;
    size_t n_ids;
    /* NULL: the defaults. Copied with its method, whose pointers must outlive the request. Of the
     * callbacks only on_logits is called, on the engine's thread, and not with top_logprobs. */
    const struct pv_gen_params *gen;
    const char *const *stop; /* strings before which the answer ends, at most 16 */
    size_t n_stop;
    int top_logprobs; /* -1: no log-probabilities; else those of each token and of this many most
                         likely ones, at most 20 */
    /* Called when pv_request_next has something new, on the engine's thread, perhaps before
     * pv_request_submit has returned; not after pv_request_close has. It may wake another thread
     * and must not call functions of the library. So one thread can serve many requests: it takes
     * their events without waiting (pv_request_next with 0 seconds). NULL: none. */
    void (*notify)(void *user);
    void *notify_user;
};

PV_API void pv_request_params_init(struct pv_request_params *p, size_t size);
/* Reads the prompt (files are decoded here, on the caller's thread) and queues the request.
 * A prompt that can never fit is refused at once. */
PV_API enum pv_status pv_request_submit(pv_request **out, pv_engine *engine,
                                        const struct pv_request_params *p, struct pv_error *err);
/* The next event; waits for it at most `seconds` (negative: for ever). False: none came in time, or
 * PV_EVENT_END has been taken. One thread at a time. */
PV_API bool pv_request_next(pv_request *r, struct pv_event *out, double seconds);
/* From any thread, at any time before the request is closed. It ends within one step of the model.
 */
PV_API void pv_request_cancel(pv_request *r);
/* Waits until the request has ended; its events stay queued. */
PV_API enum pv_status pv_request_wait(pv_request *r, struct pv_error *err);
/* After the request has ended; the caller sets out->size. */
PV_API void pv_request_stats(const pv_request *r, struct pv_stats *out);
/* After the request has ended, if pv_gen_params.trace was set: see pv_session_spans. The request
 * owns them. */
struct pv_span;
PV_API const struct pv_span *pv_request_spans(const pv_request *r, size_t *n);
/* After the request has ended: which tokens of the prompt's first video the drafter got. PV_E_ARG:
 * the prompt has no video, or the method has no drafter. The request owns what *out points to. */
struct pv_view_map;
PV_API enum pv_status pv_request_view(pv_request *r, struct pv_view_map *out, struct pv_error *err);
/* Cancels the request if it still runs, and waits for its end. */
PV_API void pv_request_close(pv_request **request);

/* Load of an engine, and counters since it was opened. */
struct pv_engine_counts {
    size_t size;
    int running, queued; /* requests */
    int64_t steps, rows; /* of the model so far; rows / steps is the mean batch */
    int64_t draft_steps; /* of drafters */
    int64_t preemptions; /* requests whose KV pages were taken and computed again */
    int64_t pages, pages_used, pages_cached; /* of the KV cache; cached: kept for reuse */
    int64_t page_hits, pages_evicted;
    /* Of the cache on disk: files whose decoding was saved, parts of media whose rows were read, KV
     * pages that were read, and files that were damaged. */
    int64_t disk_files, disk_rows, disk_pages, disk_damaged;
    /* Videos and pictures: files decoded, and files found in memory (media_bytes) instead. */
    int64_t media_decoded, media_found;
};
PV_API void pv_engine_stats(pv_engine *engine, struct pv_engine_counts *out);

/* A conversation on an engine of its own, for one request at a time. Borrows the model. */
PV_API enum pv_status pv_session_open(pv_session **out, pv_model *model,
                                      const struct pv_session_params *p, struct pv_error *err);
PV_API void pv_session_close(pv_session **session);

/* Drop the conversation, and media that were added but not used yet. The KV cache is kept; the next
 * prompt reuses the prefix that it has in common with it. */
PV_API void pv_session_reset(pv_session *session);

/* Set the chat options of the following answers; pv_session_reset keeps them. PV_E_UNSUPPORTED, and
 * nothing changes, for `no_thinking` if the template always thinks or the model has no
 * tokenizer. */
PV_API enum pv_status pv_session_chat(pv_session *s, const struct pv_chat_options *o,
                                      struct pv_error *err);

/* Append one message (role "system", "user" or "assistant") in the model's chat template, or
 * ready token ids. Unchanged on failure. */
PV_API enum pv_status pv_add_text(pv_session *s, const char *role, const char *utf8,
                                  struct pv_error *err);
PV_API enum pv_status pv_add_ids(pv_session *s, const int32_t *ids, size_t n, struct pv_error *err);

/* Put a video, or a picture, before the text of the next "user" message; several go in the order
 * they are added. The file is decoded here, the tower runs in pv_generate. `p` NULL: the
 * defaults. `info` may be NULL. Nothing is added on failure. */
PV_API enum pv_status pv_add_video(pv_session *s, const char *path, const struct pv_video_params *p,
                                   struct pv_video_info *info, struct pv_error *err);
/* The same from the bytes of a video or picture file in memory. They are borrowed during the call
 * only. Error messages say "the video in memory" where they would name the file. */
PV_API enum pv_status pv_add_video_data(pv_session *s, const void *data, size_t size,
                                        const struct pv_video_params *p, struct pv_video_info *info,
                                        struct pv_error *err);
/* The same from frames in memory, all of which are used and have the same size. fps: frames per
 * second (0: a still picture). Their pixels are copied. */
PV_API enum pv_status pv_add_frames(pv_session *s, const struct pv_frame *frames, size_t n,
                                    double fps, const struct pv_video_params *p,
                                    struct pv_error *err);

/* Write the prompt as pv_generate would begin with it: token ids, and pictures as the model sees
 * them. Such a file can be used on a machine without tokenizer and video decoders. Nothing is left
 * at `path` on failure. */
PV_API enum pv_status pv_prompt_write(const pv_session *s, const char *path, struct pv_error *err);
/* Read such a prompt into a session that is new or was just reset. The model must have the token
 * ids and picture sizes of the writer's; its limits on videos hold. Unchanged on failure. */
PV_API enum pv_status pv_prompt_read(pv_session *s, const char *path, struct pv_error *err);

/* Called with each frame in order; the pixels are valid during the call. Return false to stop. */
typedef bool (*pv_frame_fn)(void *user, const struct pv_frame *frame);
/* The frames that pv_add_video would take, as the model sees them; model NULL: as the file has
 * them, by the rules of LLaVA-OneVision. `info` may be NULL. */
PV_API enum pv_status pv_video_frames(const pv_model *model, const char *path,
                                      const struct pv_video_params *p, pv_frame_fn fn, void *user,
                                      struct pv_video_info *info, struct pv_error *err);

/* The sound of a file as an audio model gets it: mono, PV_SOUND_RATE samples a second, in step with
 * the frames (sample 0 is at `start` of the parameters; those about frames are ignored), up to
 * `end` or the end of its sound. Audio files are read, too. On success the caller owns *samples and
 * frees it with pv_free; *n 0: there is no sound. */
enum { PV_SOUND_RATE = 16000 };
PV_API enum pv_status pv_video_sound(const char *path, const struct pv_video_params *params,
                                     float **samples, size_t *n, struct pv_error *err);

/* Copy the preset of this name to *out (the caller sets out->size), to be changed at will; its
 * strings are static. PV_E_ARG if there is none: the message lists the names. */
PV_API enum pv_status pv_method_find(struct pv_method *out, const char *name, struct pv_error *err);
PV_API const char *pv_method_name(int i); /* NULL past the last */
PV_API const char *pv_view_name(int i);   /* NULL past the last */
PV_API const char *pv_lossy_name(int i);  /* of pv_method.lossy; NULL past the last */

/* Check that drafter, view, shape, schedule and acceptance of a method can be combined; PV_E_ARG
 * with the reason. pv_generate checks this too, and whether the models have what it needs. */
PV_API enum pv_status pv_method_check(const struct pv_method *m, struct pv_error *err);

/* What a drafter needs, and what it can do. */
struct pv_drafter_info {
    const char *name;
    const char *preset;  /* the method to start from when only the drafter is given */
    const char *view;    /* the view it was made for; NULL: none in particular */
    bool needs_draft;    /* the session must have a draft model */
    bool needs_head;     /* the model must have a draft head */
    bool needs_answer;   /* pv_method_test.answer must hold an answer: for tests */
    bool reads_prompt;   /* it runs over the prompt: the method's view and positions matter */
    bool own_weights;    /* it does so with the model's own weights */
    bool takes_keep;     /* it uses pv_method.keep */
    bool reads_kv_cache; /* it reads the model's KV cache, so it cannot draft while the model runs:
                            no parallel schedule */
    bool probabilities;  /* it gives the probability of every token, as rejection needs */
    enum pv_drafter as_self; /* the same with the model's own weights; PV_DRAFT_NONE: none */
    enum pv_drafter as_head; /* what `auto` uses in its place when there is a draft head but no
                                draft model; PV_DRAFT_NONE: none */
};
/* By enum pv_drafter; NULL: unknown. Lives as long as the program. */
PV_API const struct pv_drafter_info *pv_drafter_find(int drafter);

/* What a view learns about each video token from a prefill: the model's, or the drafter's own. */
enum pv_signal {
    PV_SIGNAL_NONE,
    PV_SIGNAL_ATTENTION,       /* the attention that the question pays to it */
    PV_SIGNAL_VIDEO_ATTENTION, /* the same, with a softmax over the video's tokens only */
    PV_SIGNAL_ALIGNMENT,       /* how much closer to the text the first layers brought it */
    PV_SIGNAL_DRAFT_ATTENTION  /* the attention that the question pays to it in the drafter, which
                                  reads the whole video for that */
};
/* What a view needs, what it shows of media, and which parameters of a method it uses. */
struct pv_view_info {
    const char *name;
    bool videos, pictures; /* given to the drafter, at least in part */
    enum pv_signal signal;
    bool features;     /* it compares the vision tower's results for the video */
    bool takes_ratio;  /* pv_method.ratio: it shows part of each video */
    bool takes_lambda; /* pv_method.lambda */
    bool takes_layer;  /* pv_method.layer */
    bool takes_terms;  /* pv_method.terms and literal */
    bool takes_text;   /* pv_method.text_after */
};
/* NULL: there is no such view. Lives as long as the program. */
PV_API const struct pv_view_info *pv_view_find(const char *name);

/* Which tokens of the prompt's first video the drafter of a method would get if pv_generate were
 * called now. Prefills the prompt if necessary; the conversation is unchanged. Pointers are valid
 * until the next call on the session. */
struct pv_view_map {
    int frames, height, width; /* time steps (Qwen: two frames each); tokens of a step */
    int kept;                  /* tokens that are visible */
    const bool *visible;       /* [frames, height, width]: tokens that the drafter gets */
    const float *scores; /* [frames, height, width]: attention of the question (view alignment: its
                            score, which may be negative); NULL: the view has none */
    /* Shares of tokens at the edges: in the first or last tenth of the rows, and of the frames. */
    double kept_rows, kept_frames; /* among the tokens that the drafter gets */
    double all_rows, all_frames;   /* among all video tokens */
};
PV_API enum pv_status pv_session_view(pv_session *s, const struct pv_method *m,
                                      struct pv_view_map *out, struct pv_error *err);

/* Generate an answer to what was added; it becomes part of the conversation. After PV_E_CANCELLED
 * the text given to `on_text` so far stays part of it; after any other failure, the prompt and the
 * tokens generated so far. If there was no token yet, the conversation is unchanged. on_text may be
 * NULL. */
PV_API enum pv_status pv_generate(pv_session *s, const struct pv_gen_params *p, pv_text_fn on_text,
                                  void *user, struct pv_error *err);
/* Ids of the last answer, without the stop token; the session owns them. */
PV_API const int32_t *pv_session_answer(const pv_session *s, size_t *n);
PV_API void pv_session_stats(const pv_session *s, struct pv_stats *out);

/* A timeline of what the model and the drafter did during the last answer, if pv_gen_params.trace
 * was set; the spans of each side are in order of time. The session owns them until its next
 * answer. */
enum pv_side { PV_SIDE_MODEL, PV_SIDE_DRAFTER };
struct pv_span {
    enum pv_side side;
    const char *what;  /* "vision", "prefill", "verify", "draft", "wait", ... */
    double begin, end; /* seconds since the call began */
    int rows;          /* tokens processed, drafted, ... */
    int accepted;      /* "verify": drafted tokens that were right, without the model's own */
};
PV_API const struct pv_span *pv_session_spans(const pv_session *s, size_t *n);

struct pv_convert_params {
    size_t size;
    enum pv_type type; /* of the weight matrices */
    bool one_file;
    pv_progress_fn progress; /* of each file; PV_E_CANCELLED when it stops; may be NULL */
    void *progress_user;
    /* Directory of a PEFT adapter (LoRA), which is merged into the model; NULL: none. */
    const char *adapter;
};
PV_API void pv_convert_params_init(struct pv_convert_params *p, size_t size);
/* Write SRC (GGUF file or Hugging Face directory; a model, a draft head or a
 * vision adaptor) as GGUF. The vision
 * tower goes where llama.cpp looks for it, into a file beside `out_path` whose name begins with
 * "mmproj-"; towers of families unknown to llama.cpp, and with `one_file` all, go into the same
 * file. Nothing is left at `out_path`, or beside it, on failure. */
PV_API enum pv_status pv_convert(const char *src, const char *out_path,
                                 const struct pv_convert_params *p, struct pv_error *err);

/* Features of this CPU that the kernels can use: a bit mask as for pv_model_params.cpu_mask.
 * pv_cpu_feature_name names its bits, for example "avx2" or "amx". */
PV_API uint64_t pv_cpu_features(void);
PV_API const char *pv_cpu_feature_name(int bit); /* NULL past the last */

PV_API const char *pv_status_name(enum pv_status status);
PV_API const char *pv_version(void);

/* ---- defaults ---- */

static inline struct pv_model_params pv_model_defaults(void)
{
    struct pv_model_params p;
    pv_model_params_init(&p, sizeof p);
    return p;
}

static inline struct pv_engine_params pv_engine_defaults(void)
{
    struct pv_engine_params p;
    pv_engine_params_init(&p, sizeof p);
    return p;
}

static inline struct pv_session_params pv_session_defaults(void)
{
    struct pv_session_params p;
    pv_session_params_init(&p, sizeof p);
    return p;
}

static inline struct pv_gen_params pv_gen_defaults(void)
{
    struct pv_gen_params p;
    pv_gen_params_init(&p, sizeof p);
    return p;
}

static inline struct pv_video_params pv_video_defaults(void)
{
    struct pv_video_params p;
    pv_video_params_init(&p, sizeof p);
    return p;
}

static inline struct pv_convert_params pv_convert_defaults(void)
{
    struct pv_convert_params p;
    pv_convert_params_init(&p, sizeof p);
    return p;
}

static inline struct pv_chat_options pv_chat_defaults(void)
{
    struct pv_chat_options p;
    pv_chat_options_init(&p, sizeof p);
    return p;
}

static inline struct pv_request_params pv_request_defaults(void)
{
    struct pv_request_params p;
    pv_request_params_init(&p, sizeof p);
    return p;
}

#ifdef __cplusplus
}
#endif

#endif
