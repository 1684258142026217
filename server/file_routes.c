/* Uploaded files: upload once, ask often. And the frames that the model takes from one, as small
 * pictures for a page. */
#include "base64.h"
#include "media_part.h"
#include "server.h"

#include "base/mem.h"
#include "base/png.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JSON_LIMIT = 64 << 20, PICTURE_LIMIT = 4 << 20, SIDE = 160, MAX_SIDE = 512 };

void route_upload(struct call *c)
{
    struct api_error e = { 0 };
    struct stored_file f;
    struct buf b;
    if (!upload_finish(&c->upload, &f, &e)) {
        call_fail(c, &e);
        return;
    }
    buf_init(&b, JSON_LIMIT);
    stored_json(&b, &f);
    call_json(c, 200, &b);
    buf_clear(&b);
}

void route_files(struct call *c)
{
    struct buf b;
    buf_init(&b, JSON_LIMIT);
    stored_list_json(&b, c->s->files);
    call_json(c, 200, &b);
    buf_clear(&b);
}

bool call_file(struct call *c, struct stored_file *f)
{
    struct api_error e = { 0 };
    if (stored_find(c->s->files, c->arg, f))
        return true;
    stored_fail(&e, c->arg);
    call_fail(c, &e);
    return false;
}

void route_file(struct call *c)
{
    struct stored_file f;
    struct buf b;
    if (!call_file(c, &f))
        return;
    buf_init(&b, JSON_LIMIT);
    stored_json(&b, &f);
    call_json(c, 200, &b);
    buf_clear(&b);
}

void route_file_delete(struct call *c)
{
    struct stored_file f;
    struct api_error e = { 0 };
    struct buf b;
    if (!call_file(c, &f))
        return;
    if (!stored_remove(c->s->files, c->arg)) {
        api_fail(&e, 403, "file_id", "\"%s\" is a sample of the server and cannot be deleted",
                 c->arg);
        call_fail(c, &e);
        return;
    }
    buf_init(&b, JSON_LIMIT);
    buf_printf(&b, "{\"id\":\"%s\",\"object\":\"file\",\"deleted\":true}", f.id);
    call_json(c, 200, &b);
    buf_clear(&b);
}

/* What a browser shows without running it. */
static const char *safe_type(const char *type)
{
    static const char *const types[] = { "video/mp4",  "video/webm",       "video/quicktime",
                                         "video/ogg",  "video/x-matroska", "image/png",
                                         "image/jpeg", "image/webp",       "image/gif",
                                         "audio/mpeg", "audio/wav",        "audio/ogg",
                                         "audio/flac", "audio/mp4",        "audio/aac" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i]))
            return types[i];
    return "application/octet-stream";
}

void route_file_content(struct call *c)
{
    struct stored_file f;
    struct api_error e = { 0 };
    int fd;
    if (!call_file(c, &f))
        return;
    fd = open(f.path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        api_fail(&e, status_of_errno(errno) == PV_E_NOMEM ? 503 : 500, "file_id",
                 "\"%s\" cannot be read: %s", c->arg, strerror(errno));
        call_fail(c, &e);
        return;
    }
    call_headers(c);
    exchange_set(c->x, "Content-Security-Policy", "default-src 'none'; sandbox");
    exchange_reply_file(c->x, 200, safe_type(f.type), fd, f.bytes);
}

/* ---- frames ---- */

struct frames_job {
    struct work work;
    struct call *call;
    struct stored_file file;
    struct pv_video_params params;
    int side; /* of a picture, at most */
    int n;
    struct buf json, png;
    uint8_t *small;
    struct api_error error;
    atomic_bool left; /* the client has left: nothing has to be done */
};

/* The mean of the pixels that fall on each one of the smaller picture. */
static void shrink(uint8_t *to, int w, int h, const struct pv_frame *f)
{
    for (int y = 0; y < h; y++) {
        int y0 = (int)((int64_t)y * f->height / h), y1 = (int)((int64_t)(y + 1) * f->height / h);
        for (int x = 0; x < w; x++) {
            int x0 = (int)((int64_t)x * f->width / w), x1 = (int)((int64_t)(x + 1) * f->width / w);
            uint32_t sum[3] = { 0 }, n = (uint32_t)((y1 - y0) * (x1 - x0));
            for (int j = y0; j < y1; j++)
                for (int i = x0; i < x1; i++)
                    for (int k = 0; k < 3; k++)
                        sum[k] +=
                            f->rgb[3 * ((size_t)j * (size_t)f->width + (size_t)i) + (size_t)k];
            for (int k = 0; k < 3; k++)
                *to++ = (uint8_t)((sum[k] + n / 2) / n);
        }
    }
}

static bool add_frame(void *user, const struct pv_frame *f)
{
    struct frames_job *j = user;
    int most = f->width > f->height ? f->width : f->height;
    int side = most < j->side ? most : j->side;
    int w = f->width * side / most, h = f->height * side / most;
    struct pv_error err = { 0 };
    w = w > 0 ? w : 1;
    h = h > 0 ? h : 1;
    shrink(j->small, w, h, f);
    buf_reset(&j->png);
    if (png_encode(&j->png, w, h, j->small, &err))
        return api_fail_status(&j->error, err.code, NULL, err.text);
    buf_printf(&j->json,
               "%s{\"index\":%lld,\"time\":%.3f,\"width\":%d,\"height\":%d,\"data\":"
               "\"data:image/png;base64,",
               j->n++ ? "," : "", (long long)f->index, f->time, w, h);
    base64_add(&j->json, (const uint8_t *)j->png.data, j->png.len);
    buf_puts(&j->json, "\"}");
    return !j->json.failed ||
           api_fail(&j->error, 400, NULL, "the frames take more than %d bytes", JSON_LIMIT);
}

static void run_frames(struct work *w)
{
    struct frames_job *j = (struct frames_job *)((char *)w - offsetof(struct frames_job, work));
    struct pv_video_info info = { 0 };
    struct pv_error err = { 0 };
    struct media_part name = { .path = j->file.path, .fd = -1 };
    enum pv_status s;
    if (atomic_load(&j->left))
        return;
    buf_puts(&j->json, "{\"object\":\"list\",\"data\":[");
    s = pv_video_frames(j->call->s->model, j->file.path, &j->params, add_frame, j, &info, &err);
    if (s && !j->error.status) {
        snprintf(name.name, sizeof name.name, "%s", j->file.id);
        media_part_hide(&name, err.text, sizeof err.text);
        api_fail_status(&j->error, err.code == PV_E_IO ? PV_E_FORMAT : err.code, NULL, err.text);
    }
    buf_printf(&j->json,
               "],\"video\":{\"width\":%d,\"height\":%d,\"total_frames\":%lld,\"fps\":%.6g,"
               "\"duration\":%.6g,\"frames\":%d,\"lost\":%d,\"sample_fps\":%.6g}}",
               info.width, info.height, (long long)info.total_frames, info.fps, info.duration,
               info.frames, info.lost, info.sample_fps);
}

static void frames_done(struct loop_task *t)
{
    struct frames_job *j =
        (struct frames_job *)((char *)t - offsetof(struct frames_job, work.done));
    if (j->error.status)
        call_fail(j->call, &j->error);
    else
        call_json(j->call, 200, &j->json);
    buf_clear(&j->json);
    buf_clear(&j->png);
    mem_free(j->small);
    call_release(j->call);
    mem_free(j);
}

static bool frames_wanted(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    (void)phase, (void)done, (void)total;
    return !atomic_load(&((struct frames_job *)user)->left);
}

static void frames_left(struct call *c)
{
    atomic_store(&((struct frames_job *)c->state)->left, true); /* the worker comes back soon */
}

bool call_query_number(const struct call *c, const char *name, double min, double max, double *out,
                       struct api_error *e)
{
    const char *text = exchange_query(c->x, name);
    char *end;
    double v;
    if (!text)
        return true;
    v = strtod(text, &end);
    if (end == text || *end || !(v >= min && v <= max))
        return api_fail(e, 400, name, "\"%s\" must be a number from %g to %g", name, min, max);
    *out = v;
    return true;
}

void route_file_frames(struct call *c)
{
    struct frames_job *j;
    struct stored_file f;
    struct api_error e = { 0 };
    double frames = 0, side = SIDE, fps = 0;
    if (!call_file(c, &f))
        return;
    j = mem_zalloc(sizeof *j);
    if (call_query_number(c, "num_frames", 1, c->s->limits.frames, &frames, &e) &&
        call_query_number(c, "fps", 0.001, 1000, &fps, &e))
        call_query_number(c, "size", 16, MAX_SIDE, &side, &e);
    if (j)
        j->small = mem_alloc(3 * (size_t)side * (size_t)side);
    if (!e.status && (!j || !j->small))
        api_fail(&e, 503, NULL, "out of memory for the frames");
    if (e.status) {
        call_fail(c, &e);
        if (j)
            mem_free(j->small);
        mem_free(j);
        return;
    }
    j->call = c;
    j->file = f;
    j->params = pv_video_defaults();
    j->params.limits = &c->s->limits;
    j->params.sandbox = c->s->c->sandbox;
    j->params.frames = (int)frames;
    j->params.fps = fps;
    j->side = (int)side;
    buf_init(&j->json, JSON_LIMIT);
    buf_init(&j->png, PICTURE_LIMIT);
    j->work.run = run_frames;
    j->work.done.run = frames_done;
    j->params.progress = frames_wanted;
    j->params.progress_user = j;
    atomic_init(&j->left, false);
    c->pending = true;
    c->left = frames_left;
    c->state = j;
    workers_add(c->s->heavy, &j->work);
}
