/* "decoding 12/32 frames", "reading 1536/6281 tokens 24 %". A new line replaces the old one after
 * a carriage return and is padded with blanks, so any terminal will do. It appears only when a
 * phase lasts: what is over within a tenth of a second is not announced. */
#include "progress.h"

#include "base/clock.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL 0.1 /* seconds between two lines */

enum { LINE_SIZE = 256 };

/* Written by a signal's handler, read by any thread; lock-free where prevue runs. */
static atomic_int signal_seen; /* the last one */
/* So many more are only noted, for whoever asks; the next ends the program. */
static atomic_int signals_left, signals_allowed;

static void on_signal(int sig)
{
    if (signals_left == 0)
        _exit(128 + sig);
    signals_left--;
    signal_seen = sig;
}

void exit_on_interrupt(void)
{
    struct sigaction sa = { .sa_handler = on_signal };
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

void catch_interrupt(void)
{
    catch_interrupts(2);
}

void catch_interrupts(int n)
{
    signals_allowed = n - 1;
    clear_interrupt();
}

void clear_interrupt(void)
{
    signal_seen = 0;
    signals_left = signals_allowed;
}

bool interrupt_is_ctrl_c(void)
{
    return signal_seen == SIGINT;
}

int interrupted(void)
{
    int seen = signal_seen;
    return seen ? 128 + seen : 0;
}

void progress_init(struct progress *p)
{
    *p = (struct progress){
        .terminal = isatty(STDERR_FILENO) == 1, .last = clock_now(), .video = 1, .of_n = 1
    };
}

void progress_clear(struct progress *p)
{
    if (p->shown)
        fprintf(stderr, "\r%*s\r", p->shown, "");
    p->shown = 0;
    p->last = clock_now();
}

/* Over what was there before. */
static void show(struct progress *p, const char *line)
{
    int n = (int)strlen(line);
    fprintf(stderr, "\r%-*s", p->shown, line);
    p->shown = n > p->shown ? n : p->shown;
    p->last = clock_now();
}

void progress_say(struct progress *p, const char *fmt, ...)
{
    char line[LINE_SIZE];
    va_list ap;
    if (!p->terminal || clock_now() - p->last < INTERVAL)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    show(p, line);
}

void progress_stage(struct progress *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->stage, sizeof p->stage, fmt, ap);
    va_end(ap);
    if (p->terminal)
        show(p, p->stage);
}

/* A phase is over. */
static void end_phase(struct progress *p)
{
    progress_clear(p);
    if (p->stage[0])
        show(p, p->stage);
}

bool progress_step(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    struct progress *p = user;
    char line[LINE_SIZE];
    int n = 0;

    /* A drafter may begin to read in the middle of an answer, which a line would cover. */
    if (!p->terminal || phase == PV_PHASE_DRAFT_PREFILL)
        return !interrupted();
    if (done >= total) {
        end_phase(p);
    } else if (clock_now() - p->last >= INTERVAL) {
        if (p->stage[0])
            n = snprintf(line, sizeof line, "%s: ", p->stage);
        else if (phase == PV_PHASE_VIDEO && p->of_n > 1)
            n = snprintf(line, sizeof line, "video %d of %d: ", p->video, p->of_n);
        if (phase == PV_PHASE_VIDEO)
            snprintf(line + n, sizeof line - (size_t)n, "decoding %lld/%lld frames",
                     (long long)done, (long long)total);
        else if (phase == PV_PHASE_CONVERT)
            snprintf(line + n, sizeof line - (size_t)n, "converting %.60s: %.1f/%.1f MiB %.0f %%",
                     p->name ? p->name : "", (double)done / (1 << 20), (double)total / (1 << 20),
                     100.0 * (double)done / (double)total);
        else
            snprintf(line + n, sizeof line - (size_t)n, "reading %lld/%lld tokens %.0f %%",
                     (long long)done, (long long)total, 100.0 * (double)done / (double)total);
        show(p, line);
    }
    return !interrupted();
}
