/* The list of drafters. Each row is defined in the drafter's own file. */
#include "spec/drafter_kind.h"

static const struct drafter_kind plain = { .info = { .name = "none", .preset = "ar" } };

static const struct drafter_kind *const kinds[PV_DRAFT_COUNT] = {
    [PV_DRAFT_NONE] = &plain,
    [PV_DRAFT_MODEL] = &drafter_model,
    [PV_DRAFT_SELF] = &drafter_self,
    [PV_DRAFT_SPARSE] = &drafter_sparse,
    [PV_DRAFT_HEAD] = &drafter_head,
    [PV_DRAFT_NGRAM] = &drafter_ngram,
    [PV_DRAFT_RANDOM] = &drafter_random,
    [PV_DRAFT_ORACLE] = &drafter_oracle,
};

/* Those of the laboratory; written before a model is opened, and never again. */
static const struct drafter_kind *added[PV_DRAFT_COUNT];

const struct drafter_kind *drafter_find(enum pv_drafter drafter)
{
    if ((unsigned)drafter >= PV_DRAFT_COUNT)
        return NULL;
    return kinds[drafter] ? kinds[drafter] : added[drafter];
}

bool drafter_add(enum pv_drafter drafter, const struct drafter_kind *kind)
{
    if ((unsigned)drafter >= PV_DRAFT_COUNT || drafter_find(drafter))
        return false;
    added[drafter] = kind;
    return true;
}

const struct pv_drafter_info *pv_drafter_find(int i)
{
    const struct drafter_kind *kind = drafter_find((enum pv_drafter)i);
    return kind ? &kind->info : NULL;
}
