/* prevue: runs (video) large language models, losslessly fast.
 *
 * Four nouns. A model is the weights, the tokenizer and the device they live on: immutable after
 * opening, shared by any number of engines and threads. An engine runs many answers on one model at
 * once, on a thread of its own. A request is one prompt and its answer. A session is a
 * conversation; one thread uses it at a time.
 *
 * Callbacks that are called while an answer is made run on the engine's thread: while one runs,
 * nothing else of that engine does, and it must not call functions that wait for the engine.
 *
 * Every call that can fail returns a status and, when `err` is not NULL, one sentence naming the
 * file and what disagreed. Zero a struct pv_error before it is used: the first failure stays in it
 * until it is zeroed again. Outputs are untouched on failure. The library never prints, never
 * exits and never reads the environment.
 *
 * A thread that calls the library needs a stack of at least PV_THREAD_STACK bytes, most of which
 * are for the libraries that decode videos. Threads that the library starts have stacks of their
 * own.
 *
 * Structs that begin with `size` may get more fields in later releases, at their end. Whoever makes
 * one sets it to sizeof the struct (pv_..._defaults does); so a program that was compiled before
 * works with a later library.
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

enum pv_status {
    PV_OK,
    PV_E_ARG,         /* the caller asked for something that has no meaning */
    PV_E_NOMEM,       /* out of memory */
    PV_E_IO,          /* a file could not be opened, read or written */
    PV_E_FORMAT,      /* a file's contents disagree with its format or with themselves */
    PV_E_UNSUPPORTED, /* well formed, but not something this build can run */
    PV_E_LIMIT,       /* a limit (context, file size, memory) would be exceeded */
    PV_E_CANCELLED,   /* a callback asked to stop */
    PV_E_DEVICE,      /* the device failed */
    PV_E_DRAFTER      /* the drafter failed, while the model itself is fine */
};

enum { PV_THREAD_STACK = 256 << 10 };

struct pv_error {
    enum pv_status code;
    char text[512];
};

/* Type of the weights in a written file. */
enum pv_type {
    PV_TYPE_F32,
    PV_TYPE_F16,
    PV_TYPE_BF16,
    PV_TYPE_Q8_0,
    PV_TYPE_Q4_0,
    PV_TYPE_Q4_1,
    PV_TYPE_Q5_1
};

/* Type of the entries of a KV cache. AUTO: BF16 on a GPU; on a CPU F16 for weights of F16 and F32,
 * which BF16 would make less exact, otherwise the faster of the two there. Numbers beyond the range
 * of F16 become its largest. */
enum pv_kv_type { PV_KV_AUTO, PV_KV_F16, PV_KV_BF16, PV_KV_F32 };

/* Checked before what they bound is decoded or allocated (to know how many frames there are a file
 * is opened and its first frame decoded). Zero means the default. */
struct pv_limits {
    uint64_t file_bytes;   /* one model file */
    uint64_t memory_bytes; /* KV caches, scratch and pictures of one session */
    int context_tokens;    /* rows of one KV cache */
    uint64_t video_bytes;  /* one video or picture file, or its bytes in memory: 16 GiB */
    int64_t frame_pixels;  /* of one frame as stored: 64 Mi */
    int frames;            /* taken from one video: 1024 */
    double video_seconds;  /* duration of one video: 24 hours */
    /* Of all frames of one video that have to be decoded, wanted or not: 2^44. Known before where
     * the file says which frames need which. */
    uint64_t decoded_pixels;
    double
        decode_seconds; /* CPU time of opening and decoding one video, on all threads: 24 hours */
    uint64_t reserved[2];
};

/* Limits for untrusted files, as a server receives them: 512 MiB and an hour a video, frames of
 * 4096 x 4096 pixels, 512 of them taken, 64 Gi pixels and 300 seconds of CPU time to decode them, 1
 * GiB of memory for what one request holds of pictures and decoders. Those that do not bound media
 * (file_bytes, context_tokens) are the defaults. For pv_video_params.limits; as limits of a model,
 * memory_bytes would also bound the KV caches of all. */
PV_API void pv_limits_server(struct pv_limits *out);

struct pv_model_params {
    size_t size;
    const char *path;   /* GGUF file or Hugging Face directory */
    const char *mmproj; /* GGUF file of the vision tower; NULL: in `path`, or beside it */
    const char *head;   /* a draft head made for this model: GGUF file or directory; NULL: none */
    int threads;        /* 0: all cores this process may use */
    uint64_t cpu_mask;  /* CPU features allowed, ~0: all (see pv_cpu_features) */
    /* A model opened before, which must outlive this one: both use its threads and, on the same
     * GPU, its device. Meant for a draft model beside its target. NULL: threads of its own. */
    pv_model *shares_with;
    const char *device; /* "cpu", "cuda" or "cuda:1" (a GPU by number); NULL: that of `shares_with`,
                           or the CPU */
    struct pv_limits limits;
    const struct pv_model_test *test; /* see testing.h; NULL: none */
    /* false: quantised weights are repacked, that is copied to a layout that this CPU multiplies
     * faster, where there is one and half of the machine's memory suffices. true: they are read
     * where they lie in the file. Answers do not depend on it. */
    bool no_repack;
    /* > 0: a drafter scores only so many tokens, and never proposes others: `head`, or without one
     * this model, which can then only draft. They are the most frequent ones of `draft_text`, a
     * file of UTF-8 text; of tokens that are equally frequent, and with NULL of all, the lower ids:
     * those that a tokenizer learnt first. Control tokens are always among them. Answers do not
     * depend on it. */
    int draft_vocab;
    const char *draft_text;
};

/* Results kept in a directory for other processes: a video that is asked about again is not decoded
 * and does not run through the vision tower, and with `kv` its prefill is skipped as well. Answers
 * do not depend on it. Only the same build of the library, on the same kind of CPU or GPU and with
 * the same weights, finds them. Several processes may share a directory. */
struct pv_cache_params {
    const char *dir; /* made if it is not there; NULL: nothing is kept */
    uint64_t bytes;  /* of all files together; those used longest ago are removed; 0: 16 GiB */
    bool kv;         /* keys and values of prompts too */
    /* Told, on any thread, of a damaged file, which is removed, and of a directory that cannot be
     * written any more: one sentence. May be NULL. */
    void (*warn)(void *user, const char *sentence);
    void *user;
    uint64_t reserved[4];
};

/* What the requests and sessions of an engine share. Zero means the default. */
struct pv_engine_params {
    size_t size;
    int max_context;      /* tokens of one prompt and answer; 0: the model's, at most 32768 */
    int64_t kv_tokens;    /* of all of them together, running or kept for reuse; 0: max_context */
    int max_requests;     /* that run at the same time, others wait; 0: 16 */
    int64_t vision_bytes; /* rows of videos and pictures kept for whoever asks about them again; 0:
                             1 GiB, with one request at a time none; negative: none */
    int chunk;            /* rows of one prefill step; 0: 512, on a GPU 8192 */
    enum pv_kv_type kv_type;
    pv_model *draft; /* for methods with a draft model; borrowed; NULL: none */
    bool speculate;  /* make room for methods without one; implied by `draft` */
    struct pv_cache_params cache;
    uint64_t kv_bytes; /* instead of kv_tokens: as many as these bytes hold; 0: kv_tokens counts */
};

struct pv_session_params {
    size_t size;
    int max_context; /* tokens of prompt and answer together; 0: the model's, at most 32768 */
    int chunk;       /* rows of one prefill step; 0: 512, on a GPU 8192 */
    enum pv_kv_type kv_type;
    pv_model *draft; /* for methods with a draft model; borrowed; NULL: none */
    bool speculate;  /* make room for methods without one; implied by `draft` */
    struct pv_cache_params cache;
};

enum pv_phase { PV_PHASE_VIDEO, PV_PHASE_PREFILL, PV_PHASE_DRAFT_PREFILL, PV_PHASE_CONVERT };
/* How far a long phase is: frames decoded, prompt tokens prefilled, those of the prompt as the
 * drafter sees it (`auto`: in the middle of an answer), and bytes of tensors written. Return false
 * to stop; the call then returns PV_E_CANCELLED. While a video is opened and decoded this is called
 * every 20 ms or so, whether or not there is another frame (one frame that takes longer is waited
 * for); `total` is 0 as long as the number of frames is not known. */
typedef bool (*pv_progress_fn)(void *user, enum pv_phase phase, int64_t done, int64_t total);

struct pv_gen_params {
    size_t size;
    int max_new_tokens;
    float temperature; /* 0: greedy */
    int top_k;         /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    uint64_t seed;
    bool ignore_stop;               /* go on past stop tokens: benchmarks */
    const struct pv_method *method; /* NULL: plain decoding */
    bool trace;                     /* keep what pv_session_spans tells */
    pv_progress_fn progress;        /* of the prefill; may be NULL */
    void *progress_user;
    /* Called with the logits [vocabulary] that choose token `token` of the answer, counted from 0.
     * May be called again after the last token. NULL: not called, which saves time. */
    void (*on_logits)(void *user, int token, const float *logits);
    void *logits_user;
};

/* Speculation: a drafter proposes tokens, the model verifies them in one pass. With `exact`
 * acceptance (the default) the text is the one plain decoding gives, to the bit, whatever the
 * method. */
enum pv_drafter {
    PV_DRAFT_NONE,    /* plain decoding */
    PV_DRAFT_MODEL,   /* the session's draft model */
    PV_DRAFT_SELF,    /* the model's own weights on a pruned prompt */
    PV_DRAFT_SPARSE,  /* the model's own cache, its strongest entries */
    PV_DRAFT_HEAD,    /* the model's draft head, on its hidden states */
    PV_DRAFT_NGRAM,   /* what followed the same words before */
    PV_DRAFT_RANDOM,  /* for tests: any token */
    PV_DRAFT_ORACLE,  /* for tests: a known answer with errors */
    PV_DRAFT_CASCADE, /* what followed the same words before, else the draft model */
    PV_DRAFT_COUNT    /* how many there are */
};
enum pv_shape {
    PV_SHAPE_CHAIN,   /* `window` tokens */
    PV_SHAPE_TREE,    /* the tree of 25 tokens, or that of `tree_file` */
    PV_SHAPE_DYNAMIC, /* grown where the drafter is surest: `total`, `depth`, `width` */
    PV_SHAPE_FITTED /* the same at most, each round as far as it pays by the times measured before:
                       a short chain where rows are dear, a wide tree where they cost nothing. The
                       text does not depend on it. Drafters model, self and head; exact acceptance
                       only */
};
enum pv_accept {
    PV_ACCEPT_EXACT,
    PV_ACCEPT_REJECTION /* the papers' rule: the same distribution, another text */
};
enum pv_schedule {
    PV_SCHEDULE_SERIAL,  /* drafter and model take turns */
    PV_SCHEDULE_PARALLEL /* the drafter goes on while the model verifies, on threads of its own:
                            chains of a model, self, ngram and the drafters for tests */
};
/* Positions of the prompt's rows in the drafter. AUTO: as measured best for the family. */
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
    int window;              /* chain; 0: 5, or in the parallel schedule what measuring says */
    int total, depth, width; /* dynamic; 0: 30, 3, 8; fitted, at most; 0: 32, 15, 4 */
    const char *tree_file;
    double ratio;  /* of the video tokens that the drafter does not see */
    double lambda; /* view specvlm; 0: 0.4, for Qwen 0.5 */
    double
        layer; /* views holistic and alignment: how many layers of the model they wait for, below
                  1 a share of them; 0: holistic all, alignment 20 (0.71 of a model with fewer) */
    unsigned terms;    /* view holistic: 1 attention + 2 time + 4 space; 0: all three */
    bool literal;      /* view holistic: crops of 5 x 5 and what is left over, as published */
    bool text_after;   /* view alignment: only text after the video counts */
    int draft_threads; /* parallel: the drafter's part of the threads; 0: what measuring says */
    enum pv_draft_pos positions;
    int keep;                          /* sparse: entries of a layer; 0: 1024 */
    uint64_t draft_seed;               /* view random */
    const struct pv_method_test *test; /* see testing.h; NULL: none */
};

/* Which frames of a video are taken. AUTO: the rule of the model's family. */
enum pv_frame_rule {
    PV_FRAMES_AUTO,
    PV_FRAMES_LINSPACE, /* evenly from the first to the last, rounded down (LLaVA-NeXT) */
    PV_FRAMES_ARANGE,   /* every total / N-th, rounded down (Hugging Face) */
    PV_FRAMES_QWEN      /* an even number, evenly from the first to the last (qwen-vl-utils) */
};

/* Where a video's frames lie in time for Qwen2.5-VL. AUTO: SECONDS. video-SALMONN2+ takes the last
 * two alone; AUTO: RELEASED. */
enum pv_time_rule {
    PV_TIME_AUTO,
    PV_TIME_SECONDS,         /* in proportion to seconds: Qwen's own training */
    PV_TIME_WHOLE,           /* seconds per step rounded down first: transformers 4.52 to 5.1 */
    PV_TIME_COMPACT,         /* that, and the next text follows the larger side: transformers 5.3 */
    PV_TIME_SECONDS_COMPACT, /* seconds, and the next text follows the larger side: 5.22 */
    PV_TIME_UPSTREAM, /* as its released code: two a pair of frames, sound as rows of these */
    PV_TIME_TRAINING  /* as in its training: frames and sound by the clock */
};

/* Where a video's file is opened and decoded. In a sandbox that is a helper process, prevue-media,
 * for each video: it can open no file, use no network and start nothing, and memory and CPU time
 * are bounded by pv_limits. A file that takes it over or crashes it is one error for one call. The
 * frames are the same to the bit. Starting one costs 30 to 50 ms of CPU time. The helper, of the
 * same build, is looked for beside the program, in ../libexec/prevue from there, likewise from the
 * library, and where it was installed. A program that waits for any child may see it end. */
enum pv_sandbox {
    PV_SANDBOX_OFF,        /* in this process */
    PV_SANDBOX_ON,         /* in the sandbox, or not at all */
    PV_SANDBOX_IF_POSSIBLE /* in this process where there is no helper, or no filter of system calls
                            */
};

/* Zero: as the model's family does it. */
struct pv_video_params {
    size_t size;
    int frames;                     /* how many; or */
    double fps;                     /* how many a second, */
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
    /* Containers and codecs that are read besides the usual ones (doc/video.md lists those), by
     * FFmpeg's names, separated by commas; NULL: none. Those that name other files are never read.
     */
    const char *allow_formats;
    enum pv_sandbox sandbox;
    const char *media_helper; /* the program for the sandbox; NULL: prevue-media, as above */
    bool no_audio;            /* a model that hears does not hear it; others never do */
    /* pv_add_frames: the sound of these frames from when the first is shown, 16,000 samples a
     * second of one channel; NULL: none. Files have their own. */
    const float *samples;
    size_t n_samples;
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
    int frames, lost;     /* taken; of these, not decodable and replaced by a neighbour */
    double sample_fps;    /* of what was taken */
    int64_t cut;          /* frames that the file lists but does not hold: it ends early */
};

struct pv_stats {
    size_t size;
    int64_t prompt_tokens, reused_tokens; /* reused: found in the KV cache already */
    int64_t tokens, passes;
    int64_t video_tokens;        /* of the prompt: rows of videos and pictures */
    int64_t frames, lost_frames; /* taken from files since the last answer */
    double video_s;              /* decoding and resizing since the last answer */
    double vision_s;             /* the towers, part of no other */
    double prefill_s, decode_s;
    /* Speculation. A round is one verification; what a drafter proposed is tested in order. */
    int64_t draft_video_tokens; /* of video_tokens, seen by the drafter */
    int64_t rounds, proposed, accepted;
    int64_t rejections; /* rounds whose proposal was left before its end */
    /* Work of drafting, without the drafter's prefill: rows run, and entries of its cache (of one
     * layer) that their attention read. */
    int64_t draft_rows, draft_slots;
    double view_s, draft_prefill_s; /* part of no other */
    double draft_s, verify_s;       /* parts of decode_s; in the parallel schedule side by side */
    /* The parallel schedule. A run is what was accepted between two rejections. */
    int64_t parallel_rounds;
    int64_t startup_tokens; /* drafted before the model had read its prompt */
    int64_t wasted;         /* drafted, and lost because something before it was wrong */
    int64_t runs, run_tokens, longest_run;
    double wait_s; /* the model waited for the drafter; part of decode_s */
    int window;    /* the last one */
    int draft_threads;
    uint64_t peak_bytes; /* most memory the library held so far, mapped model files not counted */
};

/* How the model's chat template writes a prompt. Defaults: as the template itself does it. */
struct pv_chat_options {
    size_t size;
    bool no_thinking; /* ask for an answer without a chain of thought (enable_thinking=False of
                         Qwen3's template). Without effect on templates that know no thinking */
};

/* Called with whole UTF-8 characters. Return false to stop; pv_generate then returns
 * PV_E_CANCELLED. */
typedef bool (*pv_text_fn)(void *user, const char *utf8, size_t len);

/* The defaults, into a struct of `size` bytes. pv_..._defaults at the end of this file return
 * one. */
PV_API void pv_model_params_init(struct pv_model_params *p, size_t size);
PV_API void pv_session_params_init(struct pv_session_params *p, size_t size);
PV_API void pv_gen_params_init(struct pv_gen_params *p, size_t size);
PV_API void pv_video_params_init(struct pv_video_params *p, size_t size);
PV_API void pv_chat_options_init(struct pv_chat_options *p, size_t size);

/* On success *out owns the mapped file and a thread pool; close it after its sessions. */
PV_API enum pv_status pv_model_open(pv_model **out, const struct pv_model_params *p,
                                    struct pv_error *err);
PV_API void pv_model_close(pv_model **model); /* sets *model NULL; NULL is fine */

/* Text describing the model, the types of its tensors and the memory it needs at `context` tokens
 * (0: as a session by default); as JSON with `json`, with a list of the tensors with `tensors`. On
 * success *text is the caller's, who gives it back with pv_free; on failure it is untouched. */
PV_API enum pv_status pv_model_describe(const pv_model *model, int context, bool json, bool tensors,
                                        char **text, struct pv_error *err);
/* Reads every weight of the model. PV_E_FORMAT, naming the tensor, if one is NaN or infinite: such
 * a model can answer nothing. Without this call that is found out when an answer fails. */
PV_API enum pv_status pv_model_check(const pv_model *model, struct pv_error *err);
PV_API void pv_free(void *p); /* for what a function above says is the caller's; NULL is fine */
PV_API int pv_model_vocab_size(const pv_model *model);
PV_API int pv_model_max_context(const pv_model *model);
PV_API bool pv_model_has_tokenizer(const pv_model *model);
PV_API bool pv_model_has_vision(const pv_model *model);
PV_API bool pv_model_has_audio(const pv_model *model);
PV_API bool pv_model_has_head(const pv_model *model);

/* Ids of a text; special tokens spelled in it become their ids when `parse_special`. At most
 * `cap` are stored, *n is how many there are. */
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

/* ---- requests: one prompt, answered beside others ---- */

/* A part of a message: text, or a video or picture. */
struct pv_part {
    const char *text; /* NULL: a video or picture, */
    const char *path; /* from a file, */
    const void *data; /* or from a file's bytes in memory, */
    size_t data_size;
    const struct pv_frame *frames; /* or from frames as pv_add_frames takes them */
    size_t n_frames;
    double fps;
    const struct pv_video_params *video; /* how it is taken; NULL: the defaults */
};

/* Videos and pictures of a message come before its text, which is that of all its parts joined. */
struct pv_message {
    const char *role; /* "system", "user" or "assistant" */
    const struct pv_part *parts;
    size_t n_parts;
};

enum pv_finish {
    PV_FINISH_NONE,        /* it has not ended */
    PV_FINISH_STOP,        /* a stop token of the model */
    PV_FINISH_STOP_STRING, /* one of the request's stop strings */
    PV_FINISH_LENGTH,      /* as many tokens as asked for, or as the context holds */
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
    float logprob; /* where asked for */
    int n_top;
    const struct pv_logprob *top; /* the likeliest tokens, falling */
};

enum pv_event_kind {
    PV_EVENT_PROGRESS, /* a long phase goes on; only the newest is kept */
    PV_EVENT_TEXT, /* a token, and text that is final: perhaps none, or that of earlier tokens */
    PV_EVENT_END   /* the last one */
};

/* Pointers are valid until the next event is taken, those of the last one until the request is
 * closed. */
struct pv_event {
    enum pv_event_kind kind;
    const char *text; /* TEXT: whole UTF-8 characters */
    size_t len;
    struct pv_token token; /* TEXT; id -1: text alone */
    enum pv_phase phase;   /* PROGRESS */
    int64_t done, total;
    enum pv_finish finish; /* END */
    enum pv_status status; /* END: not PV_OK with CANCELLED and ERROR */
    const char *message;   /* END: the sentence of the error, else "" */
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
    /* NULL: the defaults. Copied, its method too; what that points to must outlive the request. Of
     * the callbacks only on_logits is called, on the engine's thread, and not with top_logprobs. */
    const struct pv_gen_params *gen;
    const char *const *stop; /* strings before which the answer ends, at most 16 */
    size_t n_stop;
    int top_logprobs; /* -1: no log-probabilities; else with each token those of the likeliest, at
                         most 20 */
    /* Called when pv_request_next has something new, on the engine's thread, perhaps before
     * pv_request_submit has returned; not after pv_request_close has. It may wake another thread
     * and must not call functions of the library. So one thread can serve many requests: it takes
     * their events without waiting (pv_request_next with 0 seconds). NULL: nobody is told. */
    void (*notify)(void *user);
    void *notify_user;
};

PV_API void pv_request_params_init(struct pv_request_params *p, size_t size);
/* Reads the prompt (files are decoded here, on the caller's thread) and queues the request. What
 * can never fit is refused at once. */
PV_API enum pv_status pv_request_submit(pv_request **out, pv_engine *engine,
                                        const struct pv_request_params *p, struct pv_error *err);
/* The next event; waits for it at most `seconds` (negative: for ever). False: none came in time, or
 * the end has been told. One thread at a time. */
PV_API bool pv_request_next(pv_request *r, struct pv_event *out, double seconds);
/* From any thread, at any time before the request is closed. It ends within one step of the model.
 */
PV_API void pv_request_cancel(pv_request *r);
/* Waits for its end, leaving events where they are. */
PV_API enum pv_status pv_request_wait(pv_request *r, struct pv_error *err);
/* After its end; out->size is set. */
PV_API void pv_request_stats(const pv_request *r, struct pv_stats *out);
/* After its end, with pv_gen_params.trace: what each side did when. The request owns them. */
struct pv_span;
PV_API const struct pv_span *pv_request_spans(const pv_request *r, size_t *n);
/* After its end: which tokens of the prompt's first video the drafter saw. PV_E_ARG: the prompt has
 * no video, or nobody drafted. The request owns what *out points to. */
struct pv_view_map;
PV_API enum pv_status pv_request_view(pv_request *r, struct pv_view_map *out, struct pv_error *err);
/* Cancels what still runs, and waits for it. */
PV_API void pv_request_close(pv_request **request);

/* How an engine does. */
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
};
PV_API void pv_engine_stats(pv_engine *engine, struct pv_engine_counts *out);

/* A conversation on an engine of its own, for one request at a time. Borrows the model. */
PV_API enum pv_status pv_session_open(pv_session **out, pv_model *model,
                                      const struct pv_session_params *p, struct pv_error *err);
PV_API void pv_session_close(pv_session **session);

/* Forgets the prompt and media that wait for their message. The KV cache is kept and reused for as
 * long a prefix as the next prompt shares with it. */
PV_API void pv_session_reset(pv_session *session);

/* Chat options for the answers from now on; pv_session_reset keeps them. PV_E_UNSUPPORTED, and
 * nothing changed, for `no_thinking` where the template always thinks or the model has no
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
/* The same from frames in memory, all of them, of one size; fps: frames a second (0: a still
 * picture). Their pixels are copied. */
PV_API enum pv_status pv_add_frames(pv_session *s, const struct pv_frame *frames, size_t n,
                                    double fps, const struct pv_video_params *p,
                                    struct pv_error *err);

/* Write the prompt as it is when the answer to what was added begins: token ids and the pictures as
 * the model sees them, for a machine that has no tokenizer and decodes no videos. Nothing is left
 * at `path` on failure. */
PV_API enum pv_status pv_prompt_write(const pv_session *s, const char *path, struct pv_error *err);
/* Take over such a prompt, whole: a new session, or one just reset. The model must cut pictures and
 * number tokens as the writer's did; its limits on videos hold. Unchanged on failure. */
PV_API enum pv_status pv_prompt_read(pv_session *s, const char *path, struct pv_error *err);

/* Called with each frame in order; the pixels are valid during the call. Return false to stop. */
typedef bool (*pv_frame_fn)(void *user, const struct pv_frame *frame);
/* The frames that pv_add_video would take, as the model sees them; model NULL: as the file has
 * them, by the rules of LLaVA-OneVision. `info` may be NULL. */
PV_API enum pv_status pv_video_frames(const pv_model *model, const char *path,
                                      const struct pv_video_params *p, pv_frame_fn fn, void *user,
                                      struct pv_video_info *info, struct pv_error *err);

/* What a model that hears would hear of a file: PV_SOUND_RATE samples a second of one channel, in
 * step with the frames (sample 0 is at `start` of the parameters, of which those about frames are
 * ignored), to `end` or the end of its sound. Files of sound alone are read, too. On success
 * *samples is the caller's, who gives it back with pv_free; *n 0: there is no sound. */
enum { PV_SOUND_RATE = 16000 };
PV_API enum pv_status pv_video_sound(const char *path, const struct pv_video_params *params,
                                     float **samples, size_t *n, struct pv_error *err);

/* The preset of this name into *out, whose size is set, to be changed at will; its strings live as
 * long as the program. PV_E_ARG, with the names that there are. */
PV_API enum pv_status pv_method_find(struct pv_method *out, const char *name, struct pv_error *err);
PV_API const char *pv_method_name(int i); /* NULL past the last */
PV_API const char *pv_view_name(int i);   /* NULL past the last */

/* Whether the parts of a method go together: drafter, view, shape, schedule and acceptance.
 * PV_E_ARG with the reason. pv_generate checks the same; what the models lack it alone can know. */
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
    bool probabilities;  /* it knows the probability of every token: rejection of chains */
    enum pv_drafter as_self; /* the same with the model's own weights; PV_DRAFT_NONE: none */
    enum pv_drafter as_head; /* what `auto` uses in its place when there is a draft head but no
                                draft model; PV_DRAFT_NONE: none */
};
/* By enum pv_drafter; NULL: unknown. Lives as long as the program. */
PV_API const struct pv_drafter_info *pv_drafter_find(int drafter);

/* What a view learns about each video token from the model's prefill. */
enum pv_signal {
    PV_SIGNAL_NONE,
    PV_SIGNAL_ATTENTION,       /* the attention that the question pays to it */
    PV_SIGNAL_VIDEO_ATTENTION, /* the same, with a softmax over the video's tokens only */
    PV_SIGNAL_ALIGNMENT        /* how much closer to the text the first layers brought it */
};
/* What a view needs, what it shows of media, and which parameters of a method it uses. */
struct pv_view_info {
    const char *name;
    bool videos, pictures; /* shown to the drafter, at least in part; no view shows videos only */
    enum pv_signal signal;
    bool features;     /* it compares the rows that the model's tower makes of the video */
    bool takes_ratio;  /* pv_method.ratio: it shows part of each video */
    bool takes_lambda; /* pv_method.lambda */
    bool takes_layer;  /* pv_method.layer */
    bool takes_terms;  /* pv_method.terms and literal */
    bool takes_text;   /* pv_method.text_after */
};
/* NULL: there is no such view. Lives as long as the program. */
PV_API const struct pv_view_info *pv_view_find(const char *name);

/* What the drafter of a method would see of the prompt's first video, as it stands when the answer
 * to what was added begins. The prompt is prefilled where it is not yet; the timeline stays as it
 * is. Pointers are valid until the next call on the session. */
struct pv_view_map {
    int frames, height, width; /* units in time (Qwen: two frames each), tokens of each */
    int kept;
    const bool *visible; /* [frames, height, width]: tokens that the drafter gets */
    const float *scores; /* the same: attention of the question (alignment: that, which may be
                            negative); NULL where the view has none */
    /* Shares of tokens at the edges: in the first or last tenth of the rows, and of the frames. */
    double kept_rows, kept_frames; /* of those kept */
    double all_rows, all_frames;   /* of all */
};
PV_API enum pv_status pv_session_view(pv_session *s, const struct pv_method *m,
                                      struct pv_view_map *out, struct pv_error *err);

/* Generate from what was added. The answer becomes part of the timeline. After PV_E_CANCELLED
 * the text given to `on_text` so far is in the timeline; after any other failure the timeline
 * holds the prompt and the tokens generated until then. Before the first token it is as it was.
 * on_text may be NULL. */
PV_API enum pv_status pv_generate(pv_session *s, const struct pv_gen_params *p, pv_text_fn on_text,
                                  void *user, struct pv_error *err);
/* Ids of the last answer, without the stop token; the session owns them. */
PV_API const int32_t *pv_session_answer(const pv_session *s, size_t *n);
PV_API void pv_session_stats(const pv_session *s, struct pv_stats *out);

/* What each side did when during the last answer (pv_gen_params.trace), side by side, each in the
 * order of time. The session owns them, until its next answer. */
enum pv_side { PV_SIDE_MODEL, PV_SIDE_DRAFTER };
struct pv_span {
    enum pv_side side;
    const char *what;  /* "prefill", "verify", "draft", "wait", ... */
    double begin, end; /* seconds since the call began */
    int rows;          /* tokens run, drafted, ... */
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
/* Write SRC (GGUF file or Hugging Face directory; a model, or a draft head) as GGUF. The vision
 * tower goes where llama.cpp looks for it, into a file beside `out_path` whose name begins with
 * "mmproj-"; those of families that llama.cpp does not know, or with `one_file` all, into the same
 * file. Nothing is left at `out_path`, or beside it, on failure. */
PV_API enum pv_status pv_convert(const char *src, const char *out_path,
                                 const struct pv_convert_params *p, struct pv_error *err);

/* Names of the CPU features this process uses under `mask`, e.g. "avx2 avx512 amx"; the bits of
 * the mask are those of the features' order in pv_cpu_feature_name. */
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
