/* The windows of a vision tower: in which order the merged units of a slice run, so that the
 * units of one window lie side by side. */
#ifndef PV_VISION_WINDOWS_H
#define PV_VISION_WINDOWS_H

/* Windows of side x side units that a grid of rows x cols units is cut into from its upper left
 * corner; those at the right and at the bottom may be smaller. */
int windows_count(int rows, int cols, int side);

/* order [rows * cols]: the unit (row-major) that comes at each place, window by window, row-major
 * inside each. bounds [windows_count + 1]: the places where windows begin, and the end. */
void windows_order(int *order, int *bounds, int rows, int cols, int side);

#endif
