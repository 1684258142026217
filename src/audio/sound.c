/* A growing row of samples, and its WAV file: a RIFF header of 58 bytes, then the floats. */
#include "audio/sound.h"

#include "base/file.h"
#include "base/load.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { WAV_HEADER = 58, WAV_FLOAT = 3, CAP_FIRST = 1 << 14 };

static enum pv_status make_room(struct sound *s, size_t n, struct pv_error *err)
{
    size_t need = 0, bytes = 0, cap = s->cap ? s->cap : CAP_FIRST;
    float *samples;

    if (!add_size(s->n, n, &need) || !mul_size(need, 2 * sizeof *s->samples, &bytes))
        return fail_nomem(err, SIZE_MAX);
    if (need <= s->cap)
        return PV_OK;
    while (cap < need)
        cap += cap / 2;
    samples = mem_realloc(s->samples, cap * sizeof *samples);
    if (!samples)
        return fail_nomem(err, cap * sizeof *samples);
    s->samples = samples;
    s->cap = cap;
    return PV_OK;
}

enum pv_status sound_append(struct sound *s, const float *samples, size_t n, struct pv_error *err)
{
    enum pv_status st = n > 0 ? make_room(s, n, err) : PV_OK;

    if (st || n == 0)
        return st;
    for (size_t i = 0; i < n; i++)
        s->samples[s->n + i] = samples && isfinite(samples[i]) ? samples[i] : 0;
    s->n += n;
    return PV_OK;
}

void sound_clear(struct sound *s)
{
    mem_free(s->samples);
    *s = (struct sound){ 0 };
}

static void wav_header(uint8_t to[WAV_HEADER], uint32_t n)
{
    const uint32_t size = sizeof(float), bytes = n * size;

    memset(to, 0, WAV_HEADER);
    memcpy(to, "RIFF", 4);
    store_le32(to + 4, WAV_HEADER - 8 + bytes);
    memcpy(to + 8, "WAVEfmt ", 8);
    store_le32(to + 16, 18); /* bytes of this part */
    store_le16(to + 20, WAV_FLOAT);
    store_le16(to + 22, 1); /* channel */
    store_le32(to + 24, SOUND_RATE);
    store_le32(to + 28, SOUND_RATE * size);
    store_le16(to + 32, (uint16_t)size);
    store_le16(to + 34, (uint16_t)(8 * size));
    memcpy(to + 38, "fact", 4);
    store_le32(to + 42, 4);
    store_le32(to + 46, n);
    memcpy(to + 50, "data", 4);
    store_le32(to + 54, bytes);
}

enum pv_status sound_write_wav(const struct sound *s, const char *path, struct pv_error *err)
{
    uint8_t header[WAV_HEADER];
    struct file_out out;
    enum pv_status st;

    if (s->n > (UINT32_MAX - WAV_HEADER) / sizeof *s->samples)
        return fail(err, PV_E_LIMIT, "%s: a WAV file cannot hold %zu samples", path, s->n);
    st = file_out_open(&out, path, err);
    if (st)
        return st;
    wav_header(header, (uint32_t)s->n);
    st = file_out_write(&out, header, sizeof header, err);
    if (!st && s->n)
        st = file_out_write(&out, s->samples, s->n * sizeof *s->samples, err);
    if (!st)
        return file_out_commit(&out, err);
    file_out_abandon(&out);
    return st;
}
