/* Multiple-choice questions: the prompt with the options, and the option that an answer chose. */
#ifndef PV_CLI_MULTIPLE_CHOICE_H
#define PV_CLI_MULTIPLE_CHOICE_H

#include "base/buf.h"

enum { MOST_OPTIONS = 26 }; /* A to Z */

/* Write a question with its options: lines "A. ...", and a line that asks for the letter. Options
 * that begin with their letter are not changed. `options`: n strings, each with a final NUL. */
void choice_prompt(struct buf *out, const char *question, const char *options, int n);

/* The option that an answer chose: the answer begins with its letter ("B", "(B)", "B. A red car"),
 * names the letter ("The answer is B."), or is the option's text, ignoring case and the full stop.
 * -1: none of these. */
int choice_of(const char *answer, const char *options, int n);

/* The option that a key in a list names: "B", "b", "(B)" or a number from 0; -1: none of n. */
int choice_key(const char *key, int n);

#endif
