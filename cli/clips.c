/* Gathers the clips of a benchmark. */
#include "clips.h"

#include "base/file.h"
#include "base/mem.h"
#include "command.h"
#include "jsonl.h"
#include "multiple_choice.h"
#include "prepared.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_LIST_BYTES = 256 << 20 };

/* Takes over both strings. */
static bool add_clip(struct clips *c, char *path, char *prompt)
{
    if (path && c->n == c->cap && c->cap < MAX_CLIPS) {
        int cap = c->cap ? 2 * c->cap : 16;
        struct clip *items = mem_realloc(c->items, (size_t)cap * sizeof *items);
        if (items) {
            c->items = items;
            c->cap = cap;
        }
    }
    if (!path || c->n == c->cap) {
        report(c->n == MAX_CLIPS ? "there are more than %d clips" : "out of memory for clip %d",
               c->n == MAX_CLIPS ? MAX_CLIPS : c->n + 1);
        mem_free(path);
        mem_free(prompt);
        return false;
    }
    c->items[c->n++] = (struct clip){ .path = path, .prompt = prompt, .key = -1 };
    return true;
}

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && !strcasecmp(name + n - m, ending);
}

/* ---- directories ---- */

static bool is_clip_name(const char *name)
{
#ifndef PV_CORE
    static const char *const endings[] = { ".mp4", ".mkv", ".webm", ".mov", ".avi",  ".m4v",
                                           ".mpg", ".ts",  ".flv",  ".wmv", ".mpeg", ".y4m" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (ends_in(name, endings[i]))
            return true;
    }
#endif
    return is_prepared(name);
}

static int by_path(const void *a, const void *b)
{
    const struct clip *x = a, *y = b;
    return strcmp(x->path, y->path);
}

static bool add_files(struct clips *c, const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *e = NULL;
    bool ok = true;

    if (!d) {
        report("%s: could not be read: %s", path, strerror(errno));
        return false;
    }
    for (e = readdir(d); e && ok; e = readdir(d)) {
        if (e->d_name[0] != '.' && is_clip_name(e->d_name))
            ok = add_clip(c, path_join(path, e->d_name), NULL);
    }
    closedir(d);
    return ok;
}

static bool add_directory(struct clips *c, const char *path)
{
    int first = c->n;
    bool ok = add_files(c, path);

    if (ok && c->n == first) {
        report("%s: there is no video in this directory", path);
        ok = false;
    }
    if (ok)
        qsort(c->items + first, (size_t)(c->n - first), sizeof *c->items, by_path);
    return ok;
}

/* ---- lists ---- */

char *clips_place(const char *list, const char *path)
{
    const char *slash = strrchr(list, '/');
    char *dir, *out;
    if (!slash || path[0] == '/')
        return mem_strdup(path);
    dir = mem_strndup(list, (size_t)(slash + 1 - list));
    out = dir ? path_join(dir, path) : NULL;
    mem_free(dir);
    return out;
}

/* The question with its options, and the options, of a line that has them; what is wrong with it,
 * or NULL. */
static const char *read_choice(const struct jsonl_line *l, struct clip *out)
{
    struct buf prompt;

    if (!l->has_prompt || !l->prompt.len)
        return "it has \"options\" and no \"prompt\"";
    if (l->n_options > MOST_OPTIONS)
        return "it has more than 26 options";
    out->key = l->key.len ? choice_key(l->key.data, l->n_options) : -1;
    if (l->key.len && out->key < 0)
        return "\"key\" is neither the letter nor the number (from 0) of one of its options";
    buf_init(&prompt, 2 * JSONL_MAX_STRING);
    choice_prompt(&prompt, l->prompt.data, l->options.data, l->n_options);
    out->prompt = prompt.failed ? NULL : mem_strdup(prompt.data);
    out->options = mem_alloc(l->options.len);
    buf_clear(&prompt);
    if (!out->prompt || !out->options)
        return "out of memory";
    memcpy(out->options, l->options.data, l->options.len);
    out->n_options = l->n_options;
    return NULL;
}

static bool add_line(struct clips *c, const char *list, int number, const char *line, size_t len)
{
    struct clip choice = { .key = -1 };
    struct jsonl_line l;
    const char *wrong;
    char *question = NULL;
    bool ok = false, asks;

    jsonl_init(&l);
    wrong = jsonl_read(line, len, &l);
    asks = l.has_prompt && l.prompt.len;
    if (!wrong && !l.video.len)
        wrong = "\"video\" is empty";
    if (!wrong && asks && is_prepared(l.video.data))
        wrong = "\"prompt\" cannot be used with a prepared prompt, which holds its question";
    if (!wrong && l.n_options > 0 && !is_prepared(l.video.data)) {
        wrong = read_choice(&l, &choice);
        question = choice.prompt;
    } else if (!wrong && asks) {
        question = mem_strdup(l.prompt.data);
        wrong = question ? NULL : "out of memory";
    }
    if (wrong)
        report("%s: line %d: %s", list, number, wrong);
    else
        ok = add_clip(c, clips_place(list, l.video.data), question);
    if (ok) {
        c->items[c->n - 1].options = choice.options;
        c->items[c->n - 1].n_options = choice.n_options;
        c->items[c->n - 1].key = choice.key;
    } else {
        mem_free(choice.options);
        mem_free(wrong ? question : NULL);
    }
    jsonl_clear(&l);
    return ok;
}

static bool add_list(struct clips *c, const char *path)
{
    struct buf text;
    size_t at = 0;
    int number = 1, first = c->n;
    bool ok;

    buf_init(&text, MAX_LIST_BYTES);
    ok = read_text(&text, path);
    for (; ok && at < text.len; number++) {
        const char *line = text.data + at;
        const char *end = memchr(line, '\n', text.len - at);
        size_t len = end ? (size_t)(end - line) : text.len - at;
        size_t blank = 0;
        while (blank < len && strchr(" \t\r", line[blank]) && line[blank])
            blank++;
        if (blank < len)
            ok = add_line(c, path, number, line, len);
        at += len + 1;
    }
    buf_clear(&text);
    if (ok && c->n == first) {
        report("%s: there is no clip in this list", path);
        ok = false;
    }
    return ok;
}

bool clips_read(struct clips *c, const struct arg_list *sources)
{
    *c = (struct clips){ 0 };
    for (int i = 0; i < sources->n; i++) {
        const char *path = sources->items[i];
        bool ok = file_is_dir(path)         ? add_directory(c, path)
                  : ends_in(path, ".jsonl") ? add_list(c, path)
                                            : add_clip(c, mem_strdup(path), NULL);
        if (!ok) {
            clips_clear(c);
            return false;
        }
    }
    return true;
}

bool clips_prepared(const struct clips *c)
{
    for (int i = 0; i < c->n; i++)
        if (!is_prepared(c->items[i].path))
            return false;
    return true;
}

void clips_clear(struct clips *c)
{
    for (int i = 0; i < c->n; i++) {
        mem_free(c->items[i].path);
        mem_free(c->items[i].prompt);
        mem_free(c->items[i].options);
    }
    mem_free(c->items);
    *c = (struct clips){ 0 };
}
