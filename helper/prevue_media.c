/* prevue-media: the process in which libprevue opens and decodes videos that it does not trust. It
 * is started by the library, with its descriptors in place, and is of no use to anybody else. */
#include "video/media_worker_av.h"

#include <stdio.h>
#include <unistd.h>

int main(void)
{
    if (isatty(3) || lseek(3, 0, SEEK_CUR) < 0) {
        fputs("prevue-media is started by libprevue, to decode a video in a sandbox.\n", stderr);
        return 2;
    }
    _exit(media_worker_run()); /* the sandbox allows no cleanup */
}
