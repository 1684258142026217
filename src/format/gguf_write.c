/* The GGUF writer. Metadata and tensor entries are collected in memory, since the counts come
 * first in the file; the tensors' bytes are streamed, so that a model need not fit in memory.
 * Offsets are the running sum of padded sizes, which is the order strict readers ask for. */
#include "format/gguf_write.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

#include <string.h>

enum {
    VERSION = 3,
    META_LIMIT = 1 << 30,
    PIECE = 4 << 20 /* bytes written between two calls of the watch: a few milliseconds */
};

struct gguf_writer {
    struct file_out out;
    struct buf values, infos;
    uint64_t n_values, n_tensors;
    uint64_t *size;            /* owned; [n_tensors] bytes of each */
    uint64_t offset;           /* of the next tensor in the data section */
    uint64_t current, written; /* tensor being written, and how much of it */
    uint64_t done;             /* bytes of all of them */
    struct write_watch watch;
    bool failed;
};

enum pv_status gguf_writer_open(struct gguf_writer **out, const char *path,
                                const struct write_watch *watch, struct pv_error *err)
{
    struct gguf_writer *w = mem_zalloc(sizeof *w);
    enum pv_status s;

    if (!w)
        return fail_nomem(err, sizeof *w);
    if (watch)
        w->watch = *watch;
    buf_init(&w->values, META_LIMIT);
    buf_init(&w->infos, META_LIMIT);
    s = file_out_open(&w->out, path, err);
    if (s)
        mem_free(w);
    else
        *out = w;
    return s;
}

static void put_u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, sizeof v); /* little-endian: see base/load.h */
}

static void put_u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, sizeof v);
}

static void put_string(struct buf *b, const char *s, size_t len)
{
    put_u64(b, len);
    buf_add(b, s, len);
}

static void put_head(struct gguf_writer *w, const char *key, size_t len, enum gguf_kind kind)
{
    put_string(&w->values, key, len);
    put_u32(&w->values, kind);
    w->n_values++;
}

static void put_array(struct gguf_writer *w, const char *key, enum gguf_kind elem, size_t n)
{
    put_head(w, key, strlen(key), GGUF_ARRAY);
    put_u32(&w->values, elem);
    put_u64(&w->values, n);
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_head(w, key, strlen(key), GGUF_U32);
    put_u32(&w->values, value);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float value)
{
    put_head(w, key, strlen(key), GGUF_F32);
    buf_add(&w->values, &value, sizeof value);
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value)
{
    uint8_t byte = value;

    put_head(w, key, strlen(key), GGUF_BOOL);
    buf_add(&w->values, &byte, 1);
}

void gguf_writer_string(struct gguf_writer *w, const char *key, const char *s, size_t len)
{
    put_head(w, key, strlen(key), GGUF_STRING);
    put_string(&w->values, s, len);
}

void gguf_writer_i32s(struct gguf_writer *w, const char *key, const int32_t *values, size_t n)
{
    put_array(w, key, GGUF_I32, n);
    buf_add(&w->values, values, n * sizeof *values);
}

void gguf_writer_bools(struct gguf_writer *w, const char *key, const uint8_t *values, size_t n)
{
    put_array(w, key, GGUF_BOOL, n);
    buf_add(&w->values, values, n);
}

void gguf_writer_f32s(struct gguf_writer *w, const char *key, const float *values, size_t n)
{
    put_array(w, key, GGUF_F32, n);
    buf_add(&w->values, values, n * sizeof *values);
}

void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct str *values, size_t n)
{
    put_array(w, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_string(&w->values, values[i].s, values[i].len);
}

void gguf_writer_value(struct gguf_writer *w, const struct gguf_value *v)
{
    put_head(w, v->key.s, v->key.len, v->kind);
    if (v->kind == GGUF_STRING) {
        put_u64(&w->values, v->n);
    } else if (v->kind == GGUF_ARRAY) {
        put_u32(&w->values, v->elem);
        put_u64(&w->values, v->n);
    }
    buf_add(&w->values, v->data, v->size);
}

static uint64_t padded(uint64_t n)
{
    return (n + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype t, int n_dims,
                        const int64_t *dim)
{
    uint64_t *grown = mem_realloc(w->size, (size_t)(w->n_tensors + 1) * sizeof *grown);
    uint64_t size = dtype_row_size(t, dim[n_dims - 1]);

    if (!grown) {
        w->failed = true;
        return;
    }
    w->size = grown;
    put_string(&w->infos, name, strlen(name));
    put_u32(&w->infos, (uint32_t)n_dims);
    for (int i = n_dims - 1; i >= 0; i--) /* the file has the innermost first */
        put_u64(&w->infos, (uint64_t)dim[i]);
    put_u32(&w->infos, gguf_type_of(t));
    put_u64(&w->infos, w->offset);
    for (int i = 0; i < n_dims - 1; i++)
        size *= (uint64_t)dim[i];
    w->size[w->n_tensors++] = size;
    w->offset += padded(size);
}

static enum pv_status write_padding(struct gguf_writer *w, uint64_t len, struct pv_error *err)
{
    static const uint8_t zeros[GGUF_ALIGNMENT];
    return file_out_write(&w->out, zeros, (size_t)(padded(len) - len), err);
}

enum pv_status gguf_writer_begin(struct gguf_writer *w, struct pv_error *err)
{
    struct buf head;
    uint64_t size;
    enum pv_status s;

    buf_init(&head, 64);
    buf_puts(&head, "GGUF");
    put_u32(&head, VERSION);
    put_u64(&head, w->n_tensors);
    put_u64(&head, w->n_values);
    size = head.len + w->values.len + w->infos.len;
    if (head.failed || w->values.failed || w->infos.failed || w->failed)
        s = fail(err, PV_E_NOMEM, "%s: no memory for the header, or it is over %d bytes",
                 w->out.path, META_LIMIT);
    else
        s = file_out_write(&w->out, head.data, head.len, err);
    if (!s)
        s = file_out_write(&w->out, w->values.data, w->values.len, err);
    if (!s)
        s = file_out_write(&w->out, w->infos.data, w->infos.len, err);
    if (!s)
        s = write_padding(w, size, err);
    buf_clear(&head);
    return s;
}

/* Data of the current tensor, in pieces, so that a large one can be stopped in its middle. */
static enum pv_status write_pieces(struct gguf_writer *w, const uint8_t *data, size_t len,
                                   struct pv_error *err)
{
    enum pv_status s = PV_OK;

    while (len > 0 && !s) {
        size_t n = len < PIECE ? len : PIECE;
        if (w->watch.fn &&
            !w->watch.fn(w->watch.user, PV_PHASE_CONVERT, (int64_t)w->done, (int64_t)w->offset))
            return fail(err, PV_E_CANCELLED, "%s: writing was stopped", w->out.path);
        s = file_out_write(&w->out, data, n, err);
        data += n;
        len -= n;
        w->done += n;
    }
    return s;
}

enum pv_status gguf_writer_data(struct gguf_writer *w, const void *data, size_t len,
                                struct pv_error *err)
{
    enum pv_status s;

    if (w->current == w->n_tensors || len > w->size[w->current] - w->written)
        return fail(err, PV_E_ARG, "%s: more data than the listed tensors have", w->out.path);
    s = write_pieces(w, data, len, err);
    w->written += len;
    if (!s && w->written == w->size[w->current]) {
        s = write_padding(w, w->written, err);
        w->current++;
        w->written = 0;
    }
    return s;
}

/* Everything but the file. */
static void release(struct gguf_writer **w)
{
    buf_clear(&(*w)->values);
    buf_clear(&(*w)->infos);
    mem_free((*w)->size);
    mem_free(*w);
    *w = NULL;
}

enum pv_status gguf_writer_commit(struct gguf_writer **w, struct pv_error *err)
{
    enum pv_status s;

    if ((*w)->current != (*w)->n_tensors) {
        s = fail(err, PV_E_ARG, "%s: %llu of %llu tensors were written", (*w)->out.path,
                 (unsigned long long)(*w)->current, (unsigned long long)(*w)->n_tensors);
        gguf_writer_abandon(w);
        return s;
    }
    s = file_out_commit(&(*w)->out, err);
    release(w);
    return s;
}

void gguf_writer_abandon(struct gguf_writer **w)
{
    if (!*w)
        return;
    file_out_abandon(&(*w)->out);
    release(w);
}
