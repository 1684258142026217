/* The table of presets, which pv_method_name and pv_method_find show. */
#ifndef PV_SPEC_METHOD_H
#define PV_SPEC_METHOD_H

#include "base/status.h"

enum { METHODS_MOST_ADDED = 16 };

/* Add n presets, which must stay valid for as long as the process runs, behind those of the
 * library. Call it before a model is opened; it is not safe beside other calls. Their views must be
 * known. False: a name is taken, a view is unknown, or there would be more than METHODS_MOST_ADDED.
 */
bool methods_add(const struct pv_method *rows, int n);

#endif
