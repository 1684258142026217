/* A PNG writer: signature, IHDR, IDAT chunks as zlib hands them out, IEND (PNG specification, third
 * edition, 5 and 9). A chunk is its length, its type, its bytes and the CRC of the last two;
 * numbers are big-endian. Each row is filtered by whichever of the five filters leaves the smallest
 * sum of absolute differences, the specification's own advice (12.7): photographs shrink by half.
 */
#include "base/png.h"

#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    BYTES = 3,
    N_FILTERS = 5,
    OUT_SIZE = 1 << 16,
    COMPRESSION = 2 /* of filtered rows: nearly as small as by the default, in half the time */
};

struct png {
    struct file_out file; /* where the bytes go, unless */
    struct buf *memory;   /* is not NULL */
    z_stream z;
    uint8_t *rows[N_FILTERS]; /* a row under each filter: its number, then width * 3 bytes */
    uint8_t *out;             /* [OUT_SIZE], what becomes one IDAT chunk */
    size_t row_size;
    int (*stop)(void); /* or NULL */
    struct pv_error *err;
};

static void store_be32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static enum pv_status put(struct png *p, const void *data, size_t len)
{
    if (!p->memory)
        return file_out_write(&p->file, data, len, p->err);
    if (!buf_add(p->memory, data, len))
        return fail(p->err, PV_E_NOMEM, "out of memory for a PNG of more than %zu bytes",
                    p->memory->len);
    return PV_OK;
}

static enum pv_status write_chunk(struct png *p, const char *type, const uint8_t *data, size_t len)
{
    uLong crc = crc32(0, (const Bytef *)type, 4);
    uint8_t head[8], tail[4];
    enum pv_status s;

    store_be32(head, (uint32_t)len);
    memcpy(head + 4, type, 4);
    if (len)
        crc = crc32(crc, data, (uInt)len);
    store_be32(tail, (uint32_t)crc);
    s = put(p, head, sizeof head);
    if (!s)
        s = put(p, data, len);
    return s ? s : put(p, tail, sizeof tail);
}

static uint8_t paeth(int left, int up, int corner)
{
    int estimate = left + up - corner;
    int dl = abs(estimate - left), du = abs(estimate - up), dc = abs(estimate - corner);
    return (uint8_t)(dl <= du && dl <= dc ? left : du <= dc ? up : corner);
}

/* The row under every filter; returns the one whose differences, as signed bytes, are smallest. */
static const uint8_t *filter_row(struct png *p, const uint8_t *row, const uint8_t *above)
{
    uint64_t sum[N_FILTERS] = { 0 };
    int best = 0;

    for (size_t i = 0; i < p->row_size; i++) {
        int x = row[i], left = i < BYTES ? 0 : row[i - BYTES], up = above ? above[i] : 0;
        int corner = i < BYTES || !above ? 0 : above[i - BYTES];
        uint8_t d[N_FILTERS] = { (uint8_t)x, (uint8_t)(x - left), (uint8_t)(x - up),
                                 (uint8_t)(x - (left + up) / 2),
                                 (uint8_t)(x - paeth(left, up, corner)) };
        for (int f = 0; f < N_FILTERS; f++) {
            p->rows[f][1 + i] = d[f];
            sum[f] += (uint64_t)abs((int8_t)d[f]);
        }
    }
    for (int f = 1; f < N_FILTERS; f++)
        best = sum[f] < sum[best] ? f : best;
    return p->rows[best];
}

/* Compress `len` bytes (flush Z_FINISH: and what is left), writing each full block as a chunk. */
static enum pv_status compress_bytes(struct png *p, const uint8_t *data, size_t len, int flush)
{
    int result;

    p->z.next_in = (Bytef *)(uintptr_t)data;
    p->z.avail_in = (uInt)len;
    do {
        enum pv_status s;
        result = deflate(&p->z, flush);
        if (p->z.avail_out > 0 && result != Z_STREAM_END)
            continue;
        s = write_chunk(p, "IDAT", p->out, OUT_SIZE - p->z.avail_out);
        if (s)
            return s;
        p->z.next_out = p->out;
        p->z.avail_out = OUT_SIZE;
    } while (p->z.avail_in > 0 || (flush == Z_FINISH && result != Z_STREAM_END));
    return PV_OK;
}

static enum pv_status write_picture(struct png *p, int width, int height, const uint8_t *rgb)
{
    static const uint8_t signature[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    uint8_t header[13] = { [8] = 8, [9] = 2 }; /* 8 bits, RGB */
    enum pv_status s;

    store_be32(header, (uint32_t)width);
    store_be32(header + 4, (uint32_t)height);
    s = put(p, signature, sizeof signature);
    if (!s)
        s = write_chunk(p, "IHDR", header, sizeof header);
    for (int y = 0; y < height && !s; y++) {
        const uint8_t *row = rgb + (size_t)y * p->row_size;
        const uint8_t *filtered = filter_row(p, row, y ? row - p->row_size : NULL);
        s = compress_bytes(p, filtered, p->row_size + 1, Z_NO_FLUSH);
        if (!s && p->stop && p->stop())
            s = fail(p->err, PV_E_CANCELLED, "stopped while a picture was written");
    }
    if (!s)
        s = compress_bytes(p, NULL, 0, Z_FINISH);
    return s ? s : write_chunk(p, "IEND", NULL, 0);
}

/* Scratch of one picture in one block: the filtered rows, then the compressed bytes. */
static uint8_t *open_scratch(struct png *p, int width)
{
    size_t row, total;
    uint8_t *mem = NULL;
    if (mul_size((size_t)width, BYTES, &p->row_size) && add_size(p->row_size, 1, &row) &&
        mul_size(row, N_FILTERS, &total) && add_size(total, OUT_SIZE, &total))
        mem = mem_alloc(total);
    if (!mem)
        return NULL;
    for (int f = 0; f < N_FILTERS; f++) {
        p->rows[f] = mem + (size_t)f * row;
        p->rows[f][0] = (uint8_t)f;
    }
    p->out = mem + N_FILTERS * row;
    p->z.next_out = p->out;
    p->z.avail_out = OUT_SIZE;
    return mem;
}

/* Write the picture to where p says. */
static enum pv_status encode(struct png *p, int width, int height, const uint8_t *rgb)
{
    uint8_t *scratch = open_scratch(p, width);
    enum pv_status s;

    if (!scratch)
        return fail_nomem(p->err, (size_t)width * BYTES * N_FILTERS + OUT_SIZE);
    if (deflateInit(&p->z, COMPRESSION) != Z_OK) {
        s = fail(p->err, PV_E_NOMEM, "zlib could not be started: %s",
                 p->z.msg ? p->z.msg : "out of memory");
    } else {
        s = write_picture(p, width, height, rgb);
        deflateEnd(&p->z);
    }
    mem_free(scratch);
    return s;
}

enum pv_status png_encode(struct buf *out, int width, int height, const uint8_t *rgb,
                          struct pv_error *err)
{
    struct png p = { .memory = out, .err = err };
    return encode(&p, width, height, rgb);
}

enum pv_status png_write(const char *path, int width, int height, const uint8_t *rgb,
                         int (*stop)(void), struct pv_error *err)
{
    struct png p = { .stop = stop, .err = err };
    enum pv_status s = file_out_open(&p.file, path, err);
    if (s)
        return s;
    s = encode(&p, width, height, rgb);
    if (s)
        file_out_abandon(&p.file);
    else
        s = file_out_commit(&p.file, err);
    return s;
}

void png_version(char *out, size_t size)
{
    snprintf(out, size, "%s", zlibVersion());
}
