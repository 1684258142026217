/* KV pages of prompts in the engine's cache on disk. The key of a page is a digest of its rows and
 * of all rows before them. For a page in which a video or picture ends, the rows up to that end are
 * stored as an entry of their own too, because another question may follow there. */
#ifndef PV_ENGINE_DISK_PAGES_H
#define PV_ENGINE_DISK_PAGES_H

#include "engine/disk_identity.h"
#include "engine/sequence.h"

struct task;

/* Find the longest prefix of the sequence whose pages are in the pool or on disk, read those that
 * the pool lacks and publish them, so that a following sequence_adopt finds them. Lets other tasks
 * run in between, and stops when the task is cancelled. `work`: for copies, ordered with other
 * operations on the pool's pages. */
void disk_pages_fetch(struct engine_disk *d, const struct sequence *q, struct device_work *work,
                      struct task *t);
/* Write the pages of the sequence's prompt that are not on disk yet, as far as they are filled. */
void disk_pages_keep(struct engine_disk *d, struct sequence *q, struct device_work *work,
                     struct task *t);

#endif
