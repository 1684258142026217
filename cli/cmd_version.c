/* prevue version: what this program is. */
#include "command.h"

#include <stdio.h>

const struct option_set version_options = {
    .command = "version",
    .usage = "[OPTIONS]",
    .about = "Prints the version and the CPU features in use.",
};

int cmd_version(int argc, char **argv)
{
    uint64_t features = pv_cpu_features();
    int r = options_parse(&version_options, NULL, argc, argv, NULL);
    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    printf("prevue %s\ncpu:", pv_version());
    for (int i = 0; pv_cpu_feature_name(i); i++) {
        if (features >> i & 1)
            printf(" %s", pv_cpu_feature_name(i));
    }
    printf("\n");
    return finish_output();
}
