/* A RIFF header of 58 bytes, then the floats. */
#include "base/wav.h"

#include "base/file.h"
#include "base/load.h"

#include <string.h>

enum { WAV_HEADER = 58, WAV_FLOAT = 3 };

static void wav_header(uint8_t to[WAV_HEADER], uint32_t rate, uint32_t n)
{
    const uint32_t size = sizeof(float), bytes = n * size;

    memset(to, 0, WAV_HEADER);
    memcpy(to, "RIFF", 4);
    store_le32(to + 4, WAV_HEADER - 8 + bytes);
    memcpy(to + 8, "WAVEfmt ", 8);
    store_le32(to + 16, 18); /* bytes of this part */
    store_le16(to + 20, WAV_FLOAT);
    store_le16(to + 22, 1); /* channel */
    store_le32(to + 24, rate);
    store_le32(to + 28, rate * size);
    store_le16(to + 32, (uint16_t)size);
    store_le16(to + 34, (uint16_t)(8 * size));
    memcpy(to + 38, "fact", 4);
    store_le32(to + 42, 4);
    store_le32(to + 46, n);
    memcpy(to + 50, "data", 4);
    store_le32(to + 54, bytes);
}

enum pv_status wav_write(const char *path, int rate, const float *samples, size_t n,
                         struct pv_error *err)
{
    uint8_t header[WAV_HEADER];
    struct file_out out;
    enum pv_status s;

    if (n > (UINT32_MAX - WAV_HEADER) / sizeof *samples)
        return fail(err, PV_E_LIMIT, "%s: a WAV file cannot hold %zu samples", path, n);
    s = file_out_open(&out, path, err);
    if (s)
        return s;
    wav_header(header, (uint32_t)rate, (uint32_t)n);
    s = file_out_write(&out, header, sizeof header, err);
    if (!s && n > 0)
        s = file_out_write(&out, samples, n * sizeof *samples, err);
    if (!s)
        return file_out_commit(&out, err);
    file_out_abandon(&out);
    return s;
}
