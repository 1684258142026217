/* Names of devices: "cpu", "cuda", "cuda:N", or a comma-separated list of GPUs. */
#include "base/gpu_list.h"

#include "base/status.h"

#include <string.h>

/* Parse "cuda" or "cuda:N" at *text, and move *text past it. Returns the number; -1 for anything
 * else. */
static int parse_gpu(const char **text)
{
    const char *p = *text;
    int n = 0;
    if (strncmp(p, "cuda", 4) != 0)
        return -1;
    p += 4;
    if (*p == ':' && p[1] >= '0' && p[1] <= '9')
        for (p++; *p >= '0' && *p <= '9' && n < 1000; p++)
            n = 10 * n + (*p - '0');
    *text = p;
    return n;
}

enum pv_status gpu_list_parse(struct gpu_list *gpus, const char *text, struct pv_error *err)
{
    const char *p = text;
    gpus->n = 0;
    if (!strcmp(text, "cpu"))
        return PV_OK;
    for (int gpu = parse_gpu(&p); gpu >= 0; gpu = parse_gpu(&p)) {
        if (gpus->n == GPU_LIST_MOST)
            return fail(err, PV_E_LIMIT, "'%s' has more than %d devices", text, GPU_LIST_MOST);
        gpus->index[gpus->n++] = gpu;
        if (*p == '\0')
            return PV_OK;
        if (*p++ != ',')
            break;
    }
    return fail(err, PV_E_ARG,
                "unknown device '%s' (use cpu, cuda, cuda:N, or several such as cuda:0,cuda:1)",
                text);
}
