/* Where the tests' own temporary files go. */
#include "scratch.h"
#include "test.h"

TEST(temporary_files_go_to_tmpdir)
{
    char usual[4096] = "", longest[64], too_long[64];
    const char *dir = getenv("TMPDIR");
    if (dir)
        snprintf(usual, sizeof usual, "%s", dir);

    memset(longest, 'd', sizeof longest);
    memcpy(longest, "/", 1);
    longest[44] = 0;
    memcpy(too_long, longest, sizeof longest);
    memcpy(too_long + 44, "d", 2);
    const struct {
        const char *set, *base;
    } cases[] = { { "/dev/shm", "/dev/shm" },
                  { longest, longest },
                  { too_long, "/tmp" },
                  { "relative/dir", "/tmp" },
                  { "", "/tmp" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("TMPDIR", cases[i].set, 1);
        CHECK_STR(scratch_base(), cases[i].base);
    }
    unsetenv("TMPDIR");
    CHECK_STR(scratch_base(), "/tmp");

    if (usual[0])
        setenv("TMPDIR", usual, 1);
    CHECK(strncmp(scratch_dir(), scratch_base(), strlen(scratch_base())) == 0);
    CHECK_EQ(access(scratch_dir(), W_OK), 0);
    CHECK_EQ(strlen(longest) + strlen("/prevue-test-XXXXXX") + 1, sizeof scratch_path);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
