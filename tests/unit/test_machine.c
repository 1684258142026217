/* Names of processors from files in the form of /proc/cpuinfo. */
#include "machine.h"
#include "test.h"

static const char *name_of(const char *text)
{
    static char name[64];
    FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    machine_name_read(f, name, sizeof name);
    fclose(f);
    return name;
}

TEST(x86_names_itself)
{
    CHECK_STR(name_of("processor\t: 0\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) 8481C\n"
                      "processor\t: 1\nmodel name\t: another\n"),
              "Intel(R) Xeon(R) 8481C");
}

TEST(arm_is_looked_up)
{
    static const char form[] = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: %s\n"
                               "CPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: %s\n"
                               "CPU revision\t: 1\n\nprocessor\t: 1\nCPU part\t: 0xd05\n";
    static const struct {
        const char *implementer, *part, *name;
    } rows[] = { { "0x41", "0xd0c", "Arm Neoverse-N1" },
                 { "0x41", "0xd4f", "Arm Neoverse-V2" },
                 { "0xc0", "0xac3", "Ampere-1" },
                 { "0x41", "0xfff", "Arm core 0x41:0xfff" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text, form, rows[i].implementer, rows[i].part);
        CHECK_STR(name_of(text), rows[i].name);
    }
}

TEST(nothing_is_unknown)
{
    CHECK_STR(name_of("processor\t: 0\n"), "unknown");
    CHECK_STR(name_of("CPU part\t: 0xd0c\n"), "unknown"); /* whose? */
    CHECK_STR(name_of("model name\n"), "unknown");
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
