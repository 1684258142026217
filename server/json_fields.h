/* Reads fields of JSON objects from clients, checking type and range; error messages name the
 * field. If a field is absent or null, *out does not change. */
#ifndef PV_SERVER_JSON_FIELDS_H
#define PV_SERVER_JSON_FIELDS_H

#include "api_error.h"
#include "json_memory.h"

#include "base/buf.h"

/* Parse a text that must be one JSON object, and clear the text; NULL: *e says what is wrong, and
 * where. Free the object with json_memory_free. */
json_t *json_object_parse(struct buf *text, struct api_error *e);
/* The member; NULL: absent or null. */
const json_t *field_find(const json_t *o, const char *name);
bool field_int(const json_t *o, const char *name, long long min, long long max, int *out,
               struct api_error *e);
bool field_int64(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *out,
                 struct api_error *e);
bool field_number(const json_t *o, const char *name, double min, double max, double *out,
                  struct api_error *e);
bool field_bool(const json_t *o, const char *name, bool *out, struct api_error *e);
bool field_string(const json_t *o, const char *name, const char **out, struct api_error *e);
bool field_object(const json_t *o, const char *name, const json_t **out, struct api_error *e);

#endif
