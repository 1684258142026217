/* Data URLs (RFC 2397): "data:video/mp4;base64,....". */
#ifndef PV_SERVER_DATA_URL_H
#define PV_SERVER_DATA_URL_H

#include "base/status.h"

enum { DATA_URL_TYPE_SIZE = 64 };

struct data_url {
    char type[DATA_URL_TYPE_SIZE]; /* "video/mp4", in lower case; "": none given */
    uint8_t *data;                 /* owned */
    size_t size;
};

bool data_url_is(const char *url);
/* Accepts only the base64 form, because media are binary. At most `limit` bytes. */
enum pv_status data_url_parse(struct data_url *out, const char *url, size_t len, uint64_t limit,
                              struct pv_error *err);
/* Parse base64 without a URL, with or without padding; white space is ignored. */
enum pv_status base64_parse(uint8_t **out, size_t *size, const char *text, size_t len,
                            uint64_t limit, struct pv_error *err);
void data_url_clear(struct data_url *u);

#endif
