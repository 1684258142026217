/* pv_convert: a model, a draft head or a vision adaptor of any readable form, as GGUF. */
#include "base/sized.h"
#include "engine/model.h"
#include "family/families.h"
#include "format/gguf_write.h"
#include "format/head_file.h"
#include "format/vision_adaptor_file.h"
#include "prevue/about.h"

#include <stdio.h>

void pv_convert_params_init(struct pv_convert_params *p, size_t size)
{
    static const struct pv_convert_params usual = { 0 };
    sized_init(p, size, &usual, sizeof usual);
}

static enum pv_status convert_head(const char *src, const char *out_path, enum dtype type,
                                   uint64_t limit, const struct write_watch *watch,
                                   struct pv_error *err)
{
    struct head_file *hf;
    enum pv_status s = head_file_open(&hf, src, limit, err);
    if (s)
        return s;
    s = head_file_write_gguf(hf, out_path, type, watch, err);
    head_file_close(&hf);
    return s;
}

static enum pv_status convert_adaptor(const char *src, const char *out_path, enum dtype type,
                                      uint64_t limit, const struct write_watch *watch,
                                      struct pv_error *err)
{
    struct vision_adaptor_file *af;
    enum pv_status s = vision_adaptor_file_open(&af, src, limit, err);
    if (s)
        return s;
    s = vision_adaptor_file_write_gguf(af, out_path, type, watch, err);
    vision_adaptor_file_close(&af);
    return s;
}

enum pv_status pv_convert(const char *src, const char *out_path, const struct pv_convert_params *p,
                          struct pv_error *err)
{
    static const enum dtype dtypes[] = { DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,
                                         DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_1 };
    const uint64_t limit = model_fill_limits((struct pv_limits){ 0 }).file_bytes;
    struct pv_convert_params own = pv_convert_defaults();
    struct model_file *mf;
    struct write_watch watch;
    enum pv_status s = sized_read(&own, sizeof own, p, "a conversion", err);
    if (s)
        return s;
    if ((unsigned)own.type >= sizeof dtypes / sizeof *dtypes)
        return fail(err, PV_E_ARG, "files of weight type %d cannot be written", (int)own.type);
    watch = (struct write_watch){ own.progress, own.progress_user };
    if (head_file_is(src) && !own.adapter)
        return convert_head(src, out_path, dtypes[own.type], limit, &watch, err);
    if (vision_adaptor_file_is(src) && !own.adapter)
        return convert_adaptor(src, out_path, dtypes[own.type], limit, &watch, err);
    s = own.adapter ? model_file_open_adapted(&mf, src, own.adapter, limit, families, err)
                    : model_file_open(&mf, src, NULL, limit, families, err);
    if (s)
        return s;
    s = model_file_write_gguf(mf, out_path, dtypes[own.type], own.one_file, &watch, err);
    model_file_close(&mf);
    return s;
}

enum pv_status pv_head_unused(const char *path, char *out, size_t size, struct pv_error *err)
{
    const uint64_t limit = model_fill_limits((struct pv_limits){ 0 }).file_bytes;
    struct head_file *hf;
    enum pv_status s;
    int n;
    snprintf(out, size, "%s", "");
    if (!head_file_is(path))
        return PV_OK;
    s = head_file_open(&hf, path, limit, err);
    if (s)
        return s;
    n = head_file_adaptor(hf);
    if (n > 0)
        snprintf(out, size,
                 "the adaptor of ViSpec (%d tensors named imadpt.* and img_fc.*), which shows the "
                 "head a summary of pictures",
                 n);
    head_file_close(&hf);
    return s;
}
