#include "base/sized.h"

#include <string.h>

static size_t size_of(const void *theirs)
{
    size_t size;
    memcpy(&size, theirs, sizeof size);
    return size;
}

void sized_init(void *theirs, size_t room, const void *own, size_t size)
{
    memset(theirs, 0, room);
    memcpy(theirs, own, room < size ? room : size);
    if (room >= sizeof room)
        memcpy(theirs, &room, sizeof room);
}

enum pv_status sized_read(void *own, size_t size, const void *theirs, const char *what,
                          struct pv_error *err)
{
    size_t has = theirs ? size_of(theirs) : 0;
    if (!theirs)
        return fail(err, PV_E_ARG, "no parameters of %s", what);
    if (has < sizeof has)
        return fail(err, PV_E_ARG, "parameters of %s without their size", what);
    if (has > size)
        return fail(err, PV_E_ARG, "parameters of %s of %zu bytes: this library knows %zu", what,
                    has, size);
    memcpy(own, theirs, has);
    memcpy(own, &size, sizeof size);
    return PV_OK;
}

void sized_write(void *theirs, const void *own, size_t size)
{
    size_t room = size_of(theirs);
    if (room > sizeof room)
        sized_init(theirs, room, own, size);
}
