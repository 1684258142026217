/* Parts of struct device_work that have their own files: copies and recorded steps. */
#ifndef PV_KERNELS_CUDA_WORK_H
#define PV_KERNELS_CUDA_WORK_H

#include "kernels/cuda/cuda.h"

/* stager.cu: copies through pinned memory, in order with the work's kernels. */
enum pv_status stager_open(struct device_work *w, struct pv_error *err);
void stager_close(struct device_work *w);
void stager_put(struct device_work *w, void *dst, const void *src, size_t size);
void stager_put_ahead(struct device_work *w, void *dst, const void *src, size_t size);
void stager_get(struct device_work *w, void *dst, const void *src, size_t size);

/* recorder.cu: a step is recorded as a CUDA graph; steps with equal keys replay it. */
enum pv_status recorder_open(struct device_work *w, struct pv_error *err);
void recorder_close(struct device_work *w);
bool recorder_begin(struct device_work *w, const struct work_plan *plan);
void recorder_end(struct device_work *w);
/* Whether recorder_end will finish a recording, and whether it will replay one. */
bool recorder_captures(const struct device_work *w);
bool recorder_plays(const struct device_work *w);
/* Only stage a plan's runs, for a work that is driven by another work's recorder. */
void recorder_stage(struct device_work *w, const struct work_plan *plan);
bool recorder_again(struct device_work *w);
uint64_t recorder_first_runs(struct device *dev);

#endif
