/* The description of an uploaded file, stored next to it: DIR/ID.info has its purpose, type and
 * name. It is written last, so a file without a description is incomplete. Other servers that use
 * the directory, at the same time or later, find the files by it. */
#ifndef PV_SERVER_UPLOAD_INFO_H
#define PV_SERVER_UPLOAD_INFO_H

#include "upload_store.h"

/* "file-" and 24 hexadecimal digits, as make_id writes them: safe as a part of a path. */
bool upload_id_valid(const char *id, size_t size);
/* Write the description of f. False: errno says why, and no file is left. */
bool upload_info_write(const char *dir, const struct stored_file *f);
/* Fill *out for a complete file of the directory. False: there is none with this id. */
bool upload_info_read(const char *dir, const char *id, struct stored_file *out);
/* Whether the file was removed, by another server. */
bool upload_info_gone(const struct stored_file *f);
/* Remove the file and its description. */
void upload_info_remove(const struct stored_file *f);
/* Ids of the complete files, sorted, padded with zeros; *n of them, at most `most`. The caller
 * frees them (mem_free); NULL: out of memory. */
char (*upload_info_list(const char *dir, int most, int *n))[STORED_ID];

#endif
