/* Identities. Weights are identified by a digest of all their bytes. Computing it in every process
 * would take longer than the cache saves for a short clip, so the directory remembers it together
 * with the files' stamps (device, inode, size, times of change). A file that was changed a moment
 * ago might change again without a new stamp: its digest is used, but not remembered.
 *
 * Bits of results also depend on the code that computed them: on the build of this library, the CPU
 * features in use, those by which the C library chooses its mathematical functions, and on a GPU on
 * its driver and on cuBLASLt. */
#include "engine/disk_identity.h"

#include "base/build_id.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/pool.h"
#include "format/family.h"
#include "video/video.h"

#include <string.h>
#include <time.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

static const int64_t settled_ns = 10 * INT64_C(1000000000);

/* ---- weights ---- */

/* Digests of tensors, computed by several threads. */
struct tensor_digests {
    const struct model_file *file;
    int n;
    uint8_t (*digest)[DIGEST_SIZE]; /* [n] */
};

static void digest_tensor(const struct tensor *t, uint8_t out[DIGEST_SIZE])
{
    int64_t shape[TENSOR_DIMS + 2] = { (int64_t)t->dtype, t->n_dims };
    struct digest d;
    memcpy(shape + 2, t->dim, sizeof t->dim);
    digest_init(&d);
    digest_add(&d, t->name, strlen(t->name) + 1);
    digest_add(&d, shape, sizeof shape);
    digest_add(&d, t->data, t->size);
    digest_finish(&d, out);
}

static void digest_share(void *ctx, int thread, int n_threads)
{
    const struct tensor_digests *t = ctx;
    for (int i = thread; i < t->n; i += n_threads)
        digest_tensor(model_file_tensor(t->file, i), t->digest[i]);
}

static enum pv_status digest_weights(const struct pv_model *m, uint8_t out[DIGEST_SIZE],
                                     struct pv_error *err)
{
    struct tensor_digests t = { .file = m->file, .n = model_file_n_tensors(m->file) };
    size_t size = (size_t)t.n * sizeof *t.digest;
    struct pool *pool = NULL;
    struct digest d;
    enum pv_status s;
    t.digest = mem_alloc(size);
    s = t.digest ? pool_open(&pool, m->threads, err) : fail_nomem(err, size);
    if (!s) {
        pool_run(pool, digest_share, &t);
        digest_init(&d);
        digest_add(&d, t.digest, size);
        digest_finish(&d, out);
    }
    pool_close(&pool);
    mem_free(t.digest);
    return s;
}

/* A key for a model's files in their present state. Returns false if they changed too recently. */
static bool stamp_key(const struct model_file *mf, uint8_t key[DIGEST_SIZE])
{
    struct timespec now;
    int64_t newest = 0;
    struct digest d;
    digest_init(&d);
    for (int i = 0; i < model_file_n_files(mf); i++) {
        const struct file_stamp *f = model_file_stamp(mf, i);
        int64_t last = f->modified_ns > f->changed_ns ? f->modified_ns : f->changed_ns;
        digest_add(&d, f, sizeof *f);
        newest = last > newest ? last : newest;
    }
    digest_finish(&d, key);
    clock_gettime(CLOCK_REALTIME, &now);
    return newest + settled_ns < (int64_t)now.tv_sec * 1000000000;
}

static enum pv_status find_weights(struct disk_cache *c, const struct pv_model *m,
                                   uint8_t out[DIGEST_SIZE], struct pv_error *err)
{
    uint8_t key[DIGEST_SIZE];
    struct disk_entry e = { 0 };
    bool settled = stamp_key(m->file, key);
    bool known = settled && disk_cache_find(c, DISK_MODEL, key, DIGEST_SIZE, &e);
    enum pv_status s = PV_OK;
    if (known)
        memcpy(out, e.data, DIGEST_SIZE);
    else
        s = digest_weights(m, out, err);
    if (!s && settled && !known)
        disk_cache_keep(c, DISK_MODEL, key, out, DIGEST_SIZE);
    disk_entry_clear(&e);
    return s;
}

/* ---- all of it ---- */

static void add_text(struct digest *d, const char *text)
{
    digest_add(d, text, strlen(text) + 1);
}

/* Families are identified by name, because the addresses of their tables differ between processes.
 * Padding between the members of these structs might differ, which would at worst cause a cache
 * miss. */
static void add_configs(struct digest *d, const struct model_file *mf)
{
    struct config c = *model_file_config(mf);
    struct vision_config v = *model_file_vision(mf);
    add_text(d, c.family->name);
    add_text(d, v.family ? v.family->name : "");
    c.family = v.family = NULL;
    digest_add(d, &c, sizeof c);
    digest_add(d, &v, sizeof v);
}

static void make_ids(struct engine_disk *d, const struct pv_model *m, enum dtype kv,
                     const uint8_t *weights)
{
    const uint64_t cpu[2] = { m->cpu, cpu_flags() };
    const int32_t page[2] = { (int32_t)kv, KV_CHUNK };
    struct digest rows, pages;
    digest_init(&rows);
    add_text(&rows, build_id());
#ifdef __GLIBC__
    add_text(&rows, gnu_get_libc_version());
#endif
    add_text(&rows, m->dev->ops->name);
    digest_add(&rows, cpu, sizeof cpu);
    add_text(&rows, m->dev->identity ? m->dev->identity : "");
    add_text(&rows, m->dev->drawn > 0 ? "drawn weights" : ""); /* random, not from the file */
    add_text(&rows, m->tower_cast ? "tower q8_0" : "");
    add_configs(&rows, m->file);
    digest_add(&rows, weights, DIGEST_SIZE);
    pages = rows;
    add_text(&rows, "rows");
    digest_finish(&rows, d->rows_id);
    add_text(&pages, "pages");
    digest_add(&pages, page, sizeof page);
    digest_finish(&pages, d->pages_id);
}

enum pv_status engine_disk_open(struct engine_disk *d, const struct pv_cache_params *p,
                                const struct pv_model *m, enum dtype kv, struct pv_error *err)
{
    struct disk_cache_params cp = {
        .dir = p->dir, .limit = p->bytes, .warn = p->warn, .user = p->user
    };
    uint8_t weights[DIGEST_SIZE];
    enum pv_status s;
    if (!p->dir && (p->kv || p->bytes))
        return fail(err, PV_E_ARG, "a cache on disk needs a directory, and none was given");
    if (!p->dir)
        return PV_OK;
    if (p->kv && m->spread)
        return fail(err, PV_E_UNSUPPORTED,
                    "the KV cache of a model that is spread over ranks cannot be kept on disk");
    s = disk_cache_open(&d->cache, &cp, err);
    if (!s)
        s = find_weights(d->cache, m, weights, err);
    if (s) {
        engine_disk_close(d);
        return s;
    }
    d->kv = p->kv;
    if (m->vision)
        video_decoder_version(NULL, d->decoder, sizeof d->decoder);
    make_ids(d, m, kv, weights);
    return PV_OK;
}

void engine_disk_close(struct engine_disk *d)
{
    disk_entry_clear(&d->unit);
    disk_cache_close(&d->cache);
}
