/* Any text as config.json and, after a NUL, generation_config.json: what is accepted must be
 * within the bounds the decoder relies on. */
#include "format/config_hf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *nul = size ? memchr(text, 0, size) : NULL;
    size_t len = nul ? (size_t)(nul - text) : size;
    struct pv_error err = { 0 };
    struct config c;

    if (config_hf_parse(&c, text, len, nul ? nul + 1 : NULL, nul ? size - len - 1 : 0, "input",
                        &err)) {
        if (!err.text[0])
            abort(); /* a failure must say why */
        return 0;
    }
    if (config_check(&c, "input", NULL) || c.n_heads % c.n_kv_heads || c.head_dim % 8)
        abort();
    return 0;
}
