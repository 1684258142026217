/* Ranks are started when the options are known and nothing else has begun: no thread runs yet. They
 * end with this process. */
#include "start_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static pv_ranks *ranks;

static void end_ranks(void)
{
    pv_ranks_close(&ranks);
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
static int follow(void)
{
    struct pv_error err = { 0 };
    enum pv_status s;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    s = pv_ranks_follow(ranks, &err);
    if (s && err.text[0])
        report("%s", err.text);
    pv_ranks_close(&ranks);
    return s ? EXIT_FAILED : 0;
}

int start_ranks(int n, const char *command, pv_ranks **out)
{
    struct pv_error err = { 0 };
    int started = ranks_of_mpirun();
    *out = ranks;
    if (ranks || (n <= 1 && started <= 1))
        return OPTIONS_RUN;
    if (n > 1 && started > 1)
        return options_misuse(
            command, "--ranks starts processes, and mpirun has started %d already", started);
    if (pv_ranks_start(&ranks, started > 1 ? 0 : n, &err))
        return report("%s", err.text);
    if (pv_ranks_rank(ranks) > 0)
        _exit(follow());
    atexit(end_ranks);
    *out = ranks;
    return OPTIONS_RUN;
}
