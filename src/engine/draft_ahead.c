/* In the serial schedule, the drafter prefills its prompt after the target's prefill. But only the
 * decoder's part of that needs the view: the drafter's tower can run earlier. On one GPU the tower
 * and the target's prefill share the multiprocessors and fill each other's gaps. */
#include "engine/draft_ahead.h"

#include "base/mem.h"
#include "base/thread.h"
#include "engine/draft_read.h"

#include <stdatomic.h>

struct draft_ahead {
    struct speculation *sp;
    pthread_t thread;
    atomic_bool stop;
};

bool draft_ahead_possible(const struct speculation *sp)
{
    const struct drafting *d = &sp->s->draft;
    return sp->media == DRAFT_MEDIA_OWN && d->model->gpu >= 0 && view_find(sp->view)->info.videos;
}

static bool go_on(void *user, int done, int total)
{
    (void)done, (void)total;
    return !atomic_load(&((struct draft_ahead *)user)->stop);
}

static void *run_tower(void *arg)
{
    struct draft_ahead *a = arg;
    struct draft_reading reading = { .go_on = go_on, .user = a };
    (void)draft_read_ahead(a->sp, &reading, NULL);
    return NULL;
}

void draft_ahead_start(struct speculation *sp)
{
    struct draft_ahead *a;
    if (!draft_ahead_possible(sp) || !task_alone(sp->s->task))
        return;
    a = mem_zalloc(sizeof *a);
    if (!a)
        return;
    a->sp = sp;
    atomic_init(&a->stop, false);
    drafting_make_ahead(&sp->s->draft, &sp->s->seq.line);
    if (thread_start(&a->thread, run_tower, a))
        sp->ahead = a;
    else
        mem_free(a);
}

void draft_ahead_join(struct speculation *sp, bool stop)
{
    if (!sp->ahead)
        return;
    atomic_store(&sp->ahead->stop, stop);
    pthread_join(sp->ahead->thread, NULL);
    mem_free(sp->ahead);
    sp->ahead = NULL;
}
