/* Windows are taken row by row. The reference pads the grid to whole windows and drops the padding
 * again, also a whole row or column of windows when nothing was missing; cutting at the border
 * gives the same order without it. */
#include "vision/windows.h"

#include "base/minmax.h"

int windows_count(int rows, int cols, int side)
{
    return ((rows + side - 1) / side) * ((cols + side - 1) / side);
}

void windows_order(int *order, int *bounds, int rows, int cols, int side)
{
    int place = 0, window = 0;
    for (int y0 = 0; y0 < rows; y0 += side)
        for (int x0 = 0; x0 < cols; x0 += side) {
            int y1 = min_int(rows, y0 + side), x1 = min_int(cols, x0 + side);
            bounds[window++] = place;
            for (int y = y0; y < y1; y++)
                for (int x = x0; x < x1; x++)
                    order[place++] = y * cols + x;
        }
    bounds[window] = place;
}
