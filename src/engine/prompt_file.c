/* Reads and writes prepared prompts. A media item is stored as the sizes from which media_plan
 * computes everything else, so a file cannot disagree with the model about rows and patches: reader
 * and writer compare the plan's results with those in the file. */
#include "engine/prompt_file.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/load.h"
#include "base/mem.h"
#include "engine/media_rows.h"
#include "family/families.h"

#include <math.h>
#include <string.h>

/* Files with sound have version 4, whose records have one number more. Versions 1 and 2 had another
 * checksum. */
enum { BYTE_SUMS = 2, VERSION = 3, SOUND_VERSION = 4 };
/* Offsets in the file; numbers have four bytes, except for two with eight. */
enum {
    AT_VERSION = 4,
    AT_SIZE = 8,
    AT_SUM = 16,
    AT_SUMMED = 24, /* the checksum covers everything from here on */
    AT_TOWER = 24,  /* TOWER_FIELDS numbers */
    AT_IDS = 48,
    AT_MEDIA = 52,
    AT_MESSAGE = 56,
    AT_FRAMES = 60,
    AT_LOST = 64,
    HEADER = 68,
    TOWER_FIELDS = 6,
    RECORD = 40, /* bytes per media item */
    SOUND_RECORD = 44
};
static const char magic[4] = "PVIN";
/* Longest time of one media item in positions: chosen so that the sum over all of them fits an int.
 */
static const double MAX_TIME = 1 << 24;

_Static_assert(PV_TIME_AUTO == 0 && PV_TIME_SECONDS_COMPACT == 4 && PV_TIME_TRAINING == 6,
               "numbers of files");

/* ---- numbers ---- */

/* The checksum. Versions 1 and 2: FNV-1a, byte by byte. Since then: words of eight bytes, the last
 * one padded with zeros, and after each the upper half of the sum is mixed into the lower. (Byte by
 * byte, a video of 42 MB took 0.15 s of CPU time before its first frame was processed.) */
struct sum {
    uint64_t value;
    uint8_t held[8];
    size_t n_held;
    bool bytes;
};

static struct sum sum_start(uint32_t version)
{
    return (struct sum){ .value = UINT64_C(0xcbf29ce484222325), .bytes = version <= BYTE_SUMS };
}

static uint64_t sum_step(uint64_t sum, uint64_t next)
{
    return (sum ^ next) * UINT64_C(0x100000001b3);
}

static void sum_word(struct sum *s, const uint8_t *p)
{
    s->value = sum_step(s->value, load_le64(p));
    s->value ^= s->value >> 32;
}

static void sum_add(struct sum *s, const uint8_t *p, size_t n)
{
    size_t at = 0;
    for (; s->bytes && at < n; at++)
        s->value = sum_step(s->value, p[at]);
    while (at < n)
        if (s->n_held == 0 && n - at >= sizeof s->held) {
            sum_word(s, p + at);
            at += sizeof s->held;
        } else {
            s->held[s->n_held++] = p[at++];
            if (s->n_held == sizeof s->held) {
                sum_word(s, s->held);
                s->n_held = 0;
            }
        }
}

static uint64_t sum_end(struct sum *s)
{
    if (s->n_held > 0) {
        memset(s->held + s->n_held, 0, sizeof s->held - s->n_held);
        sum_word(s, s->held);
    }
    return s->value;
}

static uint64_t sum_file(const uint8_t *data, size_t size)
{
    struct sum sum = sum_start(load_le32(data + AT_VERSION));
    sum_add(&sum, data + AT_SUMMED, size - AT_SUMMED);
    return sum_end(&sum);
}

void prompt_file_seal(uint8_t *data, size_t size)
{
    store_le64(data + AT_SIZE, size);
    store_le64(data + AT_SUM, sum_file(data, size));
}

static bool has_sound(uint32_t version)
{
    return version % 2 == 0;
}

/* Properties in which a model must agree with the one for which a file was made. */
struct tower {
    uint32_t v[TOWER_FIELDS]; /* family, patch, merge, frames of a patch, side, vocabulary */
};

static struct tower tower_of(const struct vision_config *c, int vocab)
{
    struct tower t = { { 0 } };
    if (c)
        t = (struct tower){ { c->family->number, (uint32_t)c->patch, (uint32_t)c->merge,
                              (uint32_t)c->temporal, (uint32_t)c->image } };
    t.v[TOWER_FIELDS - 1] = (uint32_t)vocab;
    return t;
}

static const char *family_title(uint32_t number)
{
    const struct family *f = family_of_number(number);
    return f ? f->title : number ? "an unknown family" : "no tower";
}

/* ---- media ---- */

/* Bytes of a record in a file of this version. */
static size_t record_size(uint32_t version)
{
    return has_sound(version) ? SOUND_RECORD : RECORD;
}

/* One media item as stored in a file. */
struct record {
    bool video, tiled;
    int64_t n_chunks; /* chunks of sound */
    int64_t n_views, height, width, source_height, source_width, time_rule, n_rows;
    float slice_seconds;
};

static struct record record_of(const struct media *m)
{
    return (struct record){ .video = m->video,
                            .tiled = m->tiling.rows > 0,
                            .n_views = m->n_views,
                            .height = m->height,
                            .width = m->width,
                            .source_height = m->source_height,
                            .source_width = m->source_width,
                            .time_rule = m->time_rule,
                            .slice_seconds = m->slice_seconds,
                            .n_rows = m->n_rows,
                            .n_chunks = m->sound.n_chunks };
}

static void record_put(uint8_t *p, const struct record *r, uint32_t version)
{
    const int64_t v[] = { r->video,         r->tiled,        r->n_views,   r->height, r->width,
                          r->source_height, r->source_width, r->time_rule, r->n_rows };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        store_le32(p + 4 * i, (uint32_t)v[i]);
    memcpy(p + RECORD - 4, &r->slice_seconds, 4);
    if (has_sound(version))
        store_le32(p + RECORD, (uint32_t)r->n_chunks);
}

/* Returns false if a flag is neither 0 nor 1. */
static bool record_get(struct record *r, const uint8_t *p, uint32_t version)
{
    *r = (struct record){ .video = load_le32(p) == 1,
                          .tiled = load_le32(p + 4) == 1,
                          .n_views = load_le32(p + 8),
                          .height = load_le32(p + 12),
                          .width = load_le32(p + 16),
                          .source_height = load_le32(p + 20),
                          .source_width = load_le32(p + 24),
                          .time_rule = load_le32(p + 28),
                          .n_rows = load_le32(p + 32) };
    memcpy(&r->slice_seconds, p + RECORD - 4, 4);
    if (has_sound(version))
        r->n_chunks = load_le32(p + RECORD);
    return load_le32(p) <= 1 && load_le32(p + 4) <= 1;
}

static bool is_size(int64_t height, int64_t width, const struct pv_limits *l)
{
    return height >= 1 && width >= 1 && height <= RESIZE_MAX_SIDE && width <= RESIZE_MAX_SIDE &&
           height * width <= l->frame_pixels;
}

static bool is_sound_alone(const struct record *r)
{
    return r->n_chunks > 0 && r->width == 0 && r->height == 0;
}

/* Plan the media item from the sizes of a record. The bounds with which sizes of pictures were
 * chosen are not stored; but a picture that already has its final size keeps it, whatever the
 * bounds were. */
static enum pv_status plan_record(struct media *m, const struct record *r,
                                  const struct vision_config *c, struct pv_error *err)
{
    bool sized = !c->family->tower->fixed;
    struct pv_video_params p = { .time_rule = (enum pv_time_rule)r->time_rule,
                                 .min_pixels = r->height * r->width,
                                 .max_pixels = r->height * r->width };
    enum pv_status s;
    if (is_sound_alone(r))
        return media_plan_sound(m, c, &p, (int)r->n_chunks, err);
    s = media_plan(m, c, &p, (int)(sized ? r->height : r->source_height),
                   (int)(sized ? r->width : r->source_width), r->video ? (int)r->n_views : 0, 0,
                   r->tiled, err);
    if (s)
        return s;
    m->source_height = (int)r->source_height;
    m->source_width = (int)r->source_width;
    if (sized && r->video)
        m->slice_seconds = r->slice_seconds;
    return media_add_sound(m, c, (int)r->n_chunks, err);
}

/* Check that the model supports this sound. */
static enum pv_status check_chunks(const struct record *r, int number, const char *name,
                                   const struct vision_config *c, const struct pv_limits *l,
                                   struct pv_error *err)
{
    double seconds = (double)c->audio.positions / AUDIO_FRAMES_PER_SECOND;
    if (r->n_chunks > 0 && (!c->audio.hidden || (r->width > 0 && !r->video)))
        return fail(err, PV_E_FORMAT, "%s: media item %d has sound that the model cannot hear",
                    name, number);
    if (r->n_chunks > 0 && (double)(r->n_chunks - 1) * seconds > l->video_seconds)
        return fail(err, PV_E_LIMIT, "%s: media item %d has %lld chunks of %g seconds of sound",
                    name, number, (long long)r->n_chunks, seconds);
    return PV_OK;
}

/* Plan the media item and compare it with the file's numbers. `name`: the file's name. */
static enum pv_status record_media(struct media *m, const struct record *r, int number,
                                   const char *name, const struct vision_config *c,
                                   const struct pv_limits *l, struct pv_error *err)
{
    struct record planned;
    struct media plan = { 0 };
    enum pv_status s;
    if (!is_sound_alone(r) &&
        (!is_size(r->height, r->width, l) || !is_size(r->source_height, r->source_width, l)))
        return fail(err, PV_E_LIMIT,
                    "%s: media item %d has %lld x %lld pixels, from a picture of %lld x %lld", name,
                    number, (long long)r->width, (long long)r->height, (long long)r->source_width,
                    (long long)r->source_height);
    /* One more than the limit is allowed, because frames may come in pairs. */
    if (r->video && (r->n_views < 1 || r->n_views > (int64_t)l->frames + 1))
        return fail(err, PV_E_LIMIT, "%s: media item %d has %lld frames, 1 to %d are possible",
                    name, number, (long long)r->n_views, l->frames);
    if (r->time_rule > PV_TIME_TRAINING || !isfinite(r->slice_seconds) || r->slice_seconds < 0)
        return fail(err, PV_E_FORMAT,
                    "%s: media item %d has time rule %lld and steps of %g seconds", name, number,
                    (long long)r->time_rule, (double)r->slice_seconds);
    s = check_chunks(r, number, name, c, l, err);
    if (!s)
        s = plan_record(&plan, r, c, err);
    if (s)
        return s;
    planned = record_of(&plan);
    if (planned.tiled != r->tiled || planned.video != r->video || planned.n_views != r->n_views ||
        planned.height != r->height || planned.width != r->width ||
        planned.time_rule != r->time_rule || planned.slice_seconds != r->slice_seconds ||
        planned.n_rows != r->n_rows)
        return fail(
            err, PV_E_FORMAT,
            "%s: media item %d has %lld views of %lld x %lld pixels and %lld tokens, the model "
            "makes it %d of %d x %d and %d",
            name, number, (long long)r->n_views, (long long)r->width, (long long)r->height,
            (long long)r->n_rows, plan.n_views, plan.width, plan.height, plan.n_rows);
    if ((double)plan.n_slices * (double)plan.slice_seconds * (double)plan.tokens_per_second >
        MAX_TIME)
        return fail(err, PV_E_LIMIT, "%s: media item %d is too long: %d steps of %g seconds", name,
                    number, plan.n_slices, (double)plan.slice_seconds);
    *m = plan;
    return PV_OK;
}

/* ---- reading ---- */

static enum pv_status check_whole(const uint8_t *data, size_t size, const char *name,
                                  struct pv_error *err)
{
    if (size < sizeof magic || memcmp(data, magic, sizeof magic) != 0)
        return fail(err, PV_E_FORMAT, "%s: not a prepared prompt: it does not begin with PVIN",
                    name);
    if (size < HEADER)
        return fail(err, PV_E_FORMAT, "%s: cut off after %zu bytes", name, size);
    if (load_le32(data + AT_VERSION) < 1 || load_le32(data + AT_VERSION) > SOUND_VERSION)
        return fail(err, PV_E_UNSUPPORTED, "%s: of version %u, this program reads versions 1 to %d",
                    name, (unsigned)load_le32(data + AT_VERSION), (int)SOUND_VERSION);
    if (load_le64(data + AT_SIZE) != size)
        return fail(err, PV_E_FORMAT, "%s: has %zu bytes and says it has %llu", name, size,
                    (unsigned long long)load_le64(data + AT_SIZE));
    if (load_le64(data + AT_SUM) != sum_file(data, size))
        return fail(err, PV_E_FORMAT, "%s: damaged: its checksum does not match", name);
    return PV_OK;
}

static enum pv_status check_tower(const uint8_t *data, const struct prompt_reader *r,
                                  struct pv_error *err)
{
    struct tower ours = tower_of(r->c, r->vocab), theirs;
    const uint32_t *a = theirs.v, *b = ours.v;
    for (int i = 0; i < TOWER_FIELDS; i++)
        theirs.v[i] = load_le32(data + AT_TOWER + 4 * i);
    if (memcmp(&ours, &theirs, sizeof ours) == 0)
        return PV_OK;
    return fail(err, PV_E_FORMAT,
                "%.150s: made for a model of %s (patch %u, merge %u, %u frames a patch, side %u) "
                "with %u tokens, %.150s is one of %s (patch %u, merge %u, %u, side %u) with %u",
                r->name, family_title(a[0]), (unsigned)a[1], (unsigned)a[2], (unsigned)a[3],
                (unsigned)a[4], (unsigned)a[5], r->model, family_title(b[0]), (unsigned)b[1],
                (unsigned)b[2], (unsigned)b[3], (unsigned)b[4], (unsigned)b[5]);
}

/* Check that the features of sound are finite numbers. */
static enum pv_status check_features(const uint8_t *p, size_t size, const char *name, int number,
                                     struct pv_error *err)
{
    for (size_t i = 0; i < size; i += sizeof(float)) {
        float x;
        memcpy(&x, p + i, sizeof x);
        if (!isfinite(x))
            return fail(err, PV_E_FORMAT,
                        "%s: the sound of media item %d has a number that is not finite", name,
                        number);
    }
    return PV_OK;
}

/* Read the media items and find their pixels and features, which follow the ids, one after the
 * other, up to the end of the file. */
static enum pv_status read_media(struct prompt_file *f, const uint8_t *data, size_t size,
                                 const struct prompt_reader *r, struct pv_error *err)
{
    uint32_t version = load_le32(data + AT_VERSION);
    size_t each = record_size(version);
    size_t at = HEADER + (size_t)f->n_media * each + (size_t)f->n_ids * 4;
    for (int i = 0; i < f->n_media; i++) {
        struct record record;
        size_t pixels, features;
        enum pv_status s;
        if (!record_get(&record, data + HEADER + (size_t)i * each, version))
            return fail(err, PV_E_FORMAT, "%s: media item %d is neither a video nor a picture",
                        r->name, i + 1);
        s = record_media(&f->media[i], &record, i + 1, r->name, r->c, r->limits, err);
        if (s)
            return s;
        pixels = media_size(&f->media[i]);
        if (pixels > size - at)
            return fail(err, PV_E_FORMAT,
                        "%s: media item %d needs %zu bytes of pixels, %zu are left", r->name, i + 1,
                        pixels, size - at);
        f->pixels[i] = data + at;
        at += pixels;
        features = media_sound_size(&f->media[i]);
        if (features > size - at)
            return fail(err, PV_E_FORMAT,
                        "%s: media item %d needs %zu bytes of sound, %zu are left", r->name, i + 1,
                        features, size - at);
        f->features[i] = data + at;
        s = check_features(data + at, features, r->name, i + 1, err);
        if (s)
            return s;
        at += features;
    }
    if (at != size)
        return fail(err, PV_E_FORMAT, "%s: %zu bytes too many at its end", r->name, size - at);
    return PV_OK;
}

static int32_t id_at(const struct prompt_file *f, int i)
{
    return (int32_t)load_le32(f->ids + (size_t)i * 4);
}

/* Check the ids: tokens must be in the vocabulary. Media items must exist, and each must occur at
 * least once and completely: its runs may have text between them, but no run of another item. */
static enum pv_status check_ids(struct prompt_file *f, const struct prompt_reader *r,
                                struct pv_error *err)
{
    bool used[PROMPT_MAX_MEDIA] = { false };
    int unfinished = -1, done = 0; /* the current media item, and its rows so far */
    int64_t rows = 0;
    for (int i = 0; i < f->n_ids; i++) {
        int32_t id = id_at(f, i);
        if (id >= r->vocab || id < -f->n_media)
            return fail(err, PV_E_FORMAT,
                        "%s: id %d is neither one of %d tokens nor one of %d media", r->name,
                        (int)id, r->vocab, f->n_media);
        rows += id < 0 ? f->media[-id - 1].run_rows : 1;
        if (id >= 0)
            continue;
        if (unfinished >= 0 && unfinished != -id - 1)
            return fail(err, PV_E_FORMAT, "%s: media item %d begins before media item %d ends",
                        r->name, -(int)id, unfinished + 1);
        used[-id - 1] = true;
        done += f->media[-id - 1].run_rows;
        unfinished = done < f->media[-id - 1].n_rows ? -id - 1 : -1;
        done = unfinished >= 0 ? done : 0;
        f->n_runs += media_sound_rows(&f->media[-id - 1]) ? media_stretches(&f->media[-id - 1]) : 1;
    }
    if (unfinished >= 0)
        return fail(err, PV_E_FORMAT, "%s: media item %d ends after %d of %d rows", r->name,
                    unfinished + 1, done, f->media[unfinished].n_rows);
    for (int i = 0; i < f->n_media; i++)
        if (!used[i])
            return fail(err, PV_E_FORMAT, "%s: media item %d is not in the prompt", r->name, i + 1);
    if (f->n_runs > PROMPT_MAX_RUNS)
        return fail(err, PV_E_LIMIT, "%s: media stand in %d places, at most %d are possible",
                    r->name, f->n_runs, PROMPT_MAX_RUNS);
    if (rows > CONFIG_MAX_CONTEXT)
        return fail(err, PV_E_LIMIT, "%s: %lld tokens are too many", r->name, (long long)rows);
    f->n_rows = (int)rows;
    return PV_OK;
}

enum pv_status prompt_file_parse(struct prompt_file *out, const uint8_t *data, size_t size,
                                 const struct prompt_reader *r, struct pv_error *err)
{
    struct prompt_file f = { 0 };
    uint32_t n_ids, n_media, message0, frames, lost;
    enum pv_status s = check_whole(data, size, r->name, err);
    if (!s)
        s = check_tower(data, r, err);
    if (s)
        return s;
    n_ids = load_le32(data + AT_IDS);
    n_media = load_le32(data + AT_MEDIA);
    message0 = load_le32(data + AT_MESSAGE);
    frames = load_le32(data + AT_FRAMES);
    lost = load_le32(data + AT_LOST);
    if (n_media > (r->c ? PROMPT_MAX_MEDIA : 0) || n_ids == 0 || n_ids > CONFIG_MAX_CONTEXT ||
        HEADER + (uint64_t)n_media * record_size(load_le32(data + AT_VERSION)) +
                (uint64_t)n_ids * 4 >
            size)
        return fail(err, PV_E_FORMAT, "%s: %u ids and %u media are not what %zu bytes can hold",
                    r->name, (unsigned)n_ids, (unsigned)n_media, size);
    f.n_ids = (int)n_ids;
    f.n_media = (int)n_media;
    f.ids = data + HEADER + (size_t)n_media * record_size(load_le32(data + AT_VERSION));
    s = read_media(&f, data, size, r, err);
    if (!s)
        s = check_ids(&f, r, err);
    if (s)
        return s;
    if (message0 > (uint32_t)f.n_rows || frames > INT32_MAX || lost > frames)
        return fail(err, PV_E_FORMAT,
                    "%s: the last message begins at %u of %d tokens, %u of %u frames are lost",
                    r->name, (unsigned)message0, f.n_rows, (unsigned)lost, (unsigned)frames);
    f.message0 = (int)message0;
    f.frames = (int)frames;
    f.lost = (int)lost;
    *out = f;
    return PV_OK;
}

/* ---- a session from a file ---- */

/* Make room for everything in the file, counted against the memory limit. */
static enum pv_status make_room(struct pv_session *s, struct prompt_file *f, struct pv_error *err)
{
    uint64_t pixels = 0;
    enum pv_status st = timeline_room(&s->seq.line, (size_t)f->n_rows, err);
    if (st)
        return st;
    timeline_forget(&s->seq.line, s->seq.kv_ids, s->seq.n_kv_ids);
    for (int i = 0; i < f->n_media && !st; i++) {
        st = session_reserve_tower(s, &f->media[i], err);
        pixels += media_size(&f->media[i]) + media_sound_size(&f->media[i]);
    }
    if (!st)
        st = budget_claim(&s->budget, pixels, "a prompt with its pictures", err);
    if (!st)
        st = timeline_reserve(&s->seq.line, f->n_media, f->n_runs, err);
    for (int i = 0; i < f->n_media && !st; i++) {
        st = media_reserve(&f->media[i], err);
        if (!st && f->media[i].sound.mel)
            memcpy(f->media[i].sound.mel, f->features[i], media_sound_size(&f->media[i]));
        if (!st)
            media_take_pixels(&f->media[i], f->pixels[i], s->model->threads);
    }
    return st;
}

/* Append the rows, with media under the keys that the timeline gives them. Nothing can fail once
 * the first media item is adopted. */
static enum pv_status append_rows(struct pv_session *s, struct prompt_file *f, struct pv_error *err)
{
    int key[PROMPT_MAX_MEDIA], rows[PROMPT_MAX_MEDIA], n = 0;
    size_t size = (size_t)f->n_rows * sizeof(int32_t);
    int32_t *ids = mem_alloc(size);
    enum pv_status st;
    if (!ids)
        return fail_nomem(err, size);
    for (int i = 0; i < f->n_media; i++) {
        key[i] = timeline_key(&s->seq.line, &f->media[i]);
        key[i] = key[i] ? key[i] : s->seq.line.last_key + 1;
        rows[i] = f->media[i].run_rows;
        timeline_adopt(&s->seq.line, &f->media[i]);
    }
    for (int i = 0; i < f->n_ids; i++) {
        int32_t id = id_at(f, i);
        for (int r = 0; r < (id < 0 ? rows[-id - 1] : 1); r++)
            ids[n++] = id < 0 ? -key[-id - 1] : id;
    }
    st = timeline_append(&s->seq.line, ids, (size_t)n, err);
    mem_free(ids);
    return st;
}

static enum pv_status take_prompt(struct pv_session *s, struct prompt_file *f, struct pv_error *err)
{
    enum pv_status st = make_room(s, f, err);
    if (!st)
        st = append_rows(s, f, err);
    for (int i = 0; i < f->n_media; i++)
        media_clear(&f->media[i]); /* those not adopted */
    if (st)
        return st;
    s->messages = false; /* the rows end where an answer begins */
    s->message0 = f->message0;
    s->frames += f->frames;
    s->lost_frames += f->lost;
    return PV_OK;
}

enum pv_status pv_prompt_read(pv_session *s, const char *path, struct pv_error *err)
{
    const struct pv_model *m = s->model;
    struct prompt_reader r = { .name = path,
                               .model = model_file_path(m->file),
                               .c = m->vision ? vision_config(m->vision) : NULL,
                               .limits = &m->limits,
                               .vocab = pv_model_vocab_size(m) };
    double t0 = clock_now();
    struct prompt_file f;
    struct file_map map;
    enum pv_status st;
    if (s->seq.line.n > 0 || s->n_pending > 0)
        return fail(err, PV_E_ARG, "%s: a complete prompt, which cannot follow other messages",
                    path);
    st = file_map_open(&map, path, m->limits.video_bytes, err);
    if (st)
        return st;
    st = prompt_file_parse(&f, map.data, map.size, &r, err);
    if (!st)
        st = take_prompt(s, &f, err);
    file_map_close(&map);
    if (!st)
        s->video_s += clock_now() - t0;
    return st;
}

/* ---- a file from a session ---- */

/* What a file has before the pixels. */
struct outline {
    struct id_span ask; /* after the timeline's rows */
    int32_t *ids;       /* [n_ids] owned */
    int n_ids, n_media;
    const struct media *media[PROMPT_MAX_MEDIA];
};

/* The number of a media item in the file, from 1; 0 if there are too many. */
static int number_of(struct outline *o, const struct media *m)
{
    for (int i = 0; i < o->n_media; i++)
        if (o->media[i] == m)
            return i + 1;
    if (o->n_media == PROMPT_MAX_MEDIA)
        return 0;
    o->media[o->n_media++] = m;
    return o->n_media;
}

static enum pv_status list_ids(struct outline *o, const struct pv_session *s, const char *path,
                               struct pv_error *err)
{
    const struct timeline *t = &s->seq.line;
    size_t size = ((size_t)t->n + o->ask.n) * sizeof *o->ids;
    int span = 0;
    if (t->n_spans > PROMPT_MAX_RUNS)
        return fail(err, PV_E_LIMIT, "%s: media in %d places, at most %d are possible", path,
                    t->n_spans, PROMPT_MAX_RUNS);
    o->ids = mem_alloc(size ? size : 1);
    if (!o->ids)
        return fail_nomem(err, size);
    for (int i = 0; i < t->n;) {
        const struct media *run = NULL;
        int number = 0;
        if (span < t->n_spans && t->span[span].row0 == i)
            run = &t->media[t->span[span].item].m;
        if (run)
            number = number_of(o, run);
        if (run && !number)
            return fail(err, PV_E_LIMIT, "%s: more than %d videos and pictures", path,
                        PROMPT_MAX_MEDIA);
        o->ids[o->n_ids++] = run ? -number : t->ids[i];
        i += run ? run->run_rows : 1;
        while (span < t->n_spans && t->span[span].row0 < i)
            span++;
    }
    for (size_t i = 0; i < o->ask.n; i++)
        o->ids[o->n_ids++] = o->ask.ids[i];
    if (o->n_ids == 0)
        return fail(err, PV_E_ARG, "the prompt is empty");
    return PV_OK;
}

static uint32_t version_of(const struct outline *o)
{
    for (int i = 0; i < o->n_media; i++)
        if (o->media[i]->sound.n_chunks > 0)
            return SOUND_VERSION;
    return VERSION;
}

/* Make everything before the pixels, in memory that the caller frees. */
static enum pv_status make_head(uint8_t **out, size_t *size, const struct outline *o,
                                const struct pv_session *s, const char *path, struct pv_error *err)
{
    const struct vision_config *c = s->model->vision ? vision_config(s->model->vision) : NULL;
    struct tower tower = tower_of(c, pv_model_vocab_size(s->model));
    uint32_t version = version_of(o);
    size_t each = record_size(version);
    size_t n = HEADER + (size_t)o->n_media * each + (size_t)o->n_ids * 4;
    uint8_t *head;
    struct media plan;
    enum pv_status st = PV_OK;
    for (int i = 0; i < o->n_media && !st; i++) {
        struct record r = record_of(o->media[i]);
        st = record_media(&plan, &r, i + 1, path, c, &s->model->limits, err);
    }
    if (st)
        return st;
    head = mem_zalloc(n);
    if (!head)
        return fail_nomem(err, n);
    memcpy(head, magic, sizeof magic);
    store_le32(head + AT_VERSION, version);
    for (int i = 0; i < TOWER_FIELDS; i++)
        store_le32(head + AT_TOWER + 4 * i, tower.v[i]);
    store_le32(head + AT_IDS, (uint32_t)o->n_ids);
    store_le32(head + AT_MEDIA, (uint32_t)o->n_media);
    store_le32(head + AT_MESSAGE, (uint32_t)s->message0);
    store_le32(head + AT_FRAMES, (uint32_t)s->frames);
    store_le32(head + AT_LOST, (uint32_t)s->lost_frames);
    for (int i = 0; i < o->n_media; i++) {
        struct record r = record_of(o->media[i]);
        record_put(head + HEADER + (size_t)i * each, &r, version);
    }
    memcpy(head + HEADER + (size_t)o->n_media * each, o->ids, (size_t)o->n_ids * 4);
    *out = head;
    *size = n;
    return PV_OK;
}

static enum pv_status write_file(const struct outline *o, uint8_t *head, size_t n, const char *path,
                                 struct pv_error *err)
{
    struct file_out file;
    struct sum sum = sum_start(VERSION);
    uint64_t size = n;
    enum pv_status s;
    sum_add(&sum, head + AT_SUMMED, n - AT_SUMMED);
    for (int i = 0; i < o->n_media; i++) {
        const struct media *m = o->media[i];
        size += media_size(m) + media_sound_size(m);
        sum_add(&sum, m->rgb, media_size(m));
        sum_add(&sum, (const uint8_t *)m->sound.mel, media_sound_size(m));
    }
    store_le64(head + AT_SIZE, size);
    store_le64(head + AT_SUM, sum_end(&sum));
    s = file_out_open(&file, path, err);
    if (s)
        return s;
    s = file_out_write(&file, head, n, err);
    for (int i = 0; i < o->n_media && !s; i++) {
        const struct media *m = o->media[i];
        if (m->rgb)
            s = file_out_write(&file, m->rgb, media_size(m), err);
        if (!s && m->sound.mel)
            s = file_out_write(&file, m->sound.mel, media_sound_size(m), err);
    }
    if (!s)
        return file_out_commit(&file, err);
    file_out_abandon(&file);
    return s;
}

enum pv_status pv_prompt_write(const pv_session *s, const char *path, struct pv_error *err)
{
    struct outline o = { 0 };
    uint8_t *head = NULL;
    size_t n = 0;
    enum pv_status st = PV_OK;
    if (s->n_pending > 0)
        return fail(err, PV_E_ARG, "a video or picture was added without the text of its message");
    if (s->messages)
        st = dialogue_ask(s->dialogue, &o.ask, err);
    for (int k = 0; k < s->seq.line.n_spans && !st; k++)
        st = media_open_pixels(&s->seq.line.media[s->seq.line.span[k].item].m, s->engine, err);
    if (!st)
        st = list_ids(&o, s, path, err);
    if (!st)
        st = make_head(&head, &n, &o, s, path, err);
    if (!st)
        st = write_file(&o, head, n, path, err);
    mem_free(head);
    mem_free(o.ids);
    return st;
}
