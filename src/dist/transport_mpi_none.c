/* Takes the place of transport_mpi.c in builds without MPI. */
#include "dist/transport.h"

enum pv_status transport_mpi(struct transport **out, struct pv_error *err)
{
    (void)out;
    return fail(err, PV_E_UNSUPPORTED,
                "this prevue was built without MPI and cannot be started by mpirun (make MPI=1; "
                "--ranks N starts N ranks on one machine without it)");
}
