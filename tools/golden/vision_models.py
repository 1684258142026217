"""The models that make_vision_golden.py writes: their files as the hub spells them, their chat
templates, and the cases each of them is asked.
"""

import torch

SIDE = 74  # LLaVA: 5 patches of 14 and 4 pixels that nobody reads

LLAVA_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{# Render all images first #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>' }}{% endfor %}"
    "{# Render all video then #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'video') %}"
    "{{ '<video>' }}{% endfor %}"
    "{# Render all text next #}"
    "{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ '\\n' + content['text'] }}{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ '\\n' + content['text'] }}{% endgeneration %}{% endfor %}{% endif %}"
    "{{'<|im_end|>'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

QWEN_TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}<|im_end|>\n{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}"
    "<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in content %}"
    "{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

# Of Qwen3-VL Instruct, without its tools.
QWEN3_TEMPLATE = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' }}"
    "{%- for content in messages[0].content %}{%- if 'text' in content %}{{- content.text }}"
    "{%- endif %}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- set image_count = namespace(value=0) %}{%- set video_count = namespace(value=0) %}"
    "{%- for message in messages %}{%- if message.role == 'user' or message.role == 'assistant' %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}{%- if message.content is string %}"
    "{{- message.content }}{%- else %}{%- for content in message.content %}"
    "{%- if content.type == 'image' or 'image' in content or 'image_url' in content %}"
    "{%- set image_count.value = image_count.value + 1 %}"
    "{%- if add_vision_id %}Picture {{ image_count.value }}: {% endif -%}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{%- elif content.type == 'video' or 'video' in content %}"
    "{%- set video_count.value = video_count.value + 1 %}"
    "{%- if add_vision_id %}Video {{ video_count.value }}: {% endif -%}"
    "<|vision_start|><|video_pad|><|vision_end|>{%- elif 'text' in content %}"
    "{{- content.text }}{%- endif %}{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")

QWEN_CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>",
                "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
LLAVA_CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]


def video(seed, frames, height, width, fps=2.0):
    return dict(video=1, seed=seed, frames=frames, height=height, width=width, fps=fps)


def image(seed, height, width):
    return dict(video=0, seed=seed, frames=1, height=height, width=width, fps=0.0)


# ---- files ----

def text_config(vocab, hidden, heads, kv_heads, tied):
    return dict(hidden_size=hidden, num_hidden_layers=2, num_attention_heads=heads,
                num_key_value_heads=kv_heads, intermediate_size=96, vocab_size=vocab,
                max_position_embeddings=1024, rms_norm_eps=1e-6, rope_theta=1000000.0,
                tie_word_embeddings=tied, hidden_act="silu", use_sliding_window=False,
                sliding_window=1024, max_window_layers=2)


PINPOINTS = [[SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE], [SIDE, 3 * SIDE]]


def llava_files(ids, vocab):
    """config.json and the others as llava-hf's directories spell them."""
    half = [0.5, 0.5, 0.5]
    pixels_of = dict(do_convert_rgb=True, do_normalize=True, do_rescale=True, do_resize=True,
                     image_mean=half, image_std=half, resample=3,
                     rescale_factor=0.00392156862745098, size=dict(height=SIDE, width=SIDE),
                     processor_class="LlavaOnevisionProcessor")
    return {
        "config.json": dict(
            architectures=["LlavaOnevisionForConditionalGeneration"],
            model_type="llava_onevision", ignore_index=-100, image_grid_pinpoints=PINPOINTS,
            image_token_index=ids["<image>"], video_token_index=ids["<video>"],
            projector_hidden_act="gelu", tie_word_embeddings=True,
            text_config=dict(model_type="qwen2", architectures=["Qwen2ForCausalLM"],
                             bos_token_id=ids["<|endoftext|>"], eos_token_id=ids["<|im_end|>"],
                             torch_dtype="float16", **text_config(vocab, 64, 4, 2, True)),
            use_image_newline_parameter=True, vision_aspect_ratio="anyres_max_2",
            vision_config=dict(model_type="siglip_vision_model", hidden_size=48, image_size=SIDE,
                               intermediate_size=76, num_attention_heads=4, num_hidden_layers=3,
                               patch_size=14, vision_use_head=False),
            vision_feature_layer=-1, vision_feature_select_strategy="full",
            torch_dtype="float16"),
        "preprocessor_config.json": dict(
            image_processor_type="LlavaOnevisionImageProcessor", image_grid_pinpoints=PINPOINTS,
            **pixels_of),
        "video_preprocessor_config.json": dict(
            video_processor_type="LlavaOnevisionVideoProcessor", **pixels_of),
        "processor_config.json": dict(
            image_token="<image>", num_image_tokens=25, processor_class="LlavaOnevisionProcessor",
            video_token="<video>", vision_aspect_ratio="anyres_max_2",
            vision_feature_select_strategy="full"),
    }


def qwen_ids(ids):
    return dict(bos_token_id=ids["<|endoftext|>"], eos_token_id=ids["<|im_end|>"],
                vision_start_token_id=ids["<|vision_start|>"],
                vision_end_token_id=ids["<|vision_end|>"], vision_token_id=ids["<|vision_pad|>"],
                image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"])


def qwen_preprocessors(processor):
    pixels_of = dict(min_pixels=784, max_pixels=12845056, patch_size=14, temporal_patch_size=2,
                     merge_size=2, image_mean=[0.48145466, 0.4578275, 0.40821073],
                     image_std=[0.26862954, 0.26130258, 0.27577711], processor_class=processor)
    return {
        "preprocessor_config.json": dict(image_processor_type="Qwen2VLImageProcessor", **pixels_of),
        "video_preprocessor_config.json": dict(video_processor_type="Qwen2VLVideoProcessor",
                                               do_sample_frames=False, cap_pixels_per_frame=False,
                                               **pixels_of),
    }


def qwen_files(ids, vocab):
    """The same as Qwen's directories spell it: text keys on top, no nested text_config."""
    return {
        "config.json": dict(
            architectures=["Qwen2_5_VLForConditionalGeneration"], model_type="qwen2_5_vl",
            attention_dropout=0.0, **qwen_ids(ids), **text_config(vocab, 48, 3, 1, False),
            vision_config=dict(depth=3, hidden_act="silu", hidden_size=40, intermediate_size=52,
                               num_heads=2, in_chans=3, out_hidden_size=48, patch_size=14,
                               spatial_merge_size=2, spatial_patch_size=14, window_size=112,
                               fullatt_block_indexes=[1], tokens_per_second=2,
                               temporal_patch_size=2),
            rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3]), torch_dtype="bfloat16"),
        **qwen_preprocessors("Qwen2_5_VLProcessor"),
    }


def qwen2_files(ids, vocab):
    """Qwen2-VL: hidden_size of vision_config is the decoder's."""
    return {
        "config.json": dict(
            architectures=["Qwen2VLForConditionalGeneration"], model_type="qwen2_vl",
            attention_dropout=0.0, **qwen_ids(ids), **text_config(vocab, 48, 3, 1, False),
            vision_config=dict(depth=3, embed_dim=40, mlp_ratio=3, num_heads=2, in_chans=3,
                               hidden_size=48, hidden_act="quick_gelu", patch_size=14,
                               spatial_merge_size=2, spatial_patch_size=14,
                               temporal_patch_size=2),
            rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3]), torch_dtype="bfloat16"),
        **qwen_preprocessors("Qwen2VLProcessor"),
    }


# Qwen3-VL: pixels of a picture, and of all frames of a video together.
QWEN3_IMAGE = dict(shortest_edge=1024, longest_edge=1 << 20)
QWEN3_VIDEO = dict(shortest_edge=4096, longest_edge=24576)


def qwen3_files(ids, vocab):
    """Qwen3-VL: nested, with rows of positions and three layers of the decoder for two vectors of
    deepstack."""
    half = [0.5, 0.5, 0.5]
    pixels_of = dict(patch_size=16, temporal_patch_size=2, merge_size=2, image_mean=half,
                     image_std=half, processor_class="Qwen3VLProcessor")
    media_ids = qwen_ids(ids)
    text_ids = {k: media_ids.pop(k) for k in ("bos_token_id", "eos_token_id")}
    del media_ids["vision_token_id"]
    return {
        "config.json": dict(
            architectures=["Qwen3VLForConditionalGeneration"], model_type="qwen3_vl", **media_ids,
            text_config=dict(
                model_type="qwen3_vl_text", attention_bias=False, attention_dropout=0.0,
                head_dim=16, hidden_act="silu", hidden_size=48, intermediate_size=64,
                max_position_embeddings=1024, num_attention_heads=4, num_hidden_layers=3,
                num_key_value_heads=2, rms_norm_eps=1e-6, rope_theta=5000000,
                rope_scaling=dict(mrope_interleaved=True, mrope_section=[4, 2, 2],
                                  rope_type="default"),
                use_cache=True, vocab_size=vocab, dtype="bfloat16", **text_ids),
            tie_word_embeddings=True,
            vision_config=dict(model_type="qwen3_vl", deepstack_visual_indexes=[1, 2], depth=4,
                               hidden_act="gelu_pytorch_tanh", hidden_size=24, in_channels=3,
                               initializer_range=0.02, intermediate_size=36, num_heads=2,
                               num_position_embeddings=36, out_hidden_size=48, patch_size=16,
                               spatial_merge_size=2, temporal_patch_size=2)),
        "preprocessor_config.json": dict(size=QWEN3_IMAGE, **pixels_of,
                                         image_processor_type="Qwen2VLImageProcessorFast"),
        "video_preprocessor_config.json": dict(size=QWEN3_VIDEO, **pixels_of,
                                               video_processor_type="Qwen3VLVideoProcessor"),
    }


# A case: media in the order they are given, `turns`: a second question follows, `rules`: the answer
# by Qwen's own time rule too.
MODELS = {
    "llava_onevision": dict(
        dtype=torch.float16, seed=2007, control=LLAVA_CONTROL, template=LLAVA_TEMPLATE,
        files=llava_files, tower="vision_tower",
        cases=dict(
            video=dict(media=[video(1, 4, SIDE, SIDE)]),
            resized=dict(media=[video(2, 3, 40, 56)]),
            wide=dict(media=[image(3, 50, 130)]),       # 1 x 2 tiles, rows cut off
            large=dict(media=[image(4, 140, 110)]),     # 2 x 2 tiles, columns cut off, shrunk
            pictures=dict(media=[image(5, 50, 90), image(6, 100, 70)]),  # each a grey square
            mixed=dict(media=[video(7, 2, SIDE, SIDE), image(8, 70, 200), video(9, 2, 50, 80)]),
            turns=dict(media=[video(10, 2, SIDE, SIDE)], turns=True))),
    "qwen2_5_vl_video": dict(
        dtype=torch.bfloat16, seed=11, control=QWEN_CONTROL, template=QWEN_TEMPLATE,
        files=qwen_files, tower="visual",
        cases=dict(
            video=dict(media=[video(1, 5, 168, 280)]),  # windows of 4 x 4 units in 6 x 10
            image=dict(media=[image(2, 224, 84)]),      # 8 x 3
            resized=dict(media=[image(3, 100, 133)]),
            resized_video=dict(media=[video(21, 2, 47, 66, 4.0)]),
            mixed=dict(media=[video(4, 2, 84, 56), image(5, 56, 140), video(6, 4, 56, 112, 1.0)]),
            # Time goes further than the sides and than the text: the rules for positions differ.
            slow=dict(media=[video(7, 10, 28, 56, 0.15)], rules=True),
            turns=dict(media=[video(8, 4, 112, 84)], turns=True))),
    "qwen2_vl_video": dict(
        dtype=torch.bfloat16, seed=29, control=QWEN_CONTROL, template=QWEN_TEMPLATE,
        files=qwen2_files, tower="visual",
        cases=dict(
            video=dict(media=[video(1, 5, 112, 168)]),
            image=dict(media=[image(2, 224, 84)]),
            resized=dict(media=[image(3, 100, 133)]),
            resized_video=dict(media=[video(21, 2, 47, 66, 4.0)]),
            mixed=dict(media=[video(4, 2, 84, 56), image(5, 56, 140), video(6, 4, 56, 112, 1.0)]),
            # More pairs of frames than the sides have tokens, whatever the seconds.
            slow=dict(media=[video(7, 11, 28, 56, 0.15)], rules=True),
            turns=dict(media=[video(8, 4, 112, 84)], turns=True))),
    "qwen3_vl_video": dict(
        dtype=torch.bfloat16, seed=43, control=QWEN_CONTROL, template=QWEN3_TEMPLATE,
        files=qwen3_files, tower="visual",
        cases=dict(
            video=dict(media=[video(1, 5, 64, 96)]),    # "<0.2", "<1.2", "<2.0 seconds>"
            image=dict(media=[image(2, 160, 64)]),      # 10 x 4 patches over 6 x 6 positions
            resized=dict(media=[image(3, 100, 133)]),
            resized_video=dict(media=[video(79, 2, 47, 66, 4.0)]),
            budget=dict(media=[video(4, 7, 62, 66, 1.3)]),  # shrunk: all frames share an area
            # The first video is smaller than a token and grows to the least area.
            mixed=dict(media=[video(13, 2, 30, 33), image(5, 32, 96), video(6, 3, 32, 64, 1.6)]),
            turns=dict(media=[video(8, 4, 64, 96, 24.0)], turns=True))),
}

# Qwen2.5-VL's rules for positions, as include/prevue/prevue.h names them.
RULES = ["seconds", "whole", "compact", "seconds_compact"]
