/* The presets: each one a row of choices that any flag can change. A method of another paper is one
 * more row here, and what it needs in a drafter_*.c or view_*.c. */
#include "spec/method.h"

#include "base/sized.h"
#include "spec/view.h"

#include <string.h>

enum { METHOD_NAMES_SIZE = 256 };

static const double usual_ratio = 0.9;

static const struct pv_method presets[] = {
    { .name = "ar", .view = "full" },
    { .name = "sd", .drafter = PV_DRAFT_MODEL, .view = "full" },
    { .name = "sd-tree", .drafter = PV_DRAFT_MODEL, .view = "full", .shape = PV_SHAPE_TREE },
    { .name = "std", .drafter = PV_DRAFT_SPARSE, .view = "full", .window = 9 },
    { .name = "specvlm", .drafter = PV_DRAFT_MODEL, .view = "specvlm", .shape = PV_SHAPE_TREE },
    { .name = "ngram", .drafter = PV_DRAFT_NGRAM, .view = "none" },
    { .name = "pearl",
      .drafter = PV_DRAFT_MODEL,
      .view = "full",
      .schedule = PV_SCHEDULE_PARALLEL },
    { .name = "hippo",
      .drafter = PV_DRAFT_MODEL,
      .view = "holistic",
      .schedule = PV_SCHEDULE_PARALLEL },
    { .name = "parallelvlm",
      .drafter = PV_DRAFT_MODEL,
      .view = "alignment",
      .schedule = PV_SCHEDULE_PARALLEL },
    { .name = "sparrow", .drafter = PV_DRAFT_HEAD, .view = "text", .shape = PV_SHAPE_FITTED },
    { .name = "msd", .drafter = PV_DRAFT_HEAD, .view = "full", .shape = PV_SHAPE_DYNAMIC },
    { .name = "auto", .drafter = PV_DRAFT_MODEL, .view = "specvlm", .automatic = true },
};

enum { N_PRESETS = sizeof presets / sizeof *presets };

/* Those of the laboratory; written before a model is opened, and never again. */
static const struct pv_method *added[METHODS_MOST_ADDED];
static int n_added;

/* NULL past the last. */
static const struct pv_method *preset_at(int i)
{
    if (i < 0 || i >= N_PRESETS + n_added)
        return NULL;
    return i < N_PRESETS ? &presets[i] : added[i - N_PRESETS];
}

const char *pv_method_name(int i)
{
    return preset_at(i) ? preset_at(i)->name : NULL;
}

bool methods_add(const struct pv_method *rows, int n)
{
    for (int k = 0; k < n; k++) {
        bool taken = n_added == METHODS_MOST_ADDED || !pv_view_find(rows[k].view);
        for (int i = 0; preset_at(i) && !taken; i++)
            taken = !strcmp(preset_at(i)->name, rows[k].name);
        if (taken)
            return false;
        added[n_added++] = &rows[k];
    }
    return true;
}

enum pv_status pv_method_find(struct pv_method *out, const char *name, struct pv_error *err)
{
    char names[METHOD_NAMES_SIZE] = "";
    size_t used = 0;
    if (out->size < sizeof out->size)
        return fail(err, PV_E_ARG, "method '%s' was asked for without the size of its struct",
                    name);
    for (int i = 0; preset_at(i); i++) {
        const struct pv_method *preset = preset_at(i);
        if (strcmp(preset->name, name) == 0) {
            const struct pv_view_info *view = pv_view_find(preset->view);
            struct pv_method m = *preset;
            m.ratio = view->videos && !view->takes_ratio ? 0 : usual_ratio; /* of all: none */
            sized_write(out, &m, sizeof m);
            return PV_OK;
        }
        size_t len = strlen(preset->name);
        if (used + len + 2 < sizeof names) {
            memcpy(names + used, " ", i > 0);
            memcpy(names + used + (i > 0), preset->name, len + 1);
            used += len + (i > 0);
        }
    }
    return fail(err, PV_E_ARG, "unknown method '%s' (available: %s)", name, names);
}
