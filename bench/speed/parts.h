/* Where the time of a device goes: its table of operations with a clock around each. */
#ifndef PV_BENCH_SPEED_PARTS_H
#define PV_BENCH_SPEED_PARTS_H

#include "tensor/device.h"

enum { PARTS = 10 };

struct part {
    const char *name;
    double seconds;
};

/* Puts the clocks into the table of `dev` (one device at a time). */
void parts_begin(struct device *dev);
void parts_reset(void);
/* Seconds since the last reset. */
const struct part *parts_now(void);

#endif
