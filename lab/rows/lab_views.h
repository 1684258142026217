/* The functions of the laboratory's views. */
#ifndef PV_LAB_ROWS_LAB_VIEWS_H
#define PV_LAB_ROWS_LAB_VIEWS_H

#include "spec/view_parts.h"

view_fn view_window_front, view_window_middle, view_window_back, view_frame, view_fastvid,
    view_fastvid_exact, view_dycoke, view_dycoke_exact, view_specvlm_grid;

#endif
