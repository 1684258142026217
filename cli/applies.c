/* Lists of names for messages. They come from the tables, so that a message stays right when a
 * drafter or view is added. */
#include "applies.h"

#include <stdio.h>

/* The info of the i-th entry and its name; NULL past the last. */
typedef const void *entry_fn(int i, const char **name);

static const void *drafter_entry(int i, const char **name)
{
    const struct pv_drafter_info *info = pv_drafter_find(i);
    *name = info ? info->name : NULL;
    return info;
}

static const void *view_entry(int i, const char **name)
{
    *name = pv_view_name(i);
    return *name ? pv_view_find(*name) : NULL;
}

static bool has(const void *info, size_t field)
{
    return *(const bool *)((const char *)info + field);
}

static const char *list(char out[APPLIES_SIZE], entry_fn *entry, size_t field, const char *one,
                        const char *several)
{
    const char *name;
    const void *info = entry(0, &name);
    int left = 0, n;
    for (int i = 0; info; info = entry(++i, &name))
        left += has(info, field);
    n = snprintf(out, APPLIES_SIZE, "is for %s", left == 1 ? one : several);
    info = entry(0, &name);
    for (int i = 0; info && n < APPLIES_SIZE; info = entry(++i, &name)) {
        if (!has(info, field))
            continue;
        left--;
        n += snprintf(out + n, (size_t)(APPLIES_SIZE - n), " %s%s", name,
                      left > 1    ? ","
                      : left == 1 ? " and"
                                  : "");
    }
    return out;
}

const char *applies_to_drafters(char out[APPLIES_SIZE], size_t field)
{
    return list(out, drafter_entry, field, "the drafter", "the drafters");
}

const char *applies_to_views(char out[APPLIES_SIZE], size_t field)
{
    return list(out, view_entry, field, "view", "the views");
}
