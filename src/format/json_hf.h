/* JSON of untrusted files: parsing with a limit, and members of the type and range wanted. */
#ifndef PV_FORMAT_JSON_HF_H
#define PV_FORMAT_JSON_HF_H

#include "base/status.h"

#include <jansson.h>

struct family_sign;

/* An object (anything else is an error); *out is owned (json_decref). `name` is for messages.
 * Duplicate members are an error. Integers beyond 64 bits are reals; all others are exact. */
enum pv_status json_hf_parse(json_t **out, const char *text, size_t len, const char *name,
                             struct pv_error *err);
/* The same from a file of at most `limit` bytes. */
enum pv_status json_hf_open(json_t **out, const char *path, uint64_t limit, struct pv_error *err);

/* Members of an object: a missing one, another type and a number out of range are PV_E_FORMAT. */
enum pv_status json_hf_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                           int64_t *out, const char *name, struct pv_error *err);
enum pv_status json_hf_float(const json_t *obj, const char *key, double *out, const char *name,
                             struct pv_error *err);
/* The text of a string member, "" where there is none. */
const char *json_hf_text(const json_t *obj, const char *key);
/* The member, NULL when it is missing or null. */
json_t *json_hf_member(const json_t *obj, const char *key);

/* For family_of_type: whether the member is one of the sign's words, or a list with one of them;
 * of a sign without words, whether it is there. */
bool json_hf_has_sign(const void *root, const struct family_sign *sign);

/* The version of jansson, as text. */
void json_hf_version(char *out, size_t size);

#endif
