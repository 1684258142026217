/* The laboratory's rows of the tables of drafters, views and methods. */
#include "lab_rows.h"

#include "lab_drafters.h"
#include "lab_views.h"
#include "spec/method.h"

/* Views that keep a part of each video. */
#define PART .videos = true, .pictures = true, .takes_ratio = true

static const struct view views[] = {
    { .info = { "window-front", PART }, .choose = view_window_front },
    { .info = { "window-middle", PART }, .choose = view_window_middle },
    { .info = { "window-back", PART }, .choose = view_window_back },
    /* whole frames */
    { .info = { "frame", PART }, .choose = view_frame },
    /* as SpecVLM ran it: frames that resemble the one before are dropped */
    { .info = { "fastvid", PART, .features = true }, .choose = view_fastvid },
    /* the same idea, but keeps exactly the number that the ratio asks for */
    { .info = { "fastvid-exact", PART, .features = true }, .choose = view_fastvid_exact },
    /* as SpecVLM ran it */
    { .info = { "dycoke", PART, .features = true }, .choose = view_dycoke },
    /* keeps exactly the number that the ratio asks for */
    { .info = { "dycoke-exact", PART, .features = true }, .choose = view_dycoke_exact },
    /* as specvlm, with the others on a grid within each frame */
    { .info = { "specvlm-grid", PART, .signal = PV_SIGNAL_ATTENTION, .takes_lambda = true },
      .choose = view_specvlm_grid,
      .grid = true },
    /* as specvlm, by the drafter's own attention to the whole video */
    { .info = { "specvlm-draft", PART, .signal = PV_SIGNAL_DRAFT_ATTENTION, .takes_lambda = true },
      .choose = view_specvlm },
};

static const struct pv_method methods[] = {
    { .name = "sd-rand", .drafter = PV_DRAFT_MODEL, .view = "random", .shape = PV_SHAPE_TREE },
    { .name = "sd-uniform", .drafter = PV_DRAFT_MODEL, .view = "uniform", .shape = PV_SHAPE_TREE },
    { .name = "sd-window",
      .drafter = PV_DRAFT_MODEL,
      .view = "window-back",
      .shape = PV_SHAPE_TREE },
    { .name = "sd-frame", .drafter = PV_DRAFT_MODEL, .view = "frame", .shape = PV_SHAPE_TREE },
    { .name = "sd-fastvid", .drafter = PV_DRAFT_MODEL, .view = "fastvid", .shape = PV_SHAPE_TREE },
    { .name = "sd-dycoke", .drafter = PV_DRAFT_MODEL, .view = "dycoke", .shape = PV_SHAPE_TREE },
    { .name = "onsd", .drafter = PV_DRAFT_MODEL, .view = "none" },
};

bool lab_rows_add(void)
{
    return drafter_add(PV_DRAFT_CASCADE, &drafter_cascade) &&
           views_add(views, sizeof views / sizeof *views) &&
           methods_add(methods, sizeof methods / sizeof *methods);
}
