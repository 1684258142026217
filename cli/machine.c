/* The processor's name. Linux prints a "model name" on x86. On Arm it prints the numbers of the
 * MIDR_EL1 register, whose meaning is in the manuals of the makers. */
#include "machine.h"

#include <stdlib.h>
#include <string.h>

enum {
    ARM = 0x41,
    FUJITSU = 0x46,
    HISILICON = 0x48,
    NVIDIA = 0x4e,
    QUALCOMM = 0x51,
    APPLE = 0x61,
    AMPERE = 0xc0
};

static const struct {
    int implementer, part;
    const char *name;
} cores[] = {
    { ARM, 0xd03, "Arm Cortex-A53" },
    { ARM, 0xd05, "Arm Cortex-A55" },
    { ARM, 0xd07, "Arm Cortex-A57" },
    { ARM, 0xd08, "Arm Cortex-A72" },
    { ARM, 0xd09, "Arm Cortex-A73" },
    { ARM, 0xd0a, "Arm Cortex-A75" },
    { ARM, 0xd0b, "Arm Cortex-A76" },
    { ARM, 0xd0c, "Arm Neoverse-N1" },
    { ARM, 0xd0d, "Arm Cortex-A77" },
    { ARM, 0xd40, "Arm Neoverse-V1" },
    { ARM, 0xd41, "Arm Cortex-A78" },
    { ARM, 0xd44, "Arm Cortex-X1" },
    { ARM, 0xd46, "Arm Cortex-A510" },
    { ARM, 0xd47, "Arm Cortex-A710" },
    { ARM, 0xd48, "Arm Cortex-X2" },
    { ARM, 0xd49, "Arm Neoverse-N2" },
    { ARM, 0xd4a, "Arm Neoverse-E1" },
    { ARM, 0xd4d, "Arm Cortex-A715" },
    { ARM, 0xd4e, "Arm Cortex-X3" },
    { ARM, 0xd4f, "Arm Neoverse-V2" },
    { ARM, 0xd80, "Arm Cortex-A520" },
    { ARM, 0xd81, "Arm Cortex-A720" },
    { ARM, 0xd82, "Arm Cortex-X4" },
    { ARM, 0xd84, "Arm Neoverse-V3" },
    { ARM, 0xd85, "Arm Cortex-X925" },
    { ARM, 0xd87, "Arm Cortex-A725" },
    { ARM, 0xd8e, "Arm Neoverse-N3" },
    { FUJITSU, 0x001, "Fujitsu A64FX" },
    { HISILICON, 0xd01, "HiSilicon TaiShan v110" },
    { NVIDIA, 0x004, "NVIDIA Carmel" },
    { QUALCOMM, 0x001, "Qualcomm Oryon" },
    { APPLE, 0x022, "Apple M1" },
    { APPLE, 0x023, "Apple M1" },
    { APPLE, 0x032, "Apple M2" },
    { APPLE, 0x033, "Apple M2" },
    { AMPERE, 0xac3, "Ampere-1" },
    { AMPERE, 0xac4, "Ampere-1A" },
};
enum { N_CORES = sizeof cores / sizeof *cores };

/* The value of a line "KEY   : VALUE" without its newline; NULL: it is another line. */
static const char *value_of(char *line, const char *key)
{
    size_t n = strlen(key);
    char *colon = strchr(line, ':');
    if (strncmp(line, key, n) != 0 || !colon ||
        strspn(line + n, " \t") != (size_t)(colon - line) - n)
        return NULL;
    line[strcspn(line, "\n")] = 0;
    return colon + 1 + strspn(colon + 1, " \t");
}

static void name_core(int implementer, int part, char *out, size_t size)
{
    for (int i = 0; i < N_CORES; i++)
        if (cores[i].implementer == implementer && cores[i].part == part) {
            snprintf(out, size, "%s", cores[i].name);
            return;
        }
    snprintf(out, size, "Arm core 0x%02x:0x%03x", implementer, part);
}

void machine_name_read(FILE *cpuinfo, char *out, size_t size)
{
    char line[256];
    int implementer = -1, part = -1;

    snprintf(out, size, "unknown");
    while (fgets(line, sizeof line, cpuinfo)) {
        const char *v = value_of(line, "model name");
        if (v && *v) {
            snprintf(out, size, "%s", v);
            return;
        }
        v = value_of(line, "CPU implementer");
        implementer = v && implementer < 0 ? (int)strtol(v, NULL, 0) : implementer;
        v = value_of(line, "CPU part");
        part = v && part < 0 ? (int)strtol(v, NULL, 0) : part;
    }
    if (implementer >= 0 && part >= 0)
        name_core(implementer, part, out, size);
}

const char *machine_name(void)
{
    static char name[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(name, sizeof name, "unknown");
    if (f) {
        machine_name_read(f, name, sizeof name);
        fclose(f);
    }
    return name;
}
