/* The options of choosing frames and of limits. Zero means "as the model's family does it" to the
 * library, so no option takes zero except --start. */
#include "video_args.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The order of enum pv_frame_rule and of enum pv_time_rule. */
#define FRAME_WORDS "auto linspace arange qwen"
#define TIME_WORDS "auto seconds whole compact seconds-compact upstream training"

enum { MOST_FRAMES = 1 << 20, MOST_PIXELS = 1 << 30 };
#define MOST_SECONDS 999999
#define LEAST 0.001 /* frames a second, seconds */
#define MOST_FPS 1000

#define AT(field) offsetof(struct choice_args, field)

const struct option choice_table[] = {
    { "frames", 0, "--num-frames --nframes", OPTION_INT, AT(frames), 1, MOST_FRAMES, "N",
      "Take N frames. Default: 32 for LLaVA-OneVision, 2 per second for Qwen2.5-VL.", NULL },
    { "fps", 0, "--video-fps", OPTION_NUMBER, AT(fps), LEAST, MOST_FPS, "F",
      "Take F frames per second instead.", NULL },
    { "min-frames", 0, NULL, OPTION_INT, AT(min_frames), 1, MOST_FRAMES, "N",
      "At least N, however short the video. Default: 4 for Qwen2.5-VL.", NULL },
    { "max-frames", 0, NULL, OPTION_INT, AT(max_frames), 1, MOST_FRAMES, "N",
      "At most N, however long. Default: 768 for Qwen2.5-VL.", NULL },
    { "start", 0, "--video-start", OPTION_TIME, AT(start), 0, MOST_SECONDS, "TIME",
      "Begin here: seconds, or [HH:]MM:SS with decimals. Default: the beginning.", NULL },
    { "end", 0, "--video-end", OPTION_TIME, AT(end), LEAST, MOST_SECONDS, "TIME",
      "End here. Default: the end.", NULL },
    { "min-pixels", 0, NULL, OPTION_INT, AT(min_pixels), 1, MOST_PIXELS, "N",
      "Qwen2.5-VL: enlarge a frame of fewer pixels.", NULL },
    { "max-pixels", 0, NULL, OPTION_INT, AT(max_pixels), 1, MOST_PIXELS, "N",
      "Qwen2.5-VL: shrink a frame of more pixels; fewer pixels are fewer tokens.", NULL },
    { "frame-rule", 0, NULL, OPTION_CHOICE, AT(rule), 0, 0, "RULE",
      "Which frames are taken: evenly from the first to the last (linspace), every total/N-th "
      "(arange), or an even number, rounded (qwen). Default: the family's own.",
      FRAME_WORDS },
    { "time-rule", 0, NULL, OPTION_CHOICE, AT(time_rule), 0, 0, "RULE",
      "Temporal positions of frames. Qwen2.5-VL: proportional to seconds as in training (the "
      "default), or as in versions of the transformers library: whole 4.52 to 5.1, compact 5.3, "
      "seconds-compact 5.22. video-SALMONN2+: as in its released code (upstream, the default) or "
      "as in its training (training).",
      TIME_WORDS },
    { "no-audio", 0, "--no-sound", OPTION_FLAG, AT(no_audio), 0, 0, NULL,
      "Ignore the sound of videos, which only audio models use.", NULL },
    { "allow-format", 0, "--allow-formats", OPTION_STRING, AT(formats), 0, 0, "NAMES",
      "Also accept these containers and codecs, as comma-separated FFmpeg names: asf,wmv3. Common "
      "formats of videos and pictures are always accepted.",
      NULL },
    { "sandbox", 0, NULL, OPTION_FLAG, AT(sandbox), 0, 0, NULL,
      "Decode videos in a sandbox that cannot open files or use the network, and fail if this "
      "machine does not support that. Default: use it if supported, and say so if not.",
      NULL },
    { "no-sandbox", 0, NULL, OPTION_FLAG, AT(no_sandbox), 0, 0, NULL,
      "Decode videos without a sandbox.", NULL },
};
_Static_assert(sizeof choice_table / sizeof *choice_table == N_CHOICE_OPTIONS, "rows");

#undef AT
#define AT(field) offsetof(struct limit_args, field)

const struct option limit_table[] = {
    { "limit-video-bytes", 0, "--max-video-bytes", OPTION_BYTES, AT(bytes), 0, 0, "BYTES",
      "Refuse a larger video file. Default: 16G.", NULL },
    { "limit-frame-pixels", 0, "--max-frame-pixels", OPTION_INT, AT(pixels), 1, MOST_PIXELS, "N",
      "Refuse frames of more pixels in the file. Default: 67108864.", NULL },
    { "limit-frames", 0, NULL, OPTION_INT, AT(frames), 1, MOST_FRAMES, "N",
      "Refuse to take more frames from one video. Default: 1024.", NULL },
    { "limit-video-seconds", 0, "--max-video-seconds", OPTION_TIME, AT(seconds), LEAST,
      MOST_SECONDS, "TIME", "Refuse a longer video. Default: 24:00:00.", NULL },
    { "limit-decoded-pixels", 0, NULL, OPTION_BYTES, AT(decoded_pixels), 0, 0, "N",
      "Refuse a video if more pixels must be decoded for its frames and all frames that they "
      "depend on. "
      "Default: 16T.",
      NULL },
    { "limit-decode-seconds", 0, NULL, OPTION_TIME, AT(decode_seconds), LEAST, MOST_SECONDS, "TIME",
      "Stop reading a video that takes more CPU time to open and decode. Default: 24:00:00.",
      NULL },
};
_Static_assert(sizeof limit_table / sizeof *limit_table == N_LIMIT_OPTIONS, "rows");

/* Said once, by whichever thread is the first to decode without a sandbox. */
static void report_unsandboxed(void *user, const char *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    (void)user;
    if (!atomic_flag_test_and_set(&said))
        report("decoding without a sandbox: %s", why);
}

int choice_args_check(const struct choice_args *a, const char *command, struct pv_video_params *out)
{
    struct pv_video_params p = pv_video_defaults();

    if (a->frames && a->fps > 0)
        return options_misuse(command, "--frames and --fps cannot be combined");
    if (a->frames && (a->min_frames || a->max_frames))
        return options_misuse(command, "--%s-frames cannot be combined with --frames",
                              a->min_frames ? "min" : "max");
    if (a->max_frames && a->min_frames > a->max_frames)
        return options_misuse(command, "--min-frames %d is more than --max-frames %d",
                              a->min_frames, a->max_frames);
    if (a->max_pixels && a->min_pixels > a->max_pixels)
        return options_misuse(command, "--min-pixels %d is more than --max-pixels %d",
                              a->min_pixels, a->max_pixels);
    if (a->sandbox && a->no_sandbox)
        return options_misuse(command, "--sandbox and --no-sandbox contradict each other");
    if (a->end > 0 && a->start >= a->end)
        return options_misuse(command, "--start %g is not before --end %g", a->start, a->end);
    p.frames = a->frames;
    p.fps = a->fps;
    p.min_frames = a->min_frames;
    p.max_frames = a->max_frames;
    p.start = a->start;
    p.end = a->end;
    p.min_pixels = a->min_pixels;
    p.max_pixels = a->max_pixels;
    p.rule = (enum pv_frame_rule)a->rule;
    p.time_rule = (enum pv_time_rule)a->time_rule;
    p.no_audio = a->no_audio;
    p.allow_formats = a->formats;
    p.sandbox = a->sandbox      ? PV_SANDBOX_ON
                : a->no_sandbox ? PV_SANDBOX_OFF
                                : PV_SANDBOX_IF_POSSIBLE;
    p.unsandboxed = report_unsandboxed;
    *out = p;
    return OPTIONS_RUN;
}

void limit_args_set(const struct limit_args *a, struct pv_limits *out)
{
    if (a->bytes)
        out->video_bytes = a->bytes;
    if (a->pixels)
        out->frame_pixels = a->pixels;
    if (a->frames)
        out->frames = a->frames;
    if (a->seconds > 0)
        out->video_seconds = a->seconds;
    if (a->decoded_pixels)
        out->decoded_pixels = a->decoded_pixels;
    if (a->decode_seconds > 0)
        out->decode_seconds = a->decode_seconds;
}

void report_lost(const char *path, const struct pv_video_info *info)
{
    if (info->cut)
        report("%s: the file ends early: %lld of its frames are missing or incomplete", path,
               (long long)info->cut);
    if (info->lost)
        report("%s: %d of %d frames could not be decoded; %s", path, info->lost, info->frames,
               info->lost == 1 ? "its neighbour was used" : "their neighbours were used");
}

bool can_be_shown_videos(const pv_model *model, const struct pv_model_params *mp)
{
    if (!pv_model_has_vision(model))
        report("%s: the model cannot take videos: it has no vision tower%s", mp->path,
               mp->mmproj ? "" : ", and --mmproj names none");
    else if (!pv_model_has_tokenizer(model))
        report_no_tokenizer(mp->path, "a .pvin file ('prevue prepare') can be asked about");
    else
        return true;
    return false;
}

const char *default_question(const struct pv_video_info *info, int n)
{
    bool pictures = true;
    for (int i = 0; i < n; i++)
        pictures = pictures && !(info[i].fps > 0);
    if (pictures)
        return n > 1 ? "Describe these pictures." : "Describe this picture.";
    return n > 1 ? "Describe these videos." : "Describe this video.";
}

/* JSON has no word for what is not finite. */
static double finite_or_zero(double v)
{
    return isfinite(v) ? v : 0;
}

void video_json(struct buf *b, const char *path, const struct pv_video_info *info)
{
    buf_puts(b, "\"file\":");
    buf_json(b, path, strlen(path));
    buf_printf(b,
               ",\"width\":%d,\"height\":%d,\"total_frames\":%lld,\"fps\":%.6g,"
               "\"duration\":%.6f,\"taken\":%d,\"lost\":%d,\"cut\":%lld,\"sample_fps\":%.6g",
               info->width, info->height, (long long)info->total_frames, finite_or_zero(info->fps),
               finite_or_zero(info->duration), info->frames, info->lost, (long long)info->cut,
               finite_or_zero(info->sample_fps));
}
