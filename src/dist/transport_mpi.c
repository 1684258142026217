/* Ranks started by mpirun. If one of them dies, mpirun notices and ends the others. MPI's sizes are
 * ints, so long messages are sent in pieces. */
#include "base/mem.h"
#include "dist/transport.h"

#include <mpi.h>

enum { PIECE = 1 << 30, TAG = 1 };

static int piece_of(size_t left)
{
    return left < PIECE ? (int)left : PIECE;
}

static enum pv_status told(int code, struct pv_error *err)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    if (code == MPI_SUCCESS)
        return PV_OK;
    MPI_Error_string(code, text, &len);
    return fail(err, PV_E_IO, "MPI: %s", text);
}

static enum pv_status mpi_bcast(struct transport *t, void *data, size_t size, struct pv_error *err)
{
    int code = MPI_SUCCESS;
    (void)t;
    for (size_t at = 0; at < size && code == MPI_SUCCESS; at += PIECE)
        code = MPI_Bcast((uint8_t *)data + at, piece_of(size - at), MPI_BYTE, 0, MPI_COMM_WORLD);
    return told(code, err);
}

static enum pv_status mpi_gather(struct transport *t, uint8_t *all, const size_t *at, int to,
                                 struct pv_error *err)
{
    int count[RANKS_MAX], from[RANKS_MAX], code;
    if (at[t->n] > PIECE)
        return fail(err, PV_E_LIMIT, "%zu bytes are too many to gather by MPI at once", at[t->n]);
    for (int r = 0; r < t->n; r++) {
        count[r] = (int)(at[r + 1] - at[r]);
        from[r] = (int)at[r];
    }
    if (to == RANKS_ALL)
        code = MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, from, MPI_BYTE,
                              MPI_COMM_WORLD);
    else if (to == t->rank)
        code = MPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, from, MPI_BYTE, to,
                           MPI_COMM_WORLD);
    else
        code = MPI_Gatherv(all + at[t->rank], count[t->rank], MPI_BYTE, NULL, NULL, NULL, MPI_BYTE,
                           to, MPI_COMM_WORLD);
    return told(code, err);
}

static enum pv_status mpi_send(struct transport *t, int to, const void *data, size_t size,
                               struct pv_error *err)
{
    int code = MPI_SUCCESS;
    (void)t;
    for (size_t at = 0; at < size && code == MPI_SUCCESS; at += PIECE)
        code = MPI_Send((const uint8_t *)data + at, piece_of(size - at), MPI_BYTE, to, TAG,
                        MPI_COMM_WORLD);
    return told(code, err);
}

static enum pv_status mpi_recv(struct transport *t, int from, void *data, size_t size,
                               struct pv_error *err)
{
    int code = MPI_SUCCESS;
    (void)t;
    for (size_t at = 0; at < size && code == MPI_SUCCESS; at += PIECE)
        code = MPI_Recv((uint8_t *)data + at, piece_of(size - at), MPI_BYTE, from, TAG,
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return told(code, err);
}

static void mpi_close(struct transport *t)
{
    if (t->broken) /* the others may wait for messages that will not come */
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    mem_free(t);
}

static const struct transport_ops mpi_ops = { .name = "MPI",
                                              .bcast = mpi_bcast,
                                              .gather = mpi_gather,
                                              .send = mpi_send,
                                              .recv = mpi_recv,
                                              .close = mpi_close };

enum pv_status transport_mpi(struct transport **out, struct pv_error *err)
{
    int level = 0, n = 0, rank = 0;
    struct transport *t = mem_zalloc(sizeof *t);
    enum pv_status s;
    if (!t)
        return fail_nomem(err, sizeof *t);
    s = told(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), err);
    if (s) {
        mem_free(t);
        return s;
    }
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    *t = (struct transport){ .ops = &mpi_ops, .rank = rank, .n = n, .lost = -1 };
    if (level < MPI_THREAD_SERIALIZED)
        s = fail(err, PV_E_UNSUPPORTED, "this MPI cannot be called by several threads in turn");
    else if (n > RANKS_MAX)
        s = fail(err, PV_E_ARG, "mpirun started %d ranks: 1 to %d are possible", n, RANKS_MAX);
    if (s)
        mpi_close(t);
    else
        *out = t;
    return s;
}
