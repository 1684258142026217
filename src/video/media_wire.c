/* The only places that list the fields of what both sides exchange. */
#include "video/media_wire.h"

#include <stdio.h>

struct wire_info wire_write_info(const struct video_info *i)
{
    return (struct wire_info){ .width = i->width,
                               .height = i->height,
                               .n_frames = i->n_frames,
                               .fps = i->fps,
                               .duration = i->duration,
                               .still = i->still,
                               .has_sound = i->has_sound,
                               .cut = i->cut };
}

bool wire_read_info(struct video_info *out, const struct wire_info *i)
{
    if (i->still > 1 || i->has_sound > 1)
        return false;
    *out = (struct video_info){ .width = i->width,
                                .height = i->height,
                                .n_frames = i->n_frames,
                                .fps = i->fps,
                                .duration = i->duration,
                                .still = i->still,
                                .has_sound = i->has_sound,
                                .cut = i->cut };
    return true;
}

bool wire_write_limits(struct wire_limits *out, const struct video_limits *l)
{
    const char *formats = l->more_formats ? l->more_formats : "";

    out->file_bytes = l->file_bytes;
    out->pixels = l->pixels;
    out->frames = l->frames;
    out->seconds = l->seconds;
    out->memory = l->memory;
    out->decoded_pixels = l->decoded_pixels;
    out->cpu_seconds = l->cpu_seconds;
    return snprintf(out->formats, sizeof out->formats, "%s", formats) < (int)sizeof out->formats;
}

struct video_limits wire_read_limits(struct wire_limits *l)
{
    l->formats[sizeof l->formats - 1] = 0;
    return (struct video_limits){ .file_bytes = l->file_bytes,
                                  .pixels = l->pixels,
                                  .frames = l->frames,
                                  .seconds = l->seconds,
                                  .memory = l->memory,
                                  .decoded_pixels = l->decoded_pixels,
                                  .cpu_seconds = l->cpu_seconds,
                                  .more_formats = l->formats[0] ? l->formats : NULL };
}
