/* The entry of a file holds the numbers that struct media is planned from, and the digest of its
 * pixels; not the pixels themselves, which are larger than the file and can be decoded again. */
#include "engine/disk_media.h"

#include "base/load.h"

#include <string.h>

/* ---- rows ---- */

static void unit_key(const struct engine_disk *d, const struct media *m, int unit,
                     uint8_t key[DIGEST_SIZE])
{
    const int32_t number = unit;
    struct digest k;
    digest_init(&k);
    digest_add(&k, d->rows_id, sizeof d->rows_id);
    digest_add(&k, m->digest, sizeof m->digest);
    digest_add(&k, &number, sizeof number);
    digest_finish(&k, key);
}

static size_t unit_size(const struct media_unit *unit, size_t hidden)
{
    return (size_t)unit->n * hidden * sizeof(float);
}

const float *disk_rows_find(struct engine_disk *d, const struct media *m,
                            const struct media_unit *unit, size_t hidden)
{
    uint8_t key[DIGEST_SIZE];
    unit_key(d, m, unit->number, key);
    if (!d->unit.data || memcmp(key, d->unit_key, DIGEST_SIZE) != 0) {
        d->unit.data = NULL;
        if (!disk_cache_find(d->cache, DISK_ROWS, key, unit_size(unit, hidden), &d->unit))
            return NULL;
        memcpy(d->unit_key, key, DIGEST_SIZE);
    }
    return (const float *)(const void *)d->unit.data;
}

bool disk_rows_there(struct engine_disk *d, const struct media *m, int unit)
{
    uint8_t key[DIGEST_SIZE];
    unit_key(d, m, unit, key);
    return disk_cache_has(d->cache, DISK_ROWS, key);
}

void disk_rows_keep(struct engine_disk *d, const struct media *m, const struct media_unit *unit,
                    const float *rows, size_t hidden)
{
    uint8_t key[DIGEST_SIZE];
    unit_key(d, m, unit->number, key);
    disk_cache_keep(d->cache, DISK_ROWS, key, rows, unit_size(unit, hidden));
}

/* ---- files ---- */

/* Numbers of an entry, eight bytes each, before the digest. */
enum {
    AT_WIDTH,
    AT_HEIGHT,
    AT_TOTAL,
    AT_FPS,
    AT_DURATION,
    AT_FRAMES,
    AT_LOST,
    AT_SAMPLE_FPS,
    AT_CUT,
    AT_STILL,
    AT_CHUNKS, /* chunks of sound */
    NUMBERS,
    ENTRY_SIZE = 8 * NUMBERS + DIGEST_SIZE
};

/* The model's identity covers how its family chooses and sizes frames. */
static void file_key(const struct engine_disk *d, const uint8_t *item, uint8_t key[DIGEST_SIZE])
{
    struct digest k;
    digest_init(&k);
    digest_add(&k, d->rows_id, sizeof d->rows_id);
    digest_add(&k, item, DIGEST_SIZE);
    digest_add(&k, d->decoder, strlen(d->decoder));
    digest_finish(&k, key);
}

static void put_real(uint8_t *p, double v)
{
    memcpy(p, &v, sizeof v);
}

static double real_at(const uint8_t *p)
{
    double v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void write_known(uint8_t e[ENTRY_SIZE], const struct loaded_media *s)
{
    const struct pv_video_info *i = &s->info;
    store_le64(e + (size_t)8 * AT_WIDTH, (uint64_t)i->width);
    store_le64(e + (size_t)8 * AT_HEIGHT, (uint64_t)i->height);
    store_le64(e + (size_t)8 * AT_TOTAL, (uint64_t)i->total_frames);
    put_real(e + (size_t)8 * AT_FPS, i->fps);
    put_real(e + (size_t)8 * AT_DURATION, i->duration);
    store_le64(e + (size_t)8 * AT_FRAMES, (uint64_t)i->frames);
    store_le64(e + (size_t)8 * AT_LOST, (uint64_t)i->lost);
    put_real(e + (size_t)8 * AT_SAMPLE_FPS, i->sample_fps);
    store_le64(e + (size_t)8 * AT_CUT, (uint64_t)i->cut);
    store_le64(e + (size_t)8 * AT_STILL, !s->m.video);
    store_le64(e + (size_t)8 * AT_CHUNKS, (uint64_t)s->m.sound.n_chunks);
    memcpy(e + (size_t)8 * NUMBERS, s->m.digest, DIGEST_SIZE);
}

static void read_known(struct known_media *k, const uint8_t e[ENTRY_SIZE])
{
    k->info = (struct pv_video_info){ .width = (int)load_le64(e + (size_t)8 * AT_WIDTH),
                                      .height = (int)load_le64(e + (size_t)8 * AT_HEIGHT),
                                      .total_frames = (int64_t)load_le64(e + (size_t)8 * AT_TOTAL),
                                      .fps = real_at(e + (size_t)8 * AT_FPS),
                                      .duration = real_at(e + (size_t)8 * AT_DURATION),
                                      .frames = (int)load_le64(e + (size_t)8 * AT_FRAMES),
                                      .lost = (int)load_le64(e + (size_t)8 * AT_LOST),
                                      .sample_fps = real_at(e + (size_t)8 * AT_SAMPLE_FPS),
                                      .cut = (int64_t)load_le64(e + (size_t)8 * AT_CUT) };
    k->still = load_le64(e + (size_t)8 * AT_STILL) != 0;
    k->n_chunks = (int)load_le64(e + (size_t)8 * AT_CHUNKS);
    memcpy(k->digest, e + (size_t)8 * NUMBERS, DIGEST_SIZE);
}

static bool has_all_rows(struct engine_disk *d, const struct media *m)
{
    for (int unit = 0; unit < media_units(m); unit++)
        if (!disk_rows_there(d, m, unit))
            return false;
    return true;
}

bool disk_media_find(struct engine_disk *d, struct loaded_media *out, const uint8_t *item,
                     const struct vision_config *c, const struct video_source *from,
                     const struct pv_video_params *p, const struct load_bounds *b)
{
    struct disk_entry e = { 0 };
    struct known_media known;
    uint8_t key[DIGEST_SIZE];
    bool found;
    if (!d->cache)
        return false;
    file_key(d, item, key);
    found = disk_cache_find(d->cache, DISK_MEDIA, key, ENTRY_SIZE, &e);
    if (found)
        read_known(&known, e.data);
    disk_entry_clear(&e);
    /* If it does not fit, media_load_file reports that itself. */
    if (!found || media_load_known(out, c, from, &known, p, b, NULL))
        return false;
    if (has_all_rows(d, &out->m))
        return true;
    loaded_media_clear(out);
    return false;
}

void disk_media_keep(struct engine_disk *d, const uint8_t *item, const struct loaded_media *s)
{
    uint8_t key[DIGEST_SIZE], entry[ENTRY_SIZE];
    if (!d->cache || s->source)
        return;
    file_key(d, item, key);
    write_known(entry, s);
    disk_cache_keep(d->cache, DISK_MEDIA, key, entry, sizeof entry);
}
