/* JSON from untrusted files: parsing with a size limit, and members checked for type and range. */
#ifndef PV_FORMAT_JSON_HF_H
#define PV_FORMAT_JSON_HF_H

#include "base/status.h"

#include <jansson.h>

struct family_sign;

/* Parse an object; anything else is an error, as are duplicate members. The caller owns *out
 * (json_decref). `name` is for messages. Integers beyond 64 bits become reals; all others are
 * exact. */
enum pv_status json_hf_parse(json_t **out, const char *text, size_t len, const char *name,
                             struct pv_error *err);
/* The same from a file of at most `limit` bytes. */
enum pv_status json_hf_open(json_t **out, const char *path, uint64_t limit, struct pv_error *err);

/* Members of an object: a missing one, another type and a number out of range are PV_E_FORMAT. */
enum pv_status json_hf_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                           int64_t *out, const char *name, struct pv_error *err);
enum pv_status json_hf_float(const json_t *obj, const char *key, double *out, const char *name,
                             struct pv_error *err);
/* The text of a string member, "" if there is none. */
const char *json_hf_text(const json_t *obj, const char *key);
/* The member, NULL when it is missing or null. */
json_t *json_hf_member(const json_t *obj, const char *key);

/* struct family_reader.has for an object of jansson. */
bool json_hf_has_sign(const void *root, const struct family_sign *sign);

/* The version of jansson, as text. */
void json_hf_version(char *out, size_t size);

#endif
