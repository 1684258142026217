/* prevue models: published checkpoints, what they need, and how to get them. Nothing is downloaded:
 * the hub's own tool does that, and its commands are printed. */
#include "base/cpu.h"
#include "command.h"
#include "known_models.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define GIB ((double)(1 << 30))
enum { TEXT_TOKENS = 1024, USUAL_FRAMES = 64, USUAL_HEIGHT = 720, USUAL_WIDTH = 1280 };
enum { MOST_FRAMES = 4096 };

struct models_args {
    int frames;
    bool json;
};

#define AT(field) offsetof(struct models_args, field)

static const struct option models_table[] = {
    { "frames", 0, "--num-frames", OPTION_INT, AT(frames), 1, MOST_FRAMES, "N",
      "Show the memory for a video with N frames. Default: 64.", NULL },
    { "json", 0, NULL, OPTION_FLAG, AT(json), 0, 0, NULL, "Print one JSON object.", NULL },
};

static const struct option_group models_groups[] = {
    { "options", models_table, sizeof models_table / sizeof *models_table, 0, SHORT_ALL },
};

const struct option_set models_options = {
    .command = "models",
    .usage = "[NAME] [OPTIONS]",
    .about = "Lists published checkpoints that prevue runs: parameters, the memory that their "
             "weights and the KV cache of a video take, and whether this machine has it. With "
             "NAME, a part of a model's name: the commands that download it, and its draft models "
             "and draft heads. Memory follows from the shapes of the models, for frames of 1280 x "
             "720 pixels; while a model runs it needs some hundred MiB more.",
    .groups = models_groups,
    .n_groups = 1,
    .max_operands = 1,
    .operands = VALUE_ANY,
    .examples = "  prevue models\n"
                "  prevue models qwen2.5-vl-7b --frames 128\n",
};

/* ---- one model ---- */

struct needs {
    int tokens; /* of the video */
    uint64_t weights[KNOWN_TYPES], kv;
    int fits; /* the first of enum known_type that fits into the memory available; -1: none */
};

static struct needs needs_of(const struct known_model *m, int frames, uint64_t available)
{
    struct needs n = { .tokens = known_video_tokens(m, frames, USUAL_HEIGHT, USUAL_WIDTH),
                       .fits = -1 };
    n.kv = known_kv(m, n.tokens + TEXT_TOKENS);
    for (int t = KNOWN_TYPES - 1; t >= 0; t--) {
        n.weights[t] = known_weights(m, (enum known_type)t);
        if (n.weights[t] + n.kv <= available)
            n.fits = t;
    }
    return n;
}

static const char *fits_word(const struct needs *n)
{
    return n->fits < 0              ? "no"
           : n->fits == KNOWN_16BIT ? "yes"
                                    : known_type_name((enum known_type)n->fits);
}

/* Does the text contain the word, whatever the case? */
static bool contains(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text; text++) {
        size_t i = 0;
        while (i < n && text[i] &&
               tolower((unsigned char)text[i]) == tolower((unsigned char)word[i]))
            i++;
        if (i == n)
            return true;
    }
    return n == 0;
}

/* ---- as a table ---- */

static void print_row(const struct known_model *m, const struct needs *n)
{
    printf("%-42s %7.2f %8.1f %7.1f %7.1f %8.1f  %-6s %s\n", m->repo,
           (double)known_parameters(m) / 1e9, (double)n->weights[KNOWN_16BIT] / GIB,
           (double)n->weights[KNOWN_Q8_0] / GIB, (double)n->weights[KNOWN_Q4_0] / GIB,
           (double)n->kv / GIB, fits_word(n),
           m->head       ? "head"
           : m->drafters ? "model"
                         : "-");
}

static void print_table(const struct models_args *a, uint64_t available)
{
    printf("%-42s %7s  %-22s %8s  runs\n", "", "billion", "weights in GiB as", "KV cache");
    printf("%-42s %7s %8s %7s %7s %8s  %-6s %s\n", "model", "params", "16 bit", "q8_0", "q4_0",
           "in GiB", "here", "drafter");
    for (int i = 0; known_model_at(i); i++) {
        struct needs n = needs_of(known_model_at(i), a->frames, available);
        print_row(known_model_at(i), &n);
    }
    printf("\nThe KV cache is that of %d frames of %d x %d pixels and %d tokens of text. This "
           "machine\n"
           "has %.1f GiB of memory available. q8_0 and q4_0: the weights after 'prevue convert'.\n"
           "'prevue models NAME' prints how to download a model and what drafts for it.\n",
           a->frames, USUAL_WIDTH, USUAL_HEIGHT, TEXT_TOKENS, (double)available / GIB);
}

/* ---- in detail ---- */

static void print_download(const char *lead, const char *repo, size_t n)
{
    const char *slash = memchr(repo, '/', n);
    size_t at = slash ? (size_t)(slash + 1 - repo) : 0;
    printf("%-12s hf download %.*s --local-dir %.*s\n", lead, (int)n, repo, (int)(n - at),
           repo + at);
}

static void print_drafters(const struct known_model *m)
{
    const char *lead = "draft model";
    for (const char *at = m->drafters; at && *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        print_download(lead, at, n);
        lead = "or";
        at += n;
    }
    if (m->drafters)
        printf("%-12s prevue describe clip.mp4 -m %s -d %.*s\n", "", repo_name(m->repo),
               (int)(strcspn(m->drafters, " ") - (size_t)(repo_name(m->drafters) - m->drafters)),
               repo_name(m->drafters));
    if (m->head) {
        print_download("draft head", m->head, strlen(m->head));
        printf("%-12s prevue describe clip.mp4 -m %s --head %s\n", "", repo_name(m->repo),
               repo_name(m->head));
    }
    if (!m->drafters && !m->head)
        printf("%-12s none is published; -d self drafts with the model's own weights\n", "drafter");
}

static void print_details(const struct known_model *m, const struct models_args *a,
                          uint64_t available)
{
    struct needs n = needs_of(m, a->frames, available);
    const char *name = repo_name(m->repo);

    printf("%s\n%-12s %s, %.2f billion parameters", m->repo, "family", known_family_name(m->family),
           (double)known_parameters(m) / 1e9);
    if (m->experts)
        printf(", %.2f billion used per token", (double)known_active_parameters(m) / 1e9);
    printf("\n%-12s %d frames of %d x %d pixels are %d tokens: %.1f GiB of KV cache\n", "video",
           a->frames, USUAL_WIDTH, USUAL_HEIGHT, n.tokens, (double)n.kv / GIB);
    for (int t = 0; t < KNOWN_TYPES; t++)
        printf("%-12s %-6s %7.1f GiB of weights, %.1f GiB with the KV cache: %s\n",
               t ? "" : "memory", known_type_name((enum known_type)t), (double)n.weights[t] / GIB,
               (double)(n.weights[t] + n.kv) / GIB,
               n.weights[t] + n.kv <= available ? "fits here" : "more than this machine has free");
    if (m->base) {
        print_download("download", m->base, strlen(m->base));
        print_download("", m->repo, strlen(m->repo));
        printf("%-12s prevue convert %s %s.gguf --type q8_0 --adapter %s\n", "merge",
               repo_name(m->base), name, name);
    } else {
        print_download("download", m->repo, strlen(m->repo));
        printf("%-12s prevue convert %s %s-q8_0.gguf --type q8_0\n", "make smaller", name, name);
    }
    print_drafters(m);
}

/* ---- as JSON ---- */

static void add_string(struct buf *b, const char *key, const char *value)
{
    buf_printf(b, "\"%s\":", key);
    if (value)
        buf_json(b, value, strlen(value));
    else
        buf_puts(b, "null");
    buf_puts(b, ",");
}

static void add_model(struct buf *b, const struct known_model *m, const struct models_args *a,
                      uint64_t available)
{
    struct needs n = needs_of(m, a->frames, available);
    buf_puts(b, "{");
    add_string(b, "model", m->repo);
    add_string(b, "adapter_of", m->base);
    add_string(b, "family", known_family_name(m->family));
    buf_printf(b,
               "\"download\":\"hf download %s --local-dir %s\",\"parameters\":%llu,"
               "\"active_parameters\":%llu,\"video_tokens\":%d,\"memory\":{\"kv\":%llu",
               m->repo, repo_name(m->repo), (unsigned long long)known_parameters(m),
               (unsigned long long)known_active_parameters(m), n.tokens, (unsigned long long)n.kv);
    for (int t = 0; t < KNOWN_TYPES; t++)
        buf_printf(b, ",\"%s\":%llu", t ? known_type_name((enum known_type)t) : "bf16",
                   (unsigned long long)n.weights[t]);
    buf_puts(b, "},");
    add_string(b, "fits", n.fits < 0 ? NULL : n.fits ? fits_word(&n) : "bf16");
    buf_puts(b, "\"draft_models\":[");
    for (const char *at = m->drafters; at && *at; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");
        buf_puts(b, at == m->drafters ? "" : ",");
        buf_json(b, at, len);
        at += len;
    }
    buf_puts(b, "],");
    add_string(b, "draft_head", m->head);
    b->len--; /* the last comma */
    buf_puts(b, "}");
}

static void print_json(const struct models_args *a, const char *name, uint64_t available)
{
    struct buf b;
    bool first = true;

    buf_init(&b, MAX_TEXT);
    buf_printf(&b,
               "{\"frames\":%d,\"width\":%d,\"height\":%d,\"text_tokens\":%d,"
               "\"memory_available\":%llu,\n\"models\":[",
               a->frames, USUAL_WIDTH, USUAL_HEIGHT, TEXT_TOKENS, (unsigned long long)available);
    for (int i = 0; known_model_at(i); i++) {
        if (name && !contains(known_model_at(i)->repo, name))
            continue;
        buf_puts(&b, first ? "\n" : ",\n");
        first = false;
        add_model(&b, known_model_at(i), a, available);
    }
    buf_puts(&b, "]}\n");
    if (b.failed)
        report("out of memory for the list of models");
    else
        write_text(b.data, b.len);
    buf_clear(&b);
}

int cmd_models(int argc, char **argv)
{
    struct models_args a = { .frames = USUAL_FRAMES };
    struct arg_list names = { 0 };
    const char *name;
    int n = 0, r = options_parse(&models_options, &a, argc, argv, &names);
    uint64_t available = cpu_memory_available();

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    name = names.n ? names.items[0] : NULL;
    for (int i = 0; name && known_model_at(i); i++)
        n += contains(known_model_at(i)->repo, name);
    if (name && n == 0)
        return report("no known model has \"%s\" in its name; 'prevue models' lists them", name);
    if (a.json)
        print_json(&a, name, available);
    else if (!name)
        print_table(&a, available);
    for (int i = 0; name && !a.json && known_model_at(i); i++) {
        if (!contains(known_model_at(i)->repo, name))
            continue;
        print_details(known_model_at(i), &a, available);
        if (--n > 0)
            printf("\n");
    }
    return finish_output();
}
