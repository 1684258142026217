/* Computes the texts from the numbers of a video's frames. */
#include "engine/captions.h"

#include "base/mem.h"
#include "format/family.h"

enum { NOTE_LIMIT = 1 << 16 }; /* bytes of a text after a video */

enum pv_status captions_make(struct captions *out, const struct loaded_media *s,
                             struct pv_error *err)
{
    const struct media *m = &s->m;
    int n = m->n_rows / m->run_rows;
    size_t size = (size_t)n * (sizeof *out->text + sizeof *out->list);
    *out = (struct captions){ 0 };
    buf_init(&out->note, NOTE_LIMIT);
    if (m->family->media->note && m->video) {
        m->family->media->note(&out->note, s->index, s->n_frames, s->info.fps, s->info.duration);
        if (out->note.failed)
            return fail_nomem(err, NOTE_LIMIT);
    }
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
    buf_clear(&c->note);
    *c = (struct captions){ 0 };
}
