/* Shards. A Slurm array job and the tasks of one Slurm job say which of how many they are; a
 * Kubernetes indexed Job says which, and the number of them is given. */
#include "batch_shard.h"

#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHARDS = 1 << 20 };

/* A number of the environment; -1: there is none. */
static long long env_number(const char *name)
{
    const char *text = getenv(name);
    long long v;
    return text && parse_int(text, 0, 1LL << 40, &v) ? v : -1;
}

/* Of: 0 where the environment does not say. */
static bool from_environment(struct batch_shard *s)
{
    long long id = env_number("SLURM_ARRAY_TASK_ID"), count = env_number("SLURM_ARRAY_TASK_COUNT");
    long long first = env_number("SLURM_ARRAY_TASK_MIN"),
              step = env_number("SLURM_ARRAY_TASK_STEP");
    long long task = env_number("SLURM_PROCID"), tasks = env_number("SLURM_NTASKS");
    long long index = env_number("JOB_COMPLETION_INDEX");
    if (id >= 0 && count > 0 && first >= 0 && id >= first) {
        s->index = (int)((id - first) / (step > 0 ? step : 1)) + 1;
        s->of = (int)count;
    } else if (task >= 0 && tasks > 1) {
        s->index = (int)task + 1;
        s->of = (int)tasks;
    } else if (index >= 0) {
        s->index = (int)index + 1;
        s->of = 0;
    } else {
        return false;
    }
    return true;
}

int batch_shard_find(struct batch_shard *s, const char *text)
{
    struct batch_shard env = { 0 };
    bool known = from_environment(&env);
    const char *slash = text ? strchr(text, '/') : NULL;
    long long of = 1, index = 1;
    char first[32] = "";

    *s = (struct batch_shard){ 1, 1 };
    if (!text && known && env.of == 0)
        return options_misuse("batch", "JOB_COMPLETION_INDEX says which shard this is, not of how "
                                       "many: give --shard /N");
    if (!text && known)
        *s = env;
    if (text && slash && (size_t)(slash - text) < sizeof first)
        memcpy(first, text, (size_t)(slash - text));
    if (text && (!slash || !parse_int(slash + 1, 1, MAX_SHARDS, &of) ||
                 (slash > text && !parse_int(first, 1, of, &index))))
        return options_misuse("batch", "--shard: \"%s\" is not I/N with I from 1 to N", text);
    if (text && slash == text && !known)
        return options_misuse("batch",
                              "--shard %s: neither Slurm nor Kubernetes says which shard "
                              "this is",
                              text);
    if (text)
        *s = (struct batch_shard){ slash == text ? env.index : (int)index, (int)of };
    if (s->index > s->of)
        return options_misuse("batch", "the environment says shard %d, but there are %d", s->index,
                              s->of);
    return OPTIONS_RUN;
}

bool batch_shard_name(const struct batch_shard *s, const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(path, '.');
    int n;
    if (!dot || (slash && dot < slash) || dot == path || (slash && dot == slash + 1))
        dot = path + strlen(path);
    if (s->of == 1)
        n = snprintf(out, size, "%s", path);
    else
        n = snprintf(out, size, "%.*s-%d-of-%d%s", (int)(dot - path), path, s->index, s->of, dot);
    return n >= 0 && (size_t)n < size;
}
