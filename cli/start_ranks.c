/* Ranks are started as soon as the options are known, before any thread is started. They end with
 * this process. */
#include "start_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static pv_ranks *ranks, *of_draft;

static void end_ranks(void)
{
    pv_ranks_close(&of_draft);
    pv_ranks_close(&ranks);
}

pv_ranks *draft_ranks(void)
{
    return of_draft;
}

/* As Open MPI and MPICH tell their processes; 0: none of them started this one. */
static int ranks_of_mpirun(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        long long n;
        if (text && parse_int(text, 1, 1 << 20, &n))
            return (int)n;
    }
    return 0;
}

/* Interrupts of the terminal are rank 0's to handle, which may want to finish what it has. */
static int follow(pv_ranks **own)
{
    struct pv_error err = { 0 };
    enum pv_status s;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    s = pv_ranks_follow(*own, &err);
    if (s && err.text[0])
        report("%s", err.text);
    pv_ranks_close(own);
    return s ? EXIT_FAILED : 0;
}

/* Rank 0 returns from here. */
static int lead(pv_ranks **own)
{
    if (pv_ranks_rank(*own) > 0)
        _exit(follow(own));
    return OPTIONS_RUN;
}

/* No thread runs yet: those of the models start when they are opened. */
static int start_draft(int n, const char *command, int started)
{
    struct pv_error err = { 0 };
    if (n == 0 || of_draft)
        return OPTIONS_RUN;
    if (started > 1)
        return options_misuse(
            command, "--draft-ranks starts processes, and mpirun has started %d already", started);
    if (pv_ranks_start_draft(&of_draft, n, &err))
        return report("%s", err.text);
    return lead(&of_draft);
}

int start_ranks(int n, int n_draft, const char *command, pv_ranks **out)
{
    struct pv_error err = { 0 };
    int started = ranks_of_mpirun(), r = OPTIONS_RUN;
    bool first = !ranks && !of_draft;
    *out = ranks;
    if (n > 1 && started > 1)
        return options_misuse(
            command, "--ranks starts processes, and mpirun has started %d already", started);
    if (!ranks && (n > 1 || started > 1)) {
        if (pv_ranks_start(&ranks, started > 1 ? 0 : n, &err))
            return report("%s", err.text);
        r = lead(&ranks);
    }
    if (r == OPTIONS_RUN)
        r = start_draft(n_draft, command, started);
    if (first && (ranks || of_draft))
        atexit(end_ranks);
    *out = ranks;
    return r;
}
