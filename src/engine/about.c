/* Facts about a build for bug reports. The folder that uses a library reports its version. */
#include "prevue/about.h"

#include "base/build_id.h"
#include "base/status.h"
#include "tensor/device.h"
#ifndef PV_CORE
#include "base/png.h"
#include "format/json_hf.h"
#include "text/nfc.h"
#include "text/split.h"
#include "video/video.h"
#endif

#include <stdio.h>
#include <string.h>

const char *pv_build_id(void)
{
    return build_id();
}

const char *pv_compiler(void)
{
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

#ifdef PV_CORE

bool pv_library(int i, char *out, size_t size)
{
    (void)i, (void)out, (void)size;
    return false;
}

enum pv_status pv_sandbox_check(struct pv_error *err)
{
    return fail(err, PV_E_UNSUPPORTED, "this build (CORE=1) decodes no videos");
}

#else

static void decoder_version(char *out, size_t size)
{
    video_decoder_version(NULL, out, size);
    if (!out[0])
        snprintf(out, size, "FFmpeg unknown: prevue-media cannot be started");
}

bool pv_library(int i, char *out, size_t size)
{
    static const struct {
        const char *name;
        void (*version)(char *out, size_t size);
    } libraries[] = {
        { NULL, decoder_version }, /* says its name itself */
        { "jansson", json_hf_version }, { "PCRE2", split_version },
        { "utf8proc", nfc_version },    { "zlib", png_version },
    };
    char version[256] = "";
    if (i < 0 || i >= (int)(sizeof libraries / sizeof *libraries))
        return false;
    libraries[i].version(version, sizeof version);
    snprintf(out, size, "%s%s%s", libraries[i].name ? libraries[i].name : "",
             libraries[i].name ? " " : "", version);
    return true;
}

enum pv_status pv_sandbox_check(struct pv_error *err)
{
    static const char head[] = "YUV4MPEG2 W16 H16 F1:1 Ip A1:1 C420jpeg\nFRAME\n";
    enum { PIXELS = 16 * 16 * 3 / 2, HEAD = sizeof head - 1 };
    char clip[HEAD + PIXELS];
    struct video_sandbox sandbox = { .mode = PV_SANDBOX_ON, .wall_seconds = 30 };
    struct video_limits limits = { .file_bytes = sizeof clip,
                                   .pixels = 256,
                                   .frames = 1,
                                   .seconds = 60,
                                   .cpu_seconds = 30,
                                   .sandbox = &sandbox };
    struct video_source from = { .data = clip, .size = sizeof clip };
    struct video *v = NULL;
    enum pv_status s;

    memcpy(clip, head, HEAD);
    memset(clip + HEAD, 128, PIXELS);
    s = video_open(&v, &from, &limits, 1, err);
    video_close(&v);
    return s;
}

#endif

enum pv_status pv_gpu(int i, char *out, size_t size, struct pv_error *err)
{
    struct device *dev = NULL;
    enum pv_status s = device_cuda_open(&dev, i, err);
    if (s)
        return s;
    snprintf(out, size, "%.*s", (int)strcspn(dev->identity, "\n"), dev->identity);
    device_close(&dev);
    return PV_OK;
}
