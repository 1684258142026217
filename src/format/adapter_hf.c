/* Reading adapters: adapter_config.json and adapter_model.safetensors, as the PEFT library writes
 * them. A name in the file is "base_model.model.", the model's own name of the module, and then
 * "lora_A.weight", "lora_B.weight" or that of a tensor trained whole, which older versions keep
 * under "modules_to_save.default." in the module.
 *
 * What would change the sum (other kinds of adapters, ranks by pattern, trained biases) is
 * refused by its name: a model that is merged wrongly still answers. */
#include "format/adapter_hf.h"

#include "base/mem.h"
#include "format/json_hf.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX_FILE = 16 << 20, MAX_RANK = 1 << 14 };

static const char prefix[] = "base_model.model.";
static const char part_a[] = ".lora_A.weight", part_b[] = ".lora_B.weight";
static const char saved[] = ".modules_to_save.";

/* One change: of the model's tensor `name`. */
struct change {
    char *name;                   /* owned */
    const struct tensor *a, *b;   /* both, or */
    const struct tensor *instead; /* this */
};

struct adapter {
    char *path; /* owned */
    struct safetensors *st;
    struct change *change; /* owned; [n] */
    int n;
    int rank;
    float scale;
};

static bool ends(const char *s, const char *tail)
{
    size_t len = strlen(s), n = strlen(tail);
    return len >= n && !strcmp(s + len - n, tail);
}

/* ---- configuration ---- */

/* A member that, if it is there, must be false, empty or this word. */
static enum pv_status refuse_other(const json_t *root, const char *key, const char *word,
                                   const char *name, struct pv_error *err)
{
    const json_t *v = json_hf_member(root, key);
    bool fine = !v || json_is_false(v) || (json_is_object(v) && json_object_size(v) == 0) ||
                (json_is_array(v) && json_array_size(v) == 0);

    if (!fine && word && !strcmp(json_hf_text(root, key), word))
        fine = true;
    if (!fine)
        return fail(err, PV_E_UNSUPPORTED, "%s: adapters with %s are not supported", name, key);
    return PV_OK;
}

static enum pv_status read_config(struct adapter *a, const json_t *root, const char *name,
                                  struct pv_error *err)
{
    static const char *const others[][2] = {
        { "use_dora", NULL },
        { "fan_in_fan_out", NULL },
        { "rank_pattern", NULL },
        { "alpha_pattern", NULL },
        { "bias", "none" },
        { "lora_bias", NULL },
        { "layer_replication", NULL },
        { "target_parameters", NULL },
        { "use_qalora", NULL },
    };
    const char *type = json_hf_text(root, "peft_type");
    double alpha = 0;
    int64_t rank = 0;
    enum pv_status s = PV_OK;

    if (strcmp(type, "LORA") != 0)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: peft_type is \"%.40s\", where \"LORA\" was expected", name, type);
    for (size_t i = 0; i < sizeof others / sizeof *others && !s; i++)
        s = refuse_other(root, others[i][0], others[i][1], name, err);
    if (!s)
        s = json_hf_int(root, "r", 1, MAX_RANK, &rank, name, err);
    if (!s)
        s = json_hf_float(root, "lora_alpha", &alpha, name, err);
    if (s)
        return s;
    a->rank = (int)rank;
    a->scale =
        (float)(alpha / (json_is_true(json_hf_member(root, "use_rslora")) ? sqrt((double)rank)
                                                                          : (double)rank));
    return PV_OK;
}

static enum pv_status open_config(struct adapter *a, struct pv_error *err)
{
    char *path = path_join(a->path, "adapter_config.json");
    json_t *root = NULL;
    enum pv_status s;

    if (!path)
        return fail_nomem(err, strlen(a->path) + sizeof "/adapter_config.json");
    s = json_hf_open(&root, path, CONFIG_MAX_FILE, err);
    if (!s)
        s = read_config(a, root, path, err);
    json_decref(root);
    mem_free(path);
    return s;
}

/* ---- tensors ---- */

static struct change *find_change(const struct adapter *a, const char *name)
{
    for (int i = 0; i < a->n; i++)
        if (!strcmp(a->change[i].name, name))
            return &a->change[i];
    return NULL;
}

/* The model's name of what a tensor of the adapter changes, in fresh memory. */
static char *target_name(const char *name)
{
    const char *own = name + strlen(prefix), *infix;
    char *out = mem_alloc(strlen(own) + sizeof ".weight");

    if (!out)
        return NULL;
    memcpy(out, own, strlen(own) + 1);
    if (ends(out, part_a) || ends(out, part_b))
        memcpy(out + strlen(out) - strlen(part_a), ".weight", sizeof ".weight");
    infix = strstr(own, saved);
    if (infix) { /* and the adapter's own name after it */
        const char *rest = strchr(infix + strlen(saved), '.');
        out[infix - own] = 0;
        if (rest)
            memcpy(out + (infix - own), rest, strlen(rest) + 1);
    }
    return out;
}

/* Enters one tensor of the file. */
static enum pv_status add_tensor(struct adapter *a, const struct tensor *t, struct pv_error *err)
{
    struct change *c;
    char *name;

    if (strncmp(t->name, prefix, strlen(prefix)) != 0)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s does not begin with %s", a->path, t->name,
                    prefix);
    if (strstr(t->name, "lora_") && !ends(t->name, part_a) && !ends(t->name, part_b))
        return fail(err, PV_E_UNSUPPORTED, "%s: the tensor %s is of a kind that is not supported",
                    a->path, t->name);
    name = target_name(t->name);
    if (!name)
        return fail_nomem(err, strlen(t->name));
    c = find_change(a, name);
    if (c) {
        mem_free(name);
    } else {
        c = &a->change[a->n++];
        c->name = name;
    }
    if (ends(t->name, part_a))
        c->a = t;
    else if (ends(t->name, part_b))
        c->b = t;
    else
        c->instead = t;
    return PV_OK;
}

static bool is_plain(const struct tensor *t)
{
    return t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_BF16;
}

/* Each change is whole, and of a tensor of the model that has its shape. */
static enum pv_status check_change(const struct adapter *a, const struct change *c,
                                   const struct safetensors *base, struct pv_error *err)
{
    const struct tensor *t = safetensors_find(base, c->name);
    bool same;

    if (!t)
        return fail(err, PV_E_FORMAT, "%s: changes %s, which the model does not have", a->path,
                    c->name);
    if (c->instead) {
        same = !c->a && !c->b && t->n_dims == c->instead->n_dims &&
               !memcmp(t->dim, c->instead->dim, sizeof t->dim);
        return same ? PV_OK
                    : fail(err, PV_E_FORMAT,
                           "%s: the replacement of %s has another shape, or has a LoRA "
                           "update as well",
                           a->path, c->name);
    }
    if (!c->a || !c->b)
        return fail(err, PV_E_FORMAT, "%s: the LoRA update of %s lacks %s", a->path, c->name,
                    c->a ? "lora_B" : "lora_A");
    same = t->n_dims == 2 && c->a->n_dims == 2 && c->b->n_dims == 2 && is_plain(c->a) &&
           is_plain(c->b) && c->a->dim[0] == a->rank && c->b->dim[1] == a->rank &&
           c->a->dim[1] == t->dim[1] && c->b->dim[0] == t->dim[0];
    if (!same)
        return fail(err, PV_E_FORMAT,
                    "%s: %lld x %lld times %lld x %lld of rank %d cannot be added to %s", a->path,
                    (long long)c->b->dim[0], (long long)c->b->dim[1], (long long)c->a->dim[0],
                    (long long)c->a->dim[1], a->rank, c->name);
    return PV_OK;
}

static enum pv_status open_tensors(struct adapter *a, const struct safetensors *base,
                                   uint64_t limit, struct pv_error *err)
{
    enum pv_status s =
        safetensors_open_named(&a->st, a->path, "adapter_model.safetensors", limit, err);
    size_t n, size;

    if (s)
        return s;
    n = (size_t)safetensors_n_tensors(a->st);
    if (n == 0)
        return fail(err, PV_E_FORMAT, "%s: the adapter has no tensors", a->path);
    size = n * sizeof *a->change;
    a->change = mem_zalloc(size);
    if (!a->change)
        return fail_nomem(err, size);
    for (size_t i = 0; i < n && !s; i++)
        s = add_tensor(a, safetensors_tensor(a->st, (int)i), err);
    for (int i = 0; i < a->n && !s; i++)
        s = check_change(a, &a->change[i], base, err);
    return s;
}

enum pv_status adapter_open(struct adapter **out, const char *dir, const struct safetensors *base,
                            uint64_t limit, struct pv_error *err)
{
    struct adapter *a = mem_zalloc(sizeof *a);
    enum pv_status s;

    if (!a)
        return fail_nomem(err, sizeof *a);
    a->path = mem_strdup(dir);
    s = a->path ? open_config(a, err) : fail_nomem(err, strlen(dir) + 1);
    if (!s)
        s = open_tensors(a, base, limit, err);
    if (s)
        adapter_close(&a);
    else
        *out = a;
    return s;
}

void adapter_close(struct adapter **a)
{
    struct adapter *old = *a;
    *a = NULL;
    if (!old)
        return;
    for (int i = 0; i < old->n; i++)
        mem_free(old->change[i].name);
    mem_free(old->change);
    safetensors_close(&old->st);
    mem_free(old->path);
    mem_free(old);
}

const char *adapter_path(const struct adapter *a)
{
    return a->path;
}

const struct tensor *adapter_replaces(const struct adapter *a, const char *name)
{
    const struct change *c = a ? find_change(a, name) : NULL;
    return c ? c->instead : NULL;
}

bool adapter_adds(const struct adapter *a, const char *name, struct lora *out)
{
    const struct change *c = a ? find_change(a, name) : NULL;
    if (!c || !c->a)
        return false;
    *out = (struct lora){ .a = c->a, .b = c->b, .scale = a->scale };
    return true;
}

const char *adapter_target(const struct adapter *a, int i)
{
    for (int k = 0; k < a->n; k++)
        if (a->change[k].a && i-- == 0)
            return a->change[k].name;
    return NULL;
}
