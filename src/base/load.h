/* Little-endian loads and stores at any alignment. */
#ifndef PV_BASE_LOAD_H
#define PV_BASE_LOAD_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "prevue needs a little-endian machine: weights are used where they lie in the file"
#endif

static inline uint16_t load_le16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t load_le32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t load_le64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_le16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void store_le32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void store_le64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

#endif
