/* One text for each run of a video, from the numbers of its frames. */
#include "engine/captions.h"

#include "base/mem.h"
#include "format/family.h"

enum pv_status captions_make(struct captions *out, const struct loaded_media *s,
                             struct pv_error *err)
{
    const struct media *m = &s->m;
    int n = m->n_rows / m->run_rows;
    size_t size = (size_t)n * (sizeof *out->text + sizeof *out->list);
    *out = (struct captions){ 0 };
    if (!m->family->media->caption || !m->video)
        return PV_OK;
    out->text = mem_alloc((size_t)n * sizeof *out->text);
    out->list = mem_alloc((size_t)n * sizeof *out->list);
    if (!out->text || !out->list)
        return fail_nomem(err, size);
    for (int i = 0; i < n; i++) {
        m->family->media->caption(out->text[i], s->index, s->n_frames, s->info.fps, i);
        out->list[i] = out->text[i];
    }
    return PV_OK;
}

void captions_clear(struct captions *c)
{
    mem_free(c->text);
    mem_free(c->list);
    *c = (struct captions){ 0 };
}
