/* The helper process: opens and decodes one video for the library that started it. */
#ifndef PV_VIDEO_MEDIA_WORKER_AV_H
#define PV_VIDEO_MEDIA_WORKER_AV_H

/* The whole program: exchanges the messages of media_wire.h over the descriptors named there.
 * Returns the exit status. */
int media_worker_run(void);

#endif
