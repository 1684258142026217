/* Advice for users whose first command cannot work: what to type instead. */
#include "model_advice.h"

#include "command.h"
#include "known_models.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* The model in the repository, and the size of the clips that it was made for. */
#define TOY_MODEL "nano.gguf"
enum { TOY_SIDE = 256 };
/* Small, and runs on most machines. */
#define FIRST_MODEL "Qwen/Qwen3-VL-2B-Instruct"

/* ORGANISATION/NAME, as the hub spells it, and not a path that somebody mistyped. */
static bool is_repository(const char *path)
{
    const char *slash = strchr(path, '/');
    char organisation[128];

    if (known_model_find(path))
        return true;
    if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/') || strchr("./~", path[0]) ||
        path_ends(path, ".gguf") || (size_t)(slash - path) >= sizeof organisation)
        return false;
    snprintf(organisation, sizeof organisation, "%.*s", (int)(slash - path), path);
    return !file_exists(organisation);
}

int advise_download(const char *option, const char *path)
{
    const struct known_model *m = known_model_find(path);
    const char *repo = m ? m->repo : path, *name = repo_name(repo);

    if (file_exists(path) || !is_repository(path))
        return OPTIONS_RUN;
    if (file_is_dir(name))
        return report("%s: there is no such file or directory, but there is %s: give %s %s", path,
                      name, option, name);
    return report("%s: there is no such file or directory; download it with 'hf download %s "
                  "--local-dir %s', then give %s %s",
                  path, repo, name, option, name);
}

static bool contains(const struct file_map *map, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= map->size; i++)
        if (!memcmp(map->data + i, word, n))
            return true;
    return false;
}

/* Is there a file of this name in the directory; with `word`, one that contains it? */
static bool has_file(const char *dir, const char *name, const char *word)
{
    enum { MOST = 64 << 20 };
    char *path = path_join(dir, name);
    struct file_map map = { 0 };
    bool found = path && file_exists(path);

    if (found && word) {
        found = !file_map_open(&map, path, MOST, NULL) && contains(&map, word);
        file_map_close(&map);
    }
    mem_free(path);
    return found;
}

void advise_template(const char *path)
{
    if (!file_is_dir(path) ||
        (!has_file(path, "tokenizer.json", NULL) && !has_file(path, "vocab.json", NULL)))
        return;
    if (!has_file(path, "chat_template.json", NULL) &&
        !has_file(path, "chat_template.jinja", NULL) &&
        !has_file(path, "tokenizer_config.json", "\"chat_template\""))
        report(
            "%s: there is no chat template (chat_template.json or chat_template.jinja, or in "
            "tokenizer_config.json); ChatML is used, which may not be what the model was trained "
            "with: download the missing file",
            path);
}

void advise_real_model(const struct pv_model_params *mp, const struct pv_video_info *info, int n)
{
    bool real = false;
    for (int i = 0; i < n; i++)
        real = real || info[i].width != TOY_SIDE || info[i].height != TOY_SIDE;
    if (real && !strcmp(path_name(mp->path), TOY_MODEL))
        report("%s is a toy model: it knows only moving emoji, as in samples/, and will describe "
               "this clip wrongly. For real videos: 'hf download " FIRST_MODEL " --local-dir %s', "
               "then -m %s ('prevue models' lists others)",
               path_name(mp->path), repo_name(FIRST_MODEL), repo_name(FIRST_MODEL));
}

static int check_video(const char *command, const char *path)
{
    if (!strcmp(path, "-"))
        return options_misuse(command, "a video cannot be read from standard input, because "
                                       "decoding must seek: write it to a file and give its name");
    if (strstr(path, "://") && strncmp(path, "file://", 7) != 0)
        return options_misuse(command,
                              "%s is a URL, and only files are read: download it first, for "
                              "example with 'curl -LO' ('prevue serve --allow-domain' fetches URLs "
                              "for its clients)",
                              path);
    if (!strncmp(path, "file://", 7))
        return options_misuse(command, "%s is a URL: give the name of the file, %s", path,
                              path + 7);
    return OPTIONS_RUN;
}

int check_videos(const char *command, const struct arg_list *videos)
{
    int r = videos->n ? OPTIONS_RUN : options_misuse(command, "no video given");
    for (int i = 0; i < videos->n && r == OPTIONS_RUN; i++)
        r = check_video(command, videos->items[i]);
    return r;
}
