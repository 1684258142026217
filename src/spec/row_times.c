/* Times of passes: between two measured numbers of rows on the line through them, beyond the last
 * on the line from one row, and with a single measurement by a guess of what a row costs. */
#include "spec/row_times.h"

static const double row_cost = 0.1; /* of a single row's time, for each row more */

double row_times_at(const double *by_rows, int max, int rows)
{
    int below = rows, above = rows;
    if (by_rows[rows] > 0)
        return by_rows[rows];
    while (below > 0 && by_rows[below] == 0)
        below--;
    while (above < max && by_rows[above] == 0)
        above++;
    if (below > 0 && by_rows[above] > 0) {
        double share = (double)(rows - below) / (above - below);
        return by_rows[below] + share * (by_rows[above] - by_rows[below]);
    }
    if (below > 1 && by_rows[1] > 0) {
        double slope = (by_rows[below] - by_rows[1]) / (below - 1);
        return by_rows[below] + (slope > 0 ? slope : 0) * (rows - below);
    }
    if (below > 0)
        return by_rows[below] * (1 + row_cost * rows) / (1 + row_cost * below);
    return by_rows[above] * (1 + row_cost * rows) / (1 + row_cost * above);
}
