/* Models with vision towers written as GGUF: one file or two, every tensor and the configuration
 * against the source, whichever kind it was; nothing is left behind when writing fails. */
#include "base/mem.h"
#include "family/families.h"
#include "format/gguf.h"
#include "same_tower.h"
#include "tiny_vision.h"

static const struct family *const seeing[] = { &family_llava_onevision, &family_qwen2_5_vl,
                                               &family_qwen2_vl, &family_qwen3_vl,
                                               &family_salmonn2_plus };
enum { N_SEEING = sizeof seeing / sizeof *seeing };
static const enum dtype writable[] = { DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,
                                       DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_1 };

/* Results go into a directory of their own, so that what is left can be counted. */
static const char *out_path(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/out", scratch_dir());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/out/%s", scratch_dir(), name);
    return path;
}

/* Files in the directory of results. */
static int count_files(void)
{
    char path[300];
    int n = 0;
    snprintf(path, sizeof path, "%s/out", scratch_dir());
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void clear_out(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/out", scratch_dir());
    scratch_remove(path);
}

/* Convert and open the result; NULL (and a failed check) where that fails. */
static struct model_file *convert(const struct model_file *old, enum dtype type)
{
    struct pv_error err = { 0 };
    clear_out();
    if (!CHECK_MSG(model_file_write_gguf(old, out_path("x.gguf"), type, false, NULL, &err) == PV_OK,
                   "%s", err.text))
        return NULL;
    return model_file_of(out_path("x.gguf"), NULL);
}

static struct model_file *open_tiny(const struct tiny_vision *m, bool dir)
{
    char path[256];
    return model_file_of(
        dir ? tiny_vision_dir(m, "source", path) : tiny_vision_gguf(m, "source", path), NULL);
}

/* The tower in the decoder's file, which is then read without another; from there again into two.
 */
TEST(towers_in_one_file)
{
    for (int i = 0; i < 2 * N_SEEING; i++) {
        struct tiny_vision m = tiny_vision(seeing[i / 2]);
        struct model_file *old = open_tiny(&m, i % 2), *one = NULL, *two = NULL;
        struct pv_error err = { 0 };
        clear_out();
        if (CHECK(old) && CHECK_MSG(!model_file_write_gguf(old, out_path("one.gguf"), DTYPE_F16,
                                                           true, NULL, &err),
                                    "%s", err.text)) {
            CHECK_EQ(count_files(), 1);
            one = model_file_of(out_path("one.gguf"), NULL);
        }
        if (one) {
            same_tower(one, old, DTYPE_F16);
            CHECK_EQ(model_file_write_gguf(one, out_path("two.gguf"), DTYPE_F16, false, NULL, NULL),
                     PV_OK);
            CHECK_EQ(count_files(), tiny_kind(m.family)->one_file ? 2 : 3);
            two = model_file_of(out_path("two.gguf"), NULL);
        }
        if (two)
            same_tower(two, one, DTYPE_F16);
        model_file_close(&two);
        model_file_close(&one);
        model_file_close(&old);
    }
}

/* Stops at the call whose number *left counts down to. */
static bool stop_later(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    int *left = user;
    CHECK(phase == PV_PHASE_CONVERT && done >= 0 && done < total);
    return --*left >= 0;
}

/* Wherever it is stopped, neither of the two files is left, nor a temporary one. */
TEST(stopped_anywhere_it_leaves_nothing)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    struct pv_convert_params p = pv_convert_defaults();
    enum pv_status s = PV_E_CANCELLED;
    char path[256];
    int calls = 0;

    p.type = PV_TYPE_F16;
    p.progress = stop_later;
    tiny_vision_gguf(&m, "source", path);
    for (; s == PV_E_CANCELLED && calls < 1000; calls++) {
        struct pv_error err = { 0 };
        int left = calls;
        clear_out();
        p.progress_user = &left;
        s = pv_convert(path, out_path("x.gguf"), &p, &err);
        CHECK_EQ(s, err.code);
        CHECK_EQ(count_files(), s ? 0 : 2);
    }
    CHECK_EQ(s, PV_OK);
    CHECK_MSG(calls > 50, "asked %d times", calls);
}

TEST(every_type_from_either_kind)
{
    /* Of the decoder, of the tower, of each of its layers. */
    static const int tensors[N_SEEING] = { 26 + 8 + 16 * 2, 26 + 7 + 16 * 4, 26 + 8 + 16 * 4,
                                           35 + 10 + 2 * 6 + 12 * 4,
                                           /* and of the audio encoder */
                                           26 + 7 + 16 * 4 + 12 + 15 * TINY_EAR_LAYERS + 22 };
    for (int i = 0; i < 10 * N_SEEING; i++) {
        int kind = i % N_SEEING;
        enum dtype type = writable[i / (2 * N_SEEING)];
        struct tiny_vision m = tiny_vision(seeing[kind]);
        struct model_file *old = open_tiny(&m, i / N_SEEING % 2);
        struct model_file *new = old ? convert(old, type) : NULL;
        if (new) {
            same_tower(new, old, type);
            CHECK_EQ(count_files(), tiny_kind(m.family)->one_file ? 1 : 2);
            CHECK_STR(model_file_config(new)->arch_name, m.text.arch);
            CHECK_EQ(model_file_config(new)->n_deepstack, m.text.n_deepstack);
            CHECK_EQ(model_file_n_tensors(new), tensors[kind]);
        }
        model_file_close(&new);
        model_file_close(&old);
    }
}

/* From quantised files too, and what does not change is copied as it is. */
TEST(from_other_types)
{
    for (int i = 0; i < 3 * N_SEEING; i++) {
        struct tiny_vision m = tiny_vision(seeing[i % N_SEEING]);
        const enum dtype from[] = { DTYPE_Q8_0, DTYPE_F16, DTYPE_Q4_0 };
        const enum dtype to[] = { DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_0 };
        int k = i / N_SEEING;
        m.text.type = (int)from[k];
        struct model_file *old = open_tiny(&m, false);
        struct model_file *new = old ? convert(old, to[k]) : NULL;
        const struct tensor *a = old ? model_file_vision_layer(old, 1)->o : NULL;
        const struct tensor *b = new ? model_file_vision_layer(new, 1)->o : NULL;
        if (CHECK(a && b) && from[k] == to[k])
            CHECK(a->size == b->size && !memcmp(a->data, b->data, a->size));
        else if (a && b)
            same_tensor(b, a, to[k]);
        if (old && new)
            same_vision_config(model_file_vision(new), model_file_vision(old), to[k]);
        model_file_close(&new);
        model_file_close(&old);
    }
}

/* The keys and types that llama.cpp asks of a second file. */
TEST(what_llama_cpp_reads)
{
    static const char *const keys[] = {
        "clip.has_vision_encoder",          "clip.use_silu",
        "clip.vision.image_size",           "clip.vision.patch_size",
        "clip.vision.embedding_length",     "clip.vision.feed_forward_length",
        "clip.vision.projection_dim",       "clip.vision.block_count",
        "clip.vision.attention.head_count", "clip.vision.attention.layer_norm_epsilon",
        "clip.vision.image_mean",           "clip.vision.image_std"
    };
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    struct model_file *old = open_tiny(&m, true), *new = old ? convert(old, DTYPE_Q8_0) : NULL;
    struct gguf *g = NULL;
    struct str text = { "", 0 };
    const struct tensor *t;
    int64_t n = 0;
    model_file_close(&new);
    model_file_close(&old);
    if (!CHECK_EQ(gguf_open(&g, out_path("mmproj-x.gguf"), UINT64_MAX, NULL), PV_OK))
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CHECK_MSG(gguf_find(g, keys[i]) != NULL, "%s is missing", keys[i]);
    CHECK(!gguf_string(g, "general.architecture", &text, NULL) && !memcmp(text.s, "clip", 4));
    CHECK(!gguf_string(g, "general.type", &text, NULL) && !memcmp(text.s, "mmproj", 6));
    CHECK(!gguf_string(g, "clip.projector_type", &text, NULL) &&
          !memcmp(text.s, "qwen2.5vl_merger", 16));
    CHECK(!gguf_int(g, "clip.vision.n_wa_pattern", 0, 99, &n, NULL) && n == 2);
    t = gguf_tensor_find(g, "v.patch_embd.weight.1");
    CHECK(t && t->n_dims == 4 && t->dim[0] == 32 && t->dim[1] == 3 && t->dim[3] == 4);
    CHECK(t && t->dtype == DTYPE_F32);
    t = gguf_tensor_find(g, "v.blk.3.attn_v.bias");
    CHECK(t && t->dtype == DTYPE_F32);
    gguf_close(&g);
}

/* Full attention in layers that no interval gives: the list is kept. */
TEST(an_irregular_pattern)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    m.from = "[1, 3, 31]";
    m.to = "[0, 3]";
    struct model_file *old = open_tiny(&m, true), *new = old ? convert(old, DTYPE_F32) : NULL;
    CHECK(new &&model_file_vision(new)->full[0] && !model_file_vision(new)->full[1]);
    if (new)
        same_tower(new, old, DTYPE_F32);
    model_file_close(&new);
    model_file_close(&old);
}

/* Layers beyond the one chosen are not written, and what is written says so. */
TEST(unused_layers_are_left_out)
{
    struct tiny_vision m = tiny_vision(&family_llava_onevision);
    m.stored = 3;
    struct model_file *old = open_tiny(&m, true), *new = old ? convert(old, DTYPE_F16) : NULL;
    if (CHECK(new)) {
        CHECK(model_file_n_tensors(old) == 26 + 8 + 16 * 3);
        CHECK(model_file_n_tensors(new) == 26 + 8 + 16 * 2);
        same_tower(new, old, DTYPE_F16);
    }
    model_file_close(&new);
    model_file_close(&old);
}

/* A LLaVA tower in a file of its own joins its decoder. */
TEST(two_files_become_one)
{
    struct tiny_vision m = tiny_vision(&family_llava_onevision);
    char text[300], tower[300];
    snprintf(text, sizeof text, "%s/text.gguf", scratch_dir());
    snprintf(tower, sizeof tower, "%s/tower.gguf", scratch_dir());
    tiny_vision_file(&m, text, true, false);
    tiny_vision_file(&m, tower, false, true);
    struct model_file *old = model_file_of(text, tower),
                      *new = old ? convert(old, DTYPE_F32) : NULL;
    if (CHECK(new)) {
        CHECK_EQ(count_files(), 1);
        CHECK_EQ(model_file_n_tensors(new), model_file_n_tensors(old));
        same_tower(new, old, DTYPE_F32);
    }
    model_file_close(&new);
    model_file_close(&old);
}

TEST(in_place)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    char path[256];
    struct model_file *old = model_file_of(tiny_vision_gguf(&m, "place", path), NULL), *new;
    CHECK(old && model_file_write_gguf(old, path, DTYPE_Q8_0, false, NULL, NULL) == PV_OK);
    new = model_file_of(path, NULL);
    if (old && new)
        same_tower(new, old, DTYPE_Q8_0);
    model_file_close(&new);
    model_file_close(&old);
}

static void refuse(const struct model_file *mf, enum dtype type, const char *word, int left)
{
    struct pv_error err = { 0 };
    CHECK(model_file_write_gguf(mf, out_path("x.gguf"), type, false, NULL, &err) != PV_OK);
    CHECK_MSG(strstr(err.text, word), "%s", err.text);
    CHECK_EQ(count_files(), left);
}

TEST(failures_leave_nothing)
{
    for (int i = 0; i < N_SEEING; i++) {
        struct tiny_vision m = tiny_vision(seeing[i]);
        m.not_finite =
            i ? "v.blk.3.ffn_down.weight" : "mm.2.weight"; /* a matrix is not looked at */
        struct model_file *mf = open_tiny(&m, true);
        if (!mf)
            continue;
        clear_out();
        refuse(mf, DTYPE_F16, "has a number that f16 cannot hold", 0);
        refuse(mf, DTYPE_Q6_K, "q6_K cannot be written", 0);
        if (i) { /* the second file cannot be made: the first must not appear */
            mkdir(out_path("mmproj-x.gguf"), 0700);
            refuse(mf, DTYPE_F32, "mmproj-x.gguf", 1);
        }
        model_file_close(&mf);
    }
}

TEST(out_of_memory_anywhere)
{
    for (int i = 0; i < N_SEEING; i++) {
        struct tiny_vision m = tiny_vision(seeing[i]);
        struct model_file *mf = open_tiny(&m, true);
        enum pv_status s = PV_E_NOMEM;
        clear_out();
        for (int k = 1; s && mf && k < 10000; k++) {
            struct pv_error err = { 0 };
            const char *path = out_path("x.gguf");
            mem_fail_at((uint64_t)k);
            s = model_file_write_gguf(mf, path, DTYPE_Q8_0, false, NULL, &err);
            mem_fail_at(0);
            if (s && !CHECK(s == PV_E_NOMEM && err.text[0] && count_files() == 0))
                break;
        }
        CHECK_EQ(s, PV_OK);
        CHECK_EQ(count_files(), tiny_kind(m.family)->one_file ? 1 : 2);
        model_file_close(&mf);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
