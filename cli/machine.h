/* The name of this machine's processor. */
#ifndef PV_CLI_MACHINE_H
#define PV_CLI_MACHINE_H

#include <stddef.h>
#include <stdio.h>

/* The name of the processor, or "unknown". */
const char *machine_name(void);
/* The same from a file in the format of /proc/cpuinfo. An x86 CPU has its name there; an Arm core
 * has two numbers, which are looked up in a table, or printed if they are unknown. */
void machine_name_read(FILE *cpuinfo, char *out, size_t size);

#endif
