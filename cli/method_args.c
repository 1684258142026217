/* From options to methods. A preset is looked up, then changed field by field; a change that would
 * have no effect is an error if there is one method, and is ignored if there is a list of them:
 * "--window 8" is meant for the chains among them. */
#include "method_args.h"

#include "start_ranks.h"

#include "applies.h"
#include "method_variant.h"
#include "model_advice.h"

#include "base/file.h"
#include "prevue/testing.h"

#include <stdio.h>
#include <string.h>

/* A draft model and a draft head beside NAME.gguf are found by these names: NAME-draft.gguf. */
#define DRAFT_SUFFIX "-draft.gguf"
#define HEAD_SUFFIX "-head.gguf"
#define ADAPTOR_SUFFIX "-adaptor.gguf"
/* The orders of enum pv_accept, pv_draft_pos and pv_schedule. */
#define ACCEPT_WORDS "exact rejection"
#define POSITION_WORDS "auto compact original"
/* The order of enum pv_draft_vision. */
#define DRAFT_VISION_WORDS "auto own shared"
#define SCHEDULE_WORDS "serial parallel"
#define LEAST_LAMBDA 0.001

enum { MAX_WINDOW = 32, MAX_TREE = 64, MAX_WIDTH = 16, MAX_KEEP = 1 << 20, MAX_THREADS = 256 };
enum { MAX_VOCAB = 1 << 24 };

#define AT(field) offsetof(struct method_args, field)

const struct option method_table[] = {
    { "draft", 'd', "-md --model-draft --draft-model", OPTION_STRING, AT(draft), 0, 0, "MODEL",
      "A smaller model of the same family, which drafts tokens, or \"self\": the model's own "
      "weights on a pruned prompt. Default: if MODEL is NAME.gguf, the file NAME" DRAFT_SUFFIX
      " in its directory, for methods that need a draft model (auto prefers a draft head).",
      NULL },
    { "head", 0, NULL, OPTION_STRING, AT(head), 0, 0, "HEAD",
      "A draft head made for the model: GGUF file, or a directory in the layout of EAGLE or "
      "EAGLE-3. Default: if MODEL is NAME.gguf, the file NAME" HEAD_SUFFIX " in its directory.",
      NULL },
    { "method", 0, NULL, OPTION_METHOD, AT(method), 0, 0, "NAME",
      "Method of speculative decoding. With every method the text is that of plain decoding (ar). "
      "Default: auto with a draft model or head, else ar.",
      NULL },
    { "draft-mmproj", 0, NULL, OPTION_STRING, AT(draft_mmproj), 0, 0, "FILE",
      "GGUF file of the draft model's vision tower, like --mmproj for the model.", NULL },
    { "draft-vision", 0, NULL, OPTION_CHOICE, AT(draft_vision), 0, 0, "WHOSE",
      "Where the draft model's video tokens come from. own: from its vision tower. shared: from "
      "the model's, by --draft-adaptor; the draft model's tower is then not loaded. auto: shared "
      "with an adaptor that fits the model, else own. The answer is the same. Default: auto.",
      DRAFT_VISION_WORDS },
    { "draft-adaptor", 0, NULL, OPTION_STRING, AT(draft_adaptor), 0, 0, "FILE",
      "A vision adaptor trained for this pair of models: GGUF file or directory. Default: for a "
      "draft model NAME.gguf the file NAME" ADAPTOR_SUFFIX " beside it, if there is one.",
      NULL },
    { "draft-device", 0, NULL, OPTION_STRING, AT(draft_device), 0, 0, "DEVICE",
      "Where the draft model runs. Default: where the model does.", NULL },
    { "draft-vocab", 0, NULL, OPTION_INT, AT(draft_vocab), 1, MAX_VOCAB, "N",
      "Let the draft model or head score only N tokens, which drafts faster: the most frequent "
      "ones in --draft-text, or the first ones of the vocabulary. The answer is the same. Default: "
      "all.",
      NULL },
    { "draft-text", 0, NULL, OPTION_STRING, AT(draft_text), 0, 0, "FILE",
      "A text like the expected answers; --draft-vocab takes its most frequent tokens.", NULL },
    { "drafter", 0, NULL, OPTION_DRAFTER, AT(drafter), 0, 0, "WHO",
      "What proposes tokens. Default: the method's.", NULL },
    { "view", 0, NULL, OPTION_VIEW, AT(view), 0, 0, "NAME",
      "Which video tokens the drafter sees. Default: the method's.", NULL },
    { "ratio", 0, NULL, OPTION_NUMBER, AT(ratio), 0, 1, "R",
      "Share of the video tokens that the drafter does not see. Default: 0.9.", NULL },
    { "lambda", 0, NULL, OPTION_NUMBER, AT(lambda), LEAST_LAMBDA, 1, "L",
      "View specvlm: share of the attention whose tokens are kept first. Default: 0.4, for "
      "Qwen2.5-VL 0.5.",
      NULL },
    { "shape", 0, NULL, OPTION_STRING, AT(shape), 0, 0, "SHAPE",
      "Shape of a proposal: chain, tree (25 tokens), dynamic, fitted (dynamic, with a size chosen "
      "from measured times), or a file with a tree: one path of ranks per line. Default: the "
      "method's.",
      NULL },
    { "window", 0, "--draft-max --draft-n --spec-draft-n-max", OPTION_INT, AT(window), 1,
      MAX_WINDOW, "G",
      "Tokens of a chain. Default: 5, method std 9, in the parallel schedule chosen by measuring.",
      NULL },
    { "tree-total", 0, NULL, OPTION_INT, AT(total), 2, MAX_TREE, "N",
      "Shapes dynamic and fitted: most rows that one pass verifies. Default: 30, fitted 32.",
      NULL },
    { "tree-depth", 0, NULL, OPTION_INT, AT(depth), 1, MAX_WINDOW - 1, "N",
      "Shapes dynamic and fitted: levels after the first. Default: 3, fitted 15.", NULL },
    { "tree-width", 0, NULL, OPTION_INT, AT(width), 1, MAX_WIDTH, "N",
      "Shapes dynamic and fitted: tokens per level that are extended. Default: 8, fitted 4.",
      NULL },
    { "schedule", 0, NULL, OPTION_CHOICE, AT(schedule), 0, 0, "HOW",
      "serial: drafter and model take turns; parallel: the drafter has its own threads and drafts "
      "a chain while the model verifies the one before. Default: the method's.",
      SCHEDULE_WORDS },
    { "draft-threads", 0, NULL, OPTION_INT, AT(threads), 1, MAX_THREADS, "N",
      "Schedule parallel: number of threads for the drafter. Default: chosen by measuring.", NULL },
    { "accept", 0, NULL, OPTION_CHOICE, AT(accept), 0, 0, "RULE",
      "exact: the text of plain decoding; rejection: rejection sampling as in the papers, which "
      "gives another text of the same distribution. Default: exact.",
      ACCEPT_WORDS },
    { "draft-pos", 0, NULL, OPTION_CHOICE, AT(positions), 0, 0, "RULE",
      "Positions of the tokens that the drafter sees: without gaps (compact), or those of the "
      "model (original). Default: auto, what measured best for the family.",
      POSITION_WORDS },
    { "keep", 0, NULL, OPTION_INT, AT(keep), 1, MAX_KEEP, "N",
      "Drafter sparse: KV cache entries used in each layer. Default: 1024.", NULL },
    { "lossy", 0, NULL, OPTION_STRING, AT(lossy), 0, 0, "NAME",
      "Save work or memory in a way that CHANGES the answer. kv-fp8: keep the KV cache in 8 bits a "
      "number, half the memory. Or give the model itself only part of the video, with plain "
      "decoding (ar) only: NAME:RATIO, of fastv, sparsevlm, pyramiddrop or dycoke, and the share "
      "of the video's tokens that the last layers do not see (0 to 0.99). Default: never.",
      NULL },
};
_Static_assert(sizeof method_table / sizeof *method_table == N_METHOD_OPTIONS, "rows");
_Static_assert(PV_ACCEPT_REJECTION == 1 && PV_POS_ORIGINAL == 2 && PV_SCHEDULE_PARALLEL == 1,
               "words");

static const struct pv_drafter_info *drafter_of(const struct pv_method *m)
{
    return pv_drafter_find(m->drafter);
}

static bool drafts(const struct pv_method *m)
{
    return m->drafter != PV_DRAFT_NONE;
}

/* The view that the drafter has of the prompt; NULL: it does not read it. */
static const struct pv_view_info *view_of(const struct pv_method *m)
{
    return drafter_of(m)->reads_prompt ? pv_view_find(m->view) : NULL;
}

const char *drafter_name(enum pv_drafter drafter)
{
    return pv_drafter_find((int)drafter)->name;
}

double method_simulates(const struct pv_method *m)
{
    return m->test ? m->test->simulate : 0;
}

bool method_prunes_model(const struct pv_method *m)
{
    return m->lossy && strcmp(m->lossy, PV_LOSSY_KV_FP8) != 0;
}

bool method_prunes(const struct pv_method *m)
{
    return view_of(m) && view_of(m)->takes_ratio;
}

void method_json(struct buf *b, const struct pv_method *m, const char *label)
{
    buf_puts(b, "\"method\":");
    buf_json(b, label, strlen(label));
    buf_printf(b, ",\"drafter\":\"%s\"", drafter_name(m->drafter));
    if (drafter_of(m)->reads_prompt)
        buf_printf(b, ",\"view\":\"%s\"", m->view);
    if (method_prunes(m))
        buf_printf(b, ",\"ratio\":%.6g", m->ratio);
    if (m->schedule == PV_SCHEDULE_PARALLEL)
        buf_puts(b, ",\"schedule\":\"parallel\"");
    if (m->lossy) {
        buf_puts(b, ",\"lossy\":");
        buf_json(b, m->lossy, strlen(m->lossy));
    }
}

/* Nobody shall take a lossy answer for the model's own. */
static void warn_lossy(const struct pv_method *m)
{
    if (m->lossy && !method_prunes_model(m))
        report("warning: lossy (%s): the KV cache is rounded to 8 bits, and the answer may differ "
               "from that of the model with a 16-bit cache",
               m->lossy);
    if (method_prunes_model(m))
        report("warning: lossy (%s): the model does not see all of the video, and its answer may "
               "differ from that of plain decoding",
               m->lossy);
}

/* --- changing a preset --- */

#define DRAFTER(field) offsetof(struct pv_drafter_info, field)
#define VIEW(field) offsetof(struct pv_view_info, field)

/* An option, and the methods that use it: `why` says which, or the drafters or views whose info
 * has the bool at this offset set. */
struct usage {
    const char *name;
    bool given, useful;
    const char *why;
    size_t drafters, views;
};

/* Is option `name` given although the method does not use it? Who does, in words, or NULL. */
static const char *useless(const struct method_args *a, const struct pv_method *m,
                           const char **name, char words[APPLIES_SIZE])
{
    const struct pv_drafter_info *who = drafter_of(m);
    const struct pv_view_info *view = view_of(m);
    const char *dynamic = a->total ? "tree-total" : a->depth ? "tree-depth" : "tree-width";
    bool grows = m->shape == PV_SHAPE_DYNAMIC || m->shape == PV_SHAPE_FITTED;
    size_t field;
    const char *unused = draft_view_args_useless(&a->draft_view, view, &field);
    const struct usage rows[] = {
        { "view", a->view != NULL, who->reads_prompt, .drafters = DRAFTER(reads_prompt) },
        { "draft-pos", a->positions > 0, who->reads_prompt, .drafters = DRAFTER(reads_prompt) },
        { "head", a->head != NULL, who->needs_head, .drafters = DRAFTER(needs_head) },
        { "draft-vision", a->draft_vision > 0, who->needs_draft, .drafters = DRAFTER(needs_draft) },
        { "draft-adaptor", a->draft_adaptor != NULL, who->needs_draft,
          .drafters = DRAFTER(needs_draft) },
        { "draft-vocab", a->draft_vocab > 0, who->needs_draft || who->needs_head,
          .why = "is for methods with a draft model or head" },
        { "ratio", a->ratio >= 0, method_prunes(m),
          .why = "is for a drafter with a view that prunes" },
        { "lambda", a->lambda > 0, view && view->takes_lambda, .views = VIEW(takes_lambda) },
        { "shape", a->shape != NULL, drafts(m), .why = "is for methods that draft" },
        { "accept", a->accept > 0, drafts(m), .why = "is for methods that draft" },
        { "window", a->window > 0, drafts(m) && m->shape == PV_SHAPE_CHAIN,
          .why = "is for chains (--shape chain)" },
        { dynamic, a->total || a->depth || a->width, drafts(m) && grows,
          .why = "is for trees that grow (--shape dynamic, --shape fitted)" },
        { "keep", a->keep > 0, who->takes_keep, .drafters = DRAFTER(takes_keep) },
        { "schedule", a->schedule >= 0, drafts(m), .why = "is for methods that draft" },
        { "draft-threads", a->threads > 0, m->schedule == PV_SCHEDULE_PARALLEL || m->automatic,
          .why = "is for the parallel schedule" },
        { unused, unused != NULL, false, .views = field },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct usage *row = &rows[i];
        if (!row->given || row->useful)
            continue;
        *name = row->name;
        return row->why     ? row->why
               : row->views ? applies_to_views(words, row->views)
                            : applies_to_drafters(words, row->drafters);
    }
    return NULL;
}

/* -1: none of those that have a name. */
static int shape_named(const char *name)
{
    static const char *const names[] = { "chain", "tree", "dynamic", "fitted" };
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

static void set_shape(struct pv_method *m, const char *shape)
{
    int i = shape_named(shape);
    m->shape = i >= 0 ? (enum pv_shape)i : PV_SHAPE_TREE;
    m->tree_file = i >= 0 ? NULL : shape;
}

/* The share that presets prune. */
static double usual_ratio(void)
{
    struct pv_method m = { .size = sizeof m };
    pv_method_find(&m, "specvlm", NULL);
    return m.ratio;
}

/* Whoever gives an option of the draft model means that it drafts, and not a draft head that lies
 * beside the model. */
static bool means_draft_model(const struct method_args *a)
{
    return a->draft || a->draft_mmproj || a->draft_adaptor || a->draft_vision > 0 ||
           a->draft_device || draft_ranks();
}

/* Who drafts, and on what; what the others mean depends on it. */
static void change_drafter(const struct method_args *a, struct pv_method *m, bool self,
                           const char *head)
{
    bool takes_head =
        head && (a->head || !means_draft_model(a)) && a->schedule != PV_SCHEDULE_PARALLEL;
    bool chosen = a->drafter >= 0;
    if (m->automatic && !chosen && takes_head && drafter_of(m)->as_head) {
        m->drafter = drafter_of(m)->as_head; /* the cheapest there is */
        chosen = true;
    } else if (chosen) {
        m->drafter = (enum pv_drafter)a->drafter;
    }
    if (chosen && drafter_of(m)->view)
        m->view = drafter_of(m)->view;
    if (self && drafter_of(m)->as_self)
        m->drafter = drafter_of(m)->as_self;
    if (a->view && drafter_of(m)->reads_prompt) {
        bool pruned = method_prunes(m);
        m->view = a->view;
        m->ratio = method_prunes(m) && !pruned ? usual_ratio() : m->ratio;
    }
    if (a->ratio >= 0 && method_prunes(m))
        m->ratio = a->ratio;
}

/* Makes a change that the library's rules allow; else *why says why not, unless it has said so of
 * another change. Acceptance is changed last, and does not count yet. */
static void try_change(struct pv_method *m, struct pv_method changed, struct pv_error *why)
{
    enum pv_accept accept = changed.accept;
    changed.accept = PV_ACCEPT_EXACT;
    if (pv_method_check(&changed, why->code ? NULL : why) != PV_OK)
        return;
    changed.accept = accept;
    *m = changed;
}

/* What the options say. Changes that do not go together with the method are left out; *why is the
 * reason of the first of them. */
static void change(const struct method_args *a, struct pv_method *m, bool self, const char *head,
                   struct pv_error *why)
{
    struct pv_method changed = { .size = sizeof changed };
    change_drafter(a, m, self, head);
    m->lossy = a->lossy;
    if (!drafts(m) || a->schedule == PV_SCHEDULE_SERIAL)
        m->schedule = PV_SCHEDULE_SERIAL;
    if (!drafts(m))
        return;
    if (a->shape || a->window || a->schedule >= 0)
        m->automatic = false;
    changed = *m;
    if (a->shape) {
        set_shape(&changed, a->shape);
        try_change(m, changed, why);
    }
    if (a->schedule == PV_SCHEDULE_PARALLEL) {
        changed = *m;
        changed.schedule = PV_SCHEDULE_PARALLEL;
        try_change(m, changed, why);
    }
    m->draft_threads = a->threads ? a->threads : m->draft_threads;
    draft_view_args_set(&a->draft_view, m);
    if (a->window && m->shape == PV_SHAPE_CHAIN)
        m->window = a->window;
    m->total = a->total ? a->total : m->total;
    m->depth = a->depth ? a->depth : m->depth;
    m->width = a->width ? a->width : m->width;
    m->lambda = a->lambda > 0 ? a->lambda : m->lambda;
    m->keep = a->keep ? a->keep : m->keep;
    if (a->accept >= 0)
        m->accept = (enum pv_accept)a->accept;
    if (a->positions >= 0)
        m->positions = (enum pv_draft_pos)a->positions;
}

/* A wrong name or ratio has nothing to do with the method: ar can have any. */
static int check_lossy(const char *value, const char *command)
{
    struct pv_method ar = { .size = sizeof ar };
    struct pv_error err = { 0 };
    pv_method_find(&ar, "ar", NULL);
    ar.lossy = value;
    if (value && pv_method_check(&ar, &err))
        return options_misuse(command, "option --lossy: %s", err.text);
    return OPTIONS_RUN;
}

/* What has no meaning whatever the method. */
static int check_words(const struct method_args *a, const char *command)
{
    long long n;
    if (device_option_check("--draft-device", a->draft_device, command) != OPTIONS_RUN ||
        check_lossy(a->lossy, command) != OPTIONS_RUN)
        return EXIT_MISUSED;
    if ((a->draft && advise_download("--draft", a->draft) != OPTIONS_RUN) ||
        (a->head && advise_download("--head", a->head) != OPTIONS_RUN))
        return EXIT_FAILED;
    if (a->shape && shape_named(a->shape) < 0 && !file_exists(a->shape))
        return options_misuse(
            command,
            "option --shape takes chain, tree, dynamic, fitted or a file, and there is "
            "no file \"%s\"",
            a->shape);
    if (a->draft && parse_int(a->draft, 0, MAX_TREE, &n) && !file_exists(a->draft))
        return options_misuse(command,
                              "--draft names a model, and \"%s\" is none; --window says how many "
                              "tokens are drafted",
                              a->draft);
    if (a->draft && !strcmp(a->draft, "self") && a->draft_mmproj)
        return options_misuse(command, "--draft-mmproj cannot be combined with --draft self, which "
                                       "has no tower of its own");
    if (a->draft && !strcmp(a->draft, "self") && (a->draft_adaptor || a->draft_vision > 0))
        return options_misuse(command,
                              "--draft-%s cannot be combined with --draft self, which "
                              "sees what the model sees",
                              a->draft_adaptor ? "adaptor" : "vision");
    if (a->draft_adaptor && a->draft_vision == PV_DRAFT_VISION_OWN)
        return options_misuse(command, "--draft-vision own and --draft-adaptor contradict each "
                                       "other");
    if (a->draft && !strcmp(a->draft, "self") && a->drafter >= 0 &&
        pv_drafter_find(a->drafter)->needs_draft)
        return options_misuse(command, "--draft self and --drafter %s contradict each other",
                              pv_drafter_find(a->drafter)->name);
    if (a->draft_text && !a->draft_vocab)
        return options_misuse(command, "--draft-text says which tokens are drafted: --draft-vocab "
                                       "must say how many");
    return draft_view_args_check(&a->draft_view, command);
}

/* What cannot be done although each part has a meaning. */
static int check_parts(const struct pv_method *m, const char *command, bool has_draft,
                       const char *head)
{
    struct pv_error err = { 0 };
    if (drafter_of(m)->needs_head && !head)
        return options_misuse(command, "method %s needs a draft head: give one with --head",
                              m->name);
    if (drafter_of(m)->needs_draft && !has_draft)
        return options_misuse(command,
                              "method %s needs a draft model: give one with --draft, or --draft "
                              "self for the model's own weights",
                              m->name);
    if (pv_method_check(m, &err))
        return options_misuse(command, "method %s: %s", m->name, err.text);
    return OPTIONS_RUN;
}

/* --- the draft model --- */

enum { MAX_PATH = 4096 };

/* For the model NAME.gguf the file beside it whose name is NAME and `suffix`; NULL: it is not
 * there. */
static const char *find_beside(char out[MAX_PATH], const char *model, const char *suffix)
{
    int n;
    if (!path_ends(model, ".gguf"))
        return NULL;
    n = snprintf(out, MAX_PATH, "%.*s%s", (int)(strlen(model) - strlen(".gguf")), model, suffix);
    return n > 0 && n < MAX_PATH && file_exists(out) ? out : NULL;
}

const char *method_args_draft(const struct method_args *a, const struct pv_model_params *mp)
{
    static char path[MAX_PATH];
    if (a->draft)
        return strcmp(a->draft, "self") != 0 ? a->draft : NULL;
    return find_beside(path, mp->path, DRAFT_SUFFIX);
}

const char *method_args_head(const struct method_args *a, const struct pv_model_params *mp)
{
    static char path[MAX_PATH];
    return a->head ? a->head : find_beside(path, mp->path, HEAD_SUFFIX);
}

void set_draft_vision(const struct method_args *a, struct pv_model_params *draft)
{
    static char path[MAX_PATH];
    draft->adaptor = a->draft_adaptor;
    draft->draft_vision = (enum pv_draft_vision)a->draft_vision;
    if (a->draft_adaptor)
        draft->draft_vision = PV_DRAFT_VISION_SHARED;
    else if (draft->path && a->draft_vision != PV_DRAFT_VISION_OWN)
        draft->adaptor = find_beside(path, draft->path, ADAPTOR_SUFFIX);
}

enum pv_status open_draft(pv_model **out, const char *path, const struct method_args *a,
                          const struct pv_model_params *mp, pv_model *model, struct pv_error *err)
{
    struct pv_model_params p = *mp;
    if (!path)
        return PV_OK;
    p.path = path;
    p.mmproj = a->draft_mmproj;
    p.head = NULL;
    p.shares_with = model;
    p.device = a->draft_device ? a->draft_device : mp->device;
    p.ranks = draft_ranks() ? draft_ranks() : mp->ranks;
    p.draft_vocab = a->draft_vocab;
    p.draft_text = a->draft_text;
    set_draft_vision(a, &p);
    return pv_model_open(out, &p, err);
}

void set_head(const struct method_args *a, struct pv_model_params *mp, const char *head)
{
    mp->head = head;
    mp->draft_vocab = head ? a->draft_vocab : 0;
    mp->draft_text = head ? a->draft_text : NULL;
}

static bool wants_fp8(const struct method_args *a)
{
    return a->lossy && !strcmp(a->lossy, PV_LOSSY_KV_FP8);
}

enum pv_kv_type method_args_kv_type(const struct method_args *a, const struct session_args *session)
{
    return wants_fp8(a) ? PV_KV_FP8 : (enum pv_kv_type)session->kv_type;
}

static int check_kv_type(const struct method_args *a, const struct session_args *session,
                         const char *command)
{
    if (wants_fp8(a) && session->kv_type != PV_KV_AUTO)
        return options_misuse(command, "--lossy kv-fp8 and --kv-type both choose the type of the "
                                       "KV cache: give one");
    return OPTIONS_RUN;
}

/* --- one method --- */

/* The preset that is meant when none is named. */
static const char *implied_method(const struct method_args *a, bool has_drafter)
{
    if (a->drafter >= 0)
        return pv_drafter_find(a->drafter)->preset;
    if (a->lossy && !wants_fp8(a) && !a->draft && !a->head)
        return "ar";
    return has_drafter || a->draft ? "auto" : "ar";
}

int method_args_check(const struct method_args *a, const struct session_args *session,
                      const char *command, struct pv_model_params *mp, struct pv_method *out,
                      const char **draft)
{
    const char *path = method_args_draft(a, mp), *head = method_args_head(a, mp);
    const char *implied = implied_method(a, path || head), *name, *why;
    bool self = a->draft && !path;
    struct pv_error err = { 0 }, refused = { 0 };
    char words[APPLIES_SIZE];
    struct pv_method m = { .size = sizeof m };
    int r = check_words(a, command);

    if (r == OPTIONS_RUN)
        r = check_kv_type(a, session, command);
    if (r != OPTIONS_RUN)
        return r;
    if (a->head && a->draft && self)
        return options_misuse(command, "--draft self and --head are two drafters: give one");
    if (pv_method_find(&m, a->method ? a->method : implied, &err))
        return options_misuse(command, "%s", err.text);
    change(a, &m, self, head, &refused);
    if (refused.code)
        return options_misuse(command, "method %s: %s", m.name, refused.text);
    why = useless(a, &m, &name, words);
    if (why)
        return options_misuse(command, "--%s %s: it cannot be used with method %s%s%s", name, why,
                              m.name, drafts(&m) ? " and drafter " : "",
                              drafts(&m) ? drafter_of(&m)->name : "");
    r = check_parts(&m, command, path != NULL, head);
    if (r != OPTIONS_RUN)
        return r;
    *out = m;
    set_head(a, mp, drafter_of(&m)->needs_head ? head : NULL);
    *draft = drafter_of(&m)->needs_draft ? path : NULL;
    warn_lossy(&m);
    return OPTIONS_RUN;
}

/* --- lists of methods --- */

static bool add_contender(struct contenders *list, const struct pv_method *m, const char *label)
{
    struct contender *c = &list->items[list->n];
    if (list->n == MAX_CONTENDERS)
        return false;
    c->method = *m;
    snprintf(c->lossy, sizeof c->lossy, "%s", m->lossy ? m->lossy : "");
    snprintf(c->label, sizeof c->label, "%s", label);
    list->n++;
    return true;
}

/* One method, once or for each of the ratios. */
static int add_ratios(struct contenders *list, const char *command, const struct pv_method *m,
                      const char *label, const char *ratios)
{
    struct pv_method one = *m;
    if (!ratios || !method_prunes(m))
        return add_contender(list, m, label)
                   ? OPTIONS_RUN
                   : options_misuse(command, "there are more than %d methods", MAX_CONTENDERS);
    for (const char *at = ratios; at; at = strchr(at, ',')) {
        char word[32];
        at += at != ratios;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        if (!parse_number(word, 0, 1, &one.ratio))
            return options_misuse(
                command,
                "option --ratios takes numbers from 0 to 1 separated by commas, not "
                "\"%s\"",
                ratios);
        if (!add_contender(list, &one, label))
            return options_misuse(command, "there are more than %d methods", MAX_CONTENDERS);
    }
    return OPTIONS_RUN;
}

void contender_title(char *out, size_t size, const struct contender *c)
{
    if (method_prunes(&c->method))
        snprintf(out, size, "%s %.4g", c->label, c->method.ratio);
    else
        snprintf(out, size, "%s", c->label);
}

/* The changes of a variant on top of those of the options: `one` says what is then changed. A
 * change that does nothing is a misuse. */
static int change_variant(const struct method_args *one, const char *command, const char *word,
                          const char *changes, struct pv_method *m, struct pv_error *refused)
{
    struct method_args alone = METHOD_DEFAULTS;
    char words[VARIANT_SIZE], list[APPLIES_SIZE];
    const char *name, *why;
    int r = OPTIONS_RUN;

    if (*changes)
        r = variant_parse(command, changes, &alone, words);
    if (r == OPTIONS_RUN && *changes)
        r = check_words(one, command);
    if (r != OPTIONS_RUN)
        return r;
    if (*changes && refused->code)
        return options_misuse(command, "\"%s\": %s", word, refused->text);
    why = *changes ? useless(&alone, m, &name, list) : NULL;
    if (why)
        return options_misuse(command, "\"%s\": --%s %s: here it has no meaning", word, name, why);
    if (m->tree_file && *changes && alone.shape)
        return options_misuse(command, "\"%s\": a file with a tree is named with --shape", word);
    if (view_of(m))
        m->view = view_of(m)->name; /* not a part of the variant's text */
    return r;
}

static int add_named(struct contenders *list, const struct method_args *a, const char *command,
                     const char *word, bool has_draft, const char *head, const char *ratios)
{
    char name[LABEL_SIZE], words[VARIANT_SIZE];
    const char *changes = word + strcspn(word, "+");
    size_t n_name = strcspn(word, ":+");
    bool suffix = word[n_name] == ':';
    bool self = (a->draft && !strcmp(a->draft, "self")) || suffix;
    struct method_args one = *a;
    struct pv_error err = { 0 }, passed_over = { 0 };
    struct pv_method m = { .size = sizeof m };
    int r = OPTIONS_RUN;

    snprintf(name, sizeof name, "%.*s", (int)n_name, word);
    if (suffix && ((size_t)(changes - word) != n_name + 5 || strncmp(word + n_name, ":self", 5)))
        return options_misuse(
            command, "\"%s\" is not a method: after the colon only \"self\" can stand", word);
    if (pv_method_find(&m, name, &err))
        return method_moved(name) ? options_misuse(command, OPTION_MOVED, name)
                                  : options_misuse(command, "%s", err.text);
    if (!drafts(&m) && !*changes) /* it is there already */
        return OPTIONS_RUN;
    if (!drafts(&m) && strncmp(changes, "+lossy=", strlen("+lossy=")) != 0)
        return options_misuse(command, "\"%s\": method %s drafts nothing", word, name);
    if (suffix && !drafter_of(&m)->as_self)
        return options_misuse(command, "method %s has no draft model that \"self\" could replace",
                              name);
    if (*changes)
        r = variant_parse(command, changes, &one, words);
    if (r == OPTIONS_RUN && one.lossy != a->lossy && (wants_fp8(a) || wants_fp8(&one)))
        r = options_misuse(command,
                           "\"%s\": the methods of a list share one KV cache; --lossy kv-fp8 "
                           "rounds it for all of them, and none can have a lossy method of its own",
                           word);
    if (r != OPTIONS_RUN)
        return r;
    change(&one, &m, self, self ? NULL : head, &passed_over);
    r = change_variant(&one, command, word, changes, &m, &passed_over);
    if (r == OPTIONS_RUN)
        r = check_parts(&m, command, has_draft, head);
    if (strstr(changes, "+ratio="))
        ratios = NULL; /* it has one of its own */
    return r == OPTIONS_RUN ? add_ratios(list, command, &m, word, ratios) : r;
}

static bool prunes_any(const struct contenders *list)
{
    for (int i = 0; i < list->n; i++)
        if (method_prunes(&list->items[i].method))
            return true;
    return false;
}

int method_args_list(const struct method_args *a, const struct session_args *session,
                     const char *command, struct pv_model_params *mp, const char *names,
                     const char *ratios, struct contenders *out, const char **draft)
{
    const char *path = method_args_draft(a, mp), *head = method_args_head(a, mp);
    struct pv_method plain = { .size = sizeof plain };
    int r = check_words(a, command);

    if (r == OPTIONS_RUN && a->method)
        r = options_misuse(command, "--method is for one method, and here is a list of them");
    if (r == OPTIONS_RUN)
        r = check_kv_type(a, session, command);
    if (r == OPTIONS_RUN && a->lossy && !wants_fp8(a))
        r = options_misuse(command, "--lossy is for one method; in a list, ar+lossy=%s is one",
                           a->lossy);
    out->n = 0;
    pv_method_find(&plain, "ar", NULL);
    plain.lossy = a->lossy;
    add_contender(out, &plain, "ar");
    for (const char *at = names; at && r == OPTIONS_RUN; at = strchr(at, ',')) {
        char word[LABEL_SIZE];
        at += at != names;
        if (strcspn(at, ",") >= sizeof word)
            return options_misuse(command, "a method of the list is longer than %d characters",
                                  LABEL_SIZE - 1);
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        r = add_named(out, a, command, word, path != NULL, head, ratios);
    }
    if (r == OPTIONS_RUN && ratios && !prunes_any(out))
        r = options_misuse(command, "--ratios is for methods whose view prunes, and here is none");
    *draft = mp->head = NULL;
    for (int i = 0; i < out->n; i++) {
        out->items[i].method.name = out->items[i].label;
        if (out->items[i].method.lossy)
            out->items[i].method.lossy = out->items[i].lossy;
        if (r == OPTIONS_RUN && (i == 0 || !wants_fp8(a))) /* once for all that share the cache */
            warn_lossy(&out->items[i].method);
        if (drafter_of(&out->items[i].method)->needs_draft)
            *draft = path;
        if (drafter_of(&out->items[i].method)->needs_head)
            set_head(a, mp, head);
    }
    return r;
}
