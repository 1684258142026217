/* A random model that sees, with a draft head, and a draft model that resembles it. */
#ifndef PV_TESTS_HEADED_H
#define PV_TESTS_HEADED_H

#include "answers.h"
#include "tiny_head.h"

enum test_head { NO_HEAD, EAGLE_HEAD, EAGLE3_HEAD };

/* It copies the last token. That of EAGLE-3 has an LM head of its own for half of the tokens, which
 * are random ones. */
static inline struct tiny_head copying_head(const struct tiny_vision *target, enum test_head kind)
{
    struct tiny_head h = tiny_head(target->text.hidden, 0);
    h.copies = true;
    h.n_kv = 1;
    h.no_input_norm = kind == EAGLE_HEAD;
    if (kind == EAGLE3_HEAD) {
        h.eagle3 = true;
        h.n_features = 3;
        h.features[1] = 1;
        h.features[2] = target->text.n_layers;
        h.vocab = target->text.vocab;
        h.draft_vocab = h.vocab / 2;
    }
    return h;
}

/* p: device, threads and CPU features. False (and a failed check) when they cannot be opened. */
static inline bool open_headed(struct pair *out, struct tiny_vision target, enum test_head head,
                               struct pv_model_params p)
{
    struct tiny_vision draft = target;
    struct tiny_head h = copying_head(&target, head);
    struct pv_error err = { 0 };
    char paths[3][256];
    *out = (struct pair){ 0 };
    draft.hidden /= 2;
    draft.n_layers /= 2;
    draft.ffn /= 2;
    draft.noise = 0.1f;
    tiny_vision_gguf(&target, "target", paths[0]);
    tiny_vision_gguf(&draft, "draft", paths[1]);
    p.path = paths[0];
    if (head != NO_HEAD)
        p.head = tiny_head_write(&h, "head", paths[2]);
    if (!CHECK_MSG(pv_model_open(&out->target, &p, &err) == PV_OK, "%s", err.text))
        return false;
    p.head = NULL;
    p.path = paths[1];
    p.shares_with = out->target;
    return CHECK_MSG(pv_model_open(&out->draft, &p, &err) == PV_OK, "%s", err.text);
}

#endif
