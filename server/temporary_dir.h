/* The directory for uploads of a server that was given none. It ends with the server; what a server
 * that was killed has left is removed by the next one. */
#ifndef PV_SERVER_TEMPORARY_DIR_H
#define PV_SERVER_TEMPORARY_DIR_H

/* A new directory, locked for this process, after those of dead processes were removed. Its path,
 * which the caller frees (mem_free); NULL: errno says why. *lock stays open as long as it is used.
 */
char *temporary_dir_open(int *lock);
/* Where it is made: $TMPDIR or /tmp. */
const char *temporary_dir_base(void);

#endif
