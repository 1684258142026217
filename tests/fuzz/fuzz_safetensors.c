/* Any bytes as a safetensors file: parse, find every tensor by name, touch both ends of it, and
 * read the list of integers that draft heads have. */
#include "base/mem.h"
#include "format/safetensors_hf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *st = NULL;
    struct pv_error err = { 0 };
    volatile uint8_t sink = 0;
    int64_t *ints = NULL;
    int n;

    if (safetensors_open_memory(&st, data, size, "input", &err)) {
        if (!err.text[0])
            abort(); /* a failure must say why */
        return 0;
    }
    for (int i = 0; i < safetensors_n_tensors(st); i++) {
        const struct tensor *t = safetensors_tensor(st, i);
        const uint8_t *p = t->data;
        if (safetensors_find(st, t->name) != t)
            abort();
        if (tensor_rows(t) * tensor_cols(t) * dtype_block_size(t->dtype) != (int64_t)t->size)
            abort();
        if (t->size)
            sink ^= p[0] ^ p[t->size - 1];
    }
    (void)sink;
    if (safetensors_ints(st, "d2t", &ints, &n, &err) && !err.text[0])
        abort();
    mem_free(ints);
    safetensors_close(&st);
    return 0;
}
