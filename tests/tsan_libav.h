/* For programs that decode video under ThreadSanitizer: FFmpeg's libraries are not compiled with
 * it, so that it sees their threads' memory but not what orders their accesses. */
#ifndef PV_TESTS_TSAN_LIBAV_H
#define PV_TESTS_TSAN_LIBAV_H

__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libavutil\ncalled_from_lib:libavcodec\nrace:libavutil\n"
           "race:libavcodec\nrace:libavformat\nrace:libswscale\nrace:libswresample\n";
}

#endif
