/* Any bytes as a GGUF model that is then run: a short prompt, a picture where the model sees, a few
 * tokens. It must answer or say why not, within the limits given to it, and speculation must not
 * change the answer whatever the weights are.
 *
 * Half of the inputs run on the kernels in plain C, which are compiled with sanitizers; the fast
 * ones are not (see the Makefile).
 *
 * Half of all random changes would break a file's structure, so that nothing runs. Changes are made
 * to the values of metadata and to weights instead, in place; every eighth is of any kind. */
#include "base/rng.h"
#include "format/gguf.h"
#include "fuzz/bundle.h"
#include "fuzz/touch.h"
#include "prevue/prevue.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t cap);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t cap, unsigned seed);

enum {
    CONTEXT = 192,
    NEW_TOKENS = 8,
    SIDE = 32, /* of a picture */
    MOST_MEMORY = 64 << 20
};

struct answer {
    enum pv_status status;
    size_t n;
    int32_t ids[NEW_TOKENS];
};

/* ---- running ---- */

static enum pv_status add_picture(pv_session *s, struct pv_error *err)
{
    static uint8_t rgb[SIDE * SIDE * 3];
    struct pv_frame frame = { .width = SIDE, .height = SIDE, .rgb = rgb };
    struct pv_video_params p = pv_video_defaults();
    for (size_t i = 0; i < sizeof rgb; i++)
        rgb[i] = (uint8_t)(i * 7);
    return pv_add_frames(s, &frame, 1, 0, &p, err);
}

/* Text, or ids where there is no tokenizer; nothing that cannot be said is an error of the model.
 */
static enum pv_status add_prompt(pv_session *s, const pv_model *m, struct pv_error *err)
{
    int32_t ids[6], vocab = pv_model_vocab_size(m);
    enum pv_status st = pv_model_has_vision(m) ? add_picture(s, err) : PV_OK;

    if (!st && pv_model_has_tokenizer(m))
        return pv_add_text(s, "user", "the thin inn", err);
    for (int i = 0; i < 6; i++)
        ids[i] = i * 5 % vocab;
    return st ? st : pv_add_ids(s, ids, 6, err);
}

static void generate(pv_session *s, const pv_model *m, const char *method, struct answer *out)
{
    struct pv_gen_params p = pv_gen_defaults();
    struct pv_method how = { .size = sizeof how };
    struct pv_error err = { 0 };
    const int32_t *ids;

    p.max_new_tokens = NEW_TOKENS;
    p.method = method ? &how : NULL;
    if (method && pv_method_find(&how, method, &err))
        abort();
    pv_session_reset(s);
    *out = (struct answer){ .status = add_prompt(s, m, &err) };
    if (!out->status)
        out->status = pv_generate(s, &p, NULL, NULL, &err);
    if (out->status) {
        must_say_why(&err);
        return;
    }
    ids = pv_session_answer(s, &out->n);
    if (out->n > NEW_TOKENS)
        abort();
    for (size_t i = 0; i < out->n; i++) {
        out->ids[i] = ids[i];
        if (ids[i] < 0 || ids[i] >= pv_model_vocab_size(m))
            abort();
    }
}

static void run(pv_model *m)
{
    /* ngram proposes chains from the text, std drafts with a part of the KV cache. */
    static const char *const methods[] = { "ngram", "std" };
    struct pv_session_params p = pv_session_defaults();
    struct pv_error err = { 0 };
    struct answer plain, other;
    pv_session *s = NULL;

    p.max_context = CONTEXT;
    p.speculate = true;
    if (pv_session_open(&s, m, &p, &err)) {
        must_say_why(&err);
        return;
    }
    generate(s, m, NULL, &plain);
    for (int i = 0; i < 2 && !plain.status; i++) {
        generate(s, m, methods[i], &other);
        if (!other.status &&
            (other.n != plain.n || memcmp(other.ids, plain.ids, plain.n * sizeof *plain.ids) != 0))
            abort();
    }
    pv_session_close(&s);
}

static bool is_odd(const uint8_t *data, size_t size)
{
    uint8_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits ^= data[i];
    return bits & 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    char path[256];

    if (size > BUNDLE_MOST_BYTES)
        return 0;
    bundle_put("model.gguf", data, size);
    bundle_path(path, "model.gguf");
    p.path = path;
    p.threads = 1;
    p.cpu_mask = is_odd(data, size) ? 0 : UINT64_MAX;
    p.limits.file_bytes = BUNDLE_MOST_BYTES;
    p.limits.memory_bytes = MOST_MEMORY;
    p.limits.context_tokens = CONTEXT;
    if (pv_model_open(&m, &p, &err)) {
        must_say_why(&err);
        if (m)
            abort();
        return 0;
    }
    run(m);
    pv_model_close(&m);
    return 0;
}

/* ---- changing ---- */

static uint32_t pick(struct rng *r, size_t n)
{
    return n ? (uint32_t)((rng_next(r) >> 32) % n) : 0;
}

static uint64_t pick_number(struct rng *r, const uint8_t *p, size_t width)
{
    static const uint32_t values[] = { 0,        1,         2,     3,        4,        7,
                                       8,        12,        16,    31,       32,       33,
                                       64,       127,       128,   255,      256,      4096,
                                       32768,    65535,     65536, 1u << 20, 1u << 30, INT32_MAX,
                                       1u << 31, UINT32_MAX };
    uint64_t v = 0;
    memcpy(&v, p, width);
    return pick(r, 3) ? values[pick(r, sizeof values / sizeof *values)] : v + pick(r, 9) - 4;
}

/* NaN, infinities, the largest and the smallest, zeros. */
static uint64_t pick_float(struct rng *r, size_t width)
{
    static const uint16_t halves[] = { 0,      0x8000, 1,      0x3ff,  0x7bff,
                                       0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3c00 };
    static const uint32_t singles[] = {
        0,          0x80000000, 1,          0x7f7fffff, 0xff7fffff,
        0x7f800000, 0xff800000, 0x7fc00000, 0x3f800000, 0x00800000
    };
    return width == 2 ? halves[pick(r, 10)] : singles[pick(r, 10)];
}

static void change_value(struct rng *r, uint8_t *p, const struct gguf_value *v)
{
    enum gguf_kind kind = v->kind == GGUF_ARRAY ? v->elem : v->kind;
    size_t width = kind == GGUF_STRING ? 1 : v->size / (v->kind == GGUF_ARRAY && v->n ? v->n : 1);
    size_t at = width && width <= 8 ? pick(r, v->size / width) * width : 0;
    uint64_t bits;

    if (width == 0 || width > 8 || v->size < width)
        return;
    bits = kind == GGUF_F32 && pick(r, 2) ? pick_float(r, 4) : pick_number(r, p + at, width);
    memcpy(p + at, &bits, width);
}

static void change_weight(struct rng *r, uint8_t *p, const struct tensor *t)
{
    size_t width = t->dtype == DTYPE_F32 ? 4 : 2, block = (size_t)dtype_block_size(t->dtype);
    size_t at = pick(r, t->size / block) * block; /* mostly where a block's scale lies */
    uint64_t bits = pick_float(r, width);

    if (pick(r, 3) == 0) {
        at = pick(r, t->size);
        p[at] = (uint8_t)rng_next(r);
    } else if (at + width <= t->size) {
        memcpy(p + at, &bits, width);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t cap, unsigned seed)
{
    struct rng r = { seed };
    struct gguf *g = NULL;

    if (pick(&r, 8) == 0 || gguf_open_memory(&g, data, size, "input", NULL))
        return LLVMFuzzerMutate(data, size, cap);
    for (int i = 1 + (int)pick(&r, 3); i > 0; i--) {
        if (pick(&r, 2) && gguf_n_values(g) > 0) {
            const struct gguf_value *v = gguf_value(g, (int)pick(&r, (size_t)gguf_n_values(g)));
            change_value(&r, data + (v->data - data), v);
        } else if (gguf_n_tensors(g) > 0) {
            const struct tensor *t = gguf_tensor(g, (int)pick(&r, (size_t)gguf_n_tensors(g)));
            change_weight(&r, data + ((const uint8_t *)t->data - data), t);
        }
    }
    gguf_close(&g);
    return size;
}
