/* Whole lines or none at the end of a file. */
#include "base/append.h"
#include "scratch.h"
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *table(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/table.csv", scratch_dir());
    return path;
}

static void is(const char *text)
{
    char read[4096] = "";
    FILE *f = fopen(table(), "rb");
    if (!CHECK(f))
        return;
    (void)!fread(read, 1, sizeof read - 1, f);
    fclose(f);
    CHECK_STR(read, text);
}

static void holds(const char *text)
{
    FILE *f = fopen(table(), "wb");
    if (!CHECK(f))
        return;
    fputs(text, f);
    fclose(f);
}

TEST(the_header_comes_first_and_once)
{
    remove(table());
    CHECK_EQ(file_append(table(), "a,b\n", "1,2\n", 4, NULL), PV_OK);
    CHECK_EQ(file_append(table(), "a,b\n", "3,4\n5,6\n", 8, NULL), PV_OK);
    is("a,b\n1,2\n3,4\n5,6\n");
    holds("");
    CHECK_EQ(file_append(table(), NULL, "1,2\n", 4, NULL), PV_OK);
    is("1,2\n");
}

TEST(an_open_line_is_ended)
{
    holds("a,b\n1,");
    CHECK_EQ(file_append(table(), "a,b\n", "3,4\n", 4, NULL), PV_OK);
    is("a,b\n1,\n3,4\n");
}

TEST(failures_are_told)
{
    struct pv_error err = { 0 };
    CHECK_EQ(file_append("/no/such/directory/x", NULL, "1\n", 2, &err), PV_E_IO);
    CHECK(strstr(err.text, "/no/such/directory/x: "));
    err = (struct pv_error){ 0 };
    CHECK_EQ(file_append("/dev/full", "h\n", "1\n", 2, &err), PV_E_IO);
    CHECK(strstr(err.text, "/dev/full: cannot be written"));
}

/* A limit on the size of files stands for the end of a disk: it takes a part of the line. */
static void append_limited(size_t limit)
{
    const struct rlimit small = { limit, limit };
    pid_t child = fork();
    int status = -1;
    if (child == 0) {
        struct pv_error err = { 0 };
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
        _exit(file_append(table(), "a,b\n", "100000,200000\n", 14, &err) == PV_E_IO &&
                      strstr(err.text, strerror(EFBIG))
                  ? 0
                  : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

TEST(a_full_disk_leaves_no_half_line)
{
    struct stat st;
    holds("a,b\n1,2\n");
    append_limited(15);
    is("a,b\n1,2\n");
    holds("a,b\n1,");
    append_limited(15);
    is("a,b\n1,");
    remove(table());
    append_limited(7);
    CHECK(stat(table(), &st) != 0); /* nor an empty file */
}

TEST(many_processes_append_whole_lines)
{
    enum { PROCESSES = 4, LINES = 50, WIDTH = 1000 };
    char line[WIDTH + 2], read[WIDTH + 2];
    int n = 0, status;
    FILE *f;

    remove(table());
    for (int p = 0; p < PROCESSES; p++) {
        if (fork() != 0)
            continue;
        memset(line, 'a' + p, WIDTH);
        memcpy(line + WIDTH, "\n", 2);
        for (int i = 0; i < LINES; i++)
            if (file_append(table(), "head\n", line, WIDTH + 1, NULL))
                _exit(1);
        _exit(0);
    }
    while (wait(&status) > 0)
        CHECK_EQ(status, 0);
    f = fopen(table(), "rb");
    if (!CHECK(f))
        return;
    CHECK(fgets(read, sizeof read, f) && !strcmp(read, "head\n"));
    while (fgets(read, sizeof read, f)) {
        memset(line, read[0], WIDTH);
        memcpy(line + WIDTH, "\n", 2);
        CHECK(!strcmp(read, line));
        n++;
    }
    CHECK_EQ(n, PROCESSES * LINES);
    fclose(f);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
