/* Which build of the library this is. */
#ifndef PV_BASE_BUILD_ID_H
#define PV_BASE_BUILD_ID_H

/* A digest of the library's object files, in hexadecimal; the Makefile computes it. */
const char *build_id(void);

#endif
