/* Writes the matrices that an adapter changes. For model_file_write.c. */
#ifndef PV_FORMAT_ADAPTER_WRITE_H
#define PV_FORMAT_ADAPTER_WRITE_H

#include "format/model_file_job.h"

/* If the model's adapter has a low-rank update of this tensor, write the sum as type `to` and set
 * *done. */
enum pv_status write_adapted(struct write_job *j, const struct tensor *t, enum dtype to, bool *done,
                             struct pv_error *err);

#endif
