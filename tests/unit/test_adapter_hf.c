/* PEFT adapters merged by the converter: sums of matrices against the formula, tensors in the place
 * of others, everything else as it was; and what is refused with which words. */
#include "family/families.h"
#include "same_tower.h"
#include "tiny_vision.h"

enum { RANK = 4, HIDDEN = 32 };
static const char usual[] = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"bias\": "
                            "\"none\", \"use_dora\": false, \"rank_pattern\": {}}";
static const char q_name[] = "base_model.model.model.layers.1.self_attn.q_proj.";
static const char proj_name[] = "base_model.model.audio.audio_proj.weight";

/* What to do differently. */
struct wish {
    const char *config;
    bool no_b, wide, saved; /* saved: as older versions name what is trained whole */
    const char *other;      /* one tensor more, [2, 2] */
    const char *module;     /* of the sum; NULL: q of layer 1 */
};

static float number(int i, int seed)
{
    return (float)((i * 37 + seed * 11) % 41 - 20) / 64;
}

static void add_entry(struct tiny_shard *sh, const char *prefix, const char *name, int rows,
                      int cols, int seed)
{
    float *x = malloc(sizeof *x * (size_t)(rows * cols));
    const int dim[2] = { rows, cols };
    for (int i = 0; i < rows * cols; i++)
        x[i] = number(i, seed);
    tiny_entry(sh, prefix, name, dim, 2, x);
    free(x);
}

static const char *write_adapter(const struct wish *w, char path[256])
{
    struct tiny_shard sh = { 0 };
    struct made file = { 0 };
    const char *config = w->config ? w->config : usual, *module = w->module ? w->module : q_name;
    snprintf(path, 256, "%s/adapter", scratch_dir());
    scratch_remove(path);
    mkdir(path, 0700);
    tiny_write_in(path, "adapter_config.json", config, strlen(config));
    tiny_puts(&sh.header, "{");
    add_entry(&sh, module, "lora_A.weight", RANK, HIDDEN + w->wide, 1);
    if (!w->no_b)
        add_entry(&sh, module, "lora_B.weight", HIDDEN, RANK, 2);
    if (w->saved)
        add_entry(&sh, "base_model.model.audio.audio_proj.modules_to_save.default.", "weight",
                  HIDDEN, TINY_QUERY, 3);
    else
        add_entry(&sh, proj_name, "", HIDDEN, TINY_QUERY, 3);
    if (w->other)
        add_entry(&sh, w->other, "", 2, 2, 4);
    make_bytes(&sh.header, "}", 2); /* with the NUL */
    make_string(&file, (const char *)sh.header.data);
    make_bytes(&file, sh.data.data, sh.data.len);
    tiny_write_in(path, "adapter_model.safetensors", file.data, file.len);
    free(sh.header.data);
    free(sh.data.data);
    free(file.data);
    return path;
}

static enum pv_status convert(const char *src, const struct wish *w, enum pv_type type,
                              char out[256], struct pv_error *err)
{
    struct pv_convert_params p = pv_convert_defaults();
    char adapter[256];
    snprintf(out, 256, "%s/merged.gguf", scratch_dir());
    unlink(out);
    p.adapter = write_adapter(w, adapter);
    p.type = type;
    return pv_convert(src, out, &p, err);
}

static const char *base_dir(char path[256])
{
    struct tiny_vision m = tiny_vision(&family_salmonn2_plus);
    return tiny_vision_dir(&m, "base", path);
}

/* The matrix of layer 1 is the sum; others and the tower are as they were. */
static void check_merged(const struct model_file *old, const struct model_file *new)
{
    float *was = tensor_numbers(model_file_layer(old, 1)->q);
    float *is = tensor_numbers(model_file_layer(new, 1)->q);
    float *proj = tensor_numbers(model_file_audio_tensors(new)->proj);
    for (int r = 0; r < HIDDEN; r++)
        for (int c = 0; c < HIDDEN; c++) {
            double sum = was[r * HIDDEN + c];
            for (int k = 0; k < RANK; k++)
                sum += 2.0 * (double)number(r * RANK + k, 2) * (double)number(k * HIDDEN + c, 1);
            CHECK_MSG(fabs(is[r * HIDDEN + c] - sum) < 1e-5, "[%d, %d]: %g, not %g", r, c,
                      (double)is[r * HIDDEN + c], sum);
        }
    for (int i = 0; i < HIDDEN * TINY_QUERY; i++)
        CHECK(proj[i] == number(i, 3));
    same_tensor(model_file_layer(new, 0)->q, model_file_layer(old, 0)->q, DTYPE_F32);
    same_tensor(model_file_layer(new, 1)->k, model_file_layer(old, 1)->k, DTYPE_F32);
    same_tensor(model_file_audio_tensors(new)->proj_bias, model_file_audio_tensors(old)->proj_bias,
                DTYPE_F32);
    same_tensors(model_file_query_layer(new, 0), model_file_query_layer(old, 0),
                 sizeof(struct query_layer_tensors), DTYPE_F32);
    free(was);
    free(is);
    free(proj);
}

TEST(sums_and_replacements)
{
    char src[256], out[256];
    base_dir(src);
    for (int saved = 0; saved < 2; saved++) {
        const struct wish w = { .saved = saved };
        struct pv_error err = { 0 };
        if (!CHECK_MSG(!convert(src, &w, PV_TYPE_F32, out, &err), "%s", err.text))
            return;
        struct model_file *old = model_file_of(src, NULL), *new = model_file_of(out, NULL);
        if (old && new)
            check_merged(old, new);
        model_file_close(&old);
        model_file_close(&new);
    }
}

/* Once more with blocks: what is rounded is the sum. */
TEST(sums_are_rounded_once)
{
    char src[256], out[256];
    const struct wish w = { 0 };
    struct pv_error err = { 0 };
    base_dir(src);
    if (!CHECK_MSG(!convert(src, &w, PV_TYPE_F32, out, &err), "%s", err.text))
        return;
    struct model_file *whole = model_file_of(out, NULL);
    float *x = tensor_numbers(model_file_layer(whole, 1)->q);
    uint8_t want[HIDDEN * HIDDEN * 2];
    row_from_f32(want, x, DTYPE_Q8_0, HIDDEN * HIDDEN);
    model_file_close(&whole);
    CHECK_MSG(!convert(src, &w, PV_TYPE_Q8_0, out, &err), "%s", err.text);
    struct model_file *mf = model_file_of(out, NULL);
    const struct tensor *q = model_file_layer(mf, 1)->q;
    CHECK(q->dtype == DTYPE_Q8_0 && !memcmp(q->data, want, q->size));
    model_file_close(&mf);
    free(x);
}

TEST(adapters_that_cannot_be)
{
    static const struct {
        struct wish w;
        const char *word;
    } cases[] = {
        { { .config = "{\"peft_type\": \"IA3\"}" }, "peft_type is \"IA3\"" },
        { { .config = "{\"peft_type\": \"LORA\", \"r\": 4}" }, "lora_alpha is missing" },
        { { .config = "{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 8}" }, "r is 0" },
        { { .config =
                "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"use_dora\": true}" },
          "adapters with use_dora are not supported" },
        { { .config = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"rank_pattern\": "
                      "{\"q_proj\": 8}}" },
          "adapters with rank_pattern" },
        { { .config = "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8, \"bias\": \"all\"}" },
          "adapters with bias" },
        { { .config = "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 8}" },
          "of rank 8 cannot be added to model.layers.1.self_attn.q_proj.weight" },
        { { .no_b = true }, "lacks lora_B" },
        { { .wide = true }, "cannot be added to" },
        { { .other = "model.layers.0.x" }, "does not begin with base_model.model." },
        { { .other = "base_model.model.model.layers.9.y.weight" },
          "which the model does not have" },
        { { .other = "base_model.model.audio.audio_proj.bias" }, "has another shape" },
        { { .other = "base_model.model.model.layers.0.z.lora_embedding_A" }, "is of a kind" },
        { { .module = "base_model.model.audio.layers.0.self_attn.q_proj." }, "cannot be added to" },
        { { .module = "base_model.model.visual.blocks.0.attn.proj." },
          "not a matrix of the decoder" },
    };
    char src[256], out[256];
    struct tiny_vision m = tiny_vision(&family_salmonn2_plus);
    struct pv_error err = { 0 };
    base_dir(src);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err = (struct pv_error){ 0 };
        CHECK_MSG(convert(src, &cases[i].w, PV_TYPE_F32, out, &err) != PV_OK &&
                      strstr(err.text, cases[i].word) && strstr(err.text, "/adapter"),
                  "\"%s\" lacks \"%s\"", err.text, cases[i].word);
        CHECK_MSG(access(out, F_OK) != 0, "%s is left", out);
    }
    err = (struct pv_error){ 0 };
    CHECK(convert(tiny_vision_gguf(&m, "file", src), &cases[0].w, PV_TYPE_F32, out, &err) != PV_OK);
    CHECK_MSG(strstr(err.text, "merged into a Hugging Face directory"), "%s", err.text);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
