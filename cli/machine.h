/* What this machine is called. */
#ifndef PV_CLI_MACHINE_H
#define PV_CLI_MACHINE_H

#include <stddef.h>
#include <stdio.h>

/* The name of the processor, or "unknown". */
const char *machine_name(void);
/* The same from a file in the form of /proc/cpuinfo. x86 names itself there; an Arm core gives two
 * numbers, which are looked up, or printed where they are not known. */
void machine_name_read(FILE *cpuinfo, char *out, size_t size);

#endif
