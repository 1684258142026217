/* Functions that all devices share. */
#include "tensor/device.h"

enum pv_status device_alloc(struct device *dev, void **out, size_t size, struct pv_error *err)
{
    size_t left, all;
    *out = dev->ops->alloc(dev, size);
    if (*out)
        return PV_OK;
    dev->ops->room(dev, &left, &all);
    if (all == 0)
        return fail_nomem(err, size);
    return fail(err, PV_E_NOMEM,
                "not enough memory for %zu bytes on %s: %zu of its %zu bytes are free", size,
                dev->ops->name, left, all);
}

enum pv_status device_stopped(struct pv_error *err)
{
    return fail(err, PV_E_CANCELLED, "stopped while weights were read");
}

void device_close(struct device **dev)
{
    if (*dev)
        (*dev)->ops->close(dev);
}
