/* The laboratory's drafters. */
#ifndef PV_LAB_ROWS_LAB_DRAFTERS_H
#define PV_LAB_ROWS_LAB_DRAFTERS_H

#include "spec/drafter_kind.h"

/* Prompt lookup, and where it finds nothing the draft model. */
extern const struct drafter_kind drafter_cascade;

#endif
