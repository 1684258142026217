/* The description of an uploaded file, on disk beside it: DIR/ID.info has its purpose, type and
 * name. It is written last, so a file without one is not complete. Servers that share a directory,
 * and the next server that uses it, know the files by it. */
#ifndef PV_SERVER_UPLOAD_INFO_H
#define PV_SERVER_UPLOAD_INFO_H

#include "upload_store.h"

/* "file-" and 24 hexadecimal digits, as make_id writes them: safe as a part of a path. */
bool upload_id_valid(const char *id, size_t size);
/* Writes the description of f. False: errno says why, and nothing stays behind. */
bool upload_info_write(const char *dir, const struct stored_file *f);
/* Fills *out for a complete file of the directory. False: there is none with this id. */
bool upload_info_read(const char *dir, const char *id, struct stored_file *out);
/* The file is gone: another server removed it. */
bool upload_info_gone(const struct stored_file *f);
/* Removes the file and its description. */
void upload_info_remove(const struct stored_file *f);
/* Ids of the complete files, sorted; *n of them, `most` at most, padded with zeros. For mem_free;
 * NULL: no memory. */
char (*upload_info_list(const char *dir, int most, int *n))[STORED_ID];

#endif
