/* Any files as the parts of a split GGUF model. What is accepted has its parts in order, all
 * tensors of all of them, and the metadata of the first. */
#include "fuzz/bundle.h"
#include "fuzz/touch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = { "m-00001-of-00002.gguf",
                                     "m-00002-of-00002.gguf",
                                     "m-00001-of-00003.gguf",
                                     "m-00002-of-00003.gguf",
                                     "m-00003-of-00003.gguf",
                                     "m.gguf",
                                     NULL };

/* No file is two parts, and none is larger than allowed. */
static void check_parts(const struct gguf *g)
{
    for (int i = 0; i < gguf_n_files(g); i++) {
        const struct file_stamp *stamp = gguf_stamp(g, i);
        if (stamp->size > BUNDLE_MOST_BYTES)
            abort();
        for (int j = 0; j < i; j++)
            if (gguf_stamp(g, j)->inode == stamp->inode)
                abort();
    }
}

static void open_file(const char *dir, const char *name)
{
    struct gguf *g = NULL;
    struct pv_error err = { 0 };
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (gguf_open(&g, path, BUNDLE_MOST_BYTES, &err)) {
        must_say_why(&err);
        if (g || !strstr(err.text, dir))
            abort(); /* a message names its file */
        return;
    }
    touch_gguf(g);
    check_parts(g);
    gguf_close(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *dir;

    if (size > BUNDLE_MOST_BYTES)
        return 0;
    dir = bundle_open(names, data, size);
    for (int i = 0; names[i]; i++)
        open_file(dir, names[i]);
    return 0;
}
