/* MP4 and Matroska files as trees of boxes, to be changed and written back as files whose sizes,
 * offsets and checksums hold: a reader then gets past them to what was changed.
 *
 * Both formats nest boxes of a type, a size and a payload. Boxes whose payload is boxes again are
 * known by their type (in MP4 some have fields before them). Written back:
 *
 *   sizes of all boxes around a change
 *   MP4       offsets of chunks (stco, co64), as far as they led into a box that is still there
 *   Matroska  positions of the seek head and the cues; CRC-32 elements
 *
 * A file that was not changed is written back as it was, byte for byte. */
#ifndef PV_TESTS_BOX_TREE_H
#define PV_TESTS_BOX_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    BOXES_MOST = 4096,
    BOXES_DEPTH = 32,
    BOX_CRC32 = 0xbf,
    BOX_SEGMENT = 0x18538067,
    BOX_SEEK_POSITION = 0x53ac,
    BOX_CUE_POSITION = 0xf1,
    EBML_HEADER = 0x1a45dfa3
};

struct box {
    uint32_t type;       /* MP4: four letters, Matroska: the id with its marker */
    const uint8_t *data; /* the payload; of a parent the fields before its children */
    size_t size;         /* of that */
    int child, next;     /* first child and next sibling; -1: none */
    bool parent;         /* its payload goes on with boxes */
    int size_width;      /* bytes of its size as read; 0: MP4's "up to the end" */
    bool unknown;        /* Matroska: a size that is not said */
    size_t old_at, old_payload, old_end; /* in the file that was read */
    size_t at, payload, total;           /* in the file that is written */
};

struct boxes {
    bool ebml;
    int n, root; /* root: a parent without a header */
    struct box box[BOXES_MOST];
};

/* ---- types ---- */

#define FOURCC(a, b, c, d)                                                                         \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

/* Bytes before the children; -1: no parent. */
static inline int box_fields(bool ebml, uint32_t type)
{
    static const uint32_t masters[] = { 0x1a45dfa3, 0x18538067, 0x114d9b74, 0x4dbb,     0x1549a966,
                                        0x1654ae6b, 0xae,       0xe0,       0xe1,       0x1f43b675,
                                        0xa0,       0x1c53bb6b, 0xbb,       0xb7,       0x6d80,
                                        0x6240,     0x5034,     0x5035,     0x1254c367, 0x7373,
                                        0x67c8,     0x63c0,     0x1941a469, 0x61a7,     0x1043a770,
                                        0x55b0,     0x55d0,     0x7670 };
    static const struct {
        char name[5];
        int fields;
    } parents[] = { { "moov", 0 },  { "trak", 0 },  { "mdia", 0 },  { "minf", 0 },  { "stbl", 0 },
                    { "edts", 0 },  { "dinf", 0 },  { "udta", 0 },  { "mvex", 0 },  { "moof", 0 },
                    { "traf", 0 },  { "mfra", 0 },  { "tref", 0 },  { "meta", 4 },  { "stsd", 8 },
                    { "dref", 8 },  { "avc1", 78 }, { "avc3", 78 }, { "hvc1", 78 }, { "hev1", 78 },
                    { "mp4v", 78 }, { "vp09", 78 }, { "av01", 78 }, { "mjpg", 78 }, { "png ", 78 },
                    { "sinf", 0 },  { "schi", 0 } };

    for (size_t i = 0; ebml && i < sizeof masters / sizeof *masters; i++)
        if (masters[i] == type)
            return 0;
    for (size_t i = 0; !ebml && i < sizeof parents / sizeof *parents; i++) {
        const char *p = parents[i].name;
        if (FOURCC(p[0], p[1], p[2], p[3]) == type)
            return parents[i].fields;
    }
    return -1;
}

static inline uint64_t box_load(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static inline void box_store(uint8_t *p, size_t n, uint64_t v)
{
    for (size_t i = n; i > 0; i--, v >>= 8)
        p[i - 1] = (uint8_t)v;
}

/* ---- reading ---- */

/* Bytes of a number of EBML by its first byte; 0: too many. */
static inline int ebml_width(uint8_t first)
{
    int width = 1;
    while (width <= 8 && !(first & (0x100 >> width)))
        width++;
    return width > 8 ? 0 : width;
}

/* The header of the box at data[at..end), into *b; false: there is none that fits. */
static inline bool box_header(const struct boxes *t, struct box *b, const uint8_t *data, size_t at,
                              size_t end)
{
    size_t left = end - at, head;
    uint64_t size;

    *b = (struct box){ .child = -1, .next = -1, .old_at = at };
    if (t->ebml) {
        int id = left > 0 ? ebml_width(data[at]) : 0, width;
        if (id == 0 || id > 4 || left <= (size_t)id)
            return false;
        width = ebml_width(data[at + (size_t)id]);
        head = (size_t)id + (size_t)width;
        if (width == 0 || left < head)
            return false;
        b->type = (uint32_t)box_load(data + at, (size_t)id);
        size = box_load(data + at + (size_t)id, (size_t)width) & ((UINT64_C(1) << 7 * width) - 1);
        b->unknown = size == (UINT64_C(1) << 7 * width) - 1;
        b->size_width = width;
        size = b->unknown ? left - head : size;
    } else {
        if (left < 8)
            return false;
        size = box_load(data + at, 4);
        b->type = (uint32_t)box_load(data + at + 4, 4);
        b->size_width = size == 0 ? 0 : size == 1 ? 8 : 4;
        head = size == 1 ? 16 : 8;
        if (left < head)
            return false;
        size = size == 0 ? left : size == 1 ? box_load(data + at + 8, 8) : size;
        if (size < head)
            return false;
        size -= head;
    }
    if (size > left - head)
        return false;
    b->old_payload = at + head;
    b->old_end = b->old_payload + (size_t)size;
    return true;
}

/* The boxes that tile data[at..end): the first, -2 where they do not, -1 where there is none. */
static inline int boxes_list(struct boxes *t, const uint8_t *data, size_t at, size_t end, int depth)
{
    int first = -1, last = -1, begin = t->n;

    while (at < end) {
        struct box b;
        int fields, me = t->n;
        if (depth > BOXES_DEPTH || t->n == BOXES_MOST || !box_header(t, &b, data, at, end)) {
            t->n = begin;
            return -2;
        }
        t->n++;
        b.data = data + b.old_payload;
        b.size = b.old_end - b.old_payload;
        fields = box_fields(t->ebml, b.type);
        if (fields >= 0 && (size_t)fields <= b.size) {
            int child = boxes_list(t, data, b.old_payload + (size_t)fields, b.old_end, depth + 1);
            b.parent = child != -2;
            b.child = b.parent ? child : -1;
            b.size = b.parent ? (size_t)fields : b.size;
        }
        t->box[me] = b;
        if (last >= 0)
            t->box[last].next = me;
        first = first < 0 ? me : first;
        last = me;
        at = b.old_end;
    }
    return first;
}

/* Reads a file, whose bytes are borrowed. False: it is neither MP4 nor Matroska, or its boxes do
 * not fill it. */
static inline bool boxes_read(struct boxes *t, const uint8_t *data, size_t size)
{
    int first;

    t->ebml = size >= 4 && box_load(data, 4) == EBML_HEADER;
    if (!t->ebml && (size < 8 || memcmp(data + 4, "ftyp", 4) != 0))
        return false;
    t->n = 1;
    t->root = 0;
    first = boxes_list(t, data, 0, size, 0);
    if (first < 0)
        return false;
    t->box[0] = (struct box){ .child = first, .next = -1, .parent = true, .old_end = size };
    return true;
}

/* ---- writing ---- */

static inline size_t ebml_id_bytes(uint32_t id)
{
    return id > 0xffffff ? 4 : id > 0xffff ? 3 : id > 0xff ? 2 : 1;
}

static inline size_t box_header_bytes(const struct boxes *t, struct box *b, size_t payload)
{
    if (t->ebml) {
        while (!b->unknown && b->size_width < 8 &&
               payload >= (UINT64_C(1) << 7 * b->size_width) - 1)
            b->size_width++;
        return ebml_id_bytes(b->type) + (size_t)b->size_width;
    }
    return b->size_width == 8 ? 16 : 8;
}

/* Lays out a box and those inside it from `at` on; the end of it. */
static inline size_t boxes_lay(struct boxes *t, int i, size_t at)
{
    struct box *b = &t->box[i];
    size_t payload = b->size, head;

    /* Sizes first: the header's width depends on them. */
    for (int c = b->child; c >= 0; c = t->box[c].next)
        payload += boxes_lay(t, c, 0);
    if (!t->ebml && b->size_width == 0 && b->next >= 0)
        b->size_width = 4; /* no longer the last */
    head = i == t->root ? 0 : box_header_bytes(t, b, payload);
    b->total = head + payload;
    b->at = at;
    b->payload = at + head;
    return at + b->total;
}

static inline void boxes_place(struct boxes *t, int i, size_t at)
{
    struct box *b = &t->box[i];
    b->payload += at - b->at;
    b->at = at;
    at = b->payload + b->size;
    for (int c = b->child; c >= 0; c = t->box[c].next) {
        boxes_place(t, c, at);
        at += t->box[c].total;
    }
}

static inline void box_put(const struct boxes *t, const struct box *b, uint8_t *out)
{
    size_t head = b->payload - b->at, size = b->total - head;
    if (t->ebml) {
        size_t id = ebml_id_bytes(b->type), width = head - id;
        uint64_t mark = UINT64_C(1) << 7 * width;
        box_store(out + b->at, id, b->type);
        box_store(out + b->at + id, width, b->unknown ? mark | (mark - 1) : mark | size);
    } else {
        box_store(out + b->at, 4, b->size_width == 0 ? 0 : head == 16 ? 1 : b->total);
        box_store(out + b->at + 4, 4, b->type);
        if (head == 16)
            box_store(out + b->at + 8, 8, b->total);
    }
    if (b->size)
        memcpy(out + b->payload, b->data, b->size);
}

/* Where an offset of the file that was read leads in the one that is written. */
static inline uint64_t boxes_moved(const struct boxes *t, uint64_t old)
{
    for (int i = 1; i < t->n; i++) {
        const struct box *b = &t->box[i];
        if (b->total == 0 || b->old_end == 0)
            continue; /* not written, or not read */
        if (old == b->old_at)
            return b->at;
        if (!b->parent && old >= b->old_payload && old < b->old_end)
            return b->payload + (old - b->old_payload);
    }
    return old;
}

static inline uint32_t box_crc32(const uint8_t *p, size_t n)
{
    uint32_t crc = ~UINT32_C(0);
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

/* Offsets that a box holds. `segment`: what Matroska's count from, before and now. */
static inline void box_put_offsets(const struct boxes *t, const struct box *b, uint8_t *out,
                                   const struct box *segment)
{
    size_t width = b->type == FOURCC('s', 't', 'c', 'o')   ? 4
                   : b->type == FOURCC('c', 'o', '6', '4') ? 8
                                                           : 0;
    uint8_t *p = out + b->payload;

    if (!t->ebml && width && b->size >= 8) {
        size_t n = (b->size - 8) / width;
        n = box_load(p + 4, 4) < n ? (size_t)box_load(p + 4, 4) : n;
        for (size_t i = 0; i < n; i++)
            box_store(p + 8 + i * width, width, boxes_moved(t, box_load(p + 8 + i * width, width)));
    }
    if (t->ebml && segment && b->size >= 1 && b->size <= 8 &&
        (b->type == BOX_SEEK_POSITION || b->type == BOX_CUE_POSITION)) {
        uint64_t at = boxes_moved(t, box_load(p, b->size) + segment->old_payload);
        if (at >= segment->payload)
            box_store(p, b->size, at - segment->payload);
    }
}

static inline void boxes_put(const struct boxes *t, int i, uint8_t *out, const struct box *segment)
{
    const struct box *b = &t->box[i];
    int first = b->child;

    if (i != t->root)
        box_put(t, b, out);
    if (t->ebml && b->type == BOX_SEGMENT && i != t->root)
        segment = b;
    if (!b->parent)
        box_put_offsets(t, b, out, segment);
    for (int c = first; c >= 0; c = t->box[c].next)
        boxes_put(t, c, out, segment);
    /* Inner checksums are part of what outer ones are of. */
    if (t->ebml && first >= 0 && t->box[first].type == BOX_CRC32 && t->box[first].size == 4) {
        const struct box *c = &t->box[first];
        size_t begin = c->at + c->total;
        uint32_t crc = box_crc32(out + begin, b->at + b->total - begin);
        for (int k = 0; k < 4; k++)
            out[c->payload + (size_t)k] = (uint8_t)(crc >> 8 * k);
    }
}

/* Writes the tree to out[0..cap); its bytes, or 0 when they are too many. `out` must not be what
 * was read. */
static inline size_t boxes_write(struct boxes *t, uint8_t *out, size_t cap)
{
    size_t size;

    for (int i = 0; i < t->n; i++)
        t->box[i].total = 0;
    size = boxes_lay(t, t->root, 0);
    if (size > cap)
        return 0;
    boxes_place(t, t->root, 0);
    boxes_put(t, t->root, out, NULL);
    return size;
}

#endif
