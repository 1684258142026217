/* A program and its commands: prevue (cli/main.c) and prevue-lab (lab/main.c) are made of the same
 * parts and differ in this table. */
#ifndef PV_CLI_PROGRAM_H
#define PV_CLI_PROGRAM_H

#include <stdio.h>

struct option_set;

struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns the exit status */
    const struct option_set *set;
};

struct program {
    const char *name;
    const char *about;              /* for the list of commands, in lines */
    const struct command *commands; /* [n] */
    int n;
    const char *left_out; /* commands, separated by spaces, that this build does not have */
    const char *moved;    /* and those that are now in the program `moved_to` */
    const char *moved_to;
};

/* The program that this is; each main.c defines its own. */
extern const struct program program;

/* Run the command that the arguments name; returns the exit status. */
int program_run(int argc, char **argv);

/* The commands in the order of the help; NULL past the last. */
const struct command *command_at(int i);
/* NULL if there is no command of this name. */
const struct command *find_command(const char *name);
/* Report that there is no such command; returns 2. */
int unknown_command(const char *name);
void print_commands(FILE *to);

#endif
