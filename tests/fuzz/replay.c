/* Runs a fuzz target over files without a fuzzer: replay_<target> FILE|DIRECTORY...
 *
 * A target that crashes takes this program with it; the name printed last is the input's. One
 * input is one test; the last line is "N passed, N failed". */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int passed, failed;

static void fail_input(const char *path, const char *why)
{
    failed++;
    printf("FAIL %s: %s\n", path, why);
}

/* The input lies at the end of a block of its exact size, so that ASan sees a read past it. */
static void replay_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);

    printf("%s\n", path);
    if (!f || !data || fread(data, 1, size, f) != size) {
        fail_input(path, "could not be read");
    } else {
        LLVMFuzzerTestOneInput(data, size);
        passed++;
    }
    free(data);
    if (f)
        fclose(f);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void replay_directory(const char *path)
{
    enum { MAX_FILES = 10000 };
    char **names = calloc(MAX_FILES, sizeof *names), full[4096];
    DIR *d = opendir(path);
    struct stat st;
    int n = 0;

    for (struct dirent *e = d && names ? readdir(d) : NULL; e && n < MAX_FILES; e = readdir(d)) {
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (stat(full, &st) == 0 && S_ISREG(st.st_mode))
            names[n++] = strdup(full);
    }
    if (d)
        closedir(d);
    if (n == 0)
        fail_input(path, "no input there");
    else
        qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++) {
        if (stat(names[i], &st) == 0)
            replay_file(names[i], (size_t)st.st_size);
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        struct stat st;
        if (stat(argv[i], &st) != 0)
            fail_input(argv[i], "is not there");
        else if (S_ISDIR(st.st_mode))
            replay_directory(argv[i]);
        else
            replay_file(argv[i], (size_t)st.st_size);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed ? 1 : 0;
}
