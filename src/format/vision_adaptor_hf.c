/* A vision adaptor as a directory, as lab/train writes it: config.json with the model_type
 * "prevue-adaptor", input_size, intermediate_size, output_size, norm_eps and perhaps target; and
 * model.safetensors, whose tensors have the names of the GGUF file. */
#include "base/file.h"
#include "base/mem.h"
#include "format/json_hf.h"
#include "format/safetensors_hf.h"
#include "format/vision_adaptor_parts.h"

#include <string.h>

enum { ADAPTOR_CONFIG_MAX = 1 << 20 };

static enum pv_status parse(struct vision_adaptor_config *out, const json_t *root, const char *name,
                            struct pv_error *err)
{
    struct vision_adaptor_config c = { 0 };
    const struct {
        const char *key;
        int *out;
    } sizes[] = { { "input_size", &c.in },
                  { "intermediate_size", &c.middle },
                  { "output_size", &c.out } };
    const char *target = json_hf_text(root, "target");
    double eps = 0;
    enum pv_status s = PV_OK;
    if (strcmp(json_hf_text(root, "model_type"), ADAPTOR_ARCH) != 0)
        s = fail(err, PV_E_ARG, "%s: not a vision adaptor (its model_type is not \"%s\")", name,
                 ADAPTOR_ARCH);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !s; i++) {
        int64_t value = 0;
        s = json_hf_int(root, sizes[i].key, 1, CONFIG_MAX_FFN, &value, name, err);
        *sizes[i].out = (int)value;
    }
    if (!s)
        s = json_hf_float(root, "norm_eps", &eps, name, err);
    if (s)
        return s;
    c.eps = (float)eps;
    vision_adaptor_set_target(&c, target, strlen(target));
    *out = c;
    return PV_OK;
}

enum pv_status vision_adaptor_config_parse(struct vision_adaptor_config *out, const char *json,
                                           size_t len, const char *name, struct pv_error *err)
{
    json_t *root = NULL;
    enum pv_status s = json_hf_parse(&root, json, len, name, err);
    if (!s)
        s = parse(out, root, name, err);
    json_decref(root);
    return s;
}

static enum pv_status open_config(json_t **root, char **path, const char *dir, struct pv_error *err)
{
    *path = path_join(dir, "config.json");
    if (!*path)
        return fail_nomem(err, strlen(dir) + sizeof "/config.json");
    return json_hf_open(root, *path, ADAPTOR_CONFIG_MAX, err);
}

bool vision_adaptor_dir_is(const char *dir)
{
    json_t *root = NULL;
    char *path = NULL;
    bool is = open_config(&root, &path, dir, NULL) == PV_OK &&
              !strcmp(json_hf_text(root, "model_type"), ADAPTOR_ARCH);
    json_decref(root);
    mem_free(path);
    return is;
}

enum pv_status vision_adaptor_open_dir(struct vision_adaptor_file *af, struct pv_error *err)
{
    json_t *root = NULL;
    char *path = NULL;
    enum pv_status s = open_config(&root, &path, af->in.path, err);
    if (!s)
        s = parse(&af->config, root, path, err);
    if (!s)
        s = safetensors_open(&af->in.safetensors, af->in.path, af->in.limit, err);
    json_decref(root);
    mem_free(path);
    return s;
}
