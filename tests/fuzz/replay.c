/* Runs one fuzz target over files and directories of files, without a fuzzer: the committed
 * corpora in `make test`. Each input is in a block of exactly its size, so that a sanitizer sees
 * the first byte read past it. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t cap);

/* What targets with changes of their own link to; nothing is changed here. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t cap)
{
    (void)data, (void)cap;
    return size;
}

static int n_inputs, n_unreadable;

static void replay_file(const char *path, size_t size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1);

    if (!f || !data || fread(data, 1, size, f) != size) {
        perror(path);
        n_unreadable++;
    } else {
        LLVMFuzzerTestOneInput(data, size);
        n_inputs++;
    }
    if (f)
        fclose(f);
    free(data);
}

static void replay(const char *path)
{
    struct stat st;
    struct dirent *e;
    char sub[4096];
    DIR *d;

    if (stat(path, &st)) {
        perror(path);
        n_unreadable++;
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        replay_file(path, (size_t)st.st_size);
        return;
    }
    d = opendir(path);
    for (e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.' &&
            snprintf(sub, sizeof sub, "%s/%s", path, e->d_name) < (int)sizeof sub)
            replay(sub);
    if (d)
        closedir(d);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    /* An input that fails does not return: it aborts, or the sanitizer ends the program. */
    printf("%d passed, %d failed\n", n_inputs, n_unreadable);
    return n_unreadable || n_inputs == 0;
}
