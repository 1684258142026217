/* Ids of requests, answers and files: 96 random bits of the kernel. */
#include "unique_id.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>

enum { ID_BYTES = 12 };

void make_id(char *out, size_t size, const char *prefix)
{
    uint8_t noise[ID_BYTES] = { 0 };
    int n = snprintf(out, size, "%s", prefix);
    (void)!getrandom(noise, sizeof noise, 0);
    for (size_t i = 0; i < sizeof noise && (size_t)n + 2 < size; i++)
        n += snprintf(out + n, size - (size_t)n, "%02x", noise[i]);
}
