/* Unicode normalisation form C. */
#ifndef PV_TEXT_NFC_H
#define PV_TEXT_NFC_H

#include "base/buf.h"
#include "base/status.h"

/* Scratch of one thread, kept between texts. */
struct nfc {
    int32_t *cp;   /* owned: code points of the current segment */
    int32_t *sort; /* owned: copy of a long run of combining marks while it is sorted */
    size_t n, cap, sort_cap;
    struct buf text; /* the result when it is not the input itself */
};

enum { NFC_MAX_TEXT = INT32_MAX }; /* bytes of a normalised text */

void nfc_init(struct nfc *n);
void nfc_clear(struct nfc *n);

/* Normalise valid UTF-8. *out is the input itself if that is ASCII, else memory owned by `n` and
 * valid until the next call. */
enum pv_status nfc_apply(struct nfc *n, const char *utf8, size_t len, const char **out,
                         size_t *out_len, struct pv_error *err);

/* The version of utf8proc, as text. */
void nfc_version(char *out, size_t size);

#endif
