/* The devices that a user names. */
#ifndef PV_BASE_GPU_LIST_H
#define PV_BASE_GPU_LIST_H

#include "prevue/prevue.h"

enum { GPU_LIST_MOST = 16 };

struct gpu_list {
    int n; /* 0: the CPU */
    int index[GPU_LIST_MOST];
};

/* Parse "cpu", "cuda", "cuda:N", or a comma-separated list of GPUs. Whether they exist is not
 * checked. */
enum pv_status gpu_list_parse(struct gpu_list *gpus, const char *text, struct pv_error *err);

#endif
