/* What the file of a vision adaptor is made of: shared by its readers and its writer, by nobody
 * else. */
#ifndef PV_FORMAT_VISION_ADAPTOR_PARTS_H
#define PV_FORMAT_VISION_ADAPTOR_PARTS_H

#include "format/companion_file.h"
#include "format/vision_adaptor_file.h"

#define ADAPTOR_ARCH "prevue-adaptor"

struct vision_adaptor_file {
    struct companion_file in;
    struct vision_adaptor_config config;
    struct vision_adaptor_tensors tensors;
};

struct vision_adaptor_role {
    const char *name; /* in both kinds of file */
    bool needed;
    int n_dims;
    size_t dim[2]; /* offsets of their sizes in the configuration */
    size_t slot;   /* in the tensors */
};

enum { ADAPTOR_ROLE_COUNT = 6 };

extern const struct vision_adaptor_role vision_adaptor_role[ADAPTOR_ROLE_COUNT];

/* A printable copy of the target's name. */
void vision_adaptor_set_target(struct vision_adaptor_config *c, const char *s, size_t len);

/* vision_adaptor_hf.c: config.json and the safetensors of af->in.path. Not in a CORE build. */
enum pv_status vision_adaptor_open_dir(struct vision_adaptor_file *af, struct pv_error *err);
/* Whether a directory's config.json says that it is one. Not in a CORE build. */
bool vision_adaptor_dir_is(const char *path);
/* The text of a config.json. For tests and fuzzers. */
enum pv_status vision_adaptor_config_parse(struct vision_adaptor_config *out, const char *json,
                                           size_t len, const char *name, struct pv_error *err);

#endif
