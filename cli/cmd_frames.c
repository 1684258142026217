/* prevue frames: the frames that a model sees, as PNG files, and when they are shown; and the sound
 * that it hears, as a WAV file. */
#include "base/png.h"
#include "base/wav.h"
#include "model_advice.h"
#include "progress.h"
#include "run_args.h"
#include "shown.h"
#include "video_args.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct frames_args {
    const char *output, *wav;
    bool json;
    struct model_args model;
    struct choice_args choice;
    struct limit_args limits;
};

#define AT(field) offsetof(struct frames_args, field)

static const struct option output_table[] = {
    { "output", 'o', NULL, OPTION_STRING, AT(output), 0, 0, "DIR",
      "Where the files go: frame-0001.png and so on. Created if necessary; files of these names "
      "are replaced, others are kept.",
      NULL },
    { "wav", 0, NULL, OPTION_STRING, AT(wav), 0, 0, "FILE",
      "Write the sound that an audio model gets, from --start to --end: 16,000 samples per second, "
      "one channel, 32-bit floats. Without --output no frames are decoded, and the input may be an "
      "audio file. Nothing is written if it has no sound.",
      NULL },
    { "json", 0, NULL, OPTION_FLAG, AT(json), 0, 0, NULL,
      "Print one JSON object with index, time, size and file of each frame instead of the table; "
      "with --wav, with its file, rate and number of samples.",
      NULL },
};

static const struct option_group frames_groups[] = {
    { "output", output_table, sizeof output_table / sizeof *output_table, 0, SHORT_ALL },
    { "frames", choice_table, N_CHOICE_OPTIONS, AT(choice), N_CHOICE_SHORT },
    { "model", model_table, N_MODEL_OPTIONS, AT(model), N_MODEL_SHORT },
    { "limits", limit_table, N_LIMIT_OPTIONS, AT(limits), SHORT_NONE },
};

const struct option_set frames_options = {
    .command = "frames",
    .usage = "VIDEO -o DIR [--wav FILE] [-m MODEL] [OPTIONS]",
    .about = "Writes the frames of a video that a model would see, as PNG files. With a model they "
             "are chosen by its family's rules and resized as it sees them; without one they are "
             "chosen as for LLaVA-OneVision and have the size of the file: --model has no default "
             "here. The table on stdout has for each frame its index in the video (from 0), its "
             "time in seconds, its size and its file.",
    .groups = frames_groups,
    .n_groups = sizeof frames_groups / sizeof *frames_groups,
    .max_operands = 1,
    .examples = "  prevue frames clip.mp4 -o out\n"
                "  prevue frames clip.mp4 -o out -m Qwen2.5-VL-3B-Instruct --fps 1 --start 1:30\n"
                "  prevue frames clip.mp4 --wav heard.wav\n",
};

/* What the callback of each frame needs. */
struct writer {
    const char *dir, *video;
    bool json, made_dir;
    int n;          /* frames written */
    struct buf out; /* --json: the array's elements */
    struct progress progress;
    struct pv_error err; /* why the callback stopped */
};

static char *frame_path(const char *dir, int number)
{
    char name[32];
    snprintf(name, sizeof name, "frame-%04d.png", number);
    return path_join(dir, name);
}

static void print_frame(struct writer *w, const struct pv_frame *f, const char *path)
{
    if (w->json) {
        buf_printf(&w->out, "%s{\"index\":%lld,\"time\":%.6f,\"width\":%d,\"height\":%d,\"file\":",
                   w->n > 1 ? "," : "", (long long)f->index, f->time, f->width, f->height);
        buf_json(&w->out, path, strlen(path));
        buf_puts(&w->out, "}");
        return;
    }
    progress_clear(&w->progress);
    if (w->n == 1)
        printf("%8s %11s %11s  %s\n", "index", "time", "size", "file");
    printf("%8lld %11.3f %5dx%-5d  ", (long long)f->index, f->time, f->width, f->height);
    shown_puts(stdout, path);
    printf("\n");
}

/* Makes a directory and those above it; 0, or errno of the last. What is there stays. */
static int make_dirs(const char *dir)
{
    char *path = mem_strdup(dir);
    int why = 0;

    if (!path)
        return ENOMEM;
    for (char *at = path + 1; *path && *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        mkdir(path, 0777); /* if it fails, so does the last */
        *at = '/';
    }
    if (mkdir(path, 0777) != 0)
        why = errno;
    mem_free(path);
    return why;
}

/* The directory is made when there is something to put into it, so that a video that cannot be
 * read leaves nothing. */
static bool make_dir(struct writer *w)
{
    int why = w->made_dir ? 0 : make_dirs(w->dir);
    w->made_dir = !why || file_is_dir(w->dir);
    if (!w->made_dir)
        fail(&w->err, PV_E_IO, "%s: the directory cannot be created: %s", w->dir, strerror(why));
    return w->made_dir;
}

static bool on_frame(void *user, const struct pv_frame *f)
{
    struct writer *w = user;
    char *path = NULL;
    bool written = false;

    if (interrupted() || !make_dir(w))
        return false;
    path = frame_path(w->dir, w->n + 1);
    if (!path) {
        fail_nomem(&w->err, strlen(w->dir));
    } else if (file_is_same(path, w->video)) {
        fail(&w->err, PV_E_IO, "%s: would be overwritten: it is the input", path);
    } else if (!png_write(path, f->width, f->height, f->rgb, interrupted, &w->err)) {
        w->n++;
        print_frame(w, f, path);
        written = !ferror(stdout) && !w->out.failed;
    }
    mem_free(path);
    return written;
}

/* An earlier run may have written more frames than this one. */
static void report_older(const struct writer *w)
{
    char *path = frame_path(w->dir, w->n + 1);
    if (path && file_exists(path))
        report("%s: exists from an earlier run with more frames than this one", path);
    mem_free(path);
}

/* What became of the sound. */
struct heard {
    const char *path; /* of the WAV file; NULL: not asked for */
    size_t n;         /* samples; 0: there is no sound */
};

static void sound_json(struct buf *b, const struct heard *h)
{
    buf_puts(b, ",\"sound\":");
    if (h->n > 0) {
        buf_puts(b, "{\"file\":");
        buf_json(b, h->path, strlen(h->path));
        buf_printf(b, ",\"rate\":%d,\"samples\":%zu}", PV_SOUND_RATE, h->n);
    } else {
        buf_puts(b, "null");
    }
}

/* info NULL: frames were not asked for. */
static void print_json(struct writer *w, const char *video, const struct pv_video_info *info,
                       const struct heard *h)
{
    struct buf b;
    buf_init(&b, (size_t)MAX_TEXT * 2);
    buf_puts(&b, "{");
    if (info) {
        video_json(&b, video, info);
        buf_puts(&b, ",\"frames\":[");
        buf_puts(&b, w->out.data ? w->out.data : "");
        buf_puts(&b, "]");
    } else {
        buf_puts(&b, "\"file\":");
        buf_json(&b, video, strlen(video));
    }
    if (h->path)
        sound_json(&b, h);
    buf_puts(&b, "}\n");
    if (b.failed || w->out.failed)
        report("the list of frames is too long to be printed as JSON");
    else
        write_text(b.data, b.len);
    buf_clear(&b);
}

/* The sound into its file. */
static enum pv_status write_sound(struct heard *h, const char *video,
                                  const struct pv_video_params *p, struct pv_error *err)
{
    float *samples = NULL;
    enum pv_status s = pv_video_sound(video, p, &samples, &h->n, err);

    if (s)
        fail_names(err, video);
    else if (h->n > 0)
        s = wav_write(h->path, PV_SOUND_RATE, samples, h->n, err);
    pv_free(samples);
    return s;
}

static void print_sound(const struct heard *h, const char *video)
{
    if (h->n == 0) {
        report("%s: has no sound there; %s is not written", video, h->path);
        return;
    }
    printf("%zu samples, %.3f s of sound  ", h->n, (double)h->n / PV_SOUND_RATE);
    shown_puts(stdout, h->path);
    printf("\n");
}

/* Frames into their files, with -o. */
static enum pv_status take_frames(const pv_model *model, struct writer *w,
                                  struct pv_video_params *p, struct pv_video_info *info,
                                  struct pv_error *err)
{
    enum pv_status s = PV_OK;

    if (w->dir)
        s = pv_video_frames(model, w->video, p, on_frame, w, info, err);
    if (s)
        fail_names(err, w->video);
    return s;
}

static int write_media(const pv_model *model, const struct frames_args *a, const char *video,
                       struct pv_video_params *p)
{
    struct writer w = { .dir = a->output, .video = video, .json = a->json };
    struct heard heard = { .path = a->wav };
    struct pv_video_info info = { 0 };
    struct pv_error err = { 0 };
    enum pv_status s;
    int result;

    if (a->wav && file_is_same(a->wav, video)) /* before anything is written */
        return report("%s: would be overwritten: it is the input", a->wav);
    buf_init(&w.out, MAX_TEXT);
    progress_init(&w.progress);
    p->progress = progress_step;
    p->progress_user = &w.progress;
    catch_interrupt();
    s = take_frames(model, &w, p, &info, &err);
    if (!s && heard.path)
        s = write_sound(&heard, video, p, &err);
    progress_clear(&w.progress);
    if (!s && w.json)
        print_json(&w, video, w.dir ? &info : NULL, &heard);
    else if (!s && heard.path)
        print_sound(&heard, video);
    result = finish_output();
    if (w.err.code && w.err.code != PV_E_CANCELLED)
        result = report("%s", w.err.text);
    else if (s && s != PV_E_CANCELLED)
        result = report("%s", err.text);
    else if (s && !result)
        result = interrupted() ? interrupted() : EXIT_FAILED;
    if (!s && w.dir) {
        report_lost(video, &info);
        report_older(&w);
    }
    buf_clear(&w.out);
    return result;
}

/* What the options leave to do makes sense. */
static int check_args(const struct frames_args *a)
{
    const char *other = a->model.mmproj          ? "mmproj"
                        : a->model.cpumask       ? "cpumask"
                        : a->model.threads       ? "threads"
                        : a->model.device        ? "device"
                        : a->model.dummy_weights ? "dummy-weights"
                                                 : NULL;

    if (!a->output && !a->wav)
        return options_misuse("frames", "no directory for the frames: name one with --output");
    if (!a->output && a->model.model)
        return options_misuse("frames", "--model without --output has no meaning: the sound is "
                                        "the same for every model");
    if (!a->model.model && other)
        return options_misuse("frames", "--%s needs --model", other);
    return OPTIONS_RUN;
}

int cmd_frames(int argc, char **argv)
{
    struct frames_args a = { 0 };
    struct arg_list operands = { 0 };
    struct pv_model_params mp = pv_model_defaults();
    struct pv_video_params vp;
    struct pv_error err = { 0 };
    pv_model *model = NULL;
    int r = options_parse(&frames_options, &a, argc, argv, &operands);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    r = check_videos("frames", &operands);
    if (r != OPTIONS_RUN)
        return r;
    r = choice_args_check(&a.choice, "frames", &vp);
    if (r == OPTIONS_RUN)
        r = check_args(&a);
    if (r == OPTIONS_RUN && a.model.model)
        r = model_args_check(&a.model, "frames", &mp);
    if (r != OPTIONS_RUN)
        return r;
    if (a.output && file_exists(a.output) && !file_is_dir(a.output))
        return report("%s: exists and is not a directory", a.output);
    limit_args_set(&a.limits, &mp.limits);
    vp.limits = &mp.limits;
    if (a.model.model && pv_model_open(&model, &mp, &err))
        return report("%s", err.text);
    if (model && !pv_model_has_vision(model))
        r = report("%s: the model cannot take videos: it has no vision tower", mp.path);
    else
        r = write_media(model, &a, operands.items[0], &vp);
    pv_model_close(&model);
    return r;
}
