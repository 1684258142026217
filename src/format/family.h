/* A family of models: one constant table that says how its files are read and how its decoder and
 * its vision tower work. The tables are in src/family, a higher layer than this one; the code of
 * lower layers gets a pointer to a table, tests its fields, and never names a family. Parts of the
 * table that describe the work of higher layers are declared there. */
#ifndef PV_FORMAT_FAMILY_H
#define PV_FORMAT_FAMILY_H

#include "format/audio_roles.h"
#include "format/config.h"
#include "format/vision_roles.h"
#include "tensor/device.h"

struct family_frames; /* family/frame_policy.h: which frames of a video, at what size */
struct family_media;  /* family/media.h: rows and positions of pictures and videos */

/* Properties of the decoder for which the files have no key. */
struct family_decoder {
    bool qkv_bias, qk_norm;
    enum mrope_kind mrope;
    enum expert_rule experts;
};

/* One number of a tower's configuration with its key in both file formats; NULL: that format does
 * not store it. `hf` is a member of vision_config; `gguf` follows "clip.vision.". */
struct vision_number {
    const char *hf, *gguf;
    size_t slot;       /* offset of the int in struct vision_config */
    int missing;       /* value if a GGUF file lacks the key; 0: the key is required */
    bool times_hidden; /* config.json stores it as a multiple of the hidden size */
};

/* A member of config.json with the only value that we support. */
struct vision_word {
    bool root;               /* a member of the top level, else of vision_config */
    const char *key, *value; /* text, "true", "false", or the spelling of `number` */
    int number;
    bool needed; /* the member must exist; else it may be missing */
};

/* A tower whose sizes are in no file: config.json only has a name that ends with `name`. */
struct vision_known {
    const char *name;
    int hidden, n_layers, n_heads, ffn, image, patch; /* n_layers: the layers that are computed */
};

/* The special tokens of pictures and videos. */
enum vision_token {
    VISION_IMAGE_TOKEN,
    VISION_VIDEO_TOKEN,
    VISION_START_TOKEN,
    VISION_END_TOKEN,
    VISION_TOKENS
};

struct family_tower {
    const char *projector; /* clip.projector_type of GGUF */
    const char *flag;      /* a GGUF flag that must be true if present, and that we write */
    bool in_one_file;      /* `convert` puts the tower into the decoder's file */
    int said_size;         /* image_size to write because llama.cpp's files have it, although it
                              is unused; 0: none */
    const struct vision_number *numbers;
    int n_numbers;
    const struct vision_word *words;
    int n_words;
    const struct vision_known *known; /* towers that config.json gives by name only; or NULL */
    int n_known;
    const char *const *token; /* [VISION_TOKENS] spellings; NULL: has none */
    const char *eps_key;      /* member of vision_config; if NULL or missing there, `eps` is used */
    float eps;
    /* Values of the published models, for files that lack the keys. */
    float mean[3], std[3];
    int64_t min_pixels, max_pixels;
    int64_t video_min_pixels, video_max_pixels; /* of all frames of a video; 0: no such bound */
    /* How a picture is prepared. */
    bool fixed;   /* always resized to one size; else to any size within a range of areas */
    bool tiles;   /* still pictures are also cut into tiles of that size; tokens are pooled */
    bool windows; /* some layers attend within windows only */
    bool clock;   /* positions follow time: tokens_per_second */
    bool layered; /* vision_feature_layer says how many layers are computed */
    bool lined;   /* mm_newline_position says where a video has newline rows */
    /* The layers. */
    bool rope;
    bool interpolated; /* learned positions of a square grid, interpolated to the picture */
    bool gated;        /* the MLP has a gate; else `gelu` is between its two matrices */
    enum gelu_kind gelu;
    struct vision_roles roles;
    const struct vision_layout *layouts;
    int n_layouts;
};

/* A member of config.json that distinguishes families with the same model_type. It must be, or be
 * a list that contains, one of the words in `values`, which are separated by '|'. If `values` is
 * NULL, it must only exist. */
struct family_sign {
    const char *key, *values;
};

/* Access to config.json that is independent of the JSON library: `has` says whether the object
 * `root` satisfies a sign. */
struct family_reader {
    bool (*has)(const void *root, const struct family_sign *sign);
    const void *root;
};

struct family {
    const char *name;         /* the model_type, for programs */
    const char *title;        /* for people */
    uint32_t number;          /* in prepared prompts; never reused for another family; 0: none */
    bool refused;             /* recognised only to say that prevue does not run it */
    const char *const *types; /* values of model_type in config.json, ended by NULL */
    const struct family_sign *signs; /* further conditions, ended by a NULL key; NULL: none */
    const char *arch;                /* general.architecture of GGUF */
    bool by_text; /* text_config.model_type says which decoder it is; members of text_config that
                     have the default value of the reference implementation may be missing */
    struct family_decoder decoder;
    const struct family_tower *tower;                 /* NULL: text only */
    const struct family_audio_encoder *audio_encoder; /* NULL: no audio encoder */
    const struct family_frames *frames;
    const struct family_media *media;
    double lambda;         /* share of attention that the view `specvlm` keeps by default, */
    bool compact_drafting; /* and whether the drafter renumbers positions without gaps by default */
};

/* Find a family in a list that ends with NULL; they return NULL if none matches. */
const struct family *family_of_type(const struct family *const *families, const char *type,
                                    const struct family_reader *r);
const struct family *family_of_arch(const struct family *const *families, const struct str *arch);
/* `hears`: the file also has an audio encoder. `decoder` (may be NULL): the family of the model's
 * decoder, which distinguishes families with the same tower. */
const struct family *family_of_projector(const struct family *const *families,
                                         const struct str *type, bool hears,
                                         const struct family *decoder);

#endif
