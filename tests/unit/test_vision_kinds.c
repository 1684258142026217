/* Models with vision towers: all that is read of them, and that both kinds of file give the same.
 */
#include "family/families.h"
#include "same_tower.h"
#include "tiny_vision.h"

/* A tensor holds the numbers that belong to a GGUF name. */
static void check_numbers(const struct tiny_vision *m, const struct tensor *t, const char *name)
{
    int rows = t->n_dims > 1 ? (int)t->dim[0] : 0, cols = (int)tensor_cols(t);
    float *want = tiny_numbers(m, name, rows, cols), *have = tensor_numbers(t);
    CHECK_MSG(!memcmp(want, have, sizeof *want * (size_t)((rows ? rows : 1) * cols)),
              "%s is not %s", t->name, name);
    free(want);
    free(have);
}

static void check_llava(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    CHECK(c->family == &family_llava_onevision && c->image == 22 && vision_side(c) == 5);
    CHECK(c->temporal == 1 && c->merge == 1 && c->full[0] && c->full[1]);
    CHECK(c->n_grid == 4 && c->grid[1][0] == 22 && c->grid[1][1] == 44 && c->max_tiles == 9);
    CHECK(c->image_token == TINY_IMAGE && c->video_token == TINY_VIDEO && c->vision_start == -1);
    check_numbers(m, t->patch[0], "v.patch_embd.weight");
    check_numbers(m, t->patch_bias, "v.patch_embd.bias");
    check_numbers(m, t->position, "v.position_embd.weight");
    check_numbers(m, t->newline, "v.image_newline");
    check_numbers(m, l->norm1_bias, "v.blk.1.ln1.bias");
    CHECK(!t->patch[1] && !t->merger.norm && !l->gate && !l->gate_bias);
}

static void check_qwen(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    CHECK(c->window == 16);
    CHECK(!c->full[0] && c->full[1] && !c->full[2] && c->full[3] && c->tokens_per_second == 2);
    check_numbers(m, l->gate, "v.blk.1.ffn_gate.weight");
    check_numbers(m, l->gate_bias, "v.blk.1.ffn_gate.bias");
    CHECK(!t->patch_bias && !t->position && !l->norm1_bias);
}

static void check_qwen2(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    CHECK(c->window == 0 && c->tokens_per_second == 0 && c->full[0] && c->full[3]);
    check_numbers(m, t->merger.norm_bias, "v.post_ln.bias");
    check_numbers(m, l->norm2_bias, "v.blk.1.ln2.bias");
    CHECK(!t->patch_bias && !t->position && !l->gate && !l->gate_bias);
}

/* A third of the tensor of this name. */
static void check_third(const struct tiny_vision *m, const struct tensor *t, const char *name,
                        int third)
{
    int n = (int)(tensor_rows(t) * tensor_cols(t)), rows = t->n_dims > 1 ? 3 * (int)t->dim[0] : 0;
    float *want = tiny_numbers(m, name, rows, rows ? (int)tensor_cols(t) : 3 * n);
    float *have = tensor_numbers(t);
    CHECK_MSG(!memcmp(want + third * n, have, sizeof *want * (size_t)n), "third %d of %s", third,
              name);
    free(want);
    free(have);
}

static void check_qwen3(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    const struct tensor *qkv[2][3] = { { l->q, l->k, l->v }, { l->q_bias, l->k_bias, l->v_bias } };
    CHECK(c->positions == 9 && c->n_deepstack == 2 && model_file_config(mf)->n_deepstack == 2);
    CHECK(c->deepstack[0] == 1 && c->deepstack[1] == 3 && vision_row_size(c) == 3 * c->out);
    CHECK(c->video_min_pixels == 4096 && c->video_max_pixels == 25165824);
    for (int i = 0; i < 3; i++) {
        check_third(m, qkv[0][i], "v.blk.1.attn_qkv.weight", i);
        check_third(m, qkv[1][i], "v.blk.1.attn_qkv.bias", i);
    }
    check_numbers(m, t->patch_bias, "v.patch_embd.bias");
    check_numbers(m, t->position, "v.position_embd.weight");
    check_numbers(m, t->merger.norm_bias, "v.post_ln.bias");
    check_numbers(m, t->deepstack[0].norm, "v.deepstack.1.norm.weight");
    check_numbers(m, t->deepstack[0].mm0, "v.deepstack.1.fc1.weight");
    check_numbers(m, t->deepstack[1].norm_bias, "v.deepstack.3.norm.bias");
    check_numbers(m, t->deepstack[1].mm2, "v.deepstack.3.fc2.weight");
    check_numbers(m, l->norm1_bias, "v.blk.1.ln1.bias");
    CHECK(!l->gate && !l->gate_bias);
}

/* What Qwen's families have. */
static void check_any_qwen(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    CHECK(c->family == m->family && c->temporal == 2 && c->merge == 2);
    CHECK(c->min_pixels == 1024 && c->max_pixels == 65536);
    CHECK(c->image_token == TINY_IMAGE_PAD && c->video_token == TINY_VIDEO_PAD);
    CHECK(c->vision_start == TINY_VISION_START && c->vision_end == TINY_VISION_END);
    check_numbers(m, model_file_vision_tensors(mf)->merger.norm, "v.post_ln.weight");
    CHECK(!model_file_vision_tensors(mf)->newline);
    if (m->family == &family_qwen2_5_vl || m->family == &family_salmonn2_plus)
        check_qwen(m, mf); /* they have the same tower */
    else if (m->family == &family_qwen2_vl)
        check_qwen2(m, mf);
    else
        check_qwen3(m, mf);
}

/* q, k and v where the file has them apart. */
static void check_apart(const struct tiny_vision *m, const struct vision_layer_tensors *l)
{
    check_numbers(m, l->q, "v.blk.1.attn_q.weight");
    check_numbers(m, l->k, "v.blk.1.attn_k.weight");
    check_numbers(m, l->v, "v.blk.1.attn_v.weight");
    check_numbers(m, l->q_bias, "v.blk.1.attn_q.bias");
    check_numbers(m, l->k_bias, "v.blk.1.attn_k.bias");
    check_numbers(m, l->v_bias, "v.blk.1.attn_v.bias");
}

/* What all families have. */
static void check_tower(const struct tiny_vision *m, const struct model_file *mf)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct vision_layer_tensors *l = model_file_vision_layer(mf, 1);
    CHECK(c->hidden == 32 && c->n_heads == 2 && c->head_dim == 16 && c->ffn == m->ffn);
    CHECK(c->patch == 4 && c->out == 32 && c->n_layers == m->n_layers);
    CHECK(c->mean[1] == 0.25f && c->std[2] == 0.25f && c->eps == 1e-6f);
    check_numbers(m, t->merger.mm0, "mm.0.weight");
    check_numbers(m, t->merger.mm2_bias, "mm.2.bias");
    if (!tiny_kind(m->family)->fused)
        check_apart(m, l);
    check_numbers(m, l->o, "v.blk.1.attn_out.weight");
    check_numbers(m, l->norm2, "v.blk.1.ln2.weight");
    check_numbers(m, l->up_bias, "v.blk.1.ffn_up.bias");
    if (m->family == &family_llava_onevision)
        check_llava(m, mf);
    else
        check_any_qwen(m, mf);
}

/* Every layout of a directory against the GGUF file with the same numbers. */
TEST(both_kinds_of_file_give_the_same)
{
    for (int i = 0; i < TINY_KINDS * TINY_LLAVA_LAYOUTS; i++) {
        struct tiny_vision m = tiny_vision(tiny_kinds[i % TINY_KINDS].family);
        char path[256];
        m.layout = i / TINY_KINDS;
        if (m.layout >= tiny_kind(m.family)->n_layouts)
            continue;
        struct model_file *dir = model_file_of(tiny_vision_dir(&m, "dir", path), NULL);
        struct model_file *gguf = model_file_of(tiny_vision_gguf(&m, "file", path), NULL);
        if (dir && gguf) {
            check_tower(&m, dir);
            check_tower(&m, gguf);
            same_tower(gguf, dir, DTYPE_F32);
            CHECK(model_file_vocab(dir) && model_file_vocab(gguf));
        }
        model_file_close(&dir);
        model_file_close(&gguf);
    }
}

/* The patch embedding of a directory is one matrix: row (channel, frame, y, x). */
TEST(the_patch_embedding_is_a_matrix)
{
    struct tiny_vision m = tiny_vision(&family_qwen2_5_vl);
    char path[256];
    struct model_file *mf = model_file_of(tiny_vision_dir(&m, "dir", path), NULL);
    const struct tensor *t = mf ? model_file_vision_tensors(mf)->patch[0] : NULL;
    float *frame[2] = { tiny_numbers(&m, "v.patch_embd.weight", 32, 48),
                        tiny_numbers(&m, "v.patch_embd.weight.1", 32, 48) };
    if (CHECK(t && t->n_dims == 2 && t->dim[0] == 32 && t->dim[1] == 96)) {
        float *x = tensor_numbers(t);
        bool same = true;
        for (int i = 0; i < 32 * 96; i++) {
            int row = i / 96, channel = i / 32 % 3, f = i / 16 % 2, pixel = i % 16;
            same = same && x[i] == frame[f][row * 48 + channel * 16 + pixel];
        }
        CHECK(same);
        CHECK(model_file_vision_tensors(mf)->patch[1] == NULL && t->size == 32 * 96 * sizeof *x);
        free(x);
    }
    free(frame[0]);
    free(frame[1]);
    model_file_close(&mf);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
