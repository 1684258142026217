/* Finding a family by what a file calls it. */
#include "format/family.h"

#include <string.h>

static bool str_is(const struct str *s, const char *text)
{
    return text && s->len == strlen(text) && !memcmp(s->s, text, s->len);
}

static bool has_signs(const struct family *f, const struct family_reader *r)
{
    for (const struct family_sign *s = f->signs; s && s->key; s++)
        if (!r->has(r->root, s))
            return false;
    return true;
}

const struct family *family_of_type(const struct family *const *families, const char *type,
                                    const struct family_reader *r)
{
    for (; *families; families++)
        for (const char *const *t = (*families)->types; *t; t++)
            if (!strcmp(*t, type) && has_signs(*families, r))
                return *families;
    return NULL;
}

const struct family *family_of_arch(const struct family *const *families, const struct str *arch)
{
    for (; *families; families++)
        if (!(*families)->by_text && !(*families)->signs && str_is(arch, (*families)->arch))
            return *families;
    return NULL;
}

const struct family *family_of_projector(const struct family *const *families,
                                         const struct str *type, bool hears,
                                         const struct family *decoder)
{
    const struct family *found = NULL;

    for (; *families; families++)
        if ((*families)->tower && str_is(type, (*families)->tower->projector) &&
            hears == ((*families)->audio_encoder != NULL)) {
            if (decoder && !strcmp(decoder->arch, (*families)->arch))
                return *families;
            found = found ? found : *families;
        }
    return found;
}
