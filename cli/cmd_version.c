/* prevue version: what this program is, and with --verbose all that a bug report should say. */
#include "command.h"
#include "machine.h"

#include "base/cpu.h"
#include "prevue/about.h"
#ifndef PV_CORE
#include "server/serve.h"
#endif

#include <stdio.h>
#include <sys/utsname.h>

struct version_args {
    bool verbose;
};

static const struct option version_table[] = {
    { "verbose", 'v', NULL, OPTION_FLAG, offsetof(struct version_args, verbose), 0, 0, NULL,
      "Say more, for a bug report: build, compiler, libraries, system, processor, sandbox and "
      "GPUs.",
      NULL },
};

static const struct option_group version_groups[] = {
    { "version", version_table, sizeof version_table / sizeof *version_table, 0, SHORT_ALL },
};

const struct option_set version_options = {
    .command = "version",
    .usage = "[--verbose]",
    .about = "Prints the version and the CPU features in use.",
    .groups = version_groups,
    .n_groups = sizeof version_groups / sizeof *version_groups,
};

static void print_libraries(void)
{
    char text[256];
    for (int i = 0; pv_library(i, text, sizeof text); i++)
        printf("library: %s\n", text);
#ifndef PV_CORE
    serve_libraries(text, sizeof text);
    printf("server: %s\n", text);
#else
    printf("server: none (CORE=1)\n");
#endif
}

static void print_machine(void)
{
    struct pv_error err = { 0 }, no_gpu = { 0 };
    struct utsname system;
    char gpu[512];
    int n = 0;

    if (uname(&system) == 0)
        printf("system: %s %s, %s\n", system.sysname, system.release, system.machine);
    printf("processor: %s\nthreads: %d\nmemory: %.1f GiB\n", machine_name(), cpu_count(),
           (double)cpu_memory() / (1 << 30));
    if (pv_sandbox_check(&err) == PV_OK)
        printf("sandbox: available\n");
    else
        printf("sandbox: not available: %s\n", err.text);
    while (pv_gpu(n, gpu, sizeof gpu, &no_gpu) == PV_OK)
        printf("GPU %d: %s\n", n++, gpu);
    if (n == 0)
        printf("GPU: none: %s\n", no_gpu.text);
}

int cmd_version(int argc, char **argv)
{
    struct version_args a = { 0 };
    uint64_t features = pv_cpu_features();
    int r = options_parse(&version_options, &a, argc, argv, NULL);
    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    printf("prevue %s\ncpu:", pv_version());
    for (int i = 0; pv_cpu_feature_name(i); i++) {
        if (features >> i & 1)
            printf(" %s", pv_cpu_feature_name(i));
    }
    printf("\n");
    if (a.verbose) {
        printf("build: %s\ncompiler: %s\n", pv_build_id(), pv_compiler());
        print_libraries();
        print_machine();
    }
    return finish_output();
}
