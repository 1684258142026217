/* Opening, closing and searching the file of a draft head or a vision adaptor, of either kind. */
#include "format/companion_file.h"

#include "base/file.h"
#include "base/mem.h"

#ifndef PV_CORE
#include "format/safetensors_hf.h"
#endif

#include <string.h>

static enum pv_status set_path(struct companion_file *f, const char *path, struct pv_error *err)
{
    f->path = mem_strdup(path);
    return f->path ? PV_OK : fail_nomem(err, strlen(path) + 1);
}

enum pv_status companion_open(struct companion_file *f, const char *path, uint64_t limit,
                              struct pv_error *err)
{
    enum pv_status s = set_path(f, path, err);
    f->limit = limit ? limit : COMPANION_FILE_LIMIT;
    if (s)
        return s;
    if (!file_is_dir(path))
        return gguf_open(&f->gguf, path, f->limit, err);
#ifdef PV_CORE
    s = fail(err, PV_E_UNSUPPORTED,
             "%s: a directory, and this build (make CORE=1) reads GGUF files only: write one with "
             "'prevue convert' of a full build",
             path);
#endif
    return s;
}

enum pv_status companion_open_memory(struct companion_file *f, const void *data, size_t size,
                                     const char *name, struct pv_error *err)
{
    enum pv_status s = set_path(f, name, err);
    return s ? s : gguf_open_memory(&f->gguf, data, size, name, err);
}

void companion_close(struct companion_file *f)
{
#ifndef PV_CORE
    safetensors_close(&f->safetensors);
#endif
    gguf_close(&f->gguf);
    mem_free(f->path);
    f->path = NULL;
}

bool companion_has_arch(const struct gguf *g, const char *arch)
{
    struct str found;
    return gguf_string(g, "general.architecture", &found, NULL) == PV_OK &&
           found.len == strlen(arch) && memcmp(found.s, arch, found.len) == 0;
}

bool companion_is_gguf(const char *path, const char *arch)
{
    struct gguf *g = NULL;
    bool is =
        gguf_open(&g, path, COMPANION_FILE_LIMIT, NULL) == PV_OK && companion_has_arch(g, arch);
    gguf_close(&g);
    return is;
}

const struct tensor *companion_find(const struct companion_file *f, const char *name)
{
#ifndef PV_CORE
    if (f->safetensors)
        return safetensors_find(f->safetensors, name);
#endif
    return gguf_tensor_find(f->gguf, name);
}

int companion_n_tensors(const struct companion_file *f)
{
#ifndef PV_CORE
    if (f->safetensors)
        return safetensors_n_tensors(f->safetensors);
#endif
    return gguf_n_tensors(f->gguf);
}

const struct tensor *companion_tensor(const struct companion_file *f, int i)
{
#ifndef PV_CORE
    if (f->safetensors)
        return safetensors_tensor(f->safetensors, i);
#endif
    return gguf_tensor(f->gguf, i);
}

void companion_copy_name(char *out, size_t cap, const char *s, size_t len)
{
    size_t n = len < cap ? len : cap - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = s[i] >= ' ' && s[i] <= '~' ? s[i] : '?';
    out[n] = '\0';
}
