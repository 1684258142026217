/* Any bytes as a safetensors file: parse, find every tensor by name, touch both ends of it, and
 * read the list of integers that draft heads have. */
#include "base/mem.h"
#include "fuzz/touch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *st = NULL;
    struct pv_error err = { 0 };
    int64_t *ints = NULL;
    int n;

    if (safetensors_open_memory(&st, data, size, "input", &err)) {
        must_say_why(&err);
        return 0;
    }
    touch_safetensors(st);
    if (safetensors_ints(st, "d2t", &ints, &n, &err))
        must_say_why(&err);
    mem_free(ints);
    safetensors_close(&st);
    return 0;
}
