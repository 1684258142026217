/* The hardened parser of one GGUF file (version 2 or 3), over bytes in memory.
 *
 * Nothing is believed before it is checked, and nothing is allocated in proportion to a number of
 * the file that is not itself bounded by the bytes left in the file:
 * - counts of entries against the smallest entry; lengths of strings and arrays against the rest;
 * - keys and tensor names: length, plain ASCII (they appear in messages), unique;
 * - kinds known; booleans 0 or 1; arrays of arrays refused;
 * - tensors: 1 to 4 dimensions of at least 1, supported type, rows of whole blocks, size without
 *   overflow, offset aligned, inside the file, not overlapping another.
 * All reading goes through the cursor, which never passes the end. The weights themselves are not
 * read here: scanning them for non-finite numbers would page the whole file in. */
#include "format/gguf_part.h"

#include "base/load.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    VALUE_MIN_SIZE = 8 + 1 + 4 + 1,        /* key length, key, kind, value */
    INFO_MIN_SIZE = 8 + 1 + 4 + 8 + 4 + 8, /* name length, name, dims, one dim, type, offset */
    STRING_MAX = 1 << 30,
    ALIGNMENT_MAX = 1 << 20
};

/* Ends messages about sizes that the file contradicts. */
#define DAMAGED ": it is truncated or damaged; download it again"

struct cursor {
    const uint8_t *data;
    size_t pos, size;
    const char *path;
};

static size_t left(const struct cursor *c)
{
    return c->size - c->pos;
}

/* The next n bytes, or NULL when fewer are left. */
static const uint8_t *take(struct cursor *c, uint64_t n)
{
    size_t pos = c->pos;
    if (n > left(c))
        return NULL;
    c->pos += (size_t)n;
    return c->data + pos; /* not before: an empty file has no data */
}

static enum pv_status fail_cut(const struct cursor *c, const char *what, struct pv_error *err)
{
    return fail(err, PV_E_FORMAT, "%s: the file of %zu bytes ends inside %s at byte %zu" DAMAGED,
                c->path, c->size, what, c->pos);
}

static enum pv_status take_u32(struct cursor *c, uint32_t *out, const char *what,
                               struct pv_error *err)
{
    const uint8_t *p = take(c, 4);
    if (!p)
        return fail_cut(c, what, err);
    *out = load_le32(p);
    return PV_OK;
}

static enum pv_status take_u64(struct cursor *c, uint64_t *out, const char *what,
                               struct pv_error *err)
{
    const uint8_t *p = take(c, 8);
    if (!p)
        return fail_cut(c, what, err);
    *out = load_le64(p);
    return PV_OK;
}

static enum pv_status take_string(struct cursor *c, struct str *out, const char *what,
                                  struct pv_error *err)
{
    uint64_t len = 0;
    const uint8_t *p;
    enum pv_status s = take_u64(c, &len, what, err);

    if (s)
        return s;
    p = len <= STRING_MAX ? take(c, len) : NULL;
    if (!p)
        return fail(err, PV_E_FORMAT, "%s: %s of %llu bytes, where %zu are left", c->path, what,
                    (unsigned long long)len, left(c));
    *out = (struct str){ (const char *)p, (uint32_t)len };
    return PV_OK;
}

/* A key or tensor name: 1..max bytes that may be printed. */
static enum pv_status take_name(struct cursor *c, struct str *out, uint32_t max, const char *what,
                                struct pv_error *err)
{
    struct str name;
    enum pv_status s = take_string(c, &name, what, err);

    if (s)
        return s;
    if (name.len == 0 || name.len > max)
        return fail(err, PV_E_FORMAT, "%s: %s of %u bytes, where 1 to %u are allowed", c->path,
                    what, (unsigned)name.len, (unsigned)max);
    if (!name_is_plain(name.s, name.len))
        return fail(err, PV_E_FORMAT,
                    "%s: %s before byte %zu has characters other than plain ASCII", c->path, what,
                    c->pos);
    *out = name;
    return PV_OK;
}

size_t gguf_kind_size(enum gguf_kind kind)
{
    static const uint8_t size[GGUF_KIND_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return (unsigned)kind < GGUF_KIND_COUNT ? size[kind] : 0;
}

bool gguf_load_int(const uint8_t *p, enum gguf_kind kind, int64_t *out)
{
    uint64_t u;

    switch (kind) {
    case GGUF_U8:
        *out = p[0];
        return true;
    case GGUF_I8:
        *out = (int8_t)p[0];
        return true;
    case GGUF_U16:
        *out = load_le16(p);
        return true;
    case GGUF_I16:
        *out = (int16_t)load_le16(p);
        return true;
    case GGUF_U32:
        *out = load_le32(p);
        return true;
    case GGUF_I32:
        *out = (int32_t)load_le32(p);
        return true;
    case GGUF_U64:
    case GGUF_I64:
        u = load_le64(p);
        if (kind == GGUF_U64 && u > INT64_MAX)
            return false;
        *out = (int64_t)u;
        return true;
    default:
        return false;
    }
}

/* `n` elements of a fixed size, checked where the kind restricts the bytes. */
static enum pv_status take_scalars(struct cursor *c, struct gguf_value *v, enum gguf_kind kind,
                                   struct pv_error *err)
{
    size_t size;
    const uint8_t *p = NULL;

    if (v->n <= SIZE_MAX && mul_size((size_t)v->n, gguf_kind_size(kind), &size))
        p = take(c, size);
    if (!p)
        return fail(err, PV_E_FORMAT, "%s: %.*s has %llu elements of %zu bytes, where %zu are left",
                    c->path, (int)v->key.len, v->key.s, (unsigned long long)v->n,
                    gguf_kind_size(kind), left(c));
    for (size_t i = 0; kind == GGUF_BOOL && i < size; i++)
        if (p[i] > 1)
            return fail(err, PV_E_FORMAT, "%s: %.*s has a boolean of value %d", c->path,
                        (int)v->key.len, v->key.s, p[i]);
    v->data = p;
    v->size = size;
    return PV_OK;
}

static enum pv_status take_array(struct cursor *c, struct gguf_value *v, struct pv_error *err)
{
    uint32_t elem;
    struct str str;
    size_t begin;
    enum pv_status s = take_u32(c, &elem, "an array", err);

    if (!s)
        s = take_u64(c, &v->n, "an array", err);
    if (s)
        return s;
    if (elem >= GGUF_KIND_COUNT || elem == GGUF_ARRAY)
        return fail(err, PV_E_FORMAT, "%s: %.*s is an array of kind %u, which is not supported",
                    c->path, (int)v->key.len, v->key.s, (unsigned)elem);
    v->elem = (enum gguf_kind)elem;
    if (elem != GGUF_STRING)
        return take_scalars(c, v, v->elem, err);
    if (v->n > left(c) / 8)
        return fail(err, PV_E_FORMAT, "%s: %.*s has %llu strings, where %zu bytes are left",
                    c->path, (int)v->key.len, v->key.s, (unsigned long long)v->n, left(c));
    begin = c->pos;
    for (uint64_t i = 0; i < v->n; i++) {
        s = take_string(c, &str, "a string of an array", err);
        if (s)
            return s;
    }
    v->data = c->data + begin;
    v->size = c->pos - begin;
    return PV_OK;
}

static enum pv_status take_value(struct cursor *c, struct gguf_value *v, struct pv_error *err)
{
    uint32_t kind;
    struct str str;
    enum pv_status s = take_name(c, &v->key, GGUF_MAX_KEY, "a metadata key", err);

    if (!s)
        s = take_u32(c, &kind, "a metadata entry", err);
    if (s)
        return s;
    if (kind >= GGUF_KIND_COUNT)
        return fail(err, PV_E_FORMAT, "%s: %.*s has the unknown kind %u", c->path, (int)v->key.len,
                    v->key.s, (unsigned)kind);
    v->kind = (enum gguf_kind)kind;
    v->n = 1;
    if (kind == GGUF_ARRAY)
        return take_array(c, v, err);
    if (kind != GGUF_STRING)
        return take_scalars(c, v, v->kind, err);
    s = take_string(c, &str, "a metadata string", err);
    if (s)
        return s;
    v->n = v->size = str.len;
    v->data = (const uint8_t *)str.s;
    return PV_OK;
}

static enum pv_status parse_values(struct gguf_part *part, struct cursor *c, uint64_t count,
                                   struct pv_error *err)
{
    size_t size;
    const struct str *twice;
    enum pv_status s;

    if (count > left(c) / VALUE_MIN_SIZE || count > GGUF_MAX_VALUES)
        return fail(err, PV_E_FORMAT, "%s: %llu metadata entries in a file of %zu bytes" DAMAGED,
                    c->path, (unsigned long long)count, c->size);
    size = (size_t)count * sizeof *part->value;
    part->value = mem_zalloc(size);
    if (!part->value)
        return fail_nomem(err, size);
    s = names_open(&part->keys, (int)count, err);
    for (int i = 0; i < (int)count && !s; i++) {
        s = take_value(c, &part->value[i], err);
        part->keys.entry[i] = (struct name_entry){ part->value[i].key, i };
    }
    if (s)
        return s;
    part->n_values = (int)count;
    twice = names_sort(&part->keys);
    if (twice)
        return fail(err, PV_E_FORMAT, "%s: the metadata key %.*s is there twice", c->path,
                    (int)twice->len, twice->s);
    return PV_OK;
}

/* Bytes of the tensor from its dimensions; the row is dim[n_dims - 1] by now. */
static enum pv_status measure(struct tensor *t, const struct cursor *c, struct pv_error *err)
{
    int64_t cols = t->dim[t->n_dims - 1], rows = 1;
    size_t row_size;

    if (cols % dtype_block(t->dtype))
        return fail(err, PV_E_FORMAT,
                    "%s: tensor %s has rows of %lld, not a multiple of the %d of %s", c->path,
                    t->name, (long long)cols, dtype_block(t->dtype), dtype_name(t->dtype));
    for (int i = 0; i < t->n_dims - 1; i++)
        if (__builtin_mul_overflow(rows, t->dim[i], &rows))
            goto too_large;
    if (!mul_size((size_t)(cols / dtype_block(t->dtype)), (size_t)dtype_block_size(t->dtype),
                  &row_size) ||
        !mul_size(row_size, (size_t)rows, &t->size) || t->size > c->size)
        goto too_large;
    return PV_OK;

too_large:
    return fail(err, PV_E_FORMAT,
                "%s: tensor %s alone is larger than the file of %zu bytes" DAMAGED, c->path,
                t->name, c->size);
}

static enum pv_status take_dims(struct cursor *c, struct tensor *t, struct pv_error *err)
{
    uint32_t n_dims;
    uint64_t dim;
    enum pv_status s = take_u32(c, &n_dims, "a tensor's entry", err);

    if (s)
        return s;
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS)
        return fail(err, PV_E_FORMAT, "%s: tensor %s has %u dimensions, where 1 to %d are allowed",
                    c->path, t->name, (unsigned)n_dims, GGUF_MAX_DIMS);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < TENSOR_DIMS; i++)
        t->dim[i] = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) { /* the file has the innermost first */
        s = take_u64(c, &dim, "a tensor's entry", err);
        if (s)
            return s;
        if (dim < 1 || dim > INT64_MAX)
            return fail(err, PV_E_FORMAT, "%s: tensor %s has a dimension of %llu", c->path, t->name,
                        (unsigned long long)dim);
        t->dim[i] = (int64_t)dim;
    }
    return PV_OK;
}

/* One entry of the tensor list; `name` is where its copy goes, `offset` is into the data. */
static enum pv_status take_info(struct cursor *c, struct tensor *t, char *name, uint64_t *offset,
                                struct pv_error *err)
{
    struct str str;
    uint32_t type;
    enum pv_status s = take_name(c, &str, GGUF_MAX_NAME, "a tensor name", err);

    if (s)
        return s;
    memcpy(name, str.s, str.len);
    name[str.len] = 0;
    t->name = name;
    s = take_dims(c, t, err);
    if (!s)
        s = take_u32(c, &type, "a tensor's entry", err);
    if (!s)
        s = take_u64(c, offset, "a tensor's entry", err);
    if (s)
        return s;
    if (!gguf_type_to_dtype(type, &t->dtype))
        return fail(err, PV_E_UNSUPPORTED, "%s: tensor %s has type %s (%u), which is not supported",
                    c->path, t->name, gguf_type_name(type), (unsigned)type);
    return measure(t, c, err);
}

struct extent {
    uint64_t begin, end;
    const struct tensor *tensor;
};

static int compare_extents(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Place the tensors in the data section and see that no two share a byte. */
static enum pv_status place_tensors(struct gguf_part *part, struct extent *extents,
                                    const struct cursor *c, uint64_t alignment,
                                    struct pv_error *err)
{
    uint64_t start = (c->pos + alignment - 1) / alignment * alignment;
    uint64_t room = start <= c->size ? c->size - start : 0;

    for (int i = 0; i < part->n_tensors; i++) {
        struct tensor *t = &part->tensor[i];
        uint64_t begin = extents[i].begin;
        if (begin % alignment)
            return fail(err, PV_E_FORMAT, "%s: tensor %s is at offset %llu, not a multiple of %llu",
                        c->path, t->name, (unsigned long long)begin, (unsigned long long)alignment);
        if (begin > room || t->size > room - begin)
            return fail(err, PV_E_FORMAT,
                        "%s: tensor %s of %zu bytes at offset %llu does not fit in the %llu bytes "
                        "of data" DAMAGED,
                        c->path, t->name, t->size, (unsigned long long)begin,
                        (unsigned long long)room);
        t->data = c->data + start + begin;
        extents[i].end = begin + t->size;
        extents[i].tensor = t;
    }
    if (part->n_tensors > 1)
        qsort(extents, (size_t)part->n_tensors, sizeof *extents, compare_extents);
    for (int i = 1; i < part->n_tensors; i++)
        if (extents[i].begin < extents[i - 1].end)
            return fail(err, PV_E_FORMAT, "%s: tensors %s and %s overlap", c->path,
                        extents[i - 1].tensor->name, extents[i].tensor->name);
    return PV_OK;
}

/* Where tensors lie in the data: general.alignment, or the default. */
static enum pv_status find_alignment(const struct gguf_part *part, uint64_t *out,
                                     struct pv_error *err)
{
    const struct gguf_value *v = gguf_part_find(part, "general.alignment");
    int64_t alignment = GGUF_ALIGNMENT;

    if (v && (!gguf_load_int(v->data, v->kind, &alignment) || alignment < 1 ||
              alignment > ALIGNMENT_MAX || (alignment & (alignment - 1))))
        return fail(err, PV_E_FORMAT, "%s: general.alignment is not a power of two up to %d",
                    part->path, ALIGNMENT_MAX);
    *out = (uint64_t)alignment;
    return PV_OK;
}

static enum pv_status parse_tensors(struct gguf_part *part, struct cursor *c, uint64_t count,
                                    struct pv_error *err)
{
    uint64_t alignment = GGUF_ALIGNMENT;
    struct extent *extents = NULL;
    enum pv_status s = find_alignment(part, &alignment, err);

    if (s)
        return s;
    if (count > left(c) / INFO_MIN_SIZE || count > GGUF_MAX_TENSORS)
        return fail(err, PV_E_FORMAT, "%s: %llu tensors in a file of %zu bytes" DAMAGED, c->path,
                    (unsigned long long)count, c->size);
    part->tensor = mem_zalloc((size_t)count * sizeof *part->tensor);
    part->tensor_name = mem_alloc((size_t)count * (GGUF_MAX_NAME + 1));
    extents = mem_alloc((size_t)count * sizeof *extents);
    if (!part->tensor || !part->tensor_name || !extents) {
        s = fail_nomem(err, (size_t)count * sizeof *part->tensor);
        goto done;
    }
    for (uint64_t i = 0; i < count && !s; i++)
        s = take_info(c, &part->tensor[i], part->tensor_name + i * (GGUF_MAX_NAME + 1),
                      &extents[i].begin, err);
    if (s)
        goto done;
    part->n_tensors = (int)count;
    s = place_tensors(part, extents, c, alignment, err);

done:
    mem_free(extents);
    return s;
}

enum pv_status gguf_part_parse(struct gguf_part *part, struct pv_error *err)
{
    struct cursor c = { .data = part->data, .size = part->size, .path = part->path };
    const uint8_t *magic = take(&c, 4);
    uint32_t version = 0;
    uint64_t n_tensors = 0, n_values = 0;
    enum pv_status s;

    if (!part->size)
        return fail(err, PV_E_FORMAT, "%s: is empty", part->path);
    if (!magic || memcmp(magic, "GGUF", 4))
        return fail(err, PV_E_FORMAT, "%s: not a GGUF file (it does not begin with \"GGUF\")",
                    part->path);
    s = take_u32(&c, &version, "the header", err);
    if (s)
        return s;
    if ((version & 0xffff) == 0)
        return fail(err, PV_E_UNSUPPORTED, "%s: version %#x: written for a big-endian machine",
                    part->path, (unsigned)version);
    if (version < 2 || version > 3)
        return fail(err, PV_E_UNSUPPORTED, "%s: GGUF version %u, where 2 and 3 are supported",
                    part->path, (unsigned)version);
    s = take_u64(&c, &n_tensors, "the header", err);
    if (!s)
        s = take_u64(&c, &n_values, "the header", err);
    if (!s)
        s = parse_values(part, &c, n_values, err);
    if (!s)
        s = parse_tensors(part, &c, n_tensors, err);
    return s;
}

void gguf_part_close(struct gguf_part *part)
{
    file_map_close(&part->map);
    names_close(&part->keys);
    mem_free(part->path);
    mem_free(part->value);
    mem_free(part->tensor);
    mem_free(part->tensor_name);
    *part = (struct gguf_part){ 0 };
}

const struct gguf_value *gguf_part_find(const struct gguf_part *part, const char *key)
{
    int i = names_find(&part->keys, key, strlen(key));
    return i < 0 ? NULL : &part->value[i];
}
