/* Matrices that an adapter changes, as they are written. For model_file_write.c. */
#ifndef PV_FORMAT_ADAPTER_WRITE_H
#define PV_FORMAT_ADAPTER_WRITE_H

#include "format/model_file_job.h"

/* If the model's adapter adds to this tensor: writes the sum as the type `to`, *done is true. */
enum pv_status write_adapted(struct write_job *j, const struct tensor *t, enum dtype to, bool *done,
                             struct pv_error *err);

#endif
