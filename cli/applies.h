/* Phrases for messages that say which drafters or views use an option, from the library's
 * tables. */
#ifndef PV_CLI_APPLIES_H
#define PV_CLI_APPLIES_H

#include "prevue/prevue.h"

enum { APPLIES_SIZE = 160 };

/* "is for the drafters model, self and head": those whose struct pv_drafter_info has the bool at
 * this offset set. Returns out. */
const char *applies_to_drafters(char out[APPLIES_SIZE], size_t field);
/* The same for views and struct pv_view_info: "is for view specvlm". */
const char *applies_to_views(char out[APPLIES_SIZE], size_t field);

#endif
