/* The manual page and shell completions, generated from the same option tables as --help, so they
 * always agree with the program. Both are printed to stdout. */
#ifndef PV_CLI_GUIDES_H
#define PV_CLI_GUIDES_H

enum guide_shell { GUIDE_BASH, GUIDE_ZSH, GUIDE_FISH };

/* The manual page, prevue.1, in the man macros. */
void print_manual(void);
/* The completions of a shell. */
void print_completions(enum guide_shell shell);

#endif
