/* Which build of the library this is. */
#ifndef PV_BASE_BUILD_ID_H
#define PV_BASE_BUILD_ID_H

/* A digest of its objects, in hexadecimal; written by the Makefile. */
const char *build_id(void);

#endif
