/* Vision adaptors on disk: GGUF files, directories, what convert makes of either, and everything
 * that can be wrong with them. */
#include "format/vision_adaptor_file.h"

#include "base/mem.h"
#include "format/vision_adaptor_parts.h"
#include "prevue/prevue.h"
#include "test.h"
#include "tiny_adaptor.h"

#include <sys/stat.h>

static const struct tiny_adaptor whole = {
    .in = 64, .middle = 32, .out = 96, .type = DTYPE_F32, .seed = 1, .layer_norm = true
};

static struct vision_adaptor_file *open_made(const struct tiny_adaptor *a, struct pv_error *err)
{
    struct vision_adaptor_file *af = NULL;
    char path[256];
    vision_adaptor_file_open(&af, tiny_adaptor_write(a, "made", path), 0, err);
    return af;
}

TEST(tensors_and_sizes)
{
    struct tiny_adaptor a = whole;
    struct pv_error err = { 0 };
    struct vision_adaptor_file *af = open_made(&a, &err);
    const struct vision_adaptor_tensors *t;
    if (!CHECK_MSG(af, "%s", err.text))
        return;
    t = vision_adaptor_file_tensors(af);
    CHECK(t->norm && t->norm_bias && t->up_bias && t->down_bias);
    CHECK(t->up->dim[0] == 32 && t->up->dim[1] == 64 && t->down->dim[0] == 96);
    CHECK_EQ(vision_adaptor_file_config(af)->in, 64);
    CHECK_EQ(vision_adaptor_file_config(af)->out, 96);
    CHECK(!strcmp(vision_adaptor_file_config(af)->target, "tiny?"));
    vision_adaptor_file_close(&af);
    a.layer_norm = false;
    a.no_biases = true;
    af = open_made(&a, &err);
    if (!CHECK_MSG(af, "%s", err.text))
        return;
    t = vision_adaptor_file_tensors(af);
    CHECK(!t->norm_bias && !t->up_bias && !t->down_bias && t->down);
    vision_adaptor_file_close(&af);
}

static void check_fault(const struct tiny_adaptor *a, enum pv_status want, const char *says)
{
    struct pv_error err = { 0 };
    struct vision_adaptor_file *af = open_made(a, &err);
    CHECK_MSG(!af && err.code == want && strstr(err.text, says) && strstr(err.text, "made.gguf"),
              "'%s', not '%s'", err.text, says);
    vision_adaptor_file_close(&af);
}

TEST(faults)
{
    static const char *const needed[] = { "adaptor.norm.weight",
                                          "adaptor.up.weight",
                                          "adaptor.down.weight",
                                          "prevue-adaptor.input_length",
                                          "prevue-adaptor.feed_forward_length",
                                          "prevue-adaptor.output_length" };
    static const char *const shaped[] = { "adaptor.norm.weight", "adaptor.norm.bias",
                                          "adaptor.up.weight",   "adaptor.up.bias",
                                          "adaptor.down.weight", "adaptor.down.bias" };
    struct tiny_adaptor a;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        a = whole;
        a.drop = needed[i];
        check_fault(&a, PV_E_FORMAT, needed[i]);
    }
    for (size_t i = 0; i < sizeof shaped / sizeof *shaped; i++) {
        a = whole;
        a.reshape = shaped[i];
        check_fault(&a, PV_E_FORMAT, shaped[i]);
    }
    a = whole;
    a.extra = "adaptor.gate.weight";
    check_fault(&a, PV_E_UNSUPPORTED, "has 7 tensors, 6 of which an adaptor has");
    a = whole;
    a.arch = "qwen2";
    check_fault(&a, PV_E_ARG, "not a vision adaptor");
    a = whole;
    a.eps = -1;
    check_fault(&a, PV_E_FORMAT, "epsilon");
}

TEST(fit)
{
    struct config target = { .hidden = 64 }, draft = { .hidden = 96 }, deep = { .hidden = 32 };
    struct pv_error err = { 0 };
    struct vision_adaptor_file *af = open_made(&whole, &err);
    if (!CHECK_MSG(af, "%s", err.text))
        return;
    deep.n_deepstack = 2;
    CHECK_EQ(vision_adaptor_file_fit(af, &target, "T", &draft, "D", &err), PV_OK);
    CHECK_EQ(vision_adaptor_file_fit(af, &target, "T", &deep, "D", &err), PV_OK);
    CHECK_EQ(vision_adaptor_file_fit(af, &draft, "T", &draft, "D", &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "takes rows of 64 numbers, and the hidden size of T is 96"), "%s",
              err.text);
    err = (struct pv_error){ 0 };
    CHECK_EQ(vision_adaptor_file_fit(af, &target, "T", &target, "D", &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "makes rows of 96 numbers, and the hidden size of D is 64"), "%s",
              err.text);
    vision_adaptor_file_close(&af);
}

/* ---- converting ---- */

static bool same_floats(const struct tensor *a, const struct tensor *b)
{
    return a->dtype == DTYPE_F32 && b->dtype == DTYPE_F32 && a->size == b->size &&
           !memcmp(a->data, b->data, a->size);
}

TEST(convert_keeps_numbers)
{
    char from[256], to[256];
    struct pv_convert_params p = pv_convert_defaults();
    struct pv_error err = { 0 };
    struct vision_adaptor_file *a = NULL, *b = NULL;
    p.type = PV_TYPE_F32;
    tiny_adaptor_write(&whole, "from", from);
    snprintf(to, sizeof to, "%s/to.gguf", scratch_dir());
    CHECK_MSG(pv_convert(from, to, &p, &err) == PV_OK, "%s", err.text);
    CHECK_EQ(vision_adaptor_file_open(&a, from, 0, &err), PV_OK);
    CHECK_EQ(vision_adaptor_file_open(&b, to, 0, &err), PV_OK);
    if (a && b) {
        const struct vision_adaptor_tensors *x = vision_adaptor_file_tensors(a),
                                            *y = vision_adaptor_file_tensors(b);
        CHECK(same_floats(x->norm, y->norm) && same_floats(x->norm_bias, y->norm_bias));
        CHECK(same_floats(x->up, y->up) && same_floats(x->down_bias, y->down_bias));
        CHECK(!memcmp(&a->config, &b->config, sizeof a->config));
    }
    vision_adaptor_file_close(&b);
    p.type = PV_TYPE_Q8_0;
    CHECK_MSG(pv_convert(from, to, &p, &err) == PV_OK, "%s", err.text);
    CHECK_EQ(vision_adaptor_file_open(&b, to, 0, &err), PV_OK);
    if (b) {
        CHECK_EQ(vision_adaptor_file_tensors(b)->up->dtype, DTYPE_Q8_0);
        CHECK_EQ(vision_adaptor_file_tensors(b)->up_bias->dtype, DTYPE_F32);
    }
    vision_adaptor_file_close(&a);
    vision_adaptor_file_close(&b);
}

TEST(an_adaptor_is_known_by_its_kind)
{
    char path[256];
    struct tiny_adaptor a = whole;
    CHECK(vision_adaptor_file_is(tiny_adaptor_write(&a, "kind", path)));
    a.arch = "qwen2";
    CHECK(!vision_adaptor_file_is(tiny_adaptor_write(&a, "other", path)));
    CHECK(!vision_adaptor_file_is("models"));
    CHECK(!vision_adaptor_file_is("no such file"));
}

#ifndef PV_CORE
static void write_file(const char *dir, const char *name, const void *data, size_t size)
{
    char path[512];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    if (!CHECK(f != NULL))
        return;
    CHECK_EQ(fwrite(data, 1, size, f), size);
    CHECK_EQ(fclose(f), 0);
}

static const char config_json[] = "{\"model_type\": \"prevue-adaptor\", \"input_size\": 2, "
                                  "\"intermediate_size\": 1, \"output_size\": 3, \"norm_eps\": "
                                  "1e-5, \"target\": \"T\"}";

/* A directory as lab/train writes it. */
TEST(directories)
{
    static const char header[] =
        "{\"adaptor.norm.weight\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
        "\"adaptor.up.weight\": {\"dtype\": \"F32\", \"shape\": [1, 2], \"data_offsets\": [8, 16]},"
        "\"adaptor.down.weight\": {\"dtype\": \"F32\", \"shape\": [3, 1], \"data_offsets\": [16, "
        "28]}}";
    const uint64_t len = sizeof header - 1;
    const float numbers[7] = { 1, 2, 3, 4, 5, 6, 7 };
    uint8_t bytes[8 + sizeof header - 1 + sizeof numbers];
    char dir[256];
    struct pv_error err = { 0 };
    struct vision_adaptor_file *af = NULL;
    snprintf(dir, sizeof dir, "%s/adaptor", scratch_dir());
    mkdir(dir, 0777);
    memcpy(bytes, &len, 8);
    memcpy(bytes + 8, header, sizeof header - 1);
    memcpy(bytes + 8 + len, numbers, sizeof numbers);
    write_file(dir, "config.json", config_json, sizeof config_json - 1);
    write_file(dir, "model.safetensors", bytes, sizeof bytes);
    CHECK(vision_adaptor_file_is(dir));
    CHECK_MSG(!vision_adaptor_file_open(&af, dir, 0, &err), "%s", err.text);
    if (af) {
        CHECK(!memcmp(vision_adaptor_file_tensors(af)->down->data, numbers + 4, 12));
        CHECK_EQ(vision_adaptor_file_config(af)->middle, 1);
    }
    vision_adaptor_file_close(&af);
    write_file(dir, "config.json", "{\"model_type\": \"llava\"}", 23);
    CHECK(!vision_adaptor_file_is(dir));
    CHECK_EQ(vision_adaptor_file_open(&af, dir, 0, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "config.json: not a vision adaptor"), "%s", err.text);
}

TEST(numbers_of_a_directory_are_bounded)
{
    static const char *const wrong[][2] = { { "\"input_size\": 2", "\"input_size\": 0" },
                                            { "\"input_size\": 2", "\"input_size\": 1e30" },
                                            { "\"output_size\": 3", "\"output\": 3" },
                                            { "\"norm_eps\": 1e-5", "\"norm_eps\": \"a\"" } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct vision_adaptor_config c = { 0 };
        struct pv_error err = { 0 };
        char text[512];
        const char *at = strstr(config_json, wrong[i][0]);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - config_json), config_json, wrong[i][1],
                 at + strlen(wrong[i][0]));
        CHECK_MSG(vision_adaptor_config_parse(&c, text, strlen(text), "it", &err) == PV_E_FORMAT,
                  "%s", text);
        CHECK(err.text[0] && c.in == 0);
    }
}
#endif

TEST(lack_of_memory_is_a_clean_failure)
{
    char path[256];
    enum pv_status s = PV_E_NOMEM;
    struct vision_adaptor_file *af = NULL;
    int k;
    tiny_adaptor_write(&whole, "memory", path);
    for (k = 1; s && k < 10000; k++) {
        struct pv_error err = { 0 };
        mem_fail_at((uint64_t)k);
        s = vision_adaptor_file_open(&af, path, 0, &err);
        mem_fail_at(0);
        if (s && !CHECK_MSG(err.text[0] && !af, "allocation %d", k))
            return;
    }
    CHECK_EQ(s, PV_OK);
    CHECK(k > 3);
    vision_adaptor_file_close(&af);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
