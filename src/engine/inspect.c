/* What `prevue inspect` prints: the shape of a model, the types of its tensors, and the memory it
 * takes at a context length. */
#include "base/cpu.h"
#include "engine/inspect_vision.h"
#include "format/tensor_check.h"

enum { DESCRIBE_LIMIT = 64 << 20 }; /* bytes */

struct memory {
    uint64_t weights; /* in the mapped file */
    uint64_t kv, scratch;
    uint64_t total, available; /* of this machine */
};

/* The memory that a model needs in all. Weights are mapped: without enough memory the model still
 * runs, but reads them from the disk again and again. */
static uint64_t needed(const struct memory *mem)
{
    return mem->weights + mem->kv + mem->scratch;
}

static void sum_types(const struct model_file *mf, uint64_t *elements, int count[DTYPE_COUNT],
                      uint64_t bytes[DTYPE_COUNT])
{
    for (int i = 0; i < model_file_n_tensors(mf); i++) {
        const struct tensor *t = model_file_tensor(mf, i);
        *elements += (uint64_t)tensor_rows(t) * (uint64_t)tensor_cols(t);
        count[t->dtype]++;
        bytes[t->dtype] += t->size;
    }
}

static void put_shape(struct buf *b, const struct tensor *t, const char *between)
{
    for (int d = 0; d < t->n_dims; d++)
        buf_printf(b, "%s%lld", d ? between : "", (long long)t->dim[d]);
}

static void text_tensors(struct buf *b, const struct model_file *mf)
{
    for (int i = 0; i < model_file_n_tensors(mf); i++) {
        const struct tensor *t = model_file_tensor(mf, i);
        size_t begin = b->len;
        buf_shown(b, t->name);
        buf_printf(b, "%*s %-5s ", b->len < begin + 48 ? (int)(begin + 48 - b->len) : 0, "",
                   dtype_name(t->dtype));
        put_shape(b, t, " x ");
        buf_puts(b, "\n");
    }
}

/* The parameters that one token uses: all except those of unused experts. */
static uint64_t active_parameters(const struct config *c, uint64_t elements)
{
    return elements - (uint64_t)config_n_sparse(c) * (uint64_t)(c->n_experts - c->n_used) * 3 *
                          (uint64_t)c->hidden * (uint64_t)c->expert_ffn;
}

static void text_experts(struct buf *b, const struct pv_model *m, uint64_t elements)
{
    const struct config *c = decoder_config(m->dec);
    uint64_t copied = decoder_copied(m->dec);
    if (c->n_experts == 0)
        return;
    buf_printf(b, "experts      %d of ffn %d in %d of %d layers, %d used per token%s\n",
               c->n_experts, c->expert_ffn, config_n_sparse(c), c->n_layers, c->n_used,
               c->norm_used ? ", weights normed" : "");
    buf_printf(b, "active       %llu parameters per token\n",
               (unsigned long long)active_parameters(c, elements));
    if (copied > 0)
        buf_printf(
            b,
            "copied       %.1f MiB of memory for weights that cannot be used as the file has "
            "them (a GGUF file made by prevue convert needs none)\n",
            describe_mib(copied));
}

static void json_experts(struct buf *b, const struct pv_model *m, uint64_t elements)
{
    const struct config *c = decoder_config(m->dec);
    if (c->n_experts == 0)
        return;
    buf_printf(b,
               ",\"experts\":{\"count\":%d,\"used\":%d,\"ffn\":%d,\"layers\":%d,\"normed\":%s,"
               "\"active_parameters\":%llu,\"copied\":%llu}",
               c->n_experts, c->n_used, c->expert_ffn, config_n_sparse(c),
               c->norm_used ? "true" : "false", (unsigned long long)active_parameters(c, elements),
               (unsigned long long)decoder_copied(m->dec));
}

/* Say whether it fits into the memory of this machine (not of a GPU). */
static void text_fits(struct buf *b, const struct memory *mem)
{
    bool fits = needed(mem) <= mem->available;
    buf_printf(b, "this machine %.1f GiB of memory, %.1f GiB available: ",
               (double)mem->total / (1 << 30), (double)mem->available / (1 << 30));
    if (fits)
        buf_printf(b, "enough for the %.1f GiB above\n", (double)needed(mem) / (1 << 30));
    else
        buf_printf(b,
                   "the %.1f GiB above are more; a smaller context (-c) or weights of a smaller "
                   "type (prevue convert) take less\n",
                   (double)needed(mem) / (1 << 30));
}

static void text_describe(struct buf *b, const struct pv_model *m, const struct memory *mem,
                          int context, bool tensors)
{
    const struct config *c = decoder_config(m->dec);
    static const char *const mrope[] = { "1-D", "M-RoPE, sections", "M-RoPE, interleaved" };
    int count[DTYPE_COUNT] = { 0 };
    uint64_t bytes[DTYPE_COUNT] = { 0 }, elements = 0;
    sum_types(m->file, &elements, count, bytes);
    buf_puts(b, "model        ");
    buf_shown(b, model_file_path(m->file));
    buf_puts(b, "\n");
    buf_printf(b, "architecture %s, %d layers, hidden %d, ffn %d\n", c->arch_name, c->n_layers,
               c->hidden, c->ffn);
    buf_printf(b, "attention    %d heads, %d KV heads of %d%s%s\n", c->n_heads, c->n_kv_heads,
               c->head_dim, c->qkv_bias ? ", biases" : "", c->qk_norm ? ", q and k normed" : "");
    buf_printf(b, "positions    %s, theta %g, made for %d tokens\n", mrope[c->mrope],
               (double)c->rope_theta, c->max_context);
    buf_printf(b, "vocabulary   %d%s, %s\n", c->vocab, c->tied ? ", head tied" : "",
               m->tokenizer ? "with tokenizer" : "no tokenizer");
    buf_printf(b, "parameters   %llu\n", (unsigned long long)elements);
    text_experts(b, m, elements);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (count[t])
            buf_printf(b, "  %-5s      %d tensors, %.1f MiB\n", dtype_name((enum dtype)t), count[t],
                       describe_mib(bytes[t]));
    buf_printf(b,
               "memory       at %d tokens, steps of %d: weights %.1f MiB (mapped), KV %.1f MiB, "
               "scratch %.1f MiB\n",
               context, model_chunk(m), describe_mib(mem->weights), describe_mib(mem->kv),
               describe_mib(mem->scratch));
    if (m->repacked > 0)
        buf_printf(b,
                   "repacking    %.1f MiB more for a copy of the weights in a layout that this CPU "
                   "multiplies faster (--no-repack: none)\n",
                   describe_mib(m->repacked));
    describe_vision_text(b, m);
    text_fits(b, mem);
    if (tensors)
        text_tensors(b, m->file);
}

static void json_tensors(struct buf *b, const struct model_file *mf)
{
    buf_puts(b, ",\"tensors\":[");
    for (int i = 0; i < model_file_n_tensors(mf); i++) {
        const struct tensor *t = model_file_tensor(mf, i);
        size_t len = __builtin_strlen(t->name);
        buf_puts(b, i ? ",{\"name\":" : "{\"name\":");
        buf_json(b, t->name, len);
        buf_printf(b, ",\"type\":\"%s\",\"shape\":[", dtype_name(t->dtype));
        put_shape(b, t, ",");
        buf_puts(b, "]}");
    }
    buf_puts(b, "]");
}

static void json_describe(struct buf *b, const struct pv_model *m, const struct memory *mem,
                          int context, bool tensors)
{
    const struct config *c = decoder_config(m->dec);
    const char *path = model_file_path(m->file);
    static const char *const mrope[] = { "none", "sections", "interleaved" };
    int count[DTYPE_COUNT] = { 0 };
    uint64_t bytes[DTYPE_COUNT] = { 0 }, elements = 0;
    bool first = true;
    sum_types(m->file, &elements, count, bytes);
    buf_puts(b, "{\"model\":");
    buf_json(b, path, __builtin_strlen(path));
    buf_printf(b,
               ",\"architecture\":\"%s\",\"layers\":%d,\"hidden\":%d,\"ffn\":%d,\"heads\":%d,"
               "\"kv_heads\":%d,\"head_dim\":%d,\"vocab\":%d,\"tied\":%s,\"qkv_bias\":%s,"
               "\"qk_norm\":%s,\"mrope\":\"%s\",\"rope_theta\":%.9g,\"max_context\":%d,"
               "\"tokenizer\":%s,\"parameters\":%llu,\"types\":{",
               c->arch_name, c->n_layers, c->hidden, c->ffn, c->n_heads, c->n_kv_heads, c->head_dim,
               c->vocab, c->tied ? "true" : "false", c->qkv_bias ? "true" : "false",
               c->qk_norm ? "true" : "false", mrope[c->mrope], (double)c->rope_theta,
               c->max_context, m->tokenizer ? "true" : "false", (unsigned long long)elements);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (count[t]) {
            buf_printf(b, "%s\"%s\":{\"tensors\":%d,\"bytes\":%llu}", first ? "" : ",",
                       dtype_name((enum dtype)t), count[t], (unsigned long long)bytes[t]);
            first = false;
        }
    buf_printf(b,
               "},\"memory\":{\"context\":%d,\"weights\":%llu,\"kv\":%llu,\"scratch\":%llu,"
               "\"repacked\":%llu,\"available\":%llu,\"fits\":%s}",
               context, (unsigned long long)mem->weights, (unsigned long long)mem->kv,
               (unsigned long long)mem->scratch, (unsigned long long)m->repacked,
               (unsigned long long)mem->available,
               needed(mem) <= mem->available ? "true" : "false");
    json_experts(b, m, elements);
    describe_vision_json(b, m);
    if (tensors)
        json_tensors(b, m->file);
    buf_puts(b, "}\n");
}

enum pv_status pv_model_check(const pv_model *m, struct pv_error *err)
{
    return model_file_check(m->file, err);
}

enum pv_status pv_model_describe(const pv_model *m, int context, bool json, bool tensors,
                                 char **text, struct pv_error *err)
{
    enum dtype kv = model_kv_dtype(m, PV_KV_AUTO);
    int most = pv_model_max_context(m);
    struct memory mem = { 0 };
    struct buf b;
    if (context == 0)
        context = most < MODEL_DEFAULT_CONTEXT ? most : MODEL_DEFAULT_CONTEXT;
    if (context < 1 || context > m->limits.context_tokens)
        return fail(err, PV_E_LIMIT,
                    "%s: a context of %d tokens was asked for, 1 to %d are possible",
                    model_file_path(m->file), context, m->limits.context_tokens);
    if (most > 0 && context > most) /* as a session does */
        context = most;
    for (int i = 0; i < model_file_n_tensors(m->file); i++)
        mem.weights += model_file_tensor(m->file, i)->size;
    mem.kv = kvcache_size(decoder_config(m->dec), kv, context);
    mem.scratch = decoder_state_size(m->dec, model_chunk(m), 1, context, kv);
    mem.total = cpu_memory();
    mem.available = cpu_memory_available();
    buf_init(&b, DESCRIBE_LIMIT);
    if (json)
        json_describe(&b, m, &mem, context, tensors);
    else
        text_describe(&b, m, &mem, context, tensors);
    if (b.failed) {
        buf_clear(&b);
        return fail(err, PV_E_NOMEM, "%s: no memory for its description (of at most %zu bytes)",
                    model_file_path(m->file), b.limit);
    }
    *text = b.data;
    return PV_OK;
}
