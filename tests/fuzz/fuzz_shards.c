/* Any files as the weights of a Hugging Face directory: an index of shards and the shards that it
 * names, or one file without an index. What is accepted is whole, and has the tensors that the
 * index lists and no others. */
#include "fuzz/bundle.h"
#include "fuzz/touch.h"

#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = { "model.safetensors.index.json",
                                     "model.safetensors",
                                     "model-00001-of-00002.safetensors",
                                     "model-00002-of-00002.safetensors",
                                     "a.safetensors",
                                     "b.safetensors",
                                     NULL };

/* A single file goes before an index; else the index is the list of tensors. */
static void check_index(const struct safetensors *st)
{
    char path[256];
    json_t *root, *map;

    bundle_path(path, "model.safetensors");
    if (access(path, F_OK) == 0)
        return;
    bundle_path(path, "model.safetensors.index.json");
    root = json_load_file(path, 0, NULL);
    map = json_object_get(root, "weight_map");
    if (root && (int)json_object_size(map) < safetensors_n_tensors(st))
        abort();
    for (int i = 0; root && i < safetensors_n_tensors(st); i++)
        if (!json_object_get(map, safetensors_tensor(st, i)->name))
            abort();
    json_decref(root); /* NULL: an index with numbers that only our reader takes */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *st = NULL;
    struct pv_error err = { 0 };

    if (size > BUNDLE_MOST_BYTES)
        return 0;
    if (safetensors_open(&st, bundle_open(names, data, size), BUNDLE_MOST_BYTES, &err)) {
        must_say_why(&err);
        if (st)
            abort();
        return 0;
    }
    touch_safetensors(st);
    check_index(st);
    safetensors_close(&st);
    return 0;
}
