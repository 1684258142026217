/* Units of H.264 (ITU-T H.264: 7.3.1 units, 7.3.2.1 SPS, 7.3.2.2 PPS, 7.3.3 slice header). A
 * picture whose units have nal_ref_idc 0 is never referred to. It then also does not count in
 * frame_num (7.4.3): the next picture has the same number, save after a key. A reference frame
 * whose nal_ref_idc was damaged fails this check.
 *
 * A packet is disposable only if it contains nothing but slices of one whole frame and units that
 * do not influence other pictures. */
#include "video/disposable.h"

#include <string.h>

enum {
    UNIT_SLICE = 1,
    UNIT_IDR = 5,
    UNIT_SEI = 6,
    UNIT_SPS = 7,
    UNIT_PPS = 8,
    UNIT_DELIMITER = 9,
    UNIT_FILLER = 12,
    HEAD = 512 /* bytes of a unit that are read; scaling lists are the longest */
};

/* ---- bits ---- */

struct bit_reader {
    uint8_t data[HEAD];
    size_t at, end; /* bits */
    bool over;      /* more was read than there is */
};

/* A unit without the bytes that keep start codes out of it. */
static void bits_begin(struct bit_reader *b, const uint8_t *unit, size_t size)
{
    size_t n = 0;
    int zeros = 0;

    for (size_t i = 0; i < size && n < HEAD; i++) {
        if (zeros >= 2 && unit[i] == 3) {
            zeros = 0;
            continue;
        }
        zeros = unit[i] ? 0 : zeros + 1;
        b->data[n++] = unit[i];
    }
    b->at = 0;
    b->end = n * 8;
    b->over = false;
}

static uint32_t bits(struct bit_reader *b, int n)
{
    uint32_t v = 0;

    for (; n > 0; n--, b->at++) {
        if (b->at >= b->end) {
            b->over = true;
            return 0;
        }
        v = v << 1 | (b->data[b->at / 8] >> (7 - b->at % 8) & 1);
    }
    return v;
}

/* Exp-Golomb; values above 2^16 are none of ours. */
static uint32_t bits_ue(struct bit_reader *b)
{
    int zeros = 0;

    while (zeros <= 16 && !b->over && !bits(b, 1))
        zeros++;
    if (zeros > 16)
        b->over = true;
    return b->over ? 0 : (1u << zeros) - 1 + bits(b, zeros);
}

static int bits_se(struct bit_reader *b)
{
    uint32_t v = bits_ue(b);

    return v & 1 ? (int)(v / 2 + 1) : -(int)(v / 2);
}

/* ---- parameter sets ---- */

static void skip_scaling_list(struct bit_reader *b, int n)
{
    int last = 8, next = 8;

    for (int i = 0; i < n && !b->over; i++) {
        if (next)
            next = (last + bits_se(b)) & 255;
        last = next ? next : last;
    }
}

/* What SPS of the High profiles have more. Returns whether planes are separate. */
static bool read_high(struct bit_reader *b)
{
    uint32_t chroma = bits_ue(b);
    bool separate = chroma == 3 && bits(b, 1);

    bits_ue(b);
    bits_ue(b);
    bits(b, 1);
    if (bits(b, 1))
        for (int i = 0; i < (chroma == 3 ? 12 : 8); i++)
            if (bits(b, 1))
                skip_scaling_list(b, i < 6 ? 16 : 64);
    return separate;
}

static void skip_picture_order(struct bit_reader *b)
{
    uint32_t type = bits_ue(b);

    if (type == 0)
        bits_ue(b);
    if (type != 1)
        return;
    bits(b, 1);
    bits_se(b);
    bits_se(b);
    for (uint32_t n = bits_ue(b); n > 0 && !b->over; n--)
        bits_se(b);
}

static void read_sps(struct disposable *d, struct bit_reader *b)
{
    static const uint8_t high[] = { 100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135 };
    struct disposable_sps sps = { .known = true };
    uint8_t profile = (uint8_t)bits(b, 8);
    uint32_t id;

    bits(b, 16);
    id = bits_ue(b);
    if (memchr(high, profile, sizeof high))
        sps.separate = read_high(b);
    sps.number_bits = (int)bits_ue(b) + 4;
    skip_picture_order(b);
    bits_ue(b);
    bits(b, 1);
    bits_ue(b);
    bits_ue(b);
    sps.fields = !bits(b, 1);
    if (id < 32 && sps.number_bits <= 16)
        d->sps[id] = b->over ? (struct disposable_sps){ 0 } : sps;
}

static void read_pps(struct disposable *d, struct bit_reader *b)
{
    uint32_t id = bits_ue(b), sps = bits_ue(b);

    if (id < 256)
        d->pps[id] = b->over || sps >= 32 ? 0 : (uint8_t)(sps + 1);
}

/* ---- packets ---- */

struct picture {
    bool other;     /* a unit that others may need, or that is not understood */
    bool reference; /* another picture may refer to it */
    bool idr;
    int slices, firsts; /* firsts: slices that begin a picture */
    int number;         /* frame_num; -1: unknown */
};

static void read_slice(const struct disposable *d, struct bit_reader *b, struct picture *p)
{
    const struct disposable_sps *sps;
    uint32_t first = bits_ue(b), pps, number;

    bits_ue(b);
    pps = bits_ue(b);
    p->slices++;
    p->firsts += first == 0;
    if (b->over || pps >= 256 || !d->pps[pps] || !d->sps[d->pps[pps] - 1].known) {
        p->other = true;
        return;
    }
    sps = &d->sps[d->pps[pps] - 1];
    if (sps->separate)
        bits(b, 2);
    number = bits(b, sps->number_bits);
    if ((sps->fields && bits(b, 1)) || b->over || (p->slices > 1 && p->number != (int)number))
        p->other = true;
    p->number = b->over ? -1 : (int)number;
}

static void read_unit(struct disposable *d, const uint8_t *unit, size_t size, struct picture *p)
{
    struct bit_reader b;
    int type;

    if (size == 0)
        return;
    type = unit[0] & 0x1f;
    if (type == UNIT_SEI || type == UNIT_DELIMITER || type == UNIT_FILLER)
        return;
    bits_begin(&b, unit + 1, size - 1);
    p->reference = p->reference || (unit[0] & 0x60);
    p->idr = p->idr || type == UNIT_IDR;
    p->other = p->other || type != UNIT_SLICE || (unit[0] & 0x80);
    if (type == UNIT_SLICE || type == UNIT_IDR)
        read_slice(d, &b, p);
    else if (type == UNIT_SPS)
        read_sps(d, &b);
    else if (type == UNIT_PPS)
        read_pps(d, &b);
}

/* Units after start codes. */
static void read_stream(struct disposable *d, const uint8_t *data, size_t size, struct picture *p)
{
    size_t begin = SIZE_MAX, at = 0;

    while (at + 3 <= size) {
        if (data[at + 2] > 1) {
            at += 3;
        } else if (data[at] == 0 && data[at + 1] == 0 && data[at + 2] == 1) {
            if (begin != SIZE_MAX)
                read_unit(d, data + begin, at - begin, p);
            begin = at += 3;
        } else {
            at++;
        }
    }
    if (begin != SIZE_MAX)
        read_unit(d, data + begin, size - begin, p);
}

/* Units after their lengths. */
static void read_lengths(struct disposable *d, const uint8_t *data, size_t size, struct picture *p)
{
    size_t at = 0, bytes = (size_t)d->length_bytes;

    while (at < size) {
        size_t len = 0;
        if (size - at < bytes)
            break;
        for (size_t i = 0; i < bytes; i++)
            len = len << 8 | data[at++];
        if (len > size - at)
            break;
        read_unit(d, data + at, len, p);
        at += len;
    }
    p->other = p->other || at < size;
}

/* The parameter sets of avcC: their number, and a length of two bytes before each. */
static void read_avcc(struct disposable *d, const uint8_t *data, size_t size)
{
    struct picture ignored = { 0 };
    size_t at = 5;

    d->length_bytes = (data[4] & 3) + 1;
    for (int kind = 0; kind < 2; kind++) {
        int n = at < size ? data[at++] & (kind ? 255 : 31) : 0;
        for (; n > 0 && size - at >= 2; n--) {
            size_t len = (size_t)data[at] << 8 | data[at + 1];
            at += 2;
            if (len > size - at)
                return;
            read_unit(d, data + at, len, &ignored);
            at += len;
        }
    }
}

void disposable_begin(struct disposable *d, const uint8_t *extradata, size_t size)
{
    struct picture ignored = { 0 };

    *d = (struct disposable){ 0 };
    if (extradata && size > 6 && extradata[0] == 1)
        read_avcc(d, extradata, size);
    else if (extradata)
        read_stream(d, extradata, size, &ignored);
}

bool disposable_next(struct disposable *d, const uint8_t *data, size_t size)
{
    struct picture p = { .number = -1 };
    bool before;

    if (d->length_bytes)
        read_lengths(d, data, size, &p);
    else
        read_stream(d, data, size, &p);
    before = d->pending && (p.idr || (p.number >= 0 && p.number == d->number));
    d->pending = p.number >= 0 && p.firsts == 1 && !p.reference && !p.idr && !p.other;
    d->number = p.number;
    return before;
}
