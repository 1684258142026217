/* Any text as config.json and, after a NUL, generation_config.json or preprocessor_config.json:
 * what is accepted must be within the bounds the decoder and the vision tower rely on. And as
 * config.json of a draft head, of either layout. */
#include "family/families.h"
#include "format/config_hf.h"
#include "format/head_file_parts.h"
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

static void check_head(const char *text, size_t len, enum head_layout layout)
{
    struct pv_error err = { 0 };
    struct head_config h;

    if (head_config_parse(&h, text, len, layout, 64, "input", &err)) {
        if (!err.text[0])
            abort();
        return;
    }
    if (h.c.hidden < 1 || h.c.n_layers != 1 || h.draft_vocab < 0 || h.features.n < 0 ||
        h.features.n > HEAD_MAX_FEATURES)
        abort();
    for (int i = 0; i < h.features.n; i++)
        if (h.features.layer[i] < 0 || h.features.layer[i] > CONFIG_MAX_LAYERS)
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
    check_head(text, len, HEAD_LAYOUT_EAGLE);
    check_head(text, len, HEAD_LAYOUT_EAGLE3);
    return 0;
}
