/* KV pages of prompts in the engine's cache on disk. A page is known by the digests of its rows and
 * of all before them. Of a page in which a video or picture ends, the rows up to that end are kept
 * as well: another question may follow there. */
#ifndef PV_ENGINE_DISK_PAGES_H
#define PV_ENGINE_DISK_PAGES_H

#include "engine/disk_identity.h"
#include "engine/sequence.h"

struct task;

/* Reads what the pool lacks of the longest beginning of the sequence that disk and pool know
 * together, and publishes it: sequence_adopt finds it if it comes next. Lets other tasks run in
 * between, and stops when the task is cancelled. `work`: for copies, in order with what was asked
 * of the pool's pages. */
void disk_pages_fetch(struct engine_disk *d, const struct sequence *q, struct device_work *work,
                      struct task *t);
/* Writes the pages of the sequence's prompt that are not on disk yet, as far as they are filled. */
void disk_pages_keep(struct engine_disk *d, struct sequence *q, struct device_work *work,
                     struct task *t);

#endif
