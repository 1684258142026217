/* Any files as a draft head in a directory: config.json and safetensors, whole or with an index.
 * What is accepted fits a target made for it, or says why not. The same files as a vision adaptor.
 */
#include "fuzz/bundle.h"
#include "fuzz/touch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = { "config.json",
                                     "model.safetensors",
                                     "model.safetensors.index.json",
                                     "model-00001-of-00002.safetensors",
                                     "model-00002-of-00002.safetensors",
                                     NULL };

/* Beside targets of several depths and vocabularies. */
static void check_fit(const struct head_file *hf)
{
    static const int layers[] = { 1, 4, 28, CONFIG_MAX_LAYERS },
                     vocabs[] = { 12, CONFIG_MAX_VOCAB };
    const struct head_config *h = head_file_config(hf);

    for (int i = 0; i < 8; i++) {
        struct config target = h->c, out;
        struct pv_error err = { 0 };
        struct head_features f;
        target.n_layers = layers[i / 2];
        target.vocab = vocabs[i % 2];
        target.max_context = 128;
        target.rope_theta = 10000;
        if (head_file_fit(hf, &target, "target", &out, &err)) {
            must_say_why(&err);
            continue;
        }
        f = head_features_of(h, target.n_layers);
        if (out.hidden != target.hidden || out.n_layers != 1 || out.n_heads % out.n_kv_heads ||
            !(out.rope_theta > 0) || f.n < 0 || f.n > HEAD_MAX_FEATURES)
            abort();
        for (int k = 0; k < f.n; k++)
            if (f.layer[k] < 0 || f.layer[k] > target.n_layers)
                abort();
        for (int k = 0; head_file_draft_ids(hf) && k < h->draft_vocab; k++)
            if (head_file_draft_ids(hf)[k] >= target.vocab)
                abort();
    }
}

static void open_adaptor(const char *dir)
{
    struct vision_adaptor_file *af = NULL;
    struct pv_error err = { 0 };

    vision_adaptor_file_is(dir);
    if (vision_adaptor_file_open(&af, dir, BUNDLE_MOST_BYTES, &err))
        must_say_why(&err);
    else
        touch_adaptor(af);
    vision_adaptor_file_close(&af);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct head_file *hf = NULL;
    struct pv_error err = { 0 };
    const char *dir;

    if (size > BUNDLE_MOST_BYTES)
        return 0;
    dir = bundle_open(names, data, size);
    open_adaptor(dir);
    head_file_is(dir); /* whatever it says, it must not fall over */
    if (head_file_open(&hf, dir, BUNDLE_MOST_BYTES, &err)) {
        must_say_why(&err);
        if (hf)
            abort();
        return 0;
    }
    touch_head(hf);
    check_fit(hf);
    head_file_close(&hf);
    return 0;
}
