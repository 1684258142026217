/* Reads frames of a video, evenly spaced as by the rule `linspace`, and prints the CPU seconds of
 * this process and of the helper that decodes. bench/peer_video.py does the same with other
 * readers.
 *
 *   bench_video VIDEO FRAMES [THREADS] */
#include "video/video.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static double cpu_of(int who)
{
    struct rusage u;

    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static bool take(void *user, int at, int64_t index, double time, const struct image *p)
{
    uint64_t *sum = user;

    (void)at, (void)index, (void)time;
    for (size_t i = 0; i < (size_t)p->width * (size_t)p->height * 3; i += 997)
        *sum = *sum * 31 + p->rgb[i];
    return true;
}

static int done(enum pv_status s, const struct pv_error *err)
{
    if (s)
        fprintf(stderr, "bench_video: %s\n", err->text);
    return s != PV_OK;
}

int main(int argc, char **argv)
{
    const struct video_limits limits = { .file_bytes = UINT64_MAX / 2,
                                         .pixels = 1 << 26,
                                         .frames = 4096,
                                         .seconds = 86400,
                                         .memory = (uint64_t)1 << 34,
                                         .cpu_seconds = 86400 };
    struct pv_error err = { 0 };
    struct video *v = NULL;
    int n = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0, lost = 0;
    int64_t *index;
    uint64_t sum = 0;

    if (argc < 3 || n < 1) {
        fprintf(stderr, "use: bench_video VIDEO FRAMES [THREADS]\n");
        return 2;
    }
    if (done(video_open(&v, &(struct video_source){ .path = argv[1] }, &limits,
                        argc > 3 ? (int)strtol(argv[3], NULL, 10) : 0, &err),
             &err))
        return 1;
    index = malloc((size_t)n * sizeof *index);
    for (int i = 0; index && i < n; i++)
        index[i] = (int64_t)((double)(video_info(v)->n_frames - 1) * i / (n > 1 ? n - 1 : 1));
    if (!index || done(video_read(v, index, n, take, &sum, &lost, &err), &err))
        return 1;
    free(index);
    video_close(&v);
    printf("%s,%d,%.3f,%016llx\n", argv[1], n, cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN),
           (unsigned long long)sum);
    return 0;
}
