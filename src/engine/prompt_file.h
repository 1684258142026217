/* A prepared prompt in a file (.pvin): token ids and resized frames, for machines without tokenizer
 * and video decoder. doc/formats.md specifies the format. */
#ifndef PV_ENGINE_PROMPT_FILE_H
#define PV_ENGINE_PROMPT_FILE_H

#include "family/media.h"

/* Media of one file, and runs of them in the prompt. */
enum { PROMPT_MAX_MEDIA = 64, PROMPT_MAX_RUNS = 1 << 15 };

/* The model for which a file is read. */
struct prompt_reader {
    const char *name;               /* of the file, for messages */
    const char *model;              /* of the model, for messages */
    const struct vision_config *c;  /* NULL: the model has no vision tower */
    const struct pv_limits *limits; /* complete */
    int vocab;
};

/* The parsed contents of a file. Pointers refer to its bytes. */
struct prompt_file {
    int n_ids, n_media, n_runs; /* n_runs: ranges of media rows (media_stretches) */
    int n_rows;                 /* of the timeline */
    int message0;               /* first row of the last message */
    int frames, lost;           /* frames used from videos; how many are replaced by a neighbour */
    const uint8_t *ids; /* [n_ids] i32: a token, or -k for the next run of media item k, from 1 */
    struct media media[PROMPT_MAX_MEDIA]; /* without pixels */
    const uint8_t *pixels[PROMPT_MAX_MEDIA];
    const uint8_t *features[PROMPT_MAX_MEDIA]; /* of sound, f32 */
};

/* Parse untrusted bytes. Allocates nothing. */
enum pv_status prompt_file_parse(struct prompt_file *out, const uint8_t *data, size_t size,
                                 const struct prompt_reader *r, struct pv_error *err);
/* Write length and checksum into the bytes of a file, which are at least 24. */
void prompt_file_seal(uint8_t *data, size_t size);

#endif
