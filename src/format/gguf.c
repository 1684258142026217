/* GGUF models: one file or the parts of a split one, joined. Metadata comes from the first part,
 * tensors from all; names are unique over all parts. Also the typed access to metadata and the
 * numbering of element types. The parsing itself is in gguf_part.c. */
#include "format/gguf.h"

#include "base/load.h"
#include "base/mem.h"
#include "format/gguf_part.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct gguf {
    struct gguf_part *part; /* owned; [n_parts] */
    int n_parts;
    struct tensor *tensor; /* owned; copies of the parts', in order */
    int n_tensors;
    struct names names; /* of `tensor` */
};

static const char *const type_names[] = {
    "F32",
    "F16",
    "Q4_0",
    "Q4_1",
    "Q4_2 (removed)",
    "Q4_3 (removed)",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q8_1",
    "Q2_K",
    "Q3_K",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "Q8_K",
    "IQ2_XXS",
    "IQ2_XS",
    "IQ3_XXS",
    "IQ1_S",
    "IQ4_NL",
    "IQ3_S",
    "IQ2_S",
    "IQ4_XS",
    "I8",
    "I16",
    "I32",
    "I64",
    "F64",
    "IQ1_M",
    "BF16",
    "Q4_0_4_4",
    "Q4_0_4_8",
    "Q4_0_8_8",
    "TQ1_0",
    "TQ2_0",
    "IQ4_NL_4_4",
    "IQ4_NL_4_8",
    "IQ4_NL_8_8",
    "MXFP4",
    "NVFP4",
    "Q1_0",
    "Q2_0",
};

static const uint8_t type_numbers[DTYPE_COUNT] = {
    [DTYPE_F32] = 0,   [DTYPE_F16] = 1,  [DTYPE_BF16] = 30, [DTYPE_Q8_0] = 8,
    [DTYPE_Q4_0] = 2,  [DTYPE_Q5_0] = 6, [DTYPE_Q4_K] = 12, [DTYPE_Q5_K] = 13,
    [DTYPE_Q6_K] = 14, [DTYPE_Q4_1] = 3, [DTYPE_Q5_1] = 7,  [DTYPE_IQ4_NL] = 20,
};

const char *gguf_type_name(uint32_t type)
{
    return type < sizeof type_names / sizeof *type_names ? type_names[type] : "unknown";
}

bool gguf_type_to_dtype(uint32_t type, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (type_numbers[i] == type) {
            *out = (enum dtype)i;
            return true;
        }
    }
    return false;
}

uint32_t gguf_type_of(enum dtype t)
{
    return type_numbers[t];
}

/* An optional count of the split.* keys: `missing` where the key is not there. */
static enum pv_status split_number(const struct gguf_part *part, const char *key, int64_t missing,
                                   int64_t *out, struct pv_error *err)
{
    const struct gguf_value *v = gguf_part_find(part, key);

    *out = missing;
    if (v && (!gguf_load_int(v->data, v->kind, out) || *out < 0))
        return fail(err, PV_E_FORMAT, "%s: %s is not a count", part->path, key);
    return PV_OK;
}

static enum pv_status open_part(struct gguf_part *part, const char *path, uint64_t limit,
                                struct pv_error *err)
{
    enum pv_status s;

    part->path = mem_strdup(path);
    if (!part->path)
        return fail_nomem(err, strlen(path) + 1);
    s = file_map_open(&part->map, path, limit, err);
    if (s)
        return s;
    part->data = part->map.data;
    part->size = part->map.size;
    return gguf_part_parse(part, err);
}

/* The path of part `no` (from 0), given that of part 0; NULL in *out when the path is not of the
 * form "...-00001-of-0000N.gguf". */
static enum pv_status part_path(char **out, const char *first, int no, int count,
                                struct pv_error *err)
{
    char suffix[64], *path;
    size_t len = strlen(first), suffix_len;

    *out = NULL;
    snprintf(suffix, sizeof suffix, "-00001-of-%05d.gguf", count);
    suffix_len = strlen(suffix);
    if (len < suffix_len || strcmp(first + len - suffix_len, suffix))
        return PV_OK;
    path = mem_strdup(first);
    if (!path)
        return fail_nomem(err, len + 1);
    snprintf(path + len - suffix_len, suffix_len + 1, "-%05d-of-%05d.gguf", no + 1, count);
    *out = path;
    return PV_OK;
}

static enum pv_status open_next_part(struct gguf *g, int count, uint64_t limit,
                                     struct pv_error *err)
{
    struct gguf_part *part = &g->part[g->n_parts];
    int64_t no, n;
    char *path;
    enum pv_status s = part_path(&path, g->part[0].path, g->n_parts, count, err);

    if (s)
        return s;
    if (!path)
        return fail(err, PV_E_FORMAT,
                    "%s: the first of %d parts, but not named \"...-00001-of-%05d.gguf\"",
                    g->part[0].path, count, count);
    s = open_part(part, path, limit, err);
    mem_free(path);
    g->n_parts++; /* closed with the others, also when it failed */
    if (!s)
        s = split_number(part, "split.no", -1, &no, err);
    if (!s)
        s = split_number(part, "split.count", -1, &n, err);
    if (!s && (no != g->n_parts - 1 || n != count))
        s = fail(err, PV_E_FORMAT,
                 "%s: calls itself part %lld of %lld, where %d of %d was expected", part->path,
                 (long long)no + 1, (long long)n, g->n_parts, count);
    return s;
}

/* Open parts 2..N of a split model. */
static enum pv_status open_rest(struct gguf *g, uint64_t limit, struct pv_error *err)
{
    int64_t no, count;
    struct gguf_part *grown;
    enum pv_status s = split_number(&g->part[0], "split.no", 0, &no, err);

    if (!s)
        s = split_number(&g->part[0], "split.count", 1, &count, err);
    if (s || count <= 1)
        return s;
    if (no != 0)
        return fail(err, PV_E_ARG, "%s: part %lld of %lld; give the first one", g->part[0].path,
                    (long long)no + 1, (long long)count);
    if (count > GGUF_MAX_PARTS)
        return fail(err, PV_E_FORMAT, "%s: split.count is %lld, where %d is the most allowed",
                    g->part[0].path, (long long)count, GGUF_MAX_PARTS);
    grown = mem_realloc(g->part, (size_t)count * sizeof *grown);
    if (!grown)
        return fail_nomem(err, (size_t)count * sizeof *grown);
    g->part = grown;
    memset(grown + 1, 0, (size_t)(count - 1) * sizeof *grown);
    while (g->n_parts < count && !s)
        s = open_next_part(g, (int)count, limit, err);
    return s;
}

/* One list of all tensors, and its index. */
static enum pv_status join_tensors(struct gguf *g, struct pv_error *err)
{
    int64_t expected;
    int n = 0;
    const struct str *twice;
    enum pv_status s;

    for (int i = 0; i < g->n_parts; i++)
        n += g->part[i].n_tensors; /* at most GGUF_MAX_PARTS * GGUF_MAX_TENSORS */
    s = split_number(&g->part[0], "split.tensors.count", n, &expected, err);
    if (s)
        return s;
    if (expected != n)
        return fail(err, PV_E_FORMAT, "%s: split.tensors.count is %lld, but the parts have %d",
                    g->part[0].path, (long long)expected, n);
    g->tensor = mem_alloc((size_t)n * sizeof *g->tensor);
    if (!g->tensor)
        return fail_nomem(err, (size_t)n * sizeof *g->tensor);
    s = names_open(&g->names, n, err);
    if (s)
        return s;
    for (int i = 0; i < g->n_parts; i++) {
        for (int j = 0; j < g->part[i].n_tensors; j++) {
            struct tensor *t = &g->part[i].tensor[j];
            struct str name = { t->name, (uint32_t)strlen(t->name) };
            g->names.entry[g->n_tensors] = (struct name_entry){ name, g->n_tensors };
            g->tensor[g->n_tensors++] = *t;
        }
    }
    twice = names_sort(&g->names);
    if (twice)
        return fail(err, PV_E_FORMAT, "%s: the tensor %.*s is there twice", g->part[0].path,
                    (int)twice->len, twice->s);
    return PV_OK;
}

static struct gguf *gguf_alloc(struct pv_error *err)
{
    struct gguf *g = mem_zalloc(sizeof *g);

    if (g) {
        g->part = mem_alloc(sizeof *g->part);
        if (g->part) {
            g->part[0] = (struct gguf_part){ 0 };
            g->n_parts = 1;
            return g;
        }
    }
    mem_free(g);
    fail_nomem(err, sizeof *g);
    return NULL;
}

enum pv_status gguf_open(struct gguf **out, const char *path, uint64_t limit, struct pv_error *err)
{
    struct gguf *g = gguf_alloc(err);
    enum pv_status s;

    if (!g)
        return PV_E_NOMEM;
    s = open_part(&g->part[0], path, limit, err);
    if (!s)
        s = open_rest(g, limit, err);
    if (!s)
        s = join_tensors(g, err);
    if (s)
        gguf_close(&g);
    else
        *out = g;
    return s;
}

enum pv_status gguf_open_memory(struct gguf **out, const void *data, size_t size, const char *name,
                                struct pv_error *err)
{
    struct gguf *g = gguf_alloc(err);
    enum pv_status s;

    if (!g)
        return PV_E_NOMEM;
    g->part[0].data = data;
    g->part[0].size = size;
    g->part[0].path = mem_strdup(name);
    s = g->part[0].path ? gguf_part_parse(&g->part[0], err) : fail_nomem(err, strlen(name));
    if (!s)
        s = join_tensors(g, err);
    if (s)
        gguf_close(&g);
    else
        *out = g;
    return s;
}

void gguf_close(struct gguf **g)
{
    struct gguf *old = *g;

    *g = NULL;
    if (!old)
        return;
    for (int i = 0; i < old->n_parts; i++)
        gguf_part_close(&old->part[i]);
    names_close(&old->names);
    mem_free(old->part);
    mem_free(old->tensor);
    mem_free(old);
}

const char *gguf_path(const struct gguf *g)
{
    return g->part[0].path;
}

int gguf_n_files(const struct gguf *g)
{
    return g->n_parts;
}

const struct file_stamp *gguf_stamp(const struct gguf *g, int i)
{
    return &g->part[i].map.stamp;
}

const struct file_map *gguf_map(const struct gguf *g, int i, const char **path)
{
    *path = g->part[i].path;
    return &g->part[i].map;
}

int gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct tensor *gguf_tensor(const struct gguf *g, int i)
{
    return &g->tensor[i];
}

const struct tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    int i = names_find(&g->names, name, strlen(name));
    return i < 0 ? NULL : &g->tensor[i];
}

int gguf_n_values(const struct gguf *g)
{
    return g->part[0].n_values;
}

const struct gguf_value *gguf_value(const struct gguf *g, int i)
{
    return &g->part[0].value[i];
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
    return gguf_part_find(&g->part[0], key);
}

static enum pv_status need_value(const struct gguf *g, const char *key,
                                 const struct gguf_value **out, struct pv_error *err)
{
    *out = gguf_find(g, key);
    if (!*out)
        return fail(err, PV_E_FORMAT, "%s: the metadata key %s is missing", gguf_path(g), key);
    return PV_OK;
}

enum pv_status gguf_int(const struct gguf *g, const char *key, int64_t min, int64_t max,
                        int64_t *out, struct pv_error *err)
{
    const struct gguf_value *v;
    int64_t value;
    enum pv_status s = need_value(g, key, &v, err);

    if (s)
        return s;
    if (!gguf_load_int(v->data, v->kind, &value))
        return fail(err, PV_E_FORMAT, "%s: %s is not an integer", gguf_path(g), key);
    if (value < min || value > max)
        return fail(err, PV_E_FORMAT, "%s: %s is %lld, outside %lld to %lld", gguf_path(g), key,
                    (long long)value, (long long)min, (long long)max);
    *out = value;
    return PV_OK;
}

/* A number of kind f32 or f64; NaN for any other kind. */
static double load_float(const uint8_t *p, enum gguf_kind kind)
{
    double value = NAN;
    float single;

    if (kind == GGUF_F32) {
        memcpy(&single, p, sizeof single);
        value = (double)single;
    } else if (kind == GGUF_F64) {
        memcpy(&value, p, sizeof value);
    }
    return value;
}

enum pv_status gguf_float(const struct gguf *g, const char *key, double *out, struct pv_error *err)
{
    const struct gguf_value *v;
    double value;
    enum pv_status s = need_value(g, key, &v, err);

    if (s)
        return s;
    if (v->kind != GGUF_F32 && v->kind != GGUF_F64)
        return fail(err, PV_E_FORMAT, "%s: %s is not a floating-point number", gguf_path(g), key);
    value = load_float(v->data, v->kind);
    if (!isfinite(value))
        return fail(err, PV_E_FORMAT, "%s: %s is not finite", gguf_path(g), key);
    *out = value;
    return PV_OK;
}

/* An array of exactly n elements. */
static enum pv_status need_array(const struct gguf *g, const char *key, int n,
                                 const struct gguf_value **out, struct pv_error *err)
{
    enum pv_status s = need_value(g, key, out, err);

    if (!s && ((*out)->kind != GGUF_ARRAY || (*out)->n != (uint64_t)n))
        s = fail(err, PV_E_FORMAT, "%s: %s is not an array of %d numbers", gguf_path(g), key, n);
    return s;
}

enum pv_status gguf_floats(const struct gguf *g, const char *key, float *out, int n,
                           struct pv_error *err)
{
    const struct gguf_value *v;
    enum pv_status s = need_array(g, key, n, &v, err);

    if (s)
        return s;
    for (int i = 0; i < n; i++) {
        double value = load_float(v->data + (size_t)i * gguf_kind_size(v->elem), v->elem);
        if (!isfinite(value) || fabs(value) > FLT_MAX)
            return fail(err, PV_E_FORMAT,
                        "%s: element %d of %s is not a finite floating-point number", gguf_path(g),
                        i, key);
        out[i] = (float)value;
    }
    return PV_OK;
}

enum pv_status gguf_string(const struct gguf *g, const char *key, struct str *out,
                           struct pv_error *err)
{
    const struct gguf_value *v;
    enum pv_status s = need_value(g, key, &v, err);

    if (s)
        return s;
    if (v->kind != GGUF_STRING)
        return fail(err, PV_E_FORMAT, "%s: %s is not a string", gguf_path(g), key);
    *out = (struct str){ (const char *)v->data, (uint32_t)v->size };
    return PV_OK;
}

enum pv_status gguf_ints(const struct gguf *g, const char *key, int32_t *out, int n,
                         struct pv_error *err)
{
    const struct gguf_value *v;
    enum pv_status s = need_array(g, key, n, &v, err);

    if (s)
        return s;
    for (int i = 0; i < n; i++) {
        int64_t value;
        if (!gguf_load_int(v->data + (size_t)i * gguf_kind_size(v->elem), v->elem, &value) ||
            value < INT32_MIN || value > INT32_MAX)
            return fail(err, PV_E_FORMAT, "%s: element %d of %s is not a 32-bit integer",
                        gguf_path(g), i, key);
        out[i] = (int32_t)value;
    }
    return PV_OK;
}

enum pv_status gguf_strings(const struct gguf *g, const char *key, int max, struct str **out,
                            int *n, struct pv_error *err)
{
    const struct gguf_value *v;
    const uint8_t *p;
    struct str *list;
    enum pv_status s = need_value(g, key, &v, err);

    if (s)
        return s;
    if (v->kind != GGUF_ARRAY || v->elem != GGUF_STRING)
        return fail(err, PV_E_FORMAT, "%s: %s is not an array of strings", gguf_path(g), key);
    if (v->n > (uint64_t)max)
        return fail(err, PV_E_FORMAT, "%s: %s has %llu strings, where %d is the most allowed",
                    gguf_path(g), key, (unsigned long long)v->n, max);
    list = mem_alloc((size_t)v->n * sizeof *list);
    if (!list)
        return fail_nomem(err, (size_t)v->n * sizeof *list);
    p = v->data;
    for (uint64_t i = 0; i < v->n; i++) { /* lengths were checked by the parser */
        uint64_t len = load_le64(p);
        list[i] = (struct str){ (const char *)p + 8, (uint32_t)len };
        p += 8 + len;
    }
    *out = list;
    *n = (int)v->n;
    return PV_OK;
}
