/* The shared tables of options, and the library's parameters that are made from them. */
#include "run_args.h"

#include "model_advice.h"

#include "base/file.h"
#include "base/gpu_list.h"
#include "prevue/testing.h"
#include "start_ranks.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The default model: searched for in the current directory, in that of the program, and where it
 * was installed. */
#define DEFAULT_MODEL "models/nano.gguf"
/* The order of enum pv_kv_type. */
#define KV_WORDS "auto f16 bf16 f32"
/* The order of enum pv_tower_type. */
#define TOWER_WORDS "file q8_0"

#define AT(field) offsetof(struct model_args, field)

const struct option model_table[] = {
    { "model", 'm', NULL, OPTION_STRING, AT(model), 0, 0, "MODEL",
      "GGUF file or Hugging Face directory. Default: " DEFAULT_MODEL
      " in the current directory, in the program's directory, or in ../share/prevue relative to "
      "that.",
      NULL },
    { "mmproj", 0, NULL, OPTION_STRING, AT(mmproj), 0, 0, "FILE",
      "GGUF file of the vision tower. Default: MODEL itself, or the file in its directory named "
      "\"mmproj-\" followed by MODEL's name.",
      NULL },
    { "threads", 't', NULL, OPTION_INT, AT(threads), 0, 256, "N",
      "Threads to use. Default (0): all cores this process may use. The text does not depend on "
      "it.",
      NULL },
    { "device", 0, "--devices", OPTION_STRING, AT(device), 0, 0, "DEVICE",
      "cpu, or an NVIDIA GPU: cuda, cuda:1, ... (in a build with CUDA). Several, such as "
      "cuda:0,cuda:1, hold a part of the model each; the text does not depend on it. Default: cpu.",
      NULL },
    { "cpumask", 0, NULL, OPTION_STRING, AT(cpumask), 0, 0, "SET",
      "CPU features allowed: comma-separated names, as 'prevue version' prints them, \"none\", "
      "\"all\", or their bits as a number (0x30).",
      NULL },
    { "ranks", 0, NULL, OPTION_INT, AT(ranks), 1, 64, "N",
      "Run the model on N processes of this machine, each with its part of the weights; --threads "
      "counts those of one process. Under mpirun, the processes that it started are used instead "
      "(in a build with MPI). The text "
      "does not depend on it. Default: 1.",
      NULL },
    { "draft-ranks", 0, NULL, OPTION_INT, AT(draft_ranks), 1, 63, "N",
      "Run the draft model on N more processes of this machine, with --threads threads each: they "
      "draft while the model works. Default: where the model runs.",
      NULL },
    { "tower-type", 0, NULL, OPTION_CHOICE, AT(tower_type), 0, 0, "TYPE",
      "Type of the vision tower's matrices. q8_0: those of 16 and 32 bits are quantised when the "
      "model is opened, and a CPU multiplies them in integers; the text may change. file: as they "
      "are stored. Default: file.",
      TOWER_WORDS },
    { "no-repack", 0, NULL, OPTION_FLAG, AT(no_repack), 0, 0, NULL,
      "Use quantised weights in place, from the mapped file. By default they are repacked: copied "
      "to a layout that the CPU multiplies faster, which takes as much memory again. The text does "
      "not depend on it.",
      NULL },
    { "dummy-weights", 0, NULL, OPTION_FLAG, AT(dummy_weights), 0, 0, NULL,
      "Random weights instead of the file's, for timing only; needs a GPU.", NULL },
};
_Static_assert(sizeof model_table / sizeof *model_table == N_MODEL_OPTIONS, "rows");

#undef AT
#define AT(field) offsetof(struct session_args, field)

const struct option session_table[] = {
    { "context", 'c', "--ctx-size", OPTION_INT, AT(context), 0, 1 << 24, "N",
      "Most tokens of prompt and answer together; memory is reserved for them. Default (0): what a "
      "text prompt and --max-tokens need; with videos, whose tokens are not known yet, at most "
      "32768. Never more than the model supports.",
      NULL },
    { "kv-type", 0, "-ctk --cache-type-k", OPTION_CHOICE, AT(kv_type), 0, 0, "TYPE",
      "Type of the KV cache. auto: bf16 on a GPU; on a CPU f16 for f16 and f32 weights, otherwise "
      "the faster of f16 and bf16. Default: auto.",
      KV_WORDS },
    { "chunk", 'b', "-ub --batch-size --ubatch-size", OPTION_INT, AT(chunk), 0, 1 << 20, "N",
      "Prompt tokens processed in one prefill step. Default (0): 512, on a GPU 8448.", NULL },
    { "limit-memory", 0, NULL, OPTION_BYTES, AT(memory), 0, 0, "BYTES",
      "Fail if KV cache, scratch memory and pictures would need more than this; K, M, G and T may "
      "follow.",
      NULL },
};
_Static_assert(sizeof session_table / sizeof *session_table == N_SESSION_OPTIONS, "rows");

#undef AT
#define AT(field) offsetof(struct cache_args, field)

const struct option cache_table[] = {
    { "cache-dir", 0, NULL, OPTION_STRING, AT(dir), 0, 0, "DIR",
      "Keep what is computed from videos in this directory, which is created if necessary: a later "
      "run that asks about the same video neither decodes it nor runs the vision tower. The text "
      "does not depend on it. Several runs may share a directory.",
      NULL },
    { "cache-kv", 0, NULL, OPTION_FLAG, AT(kv), 0, 0, NULL,
      "Also keep the KV cache of prompts there: a later run reads it instead of prefilling. This "
      "needs much more disk space.",
      NULL },
    { "cache-size", 0, NULL, OPTION_BYTES, AT(bytes), 0, 0, "BYTES",
      "Size limit of the directory; K, M, G and T may follow. The least recently used files are "
      "removed. Default: 16G.",
      NULL },
};
_Static_assert(sizeof cache_table / sizeof *cache_table == N_CACHE_OPTIONS, "rows");

#undef AT
#define AT(field) offsetof(struct sampling_args, field)

const struct option sampling_table[] = {
    { "max-tokens", 'n', "--predict --n-predict", OPTION_INT, AT(max_tokens), 1, INT_MAX, "N",
      "Stop after N tokens. Default: 256.", NULL },
    { "temperature", 0, "--temp", OPTION_NUMBER, AT(temperature), 0, 100, "T",
      "0 always takes the most likely token; above 0, tokens are sampled. Default: 0.", NULL },
    { "top-k", 0, NULL, OPTION_INT, AT(top_k), 0, INT_MAX, "K",
      "Sample from the K most likely tokens. Default (0): off.", NULL },
    { "top-p", 0, NULL, OPTION_NUMBER, AT(top_p), 0, 1, "P",
      "Sample from the smallest set of most likely tokens whose probabilities add up to P. Default "
      "(1): off.",
      NULL },
    { "min-p", 0, NULL, OPTION_NUMBER, AT(min_p), 0, 1, "P",
      "Drop tokens less likely than P times the most likely one. Default (0): off.", NULL },
    { "seed", 's', NULL, OPTION_U64, AT(seed), 0, 0, "S",
      "Seed for sampling: the same seed gives the same text. Default: 0.", NULL },
    { "ignore-eos", 0, NULL, OPTION_FLAG, AT(ignore_eos), 0, 0, NULL,
      "Do not stop at the model's stop tokens, for measurements.", NULL },
    { "json", 0, NULL, OPTION_FLAG, AT(json), 0, 0, NULL,
      "Print one JSON object with text, ids and statistics instead of the text.", NULL },
    { "stats", 0, NULL, OPTION_FLAG, AT(stats), 0, 0, NULL,
      "Print counts and speeds to stderr at the end.", NULL },
};
_Static_assert(sizeof sampling_table / sizeof *sampling_table == N_SAMPLING_OPTIONS, "rows");

/* "avx2,amx", "none", "all", 0x30. */
static bool parse_cpumask(const char *text, uint64_t *out)
{
    uint64_t mask = 0;
    if (parse_u64(text, out))
        return true;
    if (!strcmp(text, "all") || !strcmp(text, "none")) {
        *out = text[0] == 'a' ? ~(uint64_t)0 : 0;
        return true;
    }
    while (*text) {
        size_t n = strcspn(text, ", ");
        int bit = 0;
        const char *name = pv_cpu_feature_name(0);
        while (name && (strlen(name) != n || memcmp(name, text, n) != 0))
            name = pv_cpu_feature_name(++bit);
        if (!name)
            return false;
        mask |= (uint64_t)1 << bit;
        text += n + (text[n] != 0);
    }
    *out = mask;
    return mask != 0;
}

/* DEFAULT_MODEL in the current directory, else beside the running program (Linux tells where it
 * is), else in ../share/prevue from there, where `make install` puts it; NULL where none has it. */
static const char *find_default_model(void)
{
    static const char *const below[] = { "", "../share/prevue/" };
    static char path[4096];
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self);

    if (file_exists(DEFAULT_MODEL))
        return DEFAULT_MODEL;
    while (len > 0 && self[len - 1] != '/')
        len--;
    for (size_t i = 0; len > 0 && i < sizeof below / sizeof *below; i++) {
        int n = snprintf(path, sizeof path, "%.*s%s%s", (int)len, self, below[i], DEFAULT_MODEL);
        if (n > 0 && (size_t)n < sizeof path && file_exists(path))
            return path;
    }
    return NULL;
}

int device_option_check(const char *option, const char *value, const char *command)
{
    struct pv_error err = { 0 };
    struct gpu_list gpus;
    if (value && gpu_list_parse(&gpus, value, &err))
        return options_misuse(command, "option %s: %s", option, err.text);
    return OPTIONS_RUN;
}

int model_args_check(const struct model_args *a, const char *command, struct pv_model_params *out)
{
    static const struct pv_model_test dummy = { .dummy_weights = true };
    struct pv_model_params p = pv_model_defaults();
    p.path = a->model ? a->model : find_default_model();
    p.mmproj = a->mmproj;
    p.threads = a->threads;
    p.device = a->device;
    p.no_repack = a->no_repack;
    p.tower_type = (enum pv_tower_type)a->tower_type;
    p.test = a->dummy_weights ? &dummy : NULL;
    if (!p.path)
        return options_misuse(command,
                              "no model given: name a GGUF file or Hugging Face directory with "
                              "--model (" DEFAULT_MODEL
                              " is neither in the current directory, nor in the program's, nor in "
                              "../share/prevue relative to that; 'prevue "
                              "models' lists published models)");
    if (a->model && advise_download("--model", a->model) != OPTIONS_RUN)
        return EXIT_FAILED;
    if (device_option_check("--device", a->device, command) != OPTIONS_RUN)
        return EXIT_MISUSED;
    if (a->cpumask && !parse_cpumask(a->cpumask, &p.cpu_mask))
        return options_misuse(command,
                              "option --cpumask takes CPU features separated by commas, \"none\", "
                              "\"all\" or a number, not \"%s\"",
                              a->cpumask);
    *out = p;
    return start_ranks(a->ranks, a->draft_ranks, command, &out->ranks);
}

struct pv_session_params session_args_params(const struct session_args *a)
{
    struct pv_session_params p = pv_session_defaults();
    p.max_context = a->context;
    p.chunk = a->chunk;
    p.kv_type = (enum pv_kv_type)a->kv_type;
    return p;
}

int cache_args_check(const struct cache_args *a, const char *command)
{
    if (!a->dir && (a->kv || a->bytes))
        return options_misuse(command, "--cache-%s needs --cache-dir", a->kv ? "kv" : "size");
    return OPTIONS_RUN;
}

static void warn(void *user, const char *sentence)
{
    (void)user;
    report("%s", sentence);
}

struct pv_cache_params cache_args_params(const struct cache_args *a)
{
    return (struct pv_cache_params){ .dir = a->dir, .bytes = a->bytes, .kv = a->kv, .warn = warn };
}

struct pv_gen_params sampling_args_params(const struct sampling_args *a)
{
    struct pv_gen_params p = pv_gen_defaults();
    p.max_new_tokens = a->max_tokens;
    p.temperature = (float)a->temperature;
    p.top_k = a->top_k;
    p.top_p = (float)a->top_p;
    p.min_p = (float)a->min_p;
    p.seed = a->seed;
    p.ignore_stop = a->ignore_eos;
    return p;
}

enum pv_status set_no_thinking(pv_session *s, bool no_thinking, struct pv_error *err)
{
    struct pv_chat_options o = pv_chat_defaults();
    o.no_thinking = no_thinking;
    return pv_session_chat(s, &o, err);
}
