/* The weights of a Hugging Face directory. A shard is a length, a JSON header and the data; the
 * header's entries must tile the data exactly, which rules out overlaps, holes and tensors
 * outside the file at once. Checked besides: the header's length against the file, names (UTF-8
 * by jansson, no control characters since they appear in messages, unique), shapes without
 * overflow and their product against the bytes. Unknown members of an entry are ignored.
 *
 * With an index, the index decides: its tensors, each in the shard it names; what else a shard
 * holds is left out. Shard names must be plain file names, so that a downloaded index cannot make
 * us open files elsewhere. */
#include "format/safetensors_hf.h"

#include "base/file.h"
#include "base/load.h"
#include "base/mem.h"
#include "format/json_hf.h"
#include "format/names.h"

#include <stdlib.h>
#include <string.h>

enum { INDEX_MAX_FILE = 64 << 20 };

struct entry {
    struct tensor tensor;
    bool known;    /* a dtype of ours; the others are only checked */
    int int_bytes; /* of an element of I32 or I64; 0: of another type */
    uint64_t begin, end;
};

struct shard {
    char *path;          /* owned; for messages */
    struct file_map map; /* owned; empty when the data is borrowed */
    struct entry *entry; /* owned */
    int n_entries;
    char *name_text; /* owned; the names, one after the other */
    struct names names;
};

struct safetensors {
    struct shard *shard; /* owned */
    int n_shards;
    struct tensor *tensor; /* owned */
    int n_tensors;
    struct names names;
};

struct element_type {
    const char *name;
    int bits;
    int dtype; /* enum dtype, or -1: not one of ours */
};

static const struct element_type element_types[] = {
    { "F32", 32, DTYPE_F32 }, { "F16", 16, DTYPE_F16 }, { "BF16", 16, DTYPE_BF16 },
    { "BOOL", 8, -1 },        { "U8", 8, -1 },          { "I8", 8, -1 },
    { "F8_E5M2", 8, -1 },     { "F8_E4M3", 8, -1 },     { "F8_E8M0", 8, -1 },
    { "F8_E4M3FNUZ", 8, -1 }, { "F8_E5M2FNUZ", 8, -1 }, { "F6_E2M3", 6, -1 },
    { "F6_E3M2", 6, -1 },     { "F4", 4, -1 },          { "I16", 16, -1 },
    { "U16", 16, -1 },        { "I32", 32, -1 },        { "U32", 32, -1 },
    { "F64", 64, -1 },        { "I64", 64, -1 },        { "U64", 64, -1 },
    { "C64", 64, -1 },
};

static const struct element_type *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof element_types / sizeof *element_types; i++)
        if (!strcmp(name, element_types[i].name))
            return &element_types[i];
    return NULL;
}

/* Legal everywhere UTF-8 is, but not able to upset a terminal. */
static bool name_is_printable(const char *s)
{
    size_t len = 0;

    for (; s[len]; len++)
        if ((uint8_t)s[len] < ' ' || s[len] == 0x7f)
            return false;
    return len > 0 && len <= SAFETENSORS_MAX_NAME;
}

static bool load_count(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static enum pv_status parse_shape(struct entry *e, const json_t *shape, uint64_t *count,
                                  const struct shard *sh, struct pv_error *err)
{
    struct tensor *t = &e->tensor;
    size_t rank = json_array_size(shape);

    if (!json_is_array(shape) || rank > TENSOR_DIMS)
        return fail(err, PV_E_FORMAT, "%s: the shape of %s is not a list of at most %d numbers",
                    sh->path, t->name, TENSOR_DIMS);
    for (int i = 0; i < TENSOR_DIMS; i++)
        t->dim[i] = 1;
    t->n_dims = rank ? (int)rank : 1; /* a scalar is one element */
    *count = 1;
    for (size_t i = 0; i < rank; i++) {
        uint64_t dim = 0;
        if (!load_count(json_array_get(shape, i), &dim))
            return fail(err, PV_E_FORMAT,
                        "%s: the shape of %s has an element that is not a whole number", sh->path,
                        t->name);
        if (__builtin_mul_overflow(*count, dim, count))
            return fail(err, PV_E_FORMAT, "%s: the shape of %s is larger than any file", sh->path,
                        t->name);
        t->dim[i] = (int64_t)dim;
    }
    return PV_OK;
}

/* One member of the header; e->tensor.name is set. */
static enum pv_status parse_entry(struct entry *e, const json_t *obj, const struct shard *sh,
                                  struct pv_error *err)
{
    const char *type_name = json_string_value(json_object_get(obj, "dtype"));
    const json_t *offsets = json_object_get(obj, "data_offsets");
    const struct element_type *type = type_name ? find_type(type_name) : NULL;
    const char *name = e->tensor.name;
    uint64_t count = 0, bits;
    enum pv_status s;

    if (!type_name)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s has no dtype", sh->path, name);
    if (!type)
        return fail(err, PV_E_UNSUPPORTED, "%s: the tensor %s has a dtype that is not known",
                    sh->path, name);
    s = parse_shape(e, json_object_get(obj, "shape"), &count, sh, err);
    if (s)
        return s;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !load_count(json_array_get(offsets, 0), &e->begin) ||
        !load_count(json_array_get(offsets, 1), &e->end) || e->begin > e->end)
        return fail(err, PV_E_FORMAT, "%s: the data_offsets of %s are not two rising numbers",
                    sh->path, name);
    if (__builtin_mul_overflow(count, (uint64_t)type->bits, &bits) || bits % 8 ||
        bits / 8 != e->end - e->begin)
        return fail(err, PV_E_FORMAT,
                    "%s: the tensor %s has %llu bytes, which is not what its shape and dtype need",
                    sh->path, name, (unsigned long long)(e->end - e->begin));
    e->known = type->dtype >= 0;
    e->int_bytes = !strcmp(type_name, "I64") ? 8 : !strcmp(type_name, "I32") ? 4 : 0;
    e->tensor.dtype = e->known ? (enum dtype)type->dtype : DTYPE_F32;
    return PV_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end); /* an empty tensor before its neighbour */
}

static enum pv_status fail_truncated(const struct shard *sh, const char *what, uint64_t need,
                                     uint64_t size, struct pv_error *err)
{
    return fail(
        err, PV_E_FORMAT,
        "%s: the file is truncated: it announces %llu bytes of %s, and %llu are there; download it "
        "again",
        sh->path, (unsigned long long)need, what, (unsigned long long)size);
}

/* The entries must tile data[0..size) in some order. Sets the tensors' data. */
static enum pv_status place_entries(struct shard *sh, const uint8_t *data, uint64_t size,
                                    struct pv_error *err)
{
    size_t list_size = (size_t)sh->n_entries * sizeof(struct entry *);
    struct entry **list = mem_alloc(list_size);
    uint64_t end = 0;
    enum pv_status s = PV_OK;

    if (!list)
        return fail_nomem(err, list_size);
    for (int i = 0; i < sh->n_entries; i++)
        list[i] = &sh->entry[i];
    if (sh->n_entries > 1)
        qsort(list, (size_t)sh->n_entries, sizeof *list, compare_entries);
    for (int i = 0; i < sh->n_entries && !s; i++) {
        struct entry *e = list[i];
        if (e->begin == end && e->end > size)
            s = fail_truncated(sh, "tensors", list[sh->n_entries - 1]->end, size, err);
        else if (e->begin != end)
            s = fail(err, PV_E_FORMAT,
                     "%s: the tensor %s is at %llu to %llu, where %llu of %llu bytes come next",
                     sh->path, e->tensor.name, (unsigned long long)e->begin,
                     (unsigned long long)e->end, (unsigned long long)end, (unsigned long long)size);
        end = e->end;
        e->tensor.data = data + (s ? 0 : e->begin);
        e->tensor.size = (size_t)(e->end - e->begin);
    }
    if (!s && end != size)
        s = fail(err, PV_E_FORMAT, "%s: the tensors have %llu bytes, the data %llu", sh->path,
                 (unsigned long long)end, (unsigned long long)size);
    mem_free(list);
    return s;
}

/* Memory for the entries of the header and copies of their names. */
static enum pv_status alloc_entries(struct shard *sh, json_t *header, struct pv_error *err)
{
    size_t n = json_object_size(header), name_size = 0;
    const char *name;
    json_t *value;

    if (n > SAFETENSORS_MAX_TENSORS)
        return fail(err, PV_E_FORMAT, "%s: %zu tensors, where %d is the most allowed", sh->path, n,
                    SAFETENSORS_MAX_TENSORS);
    json_object_foreach(header, name, value)
    {
        if (!name_is_printable(name))
            return fail(
                err, PV_E_FORMAT,
                "%s: a tensor name is empty, longer than %d bytes or has control characters",
                sh->path, SAFETENSORS_MAX_NAME);
        name_size += strlen(name) + 1; /* no overflow: bounded by the header */
    }
    sh->entry = mem_zalloc(n * sizeof *sh->entry);
    sh->name_text = mem_alloc(name_size);
    if (!sh->entry || !sh->name_text)
        return fail_nomem(err, n * sizeof *sh->entry + name_size);
    return PV_OK;
}

static enum pv_status parse_header(struct shard *sh, json_t *header, struct pv_error *err)
{
    const char *name;
    char *text;
    json_t *value;
    enum pv_status s = alloc_entries(sh, header, err);

    text = sh->name_text;
    if (s)
        return s;
    json_object_foreach(header, name, value)
    {
        size_t size = strlen(name) + 1;
        if (!strcmp(name, "__metadata__"))
            continue;
        if (!json_is_object(value))
            return fail(err, PV_E_FORMAT, "%s: the entry of %s is not an object", sh->path, name);
        memcpy(text, name, size);
        sh->entry[sh->n_entries].tensor.name = text;
        text += size;
        s = parse_entry(&sh->entry[sh->n_entries], value, sh, err);
        if (s)
            return s;
        sh->n_entries++;
    }
    s = names_open(&sh->names, sh->n_entries, err);
    if (s)
        return s;
    for (int i = 0; i < sh->n_entries; i++) {
        const char *entry_name = sh->entry[i].tensor.name;
        struct str str = { entry_name, (uint32_t)strlen(entry_name) };
        sh->names.entry[i] = (struct name_entry){ str, i };
    }
    names_sort(&sh->names); /* the JSON parser refused duplicates */
    return PV_OK;
}

static enum pv_status parse_shard(struct shard *sh, const uint8_t *data, size_t size,
                                  struct pv_error *err)
{
    uint64_t header_len = size < 8 ? 0 : load_le64(data);
    json_t *header = NULL;
    enum pv_status s;

    if (size >= 8 && header_len <= SAFETENSORS_MAX_HEADER && header_len > size - 8)
        return fail_truncated(sh, "header", header_len, size - 8, err);
    if (size < 8 || header_len < 2 || header_len > size - 8 || header_len > SAFETENSORS_MAX_HEADER)
        return fail(err, PV_E_FORMAT, "%s: a header of %llu bytes in a file of %zu", sh->path,
                    (unsigned long long)header_len, size);
    if (data[8] != '{')
        return fail(err, PV_E_FORMAT, "%s: the header does not begin with \"{\"", sh->path);
    s = json_hf_parse(&header, (const char *)data + 8, (size_t)header_len, sh->path, err);
    if (!s)
        s = parse_header(sh, header, err);
    if (!s)
        s = place_entries(sh, data + 8 + header_len, size - 8 - header_len, err);
    json_decref(header);
    return s;
}

static void shard_close(struct shard *sh)
{
    file_map_close(&sh->map);
    names_close(&sh->names);
    mem_free(sh->path);
    mem_free(sh->entry);
    mem_free(sh->name_text);
    *sh = (struct shard){ 0 };
}

static enum pv_status shard_open(struct shard *sh, const char *dir, const char *name,
                                 uint64_t limit, struct pv_error *err)
{
    enum pv_status s;

    sh->path = path_join(dir, name);
    if (!sh->path)
        return fail_nomem(err, strlen(dir) + strlen(name) + 2);
    s = file_map_open(&sh->map, sh->path, limit, err);
    if (!s)
        s = parse_shard(sh, sh->map.data, sh->map.size, err);
    return s;
}

static void add_tensor(struct safetensors *st, const struct tensor *t)
{
    struct str name = { t->name, (uint32_t)strlen(t->name) };

    st->names.entry[st->n_tensors] = (struct name_entry){ name, st->n_tensors };
    st->tensor[st->n_tensors++] = *t;
}

static enum pv_status alloc_tensors(struct safetensors *st, size_t cap, struct pv_error *err)
{
    st->tensor = mem_alloc(cap * sizeof *st->tensor);
    if (!st->tensor)
        return fail_nomem(err, cap * sizeof *st->tensor);
    return names_open(&st->names, (int)cap, err);
}

static void sort_tensors(struct safetensors *st)
{
    st->names.n = st->n_tensors; /* fewer than allocated where some were left out */
    names_sort(&st->names);
}

/* All tensors of the only shard. */
static enum pv_status list_all(struct safetensors *st, struct pv_error *err)
{
    const struct shard *sh = &st->shard[0];
    enum pv_status s = alloc_tensors(st, (size_t)sh->n_entries, err);

    if (s)
        return s;
    for (int i = 0; i < sh->n_entries; i++)
        if (sh->entry[i].known)
            add_tensor(st, &sh->entry[i].tensor);
    sort_tensors(st);
    return PV_OK;
}

static bool shard_name_is_plain(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t len = strlen(name), suffix_len = sizeof suffix - 1;

    return len > suffix_len && len < 256 && name[0] != '.' && !strchr(name, '/') &&
           !strchr(name, '\\') && name_is_printable(name) &&
           !strcmp(name + len - suffix_len, suffix);
}

/* The shard names of the index, sorted, each once; the names borrow from `map`. */
static enum pv_status list_shards(struct names *list, json_t *map, const char *path,
                                  struct pv_error *err)
{
    const char *tensor;
    json_t *value;
    int n = 0, unique = 0;
    enum pv_status s = names_open(list, (int)json_object_size(map), err);

    if (s)
        return s;
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (!name || !shard_name_is_plain(name))
            return fail(err, PV_E_FORMAT, "%s: a shard is not named by a plain file name", path);
        list->entry[n++].name = (struct str){ name, (uint32_t)strlen(name) };
    }
    names_sort(list);
    for (int i = 0; i < n; i++)
        if (i == 0 || strcmp(list->entry[i].name.s, list->entry[i - 1].name.s))
            list->entry[unique++].name = list->entry[i].name;
    list->n = unique;
    for (int i = 0; i < unique; i++)
        list->entry[i].index = i;
    if (unique == 0 || unique > SAFETENSORS_MAX_SHARDS)
        return fail(err, PV_E_FORMAT, "%s: %d shards, where 1 to %d are allowed", path, unique,
                    SAFETENSORS_MAX_SHARDS);
    return PV_OK;
}

/* The tensors of the index, each from its shard. */
static enum pv_status list_indexed(struct safetensors *st, const struct names *shards, json_t *map,
                                   const char *path, struct pv_error *err)
{
    const char *name;
    json_t *value;
    enum pv_status s = alloc_tensors(st, json_object_size(map), err);

    if (s)
        return s;
    json_object_foreach(map, name, value)
    {
        const char *file = json_string_value(value);
        const struct shard *sh = &st->shard[names_find(shards, file, strlen(file))];
        int i = names_find(&sh->names, name, strlen(name));
        if (i < 0)
            return fail(err, PV_E_FORMAT, "%s: a tensor that belongs to %s is not there%s%.200s",
                        path, sh->path, name_is_printable(name) ? ": " : "",
                        name_is_printable(name) ? name : "");
        if (sh->entry[i].known)
            add_tensor(st, &sh->entry[i].tensor);
    }
    sort_tensors(st);
    return PV_OK;
}

static enum pv_status open_index(struct safetensors *st, const char *dir, const char *path,
                                 uint64_t limit, struct pv_error *err)
{
    struct names shards = { 0 };
    json_t *root = NULL, *map;
    enum pv_status s = json_hf_open(&root, path, INDEX_MAX_FILE, err);

    if (s)
        return s;
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) > SAFETENSORS_MAX_TENSORS)
        s = fail(err, PV_E_FORMAT, "%s: weight_map is not an object of at most %d members", path,
                 SAFETENSORS_MAX_TENSORS);
    if (!s)
        s = list_shards(&shards, map, path, err);
    if (!s) {
        st->shard = mem_zalloc((size_t)shards.n * sizeof *st->shard);
        s = st->shard ? PV_OK : fail_nomem(err, (size_t)shards.n * sizeof *st->shard);
    }
    for (int i = 0; i < shards.n && !s; i++) {
        st->n_shards++; /* closed with the others, also when it fails */
        s = shard_open(&st->shard[i], dir, shards.entry[i].name.s, limit, err);
    }
    if (!s)
        s = list_indexed(st, &shards, map, path, err);
    names_close(&shards);
    json_decref(root);
    return s;
}

/* A handle with room for one shard. */
static struct safetensors *alloc_single(struct pv_error *err)
{
    struct safetensors *st = mem_zalloc(sizeof *st);

    if (st)
        st->shard = mem_zalloc(sizeof *st->shard);
    if (st && st->shard) {
        st->n_shards = 1;
        return st;
    }
    mem_free(st);
    fail_nomem(err, sizeof *st);
    return NULL;
}

enum pv_status safetensors_open_named(struct safetensors **out, const char *dir, const char *file,
                                      uint64_t limit, struct pv_error *err)
{
    struct safetensors *st = alloc_single(err);
    enum pv_status s;

    if (!st)
        return PV_E_NOMEM;
    s = shard_open(&st->shard[0], dir, file, limit, err);
    if (!s)
        s = list_all(st, err);
    if (s)
        safetensors_close(&st);
    else
        *out = st;
    return s;
}

static enum pv_status open_dir(struct safetensors **out, const char *dir, const char *single,
                               const char *index, uint64_t limit, struct pv_error *err)
{
    struct safetensors *st;
    enum pv_status s;

    if (file_exists(single) || !file_exists(index)) /* the order of the reference */
        return safetensors_open_named(out, dir, "model.safetensors", limit, err);
    st = mem_zalloc(sizeof *st);
    if (!st)
        return fail_nomem(err, sizeof *st);
    s = open_index(st, dir, index, limit, err);
    if (s)
        safetensors_close(&st);
    else
        *out = st;
    return s;
}

enum pv_status safetensors_open(struct safetensors **out, const char *dir, uint64_t limit,
                                struct pv_error *err)
{
    char *single = path_join(dir, "model.safetensors");
    char *index = path_join(dir, "model.safetensors.index.json");
    enum pv_status s;

    if (single && index)
        s = open_dir(out, dir, single, index, limit, err);
    else
        s = fail_nomem(err, strlen(dir) + sizeof "/model.safetensors.index.json");
    mem_free(single);
    mem_free(index);
    return s;
}

enum pv_status safetensors_open_memory(struct safetensors **out, const void *data, size_t size,
                                       const char *name, struct pv_error *err)
{
    struct safetensors *st = alloc_single(err);
    enum pv_status s;

    if (!st)
        return PV_E_NOMEM;
    st->shard[0].path = mem_strdup(name);
    if (st->shard[0].path)
        s = parse_shard(&st->shard[0], data, size, err);
    else
        s = fail_nomem(err, strlen(name) + 1);
    if (!s)
        s = list_all(st, err);
    if (s)
        safetensors_close(&st);
    else
        *out = st;
    return s;
}

void safetensors_close(struct safetensors **st)
{
    struct safetensors *old = *st;

    *st = NULL;
    if (!old)
        return;
    for (int i = 0; i < old->n_shards; i++)
        shard_close(&old->shard[i]);
    names_close(&old->names);
    mem_free(old->shard);
    mem_free(old->tensor);
    mem_free(old);
}

int safetensors_n_files(const struct safetensors *st)
{
    return st->n_shards;
}

const struct file_stamp *safetensors_stamp(const struct safetensors *st, int i)
{
    return &st->shard[i].map.stamp;
}

const struct file_map *safetensors_map(const struct safetensors *st, int i, const char **path)
{
    *path = st->shard[i].path;
    return &st->shard[i].map;
}

int safetensors_n_tensors(const struct safetensors *st)
{
    return st->n_tensors;
}

const struct tensor *safetensors_tensor(const struct safetensors *st, int i)
{
    return &st->tensor[i];
}

const struct tensor *safetensors_find(const struct safetensors *st, const char *name)
{
    int i = names_find(&st->names, name, strlen(name));
    return i < 0 ? NULL : &st->tensor[i];
}

static const struct entry *find_entry(const struct safetensors *st, const char *name,
                                      const struct shard **in)
{
    for (int k = 0; k < st->n_shards; k++) {
        int i = names_find(&st->shard[k].names, name, strlen(name));
        *in = &st->shard[k];
        if (i >= 0)
            return &st->shard[k].entry[i];
    }
    return NULL;
}

enum pv_status safetensors_ints(const struct safetensors *st, const char *name, int64_t **out,
                                int *n, struct pv_error *err)
{
    const struct shard *sh;
    const struct entry *e = find_entry(st, name, &sh);
    const uint8_t *data;
    size_t count;

    *out = NULL;
    *n = 0;
    if (!e)
        return PV_OK;
    if (e->int_bytes == 0 || e->tensor.n_dims != 1 || e->tensor.dim[0] > INT32_MAX)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s is not a list of I32 or I64", sh->path,
                    name);
    count = (size_t)e->tensor.dim[0];
    data = e->tensor.data;
    *out = mem_alloc(count * sizeof **out);
    if (!*out)
        return fail_nomem(err, count * sizeof **out);
    for (size_t i = 0; i < count; i++)
        (*out)[i] = e->int_bytes == 8 ? (int64_t)load_le64(data + 8 * i)
                                      : (int64_t)(int32_t)load_le32(data + 4 * i);
    *n = (int)count;
    return PV_OK;
}
