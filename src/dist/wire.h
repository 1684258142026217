/* The commands that rank 0 sends to the others. A command is a struct that begins with `struct
 * command`; the comment of each says which arrays follow it. Commands are sent in batches, and rank
 * 0 executes them like every other rank. All ranks run the same build on the same kind of machine
 * (COMMAND_OPEN checks that), so structs are sent as they are in memory. Pointers in them are valid
 * on rank 0 only. */
#ifndef PV_DIST_WIRE_H
#define PV_DIST_WIRE_H

#include "base/digest.h"
#include "tensor/device.h"

enum command_kind {
    COMMAND_END,
    COMMAND_OPEN,
    COMMAND_CLOSE,
    COMMAND_SOURCE,
    COMMAND_TAKE,
    COMMAND_DROP,
    COMMAND_TAKE_EXPERTS,
    COMMAND_DROP_EXPERTS,
    COMMAND_TAKE_LAYER,
    COMMAND_DROP_LAYER,
    COMMAND_KV_OPEN,
    COMMAND_KV_CLOSE,
    COMMAND_WORK_OPEN,
    COMMAND_WORK_CLOSE,
    COMMAND_RUNS,
    COMMAND_ATTN,
    COMMAND_FINISH,
    COMMAND_MATMUL,
    COMMAND_KV_MOVE,
    COMMAND_KV_COPY,
    COMMAND_KV_PAGE,
    COMMAND_SYNC,
    COMMAND_COUNT
};

struct command {
    int32_t kind;
    int32_t size; /* total bytes, a multiple of COMMAND_ALIGN */
    int32_t id;   /* of its object: a matrix, a layer, a pool, ... */
    int32_t work; /* id of the work that it runs on */
};

enum { COMMAND_ALIGN = 8, COMMAND_BUILD = 72, LAYER_MATRICES = 7, LAYER_NORMS = 4 };

struct command_open {
    struct command head;
    int32_t threads, pad;
    uint64_t cpu;
    char build[COMMAND_BUILD];
};

/* A file that contains matrices; followed by its path, with a NUL. */
struct command_source {
    struct command head;
    uint64_t file_size;
    uint8_t sum[DIGEST_SIZE]; /* of samples of its contents */
};

/* Followed by the bias [out], if there is one. A rank reads its rows from its own copy of the file;
 * if source is -1, rank 0 sends them afterwards. */
struct command_take {
    struct command head;
    struct spread spread;
    int32_t dtype, out, in, source;
    int32_t bias, repacks;
    uint64_t row_size, offset, data;
};

/* Followed by the router [n, hidden] in F32, and the matrices' ids: int32 [3, n]. */
struct command_experts {
    struct command head;
    int32_t n, used, normed, hidden;
};

/* Followed by its norms, as floats, as far as they exist. */
struct command_layer {
    struct command head;
    struct layer_shape shape;
    int32_t matrix[LAYER_MATRICES]; /* q, k, v, o, gate, up, down; -1: none */
    int32_t experts;                /* -1: none */
    int32_t norm[LAYER_NORMS];      /* floats of attn_norm, ffn_norm, q_norm, k_norm; 0: none */
};

struct command_kv {
    struct command head;
    struct kv_shape shape;
};

struct command_work {
    struct command head;
    struct work_shape shape;
};

struct wire_run {
    int32_t row0, n, first_slot, pending;
    int32_t pool, n_pages, tree, pad;
};

/* The runs of the following commands. Followed by struct wire_run [n_runs], then int32 pages of
 * each run, then int32 parents [pending + n] of each run that is a tree. */
struct command_runs {
    struct command head;
    int32_t n_runs, n_numbers; /* n_numbers: pages and parents together */
};

struct wire_columns {
    int32_t run, n_rows, n_keys, over_keys;
    uint64_t sums;
};

/* Followed by struct wire_columns [n_columns], and the rows and keys of each. fresh: x, cos and sin
 * are sent to all ranks; `wide` always is. */
struct command_attn {
    struct command head;
    int32_t n, kv_layer, fresh, n_columns;
    uint64_t x, wide, cos, sin;
};

/* Followed by int32 rows [n_rows], if only some rows continue (n_rows < n or `some`). */
struct command_finish {
    struct command head;
    int32_t n, n_rows, some, pad;
    uint64_t x;
};

struct command_matmul {
    struct command head;
    int32_t n, pad;
    uint64_t x, y, y_stride;
};

/* Followed by int32 pages [n_pages], to [n], from [n]. */
struct command_kv_move {
    struct command head;
    int32_t layer, n, n_pages, pad;
};

/* To pool `id` from pool `from`. Followed by int32 pages of both, to [n], from [n]. */
struct command_kv_copy {
    struct command head;
    int32_t from, layer, from_layer, n, n_pages, from_pages;
};

struct command_kv_page {
    struct command head;
    int32_t to, from;
};

#endif
