/* Directories as they are found on the hub, file by file: each family as its makers published it,
 * and as newer versions of transformers save it. The tensors are tiny and the same ones in every
 * row of a family, so all of its directories must load and give the same answer, with a video and a
 * picture. What the files say is spelled out here, after the published files.
 *
 * To add a family: its files in a list like those below, and a row in `hub`. */
#include "answers.h"
#include "family/families.h"
#include "format/config_hf.h"
#include "format/json_hf.h"
#include "format/safetensors_hf.h"
#include "format/vocab_hf.h"

/* ---- text with values in it ---- */

/* In a file's text, @NAME@ is one of these, @template@ the chat template as a string and @decoder@
 * the added tokens. */
static const struct {
    const char *name;
    int value;
} values[] = {
    { "@endoftext@", TINY_ENDOFTEXT },   { "@im_start@", TINY_IM_START },
    { "@im_end@", TINY_IM_END },         { "@image@", TINY_IMAGE },
    { "@video@", TINY_VIDEO },           { "@image_pad@", TINY_IMAGE_PAD },
    { "@video_pad@", TINY_VIDEO_PAD },   { "@vision_start@", TINY_VISION_START },
    { "@vision_end@", TINY_VISION_END },
};

static void put_json(struct made *out, const char *s)
{
    tiny_puts(out, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            tiny_puts(out, "\\");
        make_bytes(out, s, 1);
    }
    tiny_puts(out, "\"");
}

/* The added tokens by id, with all that tokenizer_config.json says of them. */
static void put_decoder(struct made *out, const struct tiny_model *m)
{
    const char *token[TINY_MAX_TOKENS];
    int n = tiny_tokens(m, token);
    char text[32];
    for (int i = TINY_ENDOFTEXT; i < n; i++) {
        snprintf(text, sizeof text, "%s\"%d\": ", i > TINY_ENDOFTEXT ? ", " : "{", i);
        tiny_puts(out, text);
        tiny_puts(out, "{\"content\": ");
        put_json(out, token[i]);
        tiny_puts(out, ", \"lstrip\": false, \"normalized\": false, \"rstrip\": false, "
                       "\"single_word\": false, \"special\": true}");
    }
    tiny_puts(out, "}");
}

/* Bytes of the name at the beginning of the text, whose value is written; 0: there is none. */
static size_t put_value(struct made *out, const char *text, const char *template,
                        const struct tiny_model *m)
{
    char number[16];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strncmp(text, values[i].name, strlen(values[i].name)) == 0) {
            snprintf(number, sizeof number, "%d", values[i].value);
            tiny_puts(out, number);
            return strlen(values[i].name);
        }
    if (strncmp(text, "@template@", 10) == 0) {
        put_json(out, template);
        return 10;
    }
    if (strncmp(text, "@decoder@", 9) == 0) {
        put_decoder(out, m);
        return 9;
    }
    return 0;
}

static void fill(struct made *out, const char *text, const char *template,
                 const struct tiny_model *m)
{
    while (*text) {
        size_t n = put_value(out, text, template, m);
        if (n == 0)
            make_bytes(out, text, 1);
        text += n ? n : 1;
    }
}

/* ---- the files ---- */

struct hub_file {
    const char *name, *text; /* text NULL: the chat template itself */
};

#define TEXT_NUMBERS                                                                               \
    "\"attention_dropout\": 0.0, \"hidden_act\": \"silu\", \"hidden_size\": 32, "                  \
    "\"initializer_range\": 0.02, \"intermediate_size\": 64, \"max_position_embeddings\": 4096, "  \
    "\"max_window_layers\": 2, \"num_attention_heads\": 2, \"num_hidden_layers\": 2, "             \
    "\"num_key_value_heads\": 1, \"rms_norm_eps\": 1e-06, \"use_cache\": true, "                   \
    "\"use_sliding_window\": false, \"vocab_size\": 288"

#define LARGE_LENGTH "\"model_max_length\": 1000000000000000019884624838656"

/* Qwen2.5-VL. */

#define QWEN_TEMPLATE                                                                              \
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"             \
    "{{'<|im_start|>system\\nYou help.<|im_end|>\\n'}}{% endif %}"                                 \
    "{{'<|im_start|>' + message['role'] + '\\n'}}{{ content['text'] }}"                            \
    "{{'<|vision_start|><|image_pad|><|vision_end|>'}}{{'<|im_end|>\\n'}}{% endfor %}"             \
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\\n'}}{% endif %}"

#define QWEN_IDS                                                                                   \
    "\"image_token_id\": @image_pad@, \"video_token_id\": @video_pad@, "                           \
    "\"vision_start_token_id\": @vision_start@, \"vision_end_token_id\": @vision_end@"

#define QWEN_TOWER                                                                                 \
    "\"depth\": 4, \"hidden_act\": \"silu\", \"hidden_size\": 32, \"intermediate_size\": 48, "     \
    "\"num_heads\": 2, \"out_hidden_size\": 32, \"patch_size\": 4, \"spatial_merge_size\": 2, "    \
    "\"window_size\": 16, \"fullatt_block_indexes\": [1, 3], \"tokens_per_second\": 2, "           \
    "\"temporal_patch_size\": 2"

#define QWEN_MEANS                                                                                 \
    "\"image_mean\": [0.48145466, 0.4578275, 0.40821073], "                                        \
    "\"image_std\": [0.26862954, 0.26130258, 0.27577711]"

/* As Qwen published it: one level, rope_theta beside rope_scaling, torch_dtype. */
static const struct hub_file qwen25_published[] = {
    { "config.json",
      "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"bos_token_id\": "
      "@endoftext@, "
      "\"eos_token_id\": @im_end@, " QWEN_IDS ", \"model_type\": \"qwen2_5_vl\", " TEXT_NUMBERS
      ", \"rope_theta\": 10000.0, \"sliding_window\": 32768, \"tie_word_embeddings\": true, "
      "\"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.41.2\", \"vision_config\": "
      "{" QWEN_TOWER
      ", \"in_chans\": 3, \"spatial_patch_size\": 4}, \"rope_scaling\": {\"type\": \"mrope\", "
      "\"mrope_section\": [4, 2, 2]}}" },
    { "generation_config.json",
      "{\"bos_token_id\": @endoftext@, \"pad_token_id\": @endoftext@, \"do_sample\": true, "
      "\"eos_token_id\": [@im_end@, @endoftext@], \"repetition_penalty\": 1.05, "
      "\"temperature\": 0.000001, \"transformers_version\": \"4.49.0\"}" },
    { "preprocessor_config.json",
      "{\"min_pixels\": 1024, \"max_pixels\": 65536, \"patch_size\": 4, \"temporal_patch_size\": "
      "2, "
      "\"merge_size\": 2, " QWEN_MEANS ", \"image_processor_type\": \"Qwen2_5_VLImageProcessor\", "
      "\"processor_class\": \"Qwen2_5_VLProcessor\"}" },
    { "tokenizer_config.json",
      "{\"add_bos_token\": false, \"add_prefix_space\": false, \"added_tokens_decoder\": "
      "@decoder@, \"additional_special_tokens\": [\"<|im_start|>\", \"<|im_end|>\"], "
      "\"bos_token\": null, "
      "\"chat_template\": @template@, \"clean_up_tokenization_spaces\": false, "
      "\"eos_token\": \"<|im_end|>\", \"errors\": \"replace\", \"model_max_length\": 131072, "
      "\"pad_token\": \"<|endoftext|>\", \"split_special_tokens\": false, "
      "\"tokenizer_class\": \"Qwen2Tokenizer\", \"unk_token\": null}" },
    { "chat_template.json", "{\"chat_template\": @template@}" },
    { NULL, NULL },
};

/* As transformers 4.5x saves it: text_config, dtype, the rope's keys twice, a template of its own.
 */
static const struct hub_file qwen25_saved_4[] = {
    { "config.json",
      "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"dtype\": \"bfloat16\", "
      "\"eos_token_id\": @im_end@, " QWEN_IDS ", \"model_type\": \"qwen2_5_vl\", \"text_config\": "
      "{\"_name_or_path\": \"Qwen/Qwen2.5-VL\", \"dtype\": \"bfloat16\", \"layer_types\": "
      "[\"full_attention\", \"full_attention\"], \"model_type\": \"qwen2_5_vl_text\", " TEXT_NUMBERS
      ", \"eos_token_id\": @im_end@, \"rope_scaling\": {\"mrope_section\": [4, 2, 2], "
      "\"rope_type\": "
      "\"default\", \"type\": \"default\"}, \"rope_theta\": 10000.0, \"sliding_window\": null, "
      "\"tie_word_embeddings\": true}, \"tie_word_embeddings\": true, \"transformers_version\": "
      "\"4.57.1\", \"use_sliding_window\": false, \"vision_config\": {\"dtype\": \"bfloat16\", "
      "\"model_type\": \"qwen2_5_vl\", " QWEN_TOWER ", \"in_channels\": 3, \"in_chans\": 3, "
      "\"initializer_range\": 0.02, \"spatial_patch_size\": 4}}" },
    { "preprocessor_config.json",
      "{\"crop_size\": null, \"data_format\": \"channels_first\", \"default_to_square\": true, "
      "\"device\": null, \"do_center_crop\": null, " QWEN_MEANS ", \"max_pixels\": 65536, "
      "\"merge_size\": 2, \"min_pixels\": 1024, \"patch_size\": 4, \"return_tensors\": null, "
      "\"size\": {\"longest_edge\": 65536, \"shortest_edge\": 1024}, \"temporal_patch_size\": 2}" },
    { "video_preprocessor_config.json",
      "{\"do_sample_frames\": false, \"fps\": null, " QWEN_MEANS ", \"max_frames\": 768, "
      "\"max_pixels\": 65536, \"merge_size\": 2, \"min_frames\": 4, \"min_pixels\": 1024, "
      "\"num_frames\": null, \"patch_size\": 4, \"size\": {\"longest_edge\": 65536, "
      "\"shortest_edge\": 1024}, \"temporal_patch_size\": 2, \"video_metadata\": null}" },
    { "tokenizer_config.json",
      "{\"added_tokens_decoder\": @decoder@, \"bos_token\": null, \"eos_token\": \"<|im_end|>\", "
      "\"extra_special_tokens\": {}, " LARGE_LENGTH
      ", \"pad_token\": \"<|endoftext|>\", \"processor_class\": "
      "\"Qwen2_5_VLProcessor\", \"tokenizer_class\": \"Qwen2Tokenizer\"}" },
    { "chat_template.jinja", NULL },
    { NULL, NULL },
};

/* As transformers 5 saves it: rope_parameters, of the tower too, and only tokenizer.json. */
static const struct hub_file qwen25_saved_5[] = {
    { "config.json",
      "{\"architectures\": [\"Qwen2_5_VLForConditionalGeneration\"], \"dtype\": "
      "\"bfloat16\", " QWEN_IDS
      ", \"model_type\": \"qwen2_5_vl\", \"text_config\": {\"bos_token_id\": @endoftext@, "
      "\"eos_token_id\": @im_end@, \"layer_types\": [\"full_attention\", \"full_attention\"], "
      "\"model_type\": \"qwen2_5_vl_text\", \"pad_token_id\": null, " TEXT_NUMBERS
      ", \"rope_parameters\": {\"mrope_section\": [4, 2, 2], \"rope_theta\": 10000.0, "
      "\"rope_type\": "
      "\"default\"}, \"sliding_window\": null}, \"tie_word_embeddings\": true, "
      "\"transformers_version\": \"5.22.2\", \"vision_config\": {\"in_channels\": 3, "
      "\"model_type\": \"qwen2_5_vl_vision\", " QWEN_TOWER
      ", \"rope_parameters\": {\"rope_theta\": "
      "10000.0, \"rope_type\": \"axial\"}}}" },
    { "generation_config.json", "{\"_from_model_config\": true, \"eos_token_id\": @im_end@, "
                                "\"output_attentions\": false, \"use_cache\": true}" },
    { "preprocessor_config.json",
      "{\"do_convert_rgb\": true, " QWEN_MEANS ", \"image_processor_type\": "
      "\"Qwen2VLImageProcessor\", \"merge_size\": 2, \"patch_size\": 4, \"resample\": 3, "
      "\"rescale_factor\": 0.00392156862745098, \"size\": {\"longest_edge\": 65536, "
      "\"shortest_edge\": 1024}, \"temporal_patch_size\": 2}" },
    { "tokenizer_config.json",
      "{\"add_prefix_space\": null, \"backend\": \"tokenizers\", \"bos_token\": null, "
      "\"eos_token\": \"<|im_end|>\", \"is_local\": true, " LARGE_LENGTH
      ", \"pad_token\": \"<|endoftext|>\", \"tokenizer_class\": \"Qwen2Tokenizer\"}" },
    { "chat_template.jinja", NULL },
    { NULL, NULL },
};

/* Qwen2-VL as Qwen published it: hidden_size of the tower is the decoder's, its own is embed_dim.
 */
static const struct hub_file qwen2_published[] = {
    { "config.json",
      "{\"architectures\": [\"Qwen2VLForConditionalGeneration\"], \"bos_token_id\": @endoftext@, "
      "\"eos_token_id\": @im_end@, " QWEN_IDS ", \"model_type\": \"qwen2_vl\", " TEXT_NUMBERS
      ", \"rope_theta\": 10000.0, \"sliding_window\": 32768, \"tie_word_embeddings\": true, "
      "\"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.41.2\", \"vision_config\": "
      "{\"depth\": 4, \"embed_dim\": 32, \"mlp_ratio\": 2, \"num_heads\": 2, \"in_chans\": 3, "
      "\"hidden_size\": 32, \"patch_size\": 4, \"spatial_merge_size\": 2, \"spatial_patch_size\": "
      "4, \"temporal_patch_size\": 2}, \"rope_scaling\": {\"type\": \"mrope\", "
      "\"mrope_section\": [4, 2, 2]}}" },
    { "preprocessor_config.json",
      "{\"min_pixels\": 1024, \"max_pixels\": 65536, \"patch_size\": 4, \"temporal_patch_size\": "
      "2, \"merge_size\": 2, " QWEN_MEANS ", \"image_processor_type\": "
      "\"Qwen2VLImageProcessor\", \"processor_class\": \"Qwen2VLProcessor\"}" },
    { "tokenizer_config.json",
      "{\"added_tokens_decoder\": @decoder@, \"bos_token\": null, \"chat_template\": @template@, "
      "\"eos_token\": \"<|im_end|>\", \"model_max_length\": 32768, \"pad_token\": "
      "\"<|endoftext|>\", \"tokenizer_class\": \"Qwen2Tokenizer\"}" },
    { "chat_template.json", "{\"chat_template\": @template@}" },
    { NULL, NULL },
};

/* As transformers 5 saves it. */
static const struct hub_file qwen2_saved_5[] = {
    { "config.json",
      "{\"architectures\": [\"Qwen2VLForConditionalGeneration\"], \"dtype\": "
      "\"bfloat16\", " QWEN_IDS
      ", \"model_type\": \"qwen2_vl\", \"text_config\": {\"eos_token_id\": @im_end@, "
      "\"layer_types\": [\"full_attention\", \"full_attention\"], \"model_type\": "
      "\"qwen2_vl_text\", " TEXT_NUMBERS
      ", \"rope_parameters\": {\"mrope_section\": [4, 2, 2], \"rope_theta\": 10000.0, "
      "\"rope_type\": \"default\"}, \"sliding_window\": null}, \"tie_word_embeddings\": true, "
      "\"transformers_version\": \"5.22.2\", \"vision_config\": {\"depth\": 4, \"embed_dim\": 32, "
      "\"hidden_act\": \"quick_gelu\", \"hidden_size\": 32, \"in_channels\": 3, \"mlp_ratio\": 2, "
      "\"model_type\": \"qwen2_vl\", \"num_heads\": 2, \"patch_size\": 4, "
      "\"spatial_merge_size\": 2, \"temporal_patch_size\": 2}}" },
    { "processor_config.json",
      "{\"image_processor\": {" QWEN_MEANS ", \"merge_size\": 2, \"patch_size\": 4, \"size\": "
      "{\"longest_edge\": 65536, \"shortest_edge\": 1024}, \"temporal_patch_size\": 2}, "
      "\"processor_class\": \"Qwen2VLProcessor\"}" },
    { "tokenizer_config.json",
      "{\"backend\": \"tokenizers\", \"eos_token\": \"<|im_end|>\", " LARGE_LENGTH
      ", \"pad_token\": \"<|endoftext|>\", \"tokenizer_class\": \"Qwen2Tokenizer\"}" },
    { "chat_template.jinja", NULL },
    { NULL, NULL },
};

/* Qwen3-VL as Qwen published it, and (rope_parameters, processor_config.json) as transformers 5
 * saves it. Frames of a video have an area of their own. */
#define QWEN3_TEMPLATE                                                                             \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'}}"                    \
    "{{ content['text'] }}{{'<|vision_start|><|image_pad|><|vision_end|>'}}"                       \
    "{{'<|im_end|>\\n'}}{% endfor %}"                                                              \
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\\n'}}{% endif %}"

#define QWEN3_TEXT                                                                                 \
    "\"attention_bias\": false, \"attention_dropout\": 0.0, \"bos_token_id\": @endoftext@, "       \
    "\"eos_token_id\": @im_end@, \"head_dim\": 16, \"hidden_act\": \"silu\", \"hidden_size\": "    \
    "32, "                                                                                         \
    "\"initializer_range\": 0.02, \"intermediate_size\": 64, \"max_position_embeddings\": 4096, "  \
    "\"model_type\": \"qwen3_vl_text\", \"num_attention_heads\": 2, \"num_hidden_layers\": 3, "    \
    "\"num_key_value_heads\": 1, \"rms_norm_eps\": 1e-06, \"use_cache\": true, \"vocab_size\": "   \
    "288"

#define QWEN3_TOWER                                                                                \
    "\"deepstack_visual_indexes\": [1, 3], \"depth\": 4, \"hidden_act\": "                         \
    "\"gelu_pytorch_tanh\", \"hidden_size\": 32, \"in_channels\": 3, \"initializer_range\": "      \
    "0.02, "                                                                                       \
    "\"intermediate_size\": 48, \"model_type\": \"qwen3_vl\", \"num_heads\": 2, "                  \
    "\"num_position_embeddings\": 9, \"out_hidden_size\": 32, \"patch_size\": 4, "                 \
    "\"spatial_merge_size\": 2, \"temporal_patch_size\": 2"

#define QWEN3_HALVES "\"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, 0.5, 0.5]"

static const struct hub_file qwen3_published[] = {
    { "config.json",
      "{\"architectures\": [\"Qwen3VLForConditionalGeneration\"], " QWEN_IDS
      ", \"model_type\": \"qwen3_vl\", \"text_config\": {" QWEN3_TEXT
      ", \"rope_scaling\": {\"mrope_interleaved\": true, \"mrope_section\": [4, 2, 2], "
      "\"rope_type\": \"default\"}, \"rope_theta\": 10000.0}, \"tie_word_embeddings\": true, "
      "\"transformers_version\": \"4.57.0.dev0\", \"vision_config\": {" QWEN3_TOWER "}}" },
    { "generation_config.json",
      "{\"bos_token_id\": @endoftext@, \"do_sample\": true, \"eos_token_id\": [@im_end@, "
      "@endoftext@], \"top_k\": 20, \"top_p\": 0.8, \"temperature\": 0.7}" },
    { "preprocessor_config.json",
      "{\"size\": {\"longest_edge\": 65536, \"shortest_edge\": 1024}, \"patch_size\": 4, "
      "\"temporal_patch_size\": 2, \"merge_size\": 2, " QWEN3_HALVES
      ", \"processor_class\": \"Qwen3VLProcessor\", \"image_processor_type\": "
      "\"Qwen2VLImageProcessorFast\"}" },
    { "video_preprocessor_config.json",
      "{\"size\": {\"longest_edge\": 131072, \"shortest_edge\": 2048}, \"patch_size\": 4, "
      "\"temporal_patch_size\": 2, \"merge_size\": 2, " QWEN3_HALVES
      ", \"processor_class\": \"Qwen3VLProcessor\", \"video_processor_type\": "
      "\"Qwen3VLVideoProcessor\"}" },
    { "tokenizer_config.json",
      "{\"add_bos_token\": false, \"added_tokens_decoder\": @decoder@, \"bos_token\": null, "
      "\"chat_template\": @template@, \"eos_token\": \"<|im_end|>\", \"model_max_length\": 262144, "
      "\"pad_token\": \"<|endoftext|>\", \"tokenizer_class\": \"Qwen2Tokenizer\"}" },
    { "chat_template.json", "{\"chat_template\": @template@}" },
    { NULL, NULL },
};

static const struct hub_file qwen3_saved_5[] = {
    { "config.json",
      "{\"architectures\": [\"Qwen3VLForConditionalGeneration\"], \"dtype\": "
      "\"bfloat16\", " QWEN_IDS ", \"model_type\": \"qwen3_vl\", \"text_config\": {" QWEN3_TEXT
      ", \"pad_token_id\": null, \"rope_parameters\": {\"mrope_interleaved\": true, "
      "\"mrope_section\": [4, 2, 2], \"rope_theta\": 10000.0, \"rope_type\": \"default\"}}, "
      "\"tie_word_embeddings\": true, \"transformers_version\": \"5.22.2\", \"vision_config\": "
      "{" QWEN3_TOWER ", \"rope_parameters\": {\"rope_theta\": 10000.0}}}" },
    { "processor_config.json",
      "{\"image_processor\": {" QWEN3_HALVES ", \"merge_size\": 2, \"patch_size\": 4, \"size\": "
      "{\"longest_edge\": 65536, \"shortest_edge\": 1024}, \"temporal_patch_size\": 2}, "
      "\"processor_class\": \"Qwen3VLProcessor\", \"video_processor\": {" QWEN3_HALVES
      ", \"merge_size\": 2, \"patch_size\": 4, \"size\": {\"longest_edge\": 131072, "
      "\"shortest_edge\": 2048}, \"temporal_patch_size\": 2}}" },
    { "tokenizer_config.json",
      "{\"backend\": \"tokenizers\", \"eos_token\": \"<|im_end|>\", " LARGE_LENGTH
      ", \"pad_token\": \"<|endoftext|>\", \"tokenizer_class\": \"Qwen2Tokenizer\"}" },
    { "chat_template.jinja", NULL },
    { NULL, NULL },
};

/* LLaVA-OneVision of llava-hf. */

#define LLAVA_TEMPLATE                                                                             \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}{% for content in "    \
    "message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>' }}{% endfor %}"    \
    "{% for content in message['content'] | selectattr('type', 'equalto', 'video') %}"             \
    "{{ '<video>' }}{% endfor %}{{ '\\n' + content['text'] }}{{'<|im_end|>'}}{% endfor %}"         \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

#define LLAVA_REST                                                                                 \
    "\"image_grid_pinpoints\": [[22, 22], [22, 44], [44, 22], [44, 44]], \"image_token_index\": "  \
    "@image@, \"model_type\": \"llava_onevision\", \"projector_hidden_act\": \"gelu\", "           \
    "\"video_token_index\": @video@, \"vision_aspect_ratio\": \"anyres_max_9\", "                  \
    "\"vision_feature_layer\": -1, \"vision_feature_select_strategy\": \"full\""

#define LLAVA_TOWER                                                                                \
    "\"hidden_size\": 32, \"image_size\": 22, \"intermediate_size\": 48, \"model_type\": "         \
    "\"siglip_vision_model\", \"num_attention_heads\": 2, \"num_hidden_layers\": 2, "              \
    "\"patch_size\": 4, \"vision_use_head\": false"

#define LLAVA_PROCESSOR                                                                            \
    "\"do_convert_rgb\": true, \"do_normalize\": true, \"do_pad\": true, \"do_rescale\": true, "   \
    "\"do_resize\": true, \"image_grid_pinpoints\": [[22, 22], [22, 44], [44, 22], [44, 44]], "    \
    "\"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.5, 0.5, 0.5], \"resample\": 3, "           \
    "\"rescale_factor\": 0.00392156862745098, \"size\": {\"height\": 22, \"width\": 22}"

/* As llava-hf published it: a text_config that leaves out what is Qwen2's default. */
static const struct hub_file llava_published[] = {
    { "config.json",
      "{\"_name_or_path\": \"/raid/llava\", \"architectures\": "
      "[\"LlavaOnevisionForConditionalGeneration\"], \"ignore_index\": -100, " LLAVA_REST
      ", \"text_config\": {\"_name_or_path\": \"Qwen/Qwen2-0.5B-Instruct\", \"architectures\": "
      "[\"Qwen2ForCausalLM\"], \"bos_token_id\": @endoftext@, \"eos_token_id\": @im_end@, "
      "\"hidden_size\": 32, \"intermediate_size\": 64, \"max_window_layers\": 2, \"model_type\": "
      "\"qwen2\", \"num_attention_heads\": 2, \"num_hidden_layers\": 2, \"num_key_value_heads\": "
      "1, "
      "\"rope_theta\": 10000.0, \"sliding_window\": 131072, \"tie_word_embeddings\": true, "
      "\"torch_dtype\": \"bfloat16\", \"vocab_size\": 288}, \"tie_word_embeddings\": false, "
      "\"torch_dtype\": \"float16\", \"transformers_version\": \"4.45.0.dev0\", "
      "\"use_image_newline_parameter\": true, \"vision_config\": {" LLAVA_TOWER "}}" },
    { "generation_config.json",
      "{\"_from_model_config\": true, \"bos_token_id\": @endoftext@, "
      "\"eos_token_id\": @im_end@, \"transformers_version\": \"4.45.0\"}" },
    { "preprocessor_config.json", "{" LLAVA_PROCESSOR ", \"image_processor_type\": "
                                  "\"LlavaOnevisionImageProcessor\"}" },
    { "processor_config.json", "{\"num_image_tokens\": 25, \"processor_class\": "
                               "\"LlavaOnevisionProcessor\", \"video_token\": \"<video>\", "
                               "\"vision_feature_select_strategy\": \"full\"}" },
    { "tokenizer_config.json",
      "{\"add_prefix_space\": false, \"added_tokens_decoder\": @decoder@, "
      "\"additional_special_tokens\": "
      "[\"<|im_start|>\", \"<|im_end|>\"], \"bos_token\": null, \"clean_up_tokenization_spaces\": "
      "false, \"eos_token\": \"<|im_end|>\", \"errors\": \"replace\", \"model_max_length\": 32768, "
      "\"pad_token\": \"<|endoftext|>\", \"tokenizer_class\": \"Qwen2Tokenizer\", \"unk_token\": "
      "null}" },
    { "chat_template.json", "{\"chat_template\": @template@}" },
    { NULL, NULL },
};

/* As transformers 5 saves it. */
static const struct hub_file llava_saved_5[] = {
    { "config.json",
      "{\"architectures\": [\"LlavaOnevisionForConditionalGeneration\"], \"dtype\": \"float16\", "
      "\"multimodal_projector_bias\": true, " LLAVA_REST
      ", \"text_config\": {\"bos_token_id\": null, "
      "\"eos_token_id\": @im_end@, \"layer_types\": [\"full_attention\", \"full_attention\"], "
      "\"model_type\": \"qwen2\", \"pad_token_id\": null, " TEXT_NUMBERS
      ", \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, "
      "\"sliding_window\": null, \"tie_word_embeddings\": true}, \"tie_word_embeddings\": true, "
      "\"transformers_version\": \"5.22.2\", \"vision_config\": {\"attention_dropout\": 0.0, "
      "\"hidden_act\": \"gelu_pytorch_tanh\", \"layer_norm_eps\": 1e-06, \"num_channels\": "
      "3, " LLAVA_TOWER "}}" },
    { "processor_config.json",
      "{\"image_processor\": {" LLAVA_PROCESSOR ", \"image_processor_type\": "
      "\"LlavaOnevisionImageProcessor\"}, \"processor_class\": \"LlavaOnevisionProcessor\", "
      "\"video_processor\": {\"do_sample_frames\": false, \"size\": {\"height\": 22, \"width\": "
      "22}}}" },
    { "tokenizer_config.json",
      "{\"backend\": \"tokenizers\", \"eos_token\": \"<|im_end|>\", " LARGE_LENGTH
      ", \"pad_token\": \"<|endoftext|>\", \"tokenizer_class\": "
      "\"TokenizersBackend\"}" },
    { "chat_template.jinja", NULL },
    { NULL, NULL },
};

/* ---- the rows ---- */

enum tokenizer_files { VOCAB_AND_MERGES, TOKENIZER_STRINGS, TOKENIZER_PAIRS };

static const struct hub_row {
    const char *name;
    const struct family *family;
    int layout; /* of the tensors' names, see tiny_layouts */
    const char *template;
    const struct hub_file *files;
    enum tokenizer_files tokenizer;
    const char *index; /* metadata of a sharded index; NULL: one file */
} hub[] = {
    { "Qwen2.5-VL, published", &family_qwen2_5_vl, 0, QWEN_TEMPLATE, qwen25_published,
      VOCAB_AND_MERGES, "{\"total_size\": 16584333312}" },
    { "Qwen2.5-VL, tokenizer.json", &family_qwen2_5_vl, 0, QWEN_TEMPLATE, qwen25_published,
      TOKENIZER_STRINGS, NULL },
    { "Qwen2.5-VL, saved by 4.57", &family_qwen2_5_vl, 1, QWEN_TEMPLATE, qwen25_saved_4,
      TOKENIZER_STRINGS, "{\"total_parameters\": 8292166656, \"total_size\": 1.6584333312e10}" },
    { "Qwen2.5-VL, saved by 5", &family_qwen2_5_vl, 0, QWEN_TEMPLATE, qwen25_saved_5,
      TOKENIZER_PAIRS, "{\"total_size\": \"large\", \"more\": [null, 18446744073709551616]}" },
    { "LLaVA-OneVision, published", &family_llava_onevision, 0, LLAVA_TEMPLATE, llava_published,
      VOCAB_AND_MERGES, NULL },
    { "LLaVA-OneVision, sharded", &family_llava_onevision, 0, LLAVA_TEMPLATE, llava_published,
      TOKENIZER_STRINGS, "null" },
    { "LLaVA-OneVision, saved by 5", &family_llava_onevision, 1, LLAVA_TEMPLATE, llava_saved_5,
      TOKENIZER_PAIRS, "{}" },
    { "Qwen2-VL, published", &family_qwen2_vl, 0, QWEN_TEMPLATE, qwen2_published, VOCAB_AND_MERGES,
      "{\"total_size\": 4417971200}" },
    { "Qwen2-VL, saved by 5", &family_qwen2_vl, 1, QWEN_TEMPLATE, qwen2_saved_5, TOKENIZER_PAIRS,
      NULL },
    { "Qwen3-VL, published", &family_qwen3_vl, 1, QWEN3_TEMPLATE, qwen3_published, VOCAB_AND_MERGES,
      "{\"total_size\": 17534247392}" },
    { "Qwen3-VL, saved by 5", &family_qwen3_vl, 1, QWEN3_TEMPLATE, qwen3_saved_5, TOKENIZER_PAIRS,
      NULL },
};

enum { N_HUB = sizeof hub / sizeof *hub };

/* ---- writing one ---- */

static void write_file(const char *dir, const struct hub_file *f, const char *template,
                       const struct tiny_model *m)
{
    struct made out = { 0 };
    if (f->text)
        fill(&out, f->text, template, m);
    else
        tiny_puts(&out, template);
    tiny_write_in(dir, f->name, out.data, out.len);
    free(out.data);
}

static void put_merge(struct made *out, const char *merge, bool pair)
{
    char left[32];
    const char *space = strchr(merge, ' ');
    snprintf(left, sizeof left, "%.*s", (int)(space - merge), merge);
    if (!pair) {
        put_json(out, merge);
        return;
    }
    tiny_puts(out, "[");
    put_json(out, left);
    tiny_puts(out, ", ");
    put_json(out, space + 1);
    tiny_puts(out, "]");
}

/* tokenizer.json, with merges as strings or as pairs. */
static void write_tokenizer(const char *dir, const struct tiny_model *m, bool pairs)
{
    static const char split[] =
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
        "{\"Regex\": "
        "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
        "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
        "\"behavior\": "
        "\"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, \"use_regex\": false}]}";
    static const char *const post[] = {
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false}",
        "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}}], "
        "\"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"special_tokens\": {}}"
    };
    const char *token[TINY_MAX_TOKENS];
    int n = tiny_tokens(m, token);
    struct made out = { 0 };
    char text[64];
    tiny_puts(
        &out,
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    for (int i = TINY_ENDOFTEXT; i < n; i++) {
        snprintf(text, sizeof text, "%s{\"id\": %d, \"content\": ", i > TINY_ENDOFTEXT ? ", " : "",
                 i);
        tiny_puts(&out, text);
        put_json(&out, token[i]);
        tiny_puts(&out, ", \"special\": true, \"normalized\": false}");
    }
    tiny_puts(&out, "], \"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": ");
    tiny_puts(&out, split);
    tiny_puts(&out, ", \"post_processor\": ");
    tiny_puts(&out, post[pairs]);
    tiny_puts(
        &out,
        ", \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"dropout\": "
        "null, \"unk_token\": null, \"byte_fallback\": false, \"vocab\": {");
    for (int i = 0; i < TINY_ENDOFTEXT; i++) {
        tiny_puts(&out, i ? ", " : "");
        put_json(&out, token[i]);
        snprintf(text, sizeof text, ": %d", i);
        tiny_puts(&out, text);
    }
    tiny_puts(&out, "}, \"merges\": [");
    for (int i = 0; i < 4; i++) {
        tiny_puts(&out, i ? ", " : "");
        put_merge(&out, tiny_merges[i], pairs);
    }
    tiny_puts(&out, "]}}");
    tiny_write_in(dir, "tokenizer.json", out.data, out.len);
    free(out.data);
}

/* The one file becomes a shard, with an index that names its tensors. */
static void write_index(const char *dir, const char *metadata)
{
    char from[400], to[400];
    struct safetensors *st = NULL;
    struct made out = { 0 };
    CHECK_EQ(safetensors_open(&st, dir, 1 << 24, NULL), PV_OK);
    tiny_puts(&out, "{\"metadata\": ");
    tiny_puts(&out, metadata);
    tiny_puts(&out, ", \"weight_map\": {");
    for (int i = 0; st && i < safetensors_n_tensors(st); i++) {
        tiny_puts(&out, i ? ", " : "");
        put_json(&out, safetensors_tensor(st, i)->name);
        tiny_puts(&out, ": \"model-00001-of-00001.safetensors\"");
    }
    tiny_puts(&out, "}}");
    safetensors_close(&st);
    tiny_write_in(dir, "model.safetensors.index.json", out.data, out.len);
    free(out.data);
    snprintf(from, sizeof from, "%s/model.safetensors", dir);
    snprintf(to, sizeof to, "%s/model-00001-of-00001.safetensors", dir);
    CHECK_EQ(rename(from, to), 0);
}

static const char *write_row(const struct hub_row *r, char path[256])
{
    static const char *const own[] = { "preprocessor_config.json", "tokenizer_config.json" };
    struct tiny_vision m = tiny_vision(r->family);
    char name[400];
    m.layout = r->layout;
    tiny_vision_dir(&m, "hub", path);
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/%s", path, own[i]);
        remove(name);
    }
    if (r->tokenizer != VOCAB_AND_MERGES) {
        write_tokenizer(path, &m.text, r->tokenizer == TOKENIZER_PAIRS);
        snprintf(name, sizeof name, "%s/vocab.json", path);
        remove(name);
        snprintf(name, sizeof name, "%s/merges.txt", path);
        remove(name);
    }
    for (const struct hub_file *f = r->files; f->name; f++)
        write_file(path, f, r->template, &m.text);
    if (r->index)
        write_index(path, r->index);
    return path;
}

/* ---- what comes of them ---- */

static struct answer answer_of(const char *path)
{
    struct pair p = { .target = open_model(path, 1, NULL) };
    pv_session *s = open_session(&p);
    struct answer a = run(s, NULL, 0);
    pv_session_close(&s);
    close_pair(&p);
    return a;
}

TEST(every_directory_of_a_family_gives_the_same_answer)
{
    for (int i = 0, first = 0; i < N_HUB; i++) {
        static struct answer want;
        struct answer got;
        char path[256];
        struct config c;
        struct vocab *v = NULL;
        struct pv_error err = { 0 };
        write_row(&hub[i], path);
        CHECK_MSG(config_hf_open(&c, path, families, &err) == PV_OK, "%s: %s", hub[i].name,
                  err.text);
        CHECK(!err.code && c.rope_theta == 10000 && c.vocab == 288 && c.tied);
        CHECK_MSG(vocab_hf_open(&v, path, &err) == PV_OK, "%s: %s", hub[i].name, err.text);
        if (v) {
            CHECK_STR(v->chat_template, hub[i].template);
            CHECK_EQ(v->eos, TINY_IM_END);
            vocab_hf_close(&v);
        }
        if (err.code)
            continue;
        got = answer_of(path);
        if (i == 0 || hub[i].family != hub[i - 1].family) {
            want = got;
            first = i;
        }
        CHECK_MSG(got.n == N_NEW && memcmp(got.ids, want.ids, sizeof got.ids) == 0,
                  "%s: another answer than %s", hub[i].name, hub[first].name);
    }
}

/* ---- integers of any size ---- */

TEST(integers_beyond_64_bits_are_reals_and_others_exact)
{
    static const struct {
        const char *json;
        bool real;
        json_int_t value; /* of an integer */
    } cases[] = {
        { "{\"x\": 1000000000000000019884624838656}", true, 0 },
        { "{\"x\": -1000000000000000019884624838656}", true, 0 },
        { "{\"x\": 9223372036854775808}", true, 0 },
        { "{\"x\": -9223372036854775809}", true, 0 },
        { "{\"x\": 9223372036854775807, \"y\": 9999999999999999999}", false, INT64_MAX },
        { "{\"x\": -9223372036854775808, \"y\": 9999999999999999999}", false, INT64_MIN },
        { "{\"x\": 9007199254740993, \"y\": [99999999999999999999]}", false, 9007199254740993 },
        { "{\"x\": 7, \"9999999999999999999999\": \"8888888888888888888888 \\\\\\\" "
          "77777777777777777777\", "
          "\"y\": 9999999999999999999999}",
          false, 7 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = NULL;
        const json_t *x;
        struct pv_error err = { 0 };
        CHECK_MSG(json_hf_parse(&root, cases[i].json, strlen(cases[i].json), "t", &err) == PV_OK,
                  "%s", err.text);
        x = json_object_get(root, "x");
        CHECK_MSG(cases[i].real ? json_is_real(x)
                                : json_is_integer(x) && json_integer_value(x) == cases[i].value,
                  "case %d", (int)i);
        if (i == 0)
            CHECK(json_real_value(x) == 1e30);
        if (i == 7)
            CHECK_STR(json_hf_text(root, "9999999999999999999999"),
                      "8888888888888888888888 \\\" 77777777777777777777");
        json_decref(root);
    }
}

/* What is no JSON with such an integer in it is still refused, in one sentence. */
TEST(other_faults_are_still_faults)
{
    static const char *const cases[] = {
        "{\"x\": 99999999999999999999, }",         "{\"x\": 99999999999999999999",
        "{\"x\": 99999999999999999999, \"x\": 1}", "{\"x\": 1e999, \"y\": 99999999999999999999}",
        "{\"x\": 99999999999999999999x}",          "{\"x\": 099999999999999999999}",
        "{\"x\": --99999999999999999999}",         "99999999999999999999",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = NULL;
        struct pv_error err = { 0 };
        CHECK_MSG(json_hf_parse(&root, cases[i], strlen(cases[i]), "t", &err) == PV_E_FORMAT &&
                      err.text[0] && !root,
                  "case %d", (int)i);
        json_decref(root);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
