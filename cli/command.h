/* The commands, and what they share. */
#ifndef PV_CLI_COMMAND_H
#define PV_CLI_COMMAND_H

#include "base/buf.h"
#include "options.h"
#include "prevue/prevue.h"
#include "program.h"

extern const struct option_set describe_options, frames_options, generate_options, tokenize_options,
    inspect_options, convert_options, prepare_options, serve_options, batch_options, chat_options,
    models_options, version_options, help_options;

int cmd_describe(int argc, char **argv);
int cmd_chat(int argc, char **argv);    /* not in a CORE build */
int cmd_frames(int argc, char **argv);  /* not in a CORE build */
int cmd_prepare(int argc, char **argv); /* not in a CORE build */
int cmd_batch(int argc, char **argv);   /* not in a CORE build */
int cmd_generate(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_serve(int argc, char **argv); /* in a CORE build it reports that it is missing */

int cmd_version(int argc, char **argv);
int cmd_help(int argc, char **argv);

/* 141 is the status that a shell reports for a program that SIGPIPE ended. */
enum { EXIT_FAILED = 1, EXIT_MISUSED = 2, EXIT_CLOSED_PIPE = 141 };
enum { MAX_TEXT = 256 << 20 }; /* bytes of one text read from a file or standard input */

/* Print "prevue: SENTENCE", with the program's name, on stderr; returns 1. */
int report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Report that a model has no tokenizer, and what to do instead; returns 1. */
int report_no_tokenizer(const char *path, const char *instead);

/* Flush stdout. Returns 0; EXIT_CLOSED_PIPE if its reader has closed it, as in "prevue help | head
 * -1", without a message; or 1 if something else failed, with a message. */
int finish_output(void);

/* Write to stdout and flush; false on failure, with errno kept for finish_output. */
bool write_text(const char *utf8, size_t len);

/* Append a whole file, or standard input for "-", to `out`. Reports an error and returns false if
 * it cannot be read. */
bool read_text(struct buf *out, const char *path);
/* Whether it is UTF-8; reports an error if not. `name` says in the message what the text is. */
bool is_text(const char *name, const char *text, size_t len);

/* Write a file; it gets its name only when it is complete. */
enum pv_status write_file(const char *path, const struct buf *text, struct pv_error *err);

/* Checks before a command starts its work: whether `path` can be written; and whether it is none of
 * the n other files that the command reads or writes (NULL: no file). Both report an error if
 * not. */
bool can_write(const char *path);
bool is_apart(const char *path, const char *const *others, int n);

/* Whether a path ends with this extension (including its dot), in upper or lower case. */
bool path_ends(const char *path, const char *extension);
/* The part after the last slash. */
const char *path_name(const char *path);

/* "[1,2,3]" */
bool add_ids_json(struct buf *out, const int32_t *ids, size_t n);

/* Token ids of a text in new memory (mem_free); NULL on failure, with the cause in err. */
int32_t *tokenize_text(const pv_model *model, const char *text, size_t len, bool special, size_t *n,
                       struct pv_error *err);

#endif
