/* A family of models: one constant table that says how its files are read, what its tower has and
 * what is done for it. The tables and their list lie in src/family, above; the folders below are
 * handed a row, ask it what it has, and never name a family. Parts that belong to higher folders
 * are declared there. */
#ifndef PV_FORMAT_FAMILY_H
#define PV_FORMAT_FAMILY_H

#include "format/audio_roles.h"
#include "format/config.h"
#include "format/vision_roles.h"
#include "tensor/device.h"

struct family_frames; /* family/frame_policy.h: which frames of a video, at what size */
struct family_media;  /* family/media.h: rows and positions of pictures and videos */

/* What no key of a file says about the decoder. */
struct family_decoder {
    bool qkv_bias, qk_norm;
    enum mrope_kind mrope;
    enum expert_rule experts;
};

/* One number of a tower's configuration under its two names; NULL: in that kind of file it is not
 * to be found. `hf` is a member of vision_config; `gguf` follows "clip.vision.". */
struct vision_number {
    const char *hf, *gguf;
    size_t slot;       /* of an int in struct vision_config */
    int missing;       /* what it is in a GGUF file without it; 0: it must be there */
    bool times_hidden; /* in config.json a multiple of the hidden size */
};

/* A member of config.json that must have this value if it is there, or (needed) must be there. */
struct vision_word {
    bool root;               /* a member of the whole, else of vision_config */
    const char *key, *value; /* text, "true", "false", or */
    int number;              /* a number, as `value` spells it */
    bool needed;
};

/* A tower under a name that ends so, whose numbers are in no file. */
struct vision_known {
    const char *name;
    int hidden, n_layers, n_heads, ffn, image, patch; /* n_layers: those that run */
};

/* The special tokens of media. */
enum vision_token {
    VISION_IMAGE_TOKEN,
    VISION_VIDEO_TOKEN,
    VISION_START_TOKEN,
    VISION_END_TOKEN,
    VISION_TOKENS
};

struct family_tower {
    const char *projector; /* clip.projector_type of GGUF */
    const char *flag;      /* a flag of GGUF that must be true if it is there, and is written */
    bool in_one_file;      /* converted models keep the tower in the decoder's file */
    int said_size;         /* image_size that llama.cpp's files say and nobody reads; 0: none */
    const struct vision_number *numbers;
    int n_numbers;
    const struct vision_word *words;
    int n_words;
    const struct vision_known *known; /* towers that config.json knows by name only; or NULL */
    int n_known;
    const char *const *token; /* [VISION_TOKENS] spellings; NULL: has none */
    const char *eps_key;      /* of vision_config; NULL, or missing there: eps */
    float eps;
    /* Of the published models, for files that lack them. */
    float mean[3], std[3];
    int64_t min_pixels, max_pixels;
    int64_t video_min_pixels, video_max_pixels; /* of all frames of a video; 0: not bounded so */
    /* How a picture is cut. */
    bool fixed;   /* into the patches of one size; else of any size within an area */
    bool tiles;   /* still pictures also into tiles of that size; tokens are pooled and stitched */
    bool windows; /* some layers attend to windows only */
    bool clock;   /* time in positions: tokens_per_second */
    bool layered; /* vision_feature_layer says how many layers run */
    bool lined;   /* mm_newline_position says where newlines stand in videos */
    /* The layers. */
    bool rope;
    bool interpolated;   /* learned positions of a square grid, stretched over any picture */
    bool gated;          /* the MLP has a gate, */
    enum gelu_kind gelu; /* or this between its matrices */
    struct vision_roles roles;
    const struct vision_layout *layouts;
    int n_layouts;
};

/* A member of config.json that tells families of one model_type apart: it must be one of the words
 * of `values`, which '|' separates, or have one of them in its list. NULL: it must be there. */
struct family_sign {
    const char *key, *values;
};

/* Whether config.json, whatever read it, has one of these words under a key. */
struct family_reader {
    bool (*has)(const void *root, const struct family_sign *sign);
    const void *root;
};

struct family {
    const char *name;         /* for programs: the model_type */
    const char *title;        /* for people */
    uint32_t number;          /* in prompt files: never used again for another family; 0: none */
    bool refused;             /* known by its name only: "prevue does not run it" */
    const char *const *types; /* model_type in config.json, ended by NULL, */
    const struct family_sign *signs; /* and these, ended by a key NULL; NULL: none */
    const char *arch;                /* general.architecture of GGUF */
    bool by_text; /* the decoder is what model_type of text_config says, and members of
                     text_config that equal the reference's own values may be missing */
    struct family_decoder decoder;
    const struct family_tower *tower;     /* NULL: text only */
    const struct family_hearing *hearing; /* NULL: does not hear */
    const struct family_frames *frames;
    const struct family_media *media;
    double lambda;         /* share of attention that the view `specvlm` keeps by default, */
    bool compact_drafting; /* and whether a drafter's positions close the gaps by default */
};

/* Of a list ended by NULL; NULL: there is none. */
const struct family *family_of_type(const struct family *const *families, const char *type,
                                    const struct family_reader *r);
const struct family *family_of_arch(const struct family *const *families, const struct str *arch);
/* `hears`: the file has an audio encoder too. `decoder` (may be NULL): that of the model, which
 * tells families with equal towers apart. */
const struct family *family_of_projector(const struct family *const *families,
                                         const struct str *type, bool hears,
                                         const struct family *decoder);

#endif
