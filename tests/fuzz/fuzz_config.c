/* Any text as config.json and, after a NUL, generation_config.json or preprocessor_config.json:
 * what is accepted must be within the bounds the decoder and the vision tower rely on. */
#include "family/families.h"
#include "format/config_hf.h"
#include "format/vision_config_hf.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_decoder(const char *text, size_t len, const char *second, size_t second_len)
{
    struct pv_error err = { 0 };
    struct config c;

    if (config_hf_parse(&c, text, len, second, second_len, "input", families, &err)) {
        if (!err.text[0])
            abort(); /* a failure must say why */
        return;
    }
    if (config_check(&c, "input", NULL) || c.n_heads % c.n_kv_heads || c.head_dim % 8)
        abort();
}

static void check_tower(const char *text, size_t len, const char *second, size_t second_len)
{
    struct pv_error err = { 0 };
    struct vision_config c;

    if (vision_config_hf_parse(&c, text, len, second, second_len, "input", families, &err)) {
        if (!err.text[0])
            abort();
        return;
    }
    if (vision_config_check(&c, "input", NULL) ||
        (c.family != NULL && c.n_heads * c.head_dim != c.hidden))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *nul = size ? memchr(text, 0, size) : NULL;
    size_t len = nul ? (size_t)(nul - text) : size;
    const char *second = nul ? nul + 1 : NULL;
    size_t second_len = nul ? size - len - 1 : 0;

    check_decoder(text, len, second, second_len);
    check_tower(text, len, second, second_len);
    return 0;
}
