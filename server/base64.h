/* Bytes as base64 (RFC 4648, with padding). */
#ifndef PV_SERVER_BASE64_H
#define PV_SERVER_BASE64_H

#include "base/buf.h"

#include <stdint.h>

void base64_add(struct buf *b, const uint8_t *data, size_t size);

#endif
