/* A random model that sees, with a draft head, and a draft model that resembles it. */
#ifndef PV_TESTS_HEADED_H
#define PV_TESTS_HEADED_H

#include "answers.h"
#include "tiny_head.h"

/* Without a head where `head` is false; p: device, threads and CPU features. False (and a failed
 * check) when they cannot be opened. */
static inline bool open_headed(struct pair *out, struct tiny_vision target, bool head,
                               struct pv_model_params p)
{
    struct tiny_vision draft = target;
    struct tiny_head h = tiny_head(target.text.hidden, 0);
    struct pv_error err = { 0 };
    char paths[3][256];
    *out = (struct pair){ 0 };
    draft.hidden /= 2;
    draft.n_layers /= 2;
    draft.ffn /= 2;
    draft.noise = 0.1f;
    h.copies = true;
    h.no_input_norm = true;
    h.n_kv = 1;
    tiny_vision_gguf(&target, "target", paths[0]);
    tiny_vision_gguf(&draft, "draft", paths[1]);
    p.path = paths[0];
    if (head)
        p.head = tiny_head_write(&h, "head", paths[2]);
    if (!CHECK_MSG(pv_model_open(&out->target, &p, &err) == PV_OK, "%s", err.text))
        return false;
    p.head = NULL;
    p.path = paths[1];
    p.beside = out->target;
    return CHECK_MSG(pv_model_open(&out->draft, &p, &err) == PV_OK, "%s", err.text);
}

#endif
