/* prevue-lab view: what each view keeps of a video, drawn over the frames that the model sees. One
 * session reads the prompt once and is asked for each view in turn; then the video is decoded again
 * for its frames. */
#include "draft_view_args.h"
#include "lab.h"
#include "model_advice.h"
#include "progress.h"
#include "run_args.h"
#include "shown.h"
#include "video_args.h"
#include "view_report.h"

#include "base/mem.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_VIEWS                                                                                \
    "random,uniform,frame,window-back,fastvid-exact,dycoke-exact,attention,specvlm,holistic,"      \
    "alignment"

enum { MOST_COLUMNS = 64, NAME_SIZE = 64 };

struct view_args {
    const char *output, *draft, *prompt, *views;
    double ratio, lambda;
    int columns;
    uint64_t seed;
    struct draft_view_args draft_view;
    struct choice_args choice;
    struct model_args model;
    struct session_args session;
    struct limit_args limits;
};

#define AT(field) offsetof(struct view_args, field)

static const struct option output_table[] = {
    { "output", 'o', NULL, OPTION_STRING, AT(output), 0, 0, "FILE",
      "File to write: a picture with one row per view (.png), or a web page in which a view can be "
      "selected (.html). An existing file is replaced.",
      NULL },
    { "columns", 0, NULL, OPTION_INT, AT(columns), 1, MOST_COLUMNS, "N",
      "Frames per row. Default: in a picture at most 12, evenly chosen; in a page as many as fit, "
      "and all frames are shown.",
      NULL },
};

static const struct option view_table[] = {
    { "views", 0, "--view", OPTION_STRING, AT(views), 0, 0, "V1,V2,...",
      "Which views, in this order. Default: random, uniform, frame, window-back, fastvid-exact, "
      "dycoke-exact, attention, specvlm, holistic and alignment.",
      NULL },
    { "ratio", 0, NULL, OPTION_NUMBER, AT(ratio), 0, 1, "R",
      "Share of the video's tokens to leave out. Default: 0.9.", NULL },
    { "lambda", 0, NULL, OPTION_NUMBER, AT(lambda), 0.001, 1, "L",
      "View specvlm: share of the attention that its first stage keeps. Default: 0.4, for Qwen "
      "0.5.",
      NULL },
    { "seed", 's', NULL, OPTION_U64, AT(seed), 0, 0, "S", "View random: its seed. Default: 0.",
      NULL },
    { "prompt", 'p', NULL, OPTION_TEXT, AT(prompt), 0, 0, "TEXT",
      "The question, whose attention guides some views. Default: to describe the video.", NULL },
    { "draft", 'd', "-md --model-draft", OPTION_STRING, AT(draft), 0, 0, "MODEL",
      "Draft model, or \"self\": the model itself. Views do not depend on it, but it must accept "
      "videos. Default: self.",
      NULL },
};

static const struct option_group view_groups[] = {
    { "output", output_table, sizeof output_table / sizeof *output_table, 0, SHORT_ALL },
    { "views", view_table, sizeof view_table / sizeof *view_table, 0, SHORT_ALL },
    { "scores", draft_view_table, N_DRAFT_VIEW_OPTIONS, AT(draft_view), SHORT_NONE },
    { "frames", choice_table, N_CHOICE_OPTIONS, AT(choice), N_CHOICE_SHORT },
    { "model", model_table, N_MODEL_OPTIONS, AT(model), N_MODEL_SHORT },
    { "memory", session_table, N_SESSION_OPTIONS, AT(session), N_SESSION_SHORT },
    { "limits", limit_table, N_LIMIT_OPTIONS, AT(limits), SHORT_NONE },
};

const struct option_set view_options = {
    .command = "view",
    .usage = "VIDEO -o OUT.png|OUT.html [--views V1,V2,...] [OPTIONS]",
    .about = "Draws what each view keeps of a video over the frames that the model sees: kept "
             "tokens in colour, the others grey. A view is the choice of video tokens that a "
             "drafter sees. For views that use scores there is also a heat map of these, on one "
             "scale for the whole video, and the share of the attention that falls on the kept "
             "tokens. The table on stdout says how many tokens each view keeps, and which share of "
             "them is at the edges (in the first or last tenth of a frame's rows, and of the "
             "frames), compared with the share of all tokens there.",
    .groups = view_groups,
    .n_groups = sizeof view_groups / sizeof *view_groups,
    .max_operands = 1,
    .examples = "  prevue-lab view clip.mp4 -o views.png\n"
                "  prevue-lab view clip.mp4 -o views.html -p 'Who is it?' --ratio 0.95\n"
                "  prevue-lab view clip.mp4 -o two.png --views attention,specvlm --columns 6\n",
};

/* ---- the views ---- */

static const char *find_view(const char *name)
{
    for (int i = 0; pv_view_name(i); i++) {
        if (!strcmp(pv_view_name(i), name))
            return pv_view_name(i);
    }
    return NULL;
}

static int unknown_view(const char *name)
{
    char words[512] = "", best[NAME_SIZE];
    size_t n = 0;
    for (int i = 0; pv_view_name(i) && n < sizeof words; i++)
        n += (size_t)snprintf(words + n, sizeof words - n, "%s%s", i ? " " : "", pv_view_name(i));
    if (nearest_word(best, sizeof best, name, words))
        return options_misuse("view", "unknown view \"%s\" (did you mean %s?)", name, best);
    return options_misuse("view", "unknown view \"%s\" (available: %s)", name, words);
}

/* Names separated by commas, into the report. */
static int parse_views(const char *text, struct view_report *r)
{
    for (;;) {
        size_t n = strcspn(text, ",");
        char name[NAME_SIZE];
        snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : NAME_SIZE - 1, text);
        if (!find_view(name))
            return unknown_view(name);
        if (r->n_views == MAX_VIEWS)
            return options_misuse("view", "at most %d views go into one picture", MAX_VIEWS);
        r->views[r->n_views++].name = find_view(name);
        if (!text[n])
            return OPTIONS_RUN;
        text += n + 1;
    }
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The scores that guide a view: what there are already, or new ones. */
static struct heat *heat_of(struct view_report *r, const char *view)
{
    static const struct heat kinds[] = {
        [PV_SIGNAL_ATTENTION] = { .name = "attention", .what = "of the text", .attention = true },
        [PV_SIGNAL_VIDEO_ATTENTION] = { .name = "holistic",
                                        .what = "attention in it",
                                        .attention = true },
        [PV_SIGNAL_ALIGNMENT] = { .name = "alignment", .what = "gain of cosines" },
        [PV_SIGNAL_DRAFT_ATTENTION] = { .name = "draft attention",
                                        .what = "of the text, in the drafter",
                                        .attention = true },
    };
    const struct heat *kind = &kinds[pv_view_find(view)->signal];
    if (!kind->name)
        return NULL;
    for (int i = 0; i < r->n_heats; i++)
        if (!strcmp(r->heats[i].name, kind->name))
            return &r->heats[i];
    r->heats[r->n_heats] = *kind;
    return &r->heats[r->n_heats++];
}

/* Keep the scores, attention in units of its mean, and find the scale's ends. */
static enum pv_status take_scores(struct heat *h, const float *scores, size_t n,
                                  struct pv_error *err)
{
    size_t size = n * sizeof *scores;
    float *own = mem_alloc(size);
    double sum = 0, unit;

    if (!own)
        return fail_nomem(err, size);
    for (size_t i = 0; i < n; i++)
        sum += scores[i];
    unit = !h->attention ? 1 : sum > 0 ? (double)n / sum : 0;
    for (size_t i = 0; i < n; i++)
        own[i] = (float)(scores[i] * unit);
    qsort(own, n, sizeof *own, compare_floats);
    h->low = h->attention ? 0 : own[(n - 1) / 100];
    h->top = own[(n - 1) * 99 / 100];
    h->top = h->top > h->low ? h->top : h->low + 1;
    for (size_t i = 0; i < n; i++)
        own[i] = (float)(scores[i] * unit);
    h->scores = own;
    return PV_OK;
}

static enum pv_status take_view(struct view_report *r, struct kept_view *v,
                                const struct pv_view_map *map, struct pv_error *err)
{
    struct heat *h = map->scores ? heat_of(r, v->name) : NULL;
    size_t n;
    r->units = map->frames;
    r->height = map->height;
    r->width = map->width;
    r->all_rows = map->all_rows;
    r->all_frames = map->all_frames;
    v->kept = map->kept;
    v->rows = map->kept_rows;
    v->frames = map->kept_frames;
    n = (size_t)report_tokens(r);
    v->visible = mem_alloc(n * sizeof *v->visible);
    if (!v->visible)
        return fail_nomem(err, n * sizeof *v->visible);
    memcpy(v->visible, map->visible, n * sizeof *v->visible);
    return h && !h->scores ? take_scores(h, map->scores, n, err) : PV_OK;
}

/* Of all keys where that is known, else of those of the video. */
static const struct heat *find_attention(const struct view_report *r)
{
    const struct heat *found = NULL;
    for (int i = r->n_heats - 1; i >= 0; i--)
        if (r->heats[i].attention && (!found || !strcmp(r->heats[i].name, "attention")))
            found = &r->heats[i];
    return found;
}

static double attention_of(const struct view_report *r, const struct kept_view *v)
{
    const struct heat *h = find_attention(r);
    double sum = 0, all = 0;
    for (int i = 0; h && i < report_tokens(r); i++) {
        sum += v->visible[i] ? h->scores[i] : 0;
        all += h->scores[i];
    }
    return all > 0 ? sum / all : -1;
}

static enum pv_status compute_views(pv_session *s, const struct view_args *a, struct view_report *r,
                                    struct pv_error *err)
{
    struct progress progress;
    struct pv_method m = { .size = sizeof m };
    enum pv_status st = pv_method_find(&m, "specvlm", err);

    if (!a->draft || !strcmp(a->draft, "self"))
        m.drafter = pv_drafter_find(m.drafter)->as_self;
    m.ratio = a->ratio;
    m.lambda = a->lambda;
    m.draft_seed = a->seed;
    draft_view_args_set(&a->draft_view, &m);
    progress_init(&progress);
    for (int i = 0; i < r->n_views && !st; i++) {
        struct pv_view_map map;
        m.view = r->views[i].name;
        progress_say(&progress, "view %d of %d: %s", i + 1, r->n_views, m.view);
        st = pv_session_view(s, &m, &map, err);
        if (!st)
            st = take_view(r, &r->views[i], &map, err);
    }
    progress_clear(&progress);
    for (int i = 0; i < r->n_views && !st; i++)
        r->views[i].attention = attention_of(r, &r->views[i]);
    return st;
}

static void report_free(struct view_report *r)
{
    for (int i = 0; i < r->n_views; i++)
        mem_free(r->views[i].visible);
    for (int i = 0; i < r->n_heats; i++)
        mem_free(r->heats[i].scores);
}

/* ---- what comes out ---- */

struct painter {
    const struct view_report *report;
    bool html;
    int per_unit, n; /* frames of a unit; frames seen so far */
    struct view_sheet sheet;
    struct view_page page;
    struct pv_error err; /* why the callback stopped */
};

static bool on_frame(void *user, const struct pv_frame *f)
{
    struct painter *p = user;
    int unit = p->n / p->per_unit;
    bool first = p->n++ % p->per_unit == 0;

    if (interrupted())
        return false;
    if (!first || unit >= p->report->units)
        return true;
    return !(p->html ? page_add(&p->page, f, &p->err) : sheet_add(&p->sheet, unit, f, &p->err));
}

static void print_table(const struct view_report *r)
{
    printf("%-14s %8s %8s %7s %9s %10s %7s %12s %7s\n", "view", "kept", "of", "ratio", "attention",
           "edge rows", "of all", "edge frames", "of all");
    for (int i = 0; i < r->n_views; i++) {
        const struct kept_view *v = &r->views[i];
        printf("%-14s %8d %8d %7.4f ", v->name, v->kept, report_tokens(r), report_ratio(r, v));
        if (v->attention >= 0)
            printf("%8.1f%%", v->attention * 100);
        else
            printf("%9s", "-");
        printf(" %9.1f%% %6.1f%% %11.1f%% %6.1f%%\n", v->rows * 100, r->all_rows * 100,
               v->frames * 100, r->all_frames * 100);
    }
}

static bool is_html(const char *path)
{
    return path_ends(path, ".html") || path_ends(path, ".htm");
}

/* Nothing else is open while the frames are decoded, so an interrupt leaves no file. */
static int paint(const pv_model *model, const struct view_args *a, const struct view_report *r,
                 struct pv_video_params *vp)
{
    struct painter p = { .report = r, .html = is_html(a->output) };
    struct pv_error err = { 0 };
    enum pv_status s;
    int result = EXIT_FAILED;

    p.per_unit = (r->frames + r->units - 1) / r->units;
    catch_interrupt();
    s = p.html ? page_open(&p.page, r, a->output, &err) : sheet_open(&p.sheet, r, &err);
    if (!s)
        s = pv_video_frames(model, r->video, vp, on_frame, &p, NULL, &err);
    if (!s)
        s = p.html ? page_write(&p.page, &err) : sheet_write(&p.sheet, a->output, &err);
    if (!s) {
        print_table(r);
        if (!p.html && p.sheet.columns < r->units) {
            shown_puts(stdout, a->output);
            printf(" shows %d of %d frames, evenly chosen\n", p.sheet.columns, r->units);
        }
        result = finish_output();
    } else if (interrupted()) {
        result = interrupted();
    } else {
        report("%s", p.err.code ? p.err.text : err.text);
    }
    page_close(&p.page);
    sheet_close(&p.sheet);
    return result;
}

/* ---- the command ---- */

static enum pv_status ask(pv_session *s, struct view_report *r, struct pv_video_params *vp,
                          struct pv_error *err)
{
    struct pv_video_info info = { 0 };
    struct progress progress;
    enum pv_status st;

    progress_init(&progress);
    vp->progress = progress_step;
    vp->progress_user = &progress;
    st = pv_add_video(s, r->video, vp, &info, err);
    progress_clear(&progress);
    vp->progress = NULL;
    if (st)
        return st;
    if (!(info.fps > 0))
        return fail(err, PV_E_ARG, "it is a picture; views choose among the tokens of a video");
    report_lost(r->video, &info);
    r->frames = info.frames;
    if (!r->question)
        r->question = default_question(&info, 1);
    return pv_add_text(s, "user", r->question, err);
}

static int run_session(pv_model *model, pv_model *draft, const struct view_args *a,
                       struct view_report *r, struct pv_video_params *vp)
{
    struct pv_session_params sp = session_args_params(&a->session);
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    enum pv_status st;

    sp.draft = draft;
    sp.speculate = true;
    if (pv_session_open(&s, model, &sp, &err))
        return report("%s", err.text);
    st = ask(s, r, vp, &err);
    if (!st)
        st = compute_views(s, a, r, &err);
    pv_session_close(&s);
    if (st) {
        fail_names(&err, r->video);
        return report("%s", err.text);
    }
    return paint(model, a, r, vp);
}

static int run_models(const struct view_args *a, const struct pv_model_params *mp,
                      struct view_report *r, struct pv_video_params *vp)
{
    struct pv_model_params dp = *mp;
    struct pv_error err = { 0 };
    pv_model *model = NULL, *draft = NULL;
    int result = EXIT_FAILED;

    if (pv_model_open(&model, mp, &err))
        return report("%s", err.text);
    dp.path = a->draft;
    dp.mmproj = NULL;
    dp.shares_with = model;
    if (a->draft && strcmp(a->draft, "self") != 0 && pv_model_open(&draft, &dp, &err))
        report("%s", err.text);
    else if (draft && !pv_model_has_vision(draft))
        report("%s: the draft model cannot take videos: it has no vision tower", dp.path);
    else if (can_be_shown_videos(model, mp))
        result = run_session(model, draft, a, r, vp);
    pv_model_close(&draft);
    pv_model_close(&model);
    return result;
}

int cmd_view(int argc, char **argv)
{
    struct view_args a = { .ratio = 0.9, .views = USUAL_VIEWS, .draft_view = DRAFT_VIEW_DEFAULTS };
    struct arg_list operands = { 0 };
    struct view_report r = { 0 };
    struct pv_model_params mp;
    struct pv_video_params vp;
    int result = options_parse(&view_options, &a, argc, argv, &operands);

    if (result != OPTIONS_RUN)
        return result ? result : finish_output();
    result = check_videos("view", &operands);
    if (result != OPTIONS_RUN)
        return result;
    if (!a.output)
        return options_misuse("view", "no file to draw into: name one with --output");
    if (!path_ends(a.output, ".png") && !is_html(a.output))
        return options_misuse("view", "--output must end in .png or .html, not \"%s\"", a.output);
    result = draft_view_args_check(&a.draft_view, "view");
    if (result == OPTIONS_RUN)
        result = parse_views(a.views, &r);
    if (result == OPTIONS_RUN)
        result = choice_args_check(&a.choice, "view", &vp);
    if (result == OPTIONS_RUN)
        result = model_args_check(&a.model, "view", &mp);
    if (result != OPTIONS_RUN)
        return result;
    mp.limits.memory_bytes = a.session.memory;
    limit_args_set(&a.limits, &mp.limits);
    if (!is_apart(a.output, operands.items, operands.n) || !is_apart(a.output, &mp.path, 1) ||
        !can_write(a.output))
        return EXIT_FAILED;
    r.video = operands.items[0];
    r.model = mp.path;
    r.question = a.prompt;
    r.columns = a.columns;
    result = run_models(&a, &mp, &r, &vp);
    report_free(&r);
    return result;
}
