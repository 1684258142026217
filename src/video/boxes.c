/* Walks over the boxes. It is as lenient as FFmpeg, which accepts a table wherever it finds one: in
 * boxes that are not known either to contain boxes or to contain none, every byte is searched.
 *
 * Samples that are listed one by one take room in the file. Others are only counted: all of one
 * size, or with the defaults of a fragment. Of those there can be no more than the file has bytes.
 * Uncompressed sound is the exception that real files have: a sample may be four bytes, and FFmpeg
 * makes an entry of some hundreds of them. */
#include "video/boxes.h"

#include "base/mem.h"
#include "base/minmax.h"

#include <string.h>

enum {
    WINDOW = 1 << 16,
    DEPTH_MAX = 16,
    BOXES_MAX = 1 << 24,   /* boxes of one file */
    SOUND_ENTRY = 512,     /* samples of uncompressed sound in one entry, at least */
    FLAGS_OF_SAMPLES = 0xf /* of a trun, from bit 8 on: what is said of each sample */
};

#define TYPE(a, b, c, d)                                                                           \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

enum kind { KIND_OTHER, KIND_BOXES, KIND_BYTES };

static const struct {
    char type[5];
    enum kind kind;
} kinds[] = {
    { "moov", KIND_BOXES }, { "trak", KIND_BOXES }, { "mdia", KIND_BOXES }, { "minf", KIND_BOXES },
    { "stbl", KIND_BOXES }, { "edts", KIND_BOXES }, { "dinf", KIND_BOXES }, { "mvex", KIND_BOXES },
    { "moof", KIND_BOXES }, { "traf", KIND_BOXES }, { "mdat", KIND_BYTES }, { "ftyp", KIND_BYTES },
    { "mvhd", KIND_BYTES }, { "tkhd", KIND_BYTES }, { "mdhd", KIND_BYTES }, { "hdlr", KIND_BYTES },
    { "stts", KIND_BYTES }, { "ctts", KIND_BYTES }, { "stsc", KIND_BYTES }, { "stco", KIND_BYTES },
    { "co64", KIND_BYTES }, { "stss", KIND_BYTES }, { "stsz", KIND_BYTES }, { "stz2", KIND_BYTES },
    { "sdtp", KIND_BYTES }, { "elst", KIND_BYTES }, { "trun", KIND_BYTES }, { "tfhd", KIND_BYTES },
    { "tfdt", KIND_BYTES }, { "trex", KIND_BYTES }, { "sidx", KIND_BYTES }, { "senc", KIND_BYTES },
    { "sgpd", KIND_BYTES }, { "sbgp", KIND_BYTES }, { "mfra", KIND_BYTES }, { "dref", KIND_BYTES },
};

/* Where FFmpeg looks for boxes, though they begin after other bytes, outside a track too. */
static const char searched[][5] = { "stsd", "meta", "udta", "wave", "ilst", "tref", "sinf", "schi",
                                    "jp2h", "iprp", "gmhd", "clip", "matt", "hnti", "aclr" };

/* Of one track. */
struct track {
    bool is_video, is_sound, is_raw;
    int n_times;      /* tables of times */
    uint64_t listed;  /* samples that take room in the file, */
    uint64_t counted; /* and that do not */
    uint64_t chunks, in_chunk;
    uint64_t edits;
};

struct walk {
    const struct boxes_source *from;
    uint8_t *window; /* [WINDOW] */
    int64_t at;      /* of the window, */
    size_t n;        /* and its bytes */
    int n_boxes;
    struct track track;
    uint64_t listed, counted; /* of all that is finished */
};

/* n bytes at `at`, or NULL past the end. */
static const uint8_t *bytes_at(struct walk *w, int64_t at, size_t n)
{
    if (at < w->at || at + (int64_t)n > w->at + (int64_t)w->n) {
        w->n = w->from->read(w->from->user, at, w->window, WINDOW);
        w->at = at;
    }
    return n <= w->n ? w->window + (at - w->at) : NULL;
}

static uint32_t be32(const uint8_t *p)
{
    return TYPE(p[0], p[1], p[2], p[3]);
}

/* Sums and products that stay where they would be too large to matter. */
static uint64_t sum(uint64_t a, uint64_t b)
{
    return min_u64(a, UINT64_MAX / 4) + min_u64(b, UINT64_MAX / 4);
}

static uint64_t product(uint64_t a, uint64_t b)
{
    return a && b > UINT64_MAX / 4 / a ? UINT64_MAX / 4 : a * b;
}

/* --- tables --------------------------------------------------------------------------------- */

/* Samples that `bytes` can list, `bits` each. */
static uint64_t can_list(int64_t bytes, unsigned bits)
{
    return bytes > 0 && bits > 0 ? (uint64_t)bytes * 8 / bits : 0;
}

static void add_samples(struct track *t, uint64_t n, uint64_t room)
{
    t->listed = sum(t->listed, min_u64(n, room));
    t->counted = sum(t->counted, n - min_u64(n, room));
}

static void read_sizes(struct walk *w, const uint8_t *p, int64_t left, bool compact)
{
    uint32_t size = compact ? 0 : be32(p + 4), n = be32(p + 8);

    add_samples(&w->track, n, size ? 0 : can_list(left - 12, compact ? p[7] : 32));
}

static void read_run(struct walk *w, const uint8_t *p, int64_t left)
{
    unsigned flags = p[2] & FLAGS_OF_SAMPLES, each = 0;

    for (; flags; flags &= flags - 1)
        each += 32;
    add_samples(&w->track, be32(p + 4), can_list(left - 8, each));
}

/* The most samples of a chunk. */
static void read_chunks(struct walk *w, int64_t at, int64_t end)
{
    for (at += 8; at + 12 <= end; at += 12) {
        const uint8_t *p = bytes_at(w, at, 12);
        if (!p)
            return;
        w->track.in_chunk = max_u64(w->track.in_chunk, be32(p + 4));
    }
}

/* A box that holds a table, or says what a track is; its contents are [at, end). */
static void read_table(struct walk *w, uint32_t type, int64_t at, int64_t end)
{
    struct track *t = &w->track;
    uint8_t p[20] = { 0 };

    for (int i = 0; i < 20 && at + i < end; i++) {
        const uint8_t *one = bytes_at(w, at + i, 1);
        p[i] = one ? *one : 0;
    }
    switch (type) {
    case TYPE('s', 't', 's', 'z'):
    case TYPE('s', 't', 'z', '2'):
        read_sizes(w, p, end - at, type == TYPE('s', 't', 'z', '2'));
        break;
    case TYPE('t', 'r', 'u', 'n'):
        read_run(w, p, end - at);
        break;
    case TYPE('h', 'd', 'l', 'r'):
        t->is_video = t->is_video || be32(p + 8) == TYPE('v', 'i', 'd', 'e');
        t->is_sound = t->is_sound || be32(p + 8) == TYPE('s', 'o', 'u', 'n');
        break;
    case TYPE('s', 't', 't', 's'):
        t->n_times++;
        t->is_raw = end - at >= 16 && be32(p + 4) == 1 && be32(p + 12) == 1;
        break;
    case TYPE('s', 't', 'c', 'o'):
    case TYPE('c', 'o', '6', '4'):
        t->chunks = max_u64(t->chunks, min_u64(be32(p + 4), can_list(end - at, 32)));
        break;
    case TYPE('s', 't', 's', 'c'):
        read_chunks(w, at, end);
        break;
    case TYPE('e', 'l', 's', 't'):
        t->edits = sum(t->edits, min_u64(be32(p + 4), can_list(end - at, 96)));
        break;
    default:
        break;
    }
}

/* The samples of a track that has ended. Each edit may show all of them again. */
static void finish_track(struct walk *w)
{
    struct track *t = &w->track;
    uint64_t times = t->edits > 1 ? t->edits : 1;

    if (t->is_sound && !t->is_video && t->is_raw && t->n_times == 1 && t->counted)
        t->counted = product(t->chunks, t->in_chunk / SOUND_ENTRY + 1);
    w->listed = sum(w->listed, product(t->listed, times));
    w->counted = sum(w->counted, product(t->counted, times));
    *t = (struct track){ 0 };
}

static enum pv_status frame_filter(const struct walk *w, uint64_t memory, struct pv_error *err)
{
    uint64_t all = sum(w->listed, w->counted), most = BOXES_ENTRIES_MAX;

    if (w->counted > BOXES_FREE && w->counted - BOXES_FREE > (uint64_t)w->from->size)
        return fail(err, PV_E_LIMIT,
                    "%s: its tables claim %llu samples, more than its %lld bytes can hold",
                    w->from->path, (unsigned long long)all, (long long)w->from->size);
    if (memory && memory / BOXES_ENTRY_SIZE < most)
        most = max_u64(memory / BOXES_ENTRY_SIZE, BOXES_FREE);
    if (all > most)
        return fail(err, PV_E_LIMIT, "%s: its tables list %llu samples, at most %llu are allowed",
                    w->from->path, (unsigned long long)all, (unsigned long long)most);
    return PV_OK;
}

/* --- boxes ---------------------------------------------------------------------------------- */

static enum kind kind_of(const uint8_t *type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!memcmp(type, kinds[i].type, 4))
            return kinds[i].kind;
    return KIND_OTHER;
}

static bool is_searched(const uint8_t *type)
{
    for (size_t i = 0; i < sizeof searched / sizeof *searched; i++)
        if (!memcmp(type, searched[i], 4))
            return true;
    return false;
}

/* Tables anywhere in [at, end). *packed: a compressed header, which cannot be looked into. */
static void search(struct walk *w, int64_t at, int64_t end, bool *packed)
{
    for (; at + 4 <= end; at++) {
        const uint8_t *p = bytes_at(w, at, 4);
        uint32_t type = p ? be32(p) : 0;
        if (!p)
            return;
        if (type == TYPE('c', 'm', 'o', 'v'))
            *packed = true;
        else if (type == TYPE('s', 't', 's', 'z') || type == TYPE('s', 't', 'z', '2') ||
                 type == TYPE('t', 'r', 'u', 'n') || type == TYPE('e', 'l', 's', 't'))
            read_table(w, type, at + 4, end);
    }
}

/* The box at `at`, of those that end at `end`: its kind, where its contents begin and end. false:
 * there is no box. */
static bool open_box(struct walk *w, int64_t at, int64_t end, uint8_t type[4], int64_t *begin,
                     int64_t *stop)
{
    const uint8_t *p = bytes_at(w, at, 8);
    uint64_t size = p ? be32(p) : 0;
    int64_t head = 8;

    if (!p || at + 8 > end)
        return false;
    memcpy(type, p + 4, 4);
    if (size == 1) {
        p = bytes_at(w, at, 16);
        if (!p)
            return false;
        size = (uint64_t)be32(p + 8) << 32 | be32(p + 12);
        head = 16;
    } else if (size == 0) {
        size = (uint64_t)(end - at);
    }
    if (size < (uint64_t)head)
        return false;
    *begin = at + head;
    *stop = size < (uint64_t)(end - at) ? at + (int64_t)size : end;
    return true;
}

/* FFmpeg takes these for a header when one begins in them. */
static bool is_hidden_header(struct walk *w, const uint8_t *type, int64_t begin, int64_t stop)
{
    const uint8_t *p = stop - begin >= 8 ? bytes_at(w, begin, 8) : NULL;

    if (!p || (memcmp(type, "free", 4) && memcmp(type, "hoov", 4)))
        return false;
    return !memcmp(p + 4, "mvhd", 4) || !memcmp(p + 4, "cmov", 4);
}

static enum pv_status walk_boxes(struct walk *w, int64_t at, int64_t end, int depth,
                                 struct pv_error *err)
{
    enum pv_status s = PV_OK;
    uint8_t type[4];
    int64_t begin, stop;
    bool packed = false;

    for (; !s && open_box(w, at, end, type, &begin, &stop); at = stop) {
        enum kind kind = kind_of(type);
        if (++w->n_boxes > BOXES_MAX)
            return fail(err, PV_E_LIMIT, "%s: has more than %d boxes", w->from->path, BOXES_MAX);
        if (!memcmp(type, "trak", 4) || !memcmp(type, "traf", 4))
            finish_track(w);
        if (kind == KIND_BOXES || is_hidden_header(w, type, begin, stop)) {
            if (depth < DEPTH_MAX)
                s = walk_boxes(w, begin, stop, depth + 1, err);
            else
                search(w, begin, stop, &packed);
        } else if (kind == KIND_BYTES) {
            read_table(w, be32(type), begin, stop);
        } else if (depth > 0 || is_searched(type) || !memcmp(type, "cmov", 4)) {
            search(w, begin - 4, stop, &packed);
        }
    }
    if (!s && depth > 0 && at < end) /* what is no box to us may be one to FFmpeg */
        search(w, at, end, &packed);
    if (!s && packed)
        s = fail(err, PV_E_UNSUPPORTED, "%s: its header is compressed, which is not supported",
                 w->from->path);
    return s;
}

enum pv_status boxes_check(const struct boxes_source *from, uint64_t memory, struct pv_error *err)
{
    struct walk w = { .from = from, .window = mem_alloc(WINDOW) };
    enum pv_status s;

    if (!w.window)
        return fail_nomem(err, WINDOW);
    s = walk_boxes(&w, 0, from->size, 0, err);
    finish_track(&w);
    if (!s)
        s = frame_filter(&w, memory, err);
    mem_free(w.window);
    return s;
}
