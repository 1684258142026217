/* The attention windows of a vision tower: the order in which the units (merged tokens) of a slice
 * are processed, so that the units of one window are contiguous. */
#ifndef PV_VISION_WINDOWS_H
#define PV_VISION_WINDOWS_H

/* Windows of side x side units that a grid of rows x cols units is cut into from its upper left
 * corner; those at the right and at the bottom may be smaller. */
int windows_count(int rows, int cols, int side);

/* order [rows * cols]: the unit (row-major number) at each place, window by window, row-major
 * inside each. bounds [windows_count + 1]: the first place of each window, and the end. */
void windows_order(int *order, int *bounds, int rows, int cols, int side);

#endif
