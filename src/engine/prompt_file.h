/* A prompt as a file (.pvin): token ids and the pictures as a model sees them, all that a machine
 * needs that has neither a tokenizer nor a decoder of videos. doc/formats.md has every byte. */
#ifndef PV_ENGINE_PROMPT_FILE_H
#define PV_ENGINE_PROMPT_FILE_H

#include "family/media.h"

/* Media of one file, and runs of them in the prompt. */
enum { PROMPT_MAX_MEDIA = 64, PROMPT_MAX_RUNS = 1 << 15 };

/* For whom a file is read. */
struct prompt_reader {
    const char *name;               /* of the file, for sentences about it */
    const char *model;              /* of the model, for the same */
    const struct vision_config *c;  /* NULL: the model is blind */
    const struct pv_limits *limits; /* complete */
    int vocab;
};

/* What is in a file. Pointers are into its bytes. */
struct prompt_file {
    int n_ids, n_media, n_runs; /* n_runs: stretches of media (media_stretches) */
    int n_rows;                 /* of the timeline */
    int message0;               /* the first of the last message */
    int frames, lost;           /* taken from videos; of these, replaced by a neighbour */
    const uint8_t *ids; /* [n_ids] i32: a token, or -k for the next run of media item k, from 1 */
    struct media media[PROMPT_MAX_MEDIA]; /* without pixels */
    const uint8_t *pixels[PROMPT_MAX_MEDIA];
    const uint8_t *features[PROMPT_MAX_MEDIA]; /* of sound, f32 */
};

/* Nothing of `data` is believed before it is checked; nothing is allocated. */
enum pv_status prompt_file_parse(struct prompt_file *out, const uint8_t *data, size_t size,
                                 const struct prompt_reader *r, struct pv_error *err);
/* Give the bytes of a file, at least 24, the length and checksum that they must have. */
void prompt_file_seal(uint8_t *data, size_t size);

#endif
