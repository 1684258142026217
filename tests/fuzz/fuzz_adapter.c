/* Any files as a PEFT adapter beside any weights that it changes. What is accepted fits: low-rank
 * pairs have the shape of their matrix, tensors that replace others have theirs. */
#include "fuzz/bundle.h"
#include "fuzz/touch.h"

#include "format/adapter_hf.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = { "adapter_config.json", "adapter_model.safetensors",
                                     "model.safetensors", NULL };

static const struct tensor *base_tensor(const struct safetensors *base, const char *name)
{
    for (int i = 0; i < safetensors_n_tensors(base); i++)
        if (!strcmp(safetensors_tensor(base, i)->name, name))
            return safetensors_tensor(base, i);
    return NULL;
}

static void check_sums(const struct adapter *a, const struct safetensors *base)
{
    const char *name;
    for (int i = 0; (name = adapter_target(a, i)) != NULL; i++) {
        const struct tensor *w = base_tensor(base, name);
        struct lora l;
        if (!w || w->n_dims != 2 || !adapter_adds(a, name, &l) || !isfinite(l.scale))
            abort();
        if (l.a->n_dims != 2 || l.b->n_dims != 2 || l.a->dim[0] < 1 || l.a->dim[0] != l.b->dim[1] ||
            l.a->dim[1] != w->dim[1] || l.b->dim[0] != w->dim[0])
            abort();
        touch_ends(l.a);
        touch_ends(l.b);
    }
}

static void check_replaced(const struct adapter *a, const struct safetensors *base)
{
    for (int i = 0; i < safetensors_n_tensors(base); i++) {
        const struct tensor *w = safetensors_tensor(base, i);
        const struct tensor *t = adapter_replaces(a, w->name);
        if (!t)
            continue;
        if (t->n_dims != w->n_dims || memcmp(t->dim, w->dim, sizeof *t->dim * (size_t)t->n_dims))
            abort();
        touch_ends(t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *base = NULL;
    struct adapter *a = NULL;
    struct pv_error err = { 0 };
    const char *dir;

    if (size > BUNDLE_MOST_BYTES)
        return 0;
    dir = bundle_open(names, data, size);
    if (safetensors_open(&base, dir, BUNDLE_MOST_BYTES, &err))
        return 0; /* fuzz_shards looks at these */
    if (adapter_open(&a, dir, base, BUNDLE_MOST_BYTES, &err)) {
        must_say_why(&err);
        if (a)
            abort();
    } else {
        check_sums(a, base);
        check_replaced(a, base);
        adapter_close(&a);
    }
    safetensors_close(&base);
    return 0;
}
