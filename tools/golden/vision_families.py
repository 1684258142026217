"""From pixels to what a model takes: one class for each family of make_vision_golden.py.

Pictures and prompts go through transformers' own processors and chat templates. Where a class does
something of its own, it says why, and checks it against the library where the library can do it.
"""

import json
import os
import re
from itertools import count

import numpy as np
import PIL.Image
import torch
import transformers
from torchvision.transforms import InterpolationMode, functional
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as smart_resize_3d
from transformers.video_utils import VideoMetadata

from vision_models import LLAVA_TEMPLATE, QWEN3_TEMPLATE, QWEN3_VIDEO, QWEN_TEMPLATE, SIDE

PIECE = r"<\|vision_start\|><\|(video|image)_pad\|><\|vision_end\|>"


def pixels(m):
    """[frames, height, width, 3] of 8 bits: slopes and noise. The same in test_golden_vision.c."""
    t, y, x, c = np.indices((m["frames"], m["height"], m["width"], 3), dtype=np.uint32)
    seed = np.uint32(m["seed"])
    h = (t * np.uint32(7919) + y * np.uint32(104729) + x * np.uint32(1299709)
         + c * np.uint32(15485863) + seed * np.uint32(32452843))
    h = (h ^ (h >> np.uint32(15))) * np.uint32(2246822519)
    h = h ^ (h >> np.uint32(13))
    slope = (3 * y + 2 * x + 16 * t + 50 * c + 9 * seed) & np.uint32(127)
    return (slope + (h >> np.uint32(25))).astype(np.uint8)


def pil(rgb):
    return PIL.Image.fromarray(rgb)


pillow_resize = PIL.Image.Image.resize


def resize_either_way(self, size, *args, **kw):
    """Pillow 13 takes the vertical pass first for some sizes, older versions for none, and 8 bits
    lie between the passes: only sizes are used for which all of them agree."""
    out = pillow_resize(self, size, *args, **kw)
    columns = pillow_resize(self, (size[0], self.height), *args, **kw)
    same = pillow_resize(columns, size, *args, **kw).tobytes() == out.tobytes()
    assert same, f"{self.height} x {self.width} depends on the version of Pillow"
    return out


class Llava:
    """Still pictures are resized by Pillow, inside transformers' processor for it; frames of
    videos by Pillow before they are handed over, since that processor has no such variant."""

    def __init__(self, model, folder):
        self.model = model
        self.processor = transformers.LlavaOnevisionProcessor(
            image_processor=LlavaOnevisionImageProcessorPil.from_pretrained(folder),
            tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
            video_processor=transformers.LlavaOnevisionVideoProcessor.from_pretrained(folder),
            chat_template=LLAVA_TEMPLATE,
            **json.load(open(os.path.join(folder, "processor_config.json"))))
        self.after_answer = "<|im_end|>"

    def inputs(self, text, media):
        images = [pil(pixels(m)[0]) for m in media if not m["video"]]
        videos = [[pil(f).resize((SIDE, SIDE), PIL.Image.BICUBIC) for f in pixels(m)]
                  for m in media if m["video"]]
        return self.processor(text=[text], images=[images] if images else None,
                              videos=[np.stack(v) for v in videos] or None, return_tensors="pt")

    def patches(self, inputs, i, is_video):
        """Rows of the patch convolution's input, and the frames or views they came from."""
        views = inputs["pixel_values_videos" if is_video else "pixel_values"][i]
        if not is_video and len(inputs["image_sizes"]) > 1:
            views = views[:1]
        rows = torch.nn.functional.unfold(views, 14, stride=14)  # [views, 588, 25]
        return rows.transpose(1, 2).flatten(0, 1), views

    def features(self, inputs, i, is_video, views):
        """The tower's output before the projector, and the rows of the prompt."""
        body = self.model.model
        with torch.no_grad():
            tower = body.vision_tower(views, output_hidden_states=True).hidden_states[-1]
            if is_video:
                rows = body.get_video_features(inputs["pixel_values_videos"][i:i + 1])
                return tower.flatten(0, 1), rows.pooler_output[0]
            rows = body.get_image_features(inputs["pixel_values"], inputs["image_sizes"],
                                           batch_num_images=inputs["batch_num_images"])
        return tower.flatten(0, 1), rows.pooler_output[i]

    def positions(self, inputs):
        n = inputs["input_ids"].shape[1]
        return torch.arange(n).expand(3, -1)

    def rule_positions(self, inputs, media, rule):
        return None


class Qwen:
    """What Qwen's families have in common. Still pictures are resized by Pillow, inside
    transformers' processor for it; frames of videos by torchvision in F32 before they are handed
    over, as qwen-vl-utils does it."""

    template, factor = QWEN_TEMPLATE, 28

    def __init__(self, model, folder):
        self.model = model
        self.processor = self.processors[0](
            image_processor=Qwen2VLImageProcessorPil.from_pretrained(folder),
            tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
            video_processor=self.processors[1].from_pretrained(folder),
            chat_template=self.template)
        self.after_answer = "<|im_end|>\n"

    def size(self, m):
        return smart_resize(m["height"], m["width"], self.factor, 784, 12845056)

    def frames(self, m):
        rgb = torch.from_numpy(pixels(m)).permute(0, 3, 1, 2)
        size = list(self.size(m))
        exact = torch.nn.functional.interpolate(rgb.double(), size, mode="bicubic", antialias=True)
        half = (exact - exact.floor() - 0.5).abs()[(exact > 0) & (exact < 255)]
        assert half.min() > 1e-4, "rounding in F32 could decide a pixel: take another seed"
        return functional.resize(rgb, size, InterpolationMode.BICUBIC, antialias=True)

    def metadata(self, media):
        return [VideoMetadata(total_num_frames=m["frames"], fps=m["fps"],
                              frames_indices=list(range(m["frames"])))
                for m in media if m["video"]]

    def inputs(self, text, media, **kwargs):
        images = [pil(pixels(m)[0]) for m in media if not m["video"]]
        videos = [self.frames(m) for m in media if m["video"]]
        return self.processor(text=[text], images=images or None, videos=videos or None,
                              video_metadata=self.metadata(media) or None, return_tensors="pt",
                              **kwargs)

    def patches(self, inputs, i, is_video):
        grid = inputs["video_grid_thw" if is_video else "image_grid_thw"]
        rows = inputs["pixel_values_videos" if is_video else "pixel_values"]
        first = int(grid[:i].prod(-1).sum())
        rows = rows[first:first + int(grid[i].prod())]
        return rows, (rows, grid[i:i + 1])

    def features(self, inputs, i, is_video, views):
        """The tower's output before the merger, and the rows of the prompt."""
        with torch.no_grad():
            out = self.model.model.visual(views[0], grid_thw=views[1])
        return out.last_hidden_state, out.pooler_output

    def positions(self, inputs):
        pos, _ = self.model.model.get_rope_index(
            inputs["input_ids"], inputs["mm_token_type_ids"],
            image_grid_thw=inputs.get("image_grid_thw"),
            video_grid_thw=inputs.get("video_grid_thw"),
            second_per_grid_ts=inputs.get("second_per_grid_ts"))
        return pos[:, 0]

    def times(self, n, seconds, rule):
        """Positions of n slices, of so many seconds each."""
        raise NotImplementedError

    def rule_positions(self, inputs, media, rule):
        """Our own words of the rules; `seconds_compact` must be what the library does."""
        kinds = inputs["mm_token_type_ids"][0].tolist()
        images, videos = (iter(inputs.get(k, [])) for k in ("image_grid_thw", "video_grid_thw"))
        seconds = iter(2 / m["fps"] for m in media if m["video"])
        out, at, k = [], 0, 0
        while k < len(kinds):
            if kinds[k] == 0:
                out.append((at, at, at))
                at, k = at + 1, k + 1
                continue
            t, h, w = (int(v) for v in next(videos if kinds[k] == 2 else images))
            times = self.times(t, next(seconds) if kinds[k] == 2 else 0.0, rule)
            cells = [(at + times[i], at + y, at + x)
                     for i in range(t) for y in range(h // 2) for x in range(w // 2)]
            out += cells
            k += len(cells)
            at = at + max(h, w) // 2 if rule.endswith("compact") else max(map(max, cells)) + 1
        return torch.tensor(out).T


class Qwen25(Qwen):
    """Qwen2.5-VL: layers see the patches in the order of their windows; time is by the clock."""

    processors = (transformers.Qwen2_5_VLProcessor, transformers.Qwen2VLVideoProcessor)

    def features(self, inputs, i, is_video, views):
        visual = self.model.model.visual
        order = []
        # The permutation is undone by following numbered rows through it.
        numbered = torch.arange(len(views[0]))[:, None].float()
        inner = visual.permute_input_for_window_attn
        visual.permute_input_for_window_attn = lambda x, index, seq_len: (
            order.append(inner(numbered, index, seq_len)), inner(x, index, seq_len))[1]
        permuted, rows = super().features(inputs, i, is_video, views)
        del visual.permute_input_for_window_attn
        tower = torch.empty_like(permuted)
        tower[order[0][:, 0].long()] = permuted
        return tower, rows

    def times(self, n, seconds, rule):
        if rule in ("whole", "compact"):
            seconds = float(int(seconds))
        return [int(np.float32(i) * np.float32(2 * seconds)) for i in range(n)]


class Qwen2(Qwen):
    """Qwen2-VL: time counts pairs of frames."""

    processors = (transformers.Qwen2VLProcessor, transformers.Qwen2VLVideoProcessor)

    def times(self, n, seconds, rule):
        return list(range(n))


class Qwen3(Qwen):
    """Qwen3-VL: every pair of frames is a block after a text that tells its time. Rows are an
    embedding and the vectors of deepstack, one after the other."""

    processors = (transformers.Qwen3VLProcessor, transformers.Qwen3VLVideoProcessor)
    template, factor = QWEN3_TEMPLATE, 32

    def size(self, m):
        if not m["video"]:
            return super().size(m)
        return smart_resize_3d(m["frames"], m["height"], m["width"], 2, self.factor,
                               QWEN3_VIDEO["shortest_edge"], QWEN3_VIDEO["longest_edge"])

    def inputs(self, text, media):
        """The blocks replace the whole piece of the template, as transformers did until 5.9 and vLLM
        does. From 5.10 on the library leaves the piece's own start and end around them: apart from
        these, its ids must be ours."""
        out = super().inputs(text, media, videos_kwargs=dict(
            do_sample_frames=False, do_resize=False, cap_pixels_per_frame=False))
        told = dict(out, video_metadata=self.metadata(media))
        n_videos, n_images = count(), count()
        text = re.sub(PIECE, lambda piece: (
            self.processor.replace_video_token(told, next(n_videos)) if piece[1] == "video" else
            piece[0].replace("<|image_pad|>",
                             self.processor.replace_image_token(told, next(n_images)))), text)
        tokenizer = self.processor.tokenizer
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        start, end, *pads = tokenizer.convert_tokens_to_ids(
            ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"])
        theirs = out["input_ids"][0].tolist()
        bare = [t for k, t in enumerate(theirs)
                if not (t == start and theirs[k + 1] not in pads
                        or t == end and theirs[k - 1] == end)]
        assert bare == ids, "the library lays the prompt out otherwise"
        out["input_ids"] = torch.tensor([ids])
        out["attention_mask"] = torch.ones_like(out["input_ids"])
        out["mm_token_type_ids"] = torch.tensor(
            [[1 + pads.index(t) if t in pads else 0 for t in ids]])
        return out

    def features(self, inputs, i, is_video, views):
        with torch.no_grad():
            out = self.model.model.visual(views[0], grid_thw=views[1])
        return out.last_hidden_state, torch.cat([out.pooler_output, *out.deepstack_features], dim=1)

    def rule_positions(self, inputs, media, rule):
        """There is one rule, and the library has it."""
        return self.positions(inputs) if rule == "seconds_compact" else None
