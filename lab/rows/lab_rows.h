/* What the laboratory adds to the tables of the library: drafters, views and methods that were
 * compared with those that people use, and lost, or that only an experiment needs. doc/methods.md
 * has them all.
 */
#ifndef PV_LAB_ROWS_LAB_ROWS_H
#define PV_LAB_ROWS_LAB_ROWS_H

#include <stdbool.h>

/* Add all rows. Call it once, before a model is opened; false: a table is full, or has a row of the
 * same name. */
bool lab_rows_add(void);

#endif
