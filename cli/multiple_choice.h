/* Multiple choice: the prompt that shows the options, and the option that an answer chose. */
#ifndef PV_CLI_MULTIPLE_CHOICE_H
#define PV_CLI_MULTIPLE_CHOICE_H

#include "base/buf.h"

enum { MOST_OPTIONS = 26 }; /* A to Z */

/* Adds the options to a question: lines "A. ...", and a line that asks for the letter. Options that
 * begin with their letter already are taken as they are. `options` are n strings, one after
 * another, each with a NUL behind it. */
void choice_prompt(struct buf *out, const char *question, const char *options, int n);

/* The option that an answer means: one that stands for itself ("B", "(B)", "B. A red car"), one
 * named by letter ("The answer is B."), or one whose text the answer is, but for capitals and the
 * full stop. -1: none of them. */
int choice_of(const char *answer, const char *options, int n);

/* "B", "b", "(B)" or a number from 0 as a key of a list; -1: it is none of n options. */
int choice_key(const char *key, int n);

#endif
