/* Variants of a method in a list: NAME+OPTION=VALUE+OPTION=VALUE, such as
 * sd-tree+view=specvlm+ratio=0.95. The options are those of drafting and of draft views, without
 * their dashes. */
#ifndef PV_CLI_METHOD_VARIANT_H
#define PV_CLI_METHOD_VARIANT_H

#include "method_args.h"

enum { VARIANT_SIZE = 256 };

/* Set the fields of `args` that `text`, which begins with a plus sign, names. Strings in `args`
 * then point into `words`, VARIANT_SIZE bytes that the caller provides. Returns OPTIONS_RUN, or
 * reports a misuse of `command` and returns its exit status. */
int variant_parse(const char *command, const char *text, struct method_args *args, char *words);

#endif
