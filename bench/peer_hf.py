#!/usr/bin/env python3
"""The peer of bench_gpu: the same shapes, contexts and rows in Hugging Face transformers (SDPA,
BF16), with random weights made on the GPU, as the same columns of CSV.

    bench/peer_hf.py --csv peer.csv                      q05 and q7: every test
    bench/peer_hf.py --models q32 --what decode,prefill
    bench/peer_hf.py --device cpu --models tiny --towers tiny-ov,tiny-qwen2.5-vl --contexts 64 ...

The cache is a DynamicCache filled with random keys and values, as generate() uses; a step is one
forward with it, then the argmax of each row brought to the host. A prompt is one forward with the
logits of its last row. Shapes are read from shapes.h, where make_model has them from.
"""

import argparse
import datetime
import os
import platform
import re
import sys
import time

import torch
import transformers

COLUMNS = ("date,machine,commit,engine,device,model,type,test,context,rows,samples,ms,best_ms,"
           "tokens_s,floor_ms,of_floor,tflops,memory_gb,note").split(",")
TESTS = ["limits", "decode", "prefill", "tower", "hearing", "first"]
WARM_UP = 3
QUESTION = 32  # tokens behind the video's


def read_shapes():
    """Shapes and towers by name, as dictionaries."""
    text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "shapes.h")).read()
    towers = {}
    for name, body in re.findall(r"struct tower (\w+) = \{([^}]*)\}", text):
        keys = ("llava hidden layers heads ffn patch image window pattern positions deep0 deep1 "
                "deep2").split()
        towers[name] = dict(zip(keys, [v == "true" if v in ("true", "false") else int(v)
                                       for v in body.replace(" ", "").split(",")]))
    experts = {name: dict(zip(("n", "used", "ffn"), map(int, body.split(","))))
               for name, body in re.findall(r"struct experts (\w+) = \{([^}]*)\}", text)}
    ear_keys = "mel hidden layers heads ffn positions window q_hidden q_layers q_heads q_ffn".split()
    ears = {name: dict(zip(ear_keys, map(int, body.split(","))))
            for name, body in re.findall(r"struct ears (\w+) = \{([^}]*)\}", text)}
    keys = ("arch hidden layers heads kv_heads head_dim ffn vocab context tied tower experts "
            "ears").split()
    shapes = {}
    for name, body in re.findall(r'\{ "([^"]+)",( "qwen[^}]*)\}', text):
        shape = dict(zip(keys, [v.strip(' "\n') for v in body.split(",")]))
        for key in keys[1:9]:
            shape[key] = int(shape[key])
        shape["tied"] = shape["tied"] == "true"
        shape["tower"] = towers.get(shape["tower"].lstrip("&"))
        shape["experts"] = experts.get(shape["experts"].lstrip("&"))
        shape["ears"] = ears.get(shape["ears"].lstrip("&"))
        shapes[name] = shape
    return shapes


class Bench:
    def __init__(self, args):
        self.args = args
        self.device = torch.device(args.device)
        self.dtype = torch.bfloat16
        self.shapes = read_shapes()
        self.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.csv = open(args.csv, "a") if args.csv else None
        if self.csv and self.csv.tell() == 0:
            self.csv.write(",".join(COLUMNS) + "\n")

    # ---- times and rows ----

    def now(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def time(self, call, after=None, repeat=0, warm=WARM_UP):
        """Seconds of each call after some that nobody looks at."""
        seconds = []
        for i in range(warm + (repeat or self.args.repeat)):
            start = self.now()
            call()
            if i >= warm:
                seconds.append(self.now() - start)
            if after:
                after()
        return seconds

    def row(self, model, test, context, rows, seconds, tokens=0, note="", operations=0):
        seconds = sorted(seconds)
        ms, best = 1e3 * seconds[len(seconds) // 2], 1e3 * seconds[0]
        memory = torch.cuda.memory_allocated() if self.device.type == "cuda" else 0
        rate = 1e3 * tokens / ms
        tflops = 1e-9 * operations / ms
        print(f"{model:14} {'bf16':5} {test:12} {context:7} {rows:5} {ms:10.3f} {best:10.3f} "
              f"{rate:9.1f} {tflops:7.1f}  {note}", flush=True)
        if self.csv:
            device = torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu"
            values = [self.date, platform.node(), self.args.commit,
                      f"transformers {transformers.__version__}", device, model, "bf16", test,
                      context, rows, len(seconds), f"{ms:.5f}", f"{best:.5f}", f"{rate:.2f}", "0",
                      "0", f"{tflops:.2f}", f"{1e-9 * memory:.2f}", note.replace(",", ";")]
            self.csv.write(",".join(str(v) for v in values) + "\n")
            self.csv.flush()

    # ---- models ----

    def build(self, make):
        """A model made on the device, its weights drawn there."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            with torch.device(self.device):
                model = make()
        finally:
            torch.set_default_dtype(before)
        return model.eval().requires_grad_(False)

    def text_config(self, shape):
        kind = transformers.Qwen2Config
        more = dict(use_sliding_window=False)
        if shape["arch"].startswith("qwen3"):
            kind, more = transformers.Qwen3Config, dict(head_dim=shape["head_dim"])
        if shape["experts"]:
            kind = transformers.Qwen3MoeConfig
            more.update(num_experts=shape["experts"]["n"], norm_topk_prob=True,
                        num_experts_per_tok=shape["experts"]["used"],
                        moe_intermediate_size=shape["experts"]["ffn"])
        return kind(
            hidden_size=shape["hidden"], num_hidden_layers=shape["layers"],
            num_attention_heads=shape["heads"], num_key_value_heads=shape["kv_heads"],
            intermediate_size=shape["ffn"], vocab_size=shape["vocab"],
            max_position_embeddings=max(shape["context"], 32768),
            tie_word_embeddings=shape["tied"], rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            attn_implementation="sdpa", **more)

    def siglip_config(self, tower):
        return transformers.SiglipVisionConfig(
            hidden_size=tower["hidden"], num_hidden_layers=tower["layers"],
            num_attention_heads=tower["heads"], intermediate_size=tower["ffn"],
            patch_size=tower["patch"], image_size=tower["image"], vision_use_head=False,
            attn_implementation="sdpa")

    def llava_config(self, shape):
        return transformers.LlavaOnevisionConfig(
            text_config=self.text_config(shape).to_dict(),
            vision_config=self.siglip_config(shape["tower"]).to_dict(),
            image_token_index=1, video_token_index=2, vision_feature_select_strategy="full",
            vision_feature_layer=-1, tie_word_embeddings=shape["tied"])

    def filled_cache(self, config, context):
        cache = transformers.DynamicCache(config=config)
        heads, dim = config.num_key_value_heads, getattr(config, "head_dim", None)
        dim = dim or config.hidden_size // config.num_attention_heads
        for layer in range(config.num_hidden_layers):
            keys = torch.randn(1, heads, context, dim, device=self.device, dtype=self.dtype)
            values = torch.randn(1, heads, context, dim, device=self.device, dtype=self.dtype)
            cache.update(keys, values, layer)
        return cache

    def ids(self, config, n):
        return torch.randint(config.vocab_size, (1, n), device=self.device)

    # ---- tests ----

    def limits(self):
        """What the device can do at most, by torch: a read of 4 GiB, a product of 8192^3."""
        cpu = self.device.type == "cpu"
        n, side = (1 << 24, 512) if cpu else (1 << 30, 8192)
        x = torch.zeros(n, device=self.device, dtype=torch.float32)
        best = min(min(self.time(call)) for call in (lambda: torch.max(x), lambda: torch.sum(x)))
        self.row("-", "read", 0, 0, [best], note=f"{4e-9 * n / best:.0f} GB/s")
        del x
        a = torch.randn(side, side, device=self.device, dtype=self.dtype)
        seconds = self.time(lambda: a @ a)
        self.row("-", "product", 0, side, seconds, operations=2.0 * side ** 3)

    def decode(self, name, model, config):
        for context in self.args.contexts:
            for rows in self.args.rows:
                cache, ids = self.filled_cache(config, context), self.ids(config, rows)

                def step():
                    out = model(input_ids=ids, past_key_values=cache, use_cache=True)
                    return out.logits.argmax(-1).tolist()
                # One token follows another; other rows are taken back.
                back = None if rows == 1 else lambda: cache.crop(-rows)
                self.row(name, "decode", context, rows, self.time(step, back), tokens=rows)
                del cache

    def prefill(self, name, model, config):
        n = self.args.prefill
        ids = self.ids(config, n)

        def run():
            out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            return out.logits.argmax(-1).tolist()
        self.row(name, "prefill", n, n, self.time(run, repeat=2, warm=1), tokens=n,
                 note="one forward")

    def siglip(self, name, tower):
        frames = self.args.frames
        model = self.build(lambda: transformers.SiglipVisionModel(self.siglip_config(tower)))
        side = tower["image"]
        pixels = torch.rand(frames, 3, side, side, device=self.device, dtype=self.dtype)
        seconds = self.time(lambda: model(pixel_values=pixels), repeat=3, warm=1)
        self.row(name, "tower", 0, frames, seconds, note=f"{frames} frames; no projector")

    def qwen_tower(self, name, shape):
        from transformers.models.qwen2_5_vl import configuration_qwen2_5_vl as configuration
        from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as modeling
        tower, frames = shape["tower"], self.args.frames
        full = list(range(tower["pattern"] - 1, tower["layers"], tower["pattern"]))
        config = configuration.Qwen2_5_VLVisionConfig(
            depth=tower["layers"], hidden_size=tower["hidden"], intermediate_size=tower["ffn"],
            num_heads=tower["heads"], patch_size=tower["patch"], window_size=tower["window"],
            out_hidden_size=shape["hidden"], fullatt_block_indexes=full, tokens_per_second=2)
        config._attn_implementation = "sdpa"
        model = self.build(lambda: modeling.Qwen2_5_VisionTransformerPretrainedModel(config))
        side, pairs = self.args.size // tower["patch"] // 2 * 2, (frames + 1) // 2
        patches = torch.rand(pairs * side * side, 3 * 2 * tower["patch"] ** 2, device=self.device,
                             dtype=self.dtype)
        grid = torch.tensor([[pairs, side, side]], device=self.device)
        seconds = self.time(lambda: model(patches, grid_thw=grid), repeat=3, warm=1)
        self.row(name, "tower", 0, 2 * pairs, seconds, note=f"{2 * pairs} frames")

    def qwen3_tower(self, name, shape):
        from transformers.models.qwen3_vl import configuration_qwen3_vl as configuration
        from transformers.models.qwen3_vl import modeling_qwen3_vl as modeling
        tower, frames = shape["tower"], self.args.frames
        config = configuration.Qwen3VLVisionConfig(
            depth=tower["layers"], hidden_size=tower["hidden"], intermediate_size=tower["ffn"],
            num_heads=tower["heads"], patch_size=tower["patch"], out_hidden_size=shape["hidden"],
            num_position_embeddings=tower["positions"],
            deepstack_visual_indexes=[tower[f"deep{i}"] for i in range(3)])
        config._attn_implementation = "sdpa"
        model = self.build(lambda: modeling.Qwen3VLVisionModel(config))
        side, pairs = self.args.size // tower["patch"] // 2 * 2, (frames + 1) // 2
        patches = torch.rand(pairs * side * side, 3 * 2 * tower["patch"] ** 2, device=self.device,
                             dtype=self.dtype)
        grid = torch.tensor([[pairs, side, side]], device=self.device)
        seconds = self.time(lambda: model(patches, grid_thw=grid), repeat=3, warm=1)
        self.row(name, "tower", 0, 2 * pairs, seconds, note=f"{2 * pairs} frames")

    def hearing(self, name, shape):
        """Whisper's encoder over one chunk, then a Q-Former (BLIP-2's) over each of its windows."""
        from transformers.models.blip_2 import modeling_blip_2 as blip
        ears = shape["ears"]
        config = transformers.WhisperConfig(
            num_mel_bins=ears["mel"], d_model=ears["hidden"], encoder_layers=ears["layers"],
            encoder_attention_heads=ears["heads"], encoder_ffn_dim=ears["ffn"],
            max_source_positions=ears["positions"])
        config._attn_implementation = "sdpa"
        query_config = transformers.Blip2QFormerConfig(
            hidden_size=ears["q_hidden"], num_hidden_layers=ears["q_layers"],
            num_attention_heads=ears["q_heads"], intermediate_size=ears["q_ffn"],
            cross_attention_frequency=1, encoder_hidden_size=ears["hidden"])
        encoder = self.build(lambda: transformers.models.whisper.modeling_whisper.WhisperEncoder(
            config))
        former = self.build(lambda: blip.Blip2QFormerModel(query_config))
        windows = ears["positions"] // ears["window"]
        mel = torch.rand(1, ears["mel"], 2 * ears["positions"], device=self.device,
                         dtype=self.dtype)
        query = torch.rand(windows, 1, ears["q_hidden"], device=self.device, dtype=self.dtype)

        def run():
            frames = encoder(mel).last_hidden_state.view(windows, ears["window"], -1)
            return former(query_embeds=query, encoder_hidden_states=frames).last_hidden_state
        self.row(name, "hearing", 0, ears["positions"], self.time(run), tokens=windows,
                 note=f"a chunk of {ears['positions']} frames; no projection")

    def first(self, name, shape):
        """Pixels to the first token, and tokens by generate() after it."""
        frames, tower = self.args.frames, shape["tower"]
        config = self.llava_config(shape)
        model = self.build(lambda: transformers.LlavaOnevisionForConditionalGeneration(config))
        side = tower["image"] // tower["patch"]
        tokens = frames * ((side + 1) // 2) ** 2
        pixels = torch.rand(1, frames, 3, tower["image"], tower["image"], device=self.device,
                            dtype=self.dtype)
        ids = torch.randint(8, min(shape["vocab"], 1000), (1, tokens + 1 + QUESTION),
                            device=self.device)
        ids[0, :tokens + 1] = 2  # the video's placeholders and its newline

        def run():
            out = model(input_ids=ids, pixel_values_videos=pixels, use_cache=True,
                        logits_to_keep=1)
            return out.logits.argmax(-1).tolist()
        self.row(name, "first token", tokens, frames, self.time(run, repeat=3, warm=1),
                 note=f"{frames} frames; one forward")
        n = self.args.generate
        if not n:
            return

        def generate(count):
            start = self.now()
            model.generate(input_ids=ids, pixel_values_videos=pixels, do_sample=False,
                           min_new_tokens=count, max_new_tokens=count, pad_token_id=0)
            return self.now() - start
        one = generate(1)
        self.row(name, "generate", tokens, 1, [(generate(1 + n) - one) / n], tokens=1,
                 note=f"mean of {n} tokens by generate()")

    # ---- the run ----

    def run(self):
        what = self.args.what
        if self.device.type == "cuda":
            print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, "
                  f"transformers {transformers.__version__}")
        print(f"{'model':14} {'type':5} {'test':12} {'context':>7} {'rows':>5} {'ms':>10} "
              f"{'best':>10} {'tokens/s':>9} {'TFLOP/s':>7}  note")
        if "limits" in what:
            self.limits()
        for name in self.args.models if {"decode", "prefill"} & set(what) else []:
            config = self.text_config(self.shapes[name])
            kind = transformers.AutoModelForCausalLM._model_mapping[type(config)]
            model = self.build(lambda: kind(config))
            if "decode" in what:
                self.decode(name, model, config)
            if "prefill" in what:
                self.prefill(name, model, config)
            del model
            self.free()
        for name in self.args.towers:
            shape = self.shapes[name]
            if "tower" in what:
                if shape["tower"]["llava"]:
                    self.siglip(name, shape["tower"])
                elif shape["tower"]["positions"]:
                    self.qwen3_tower(name, shape)
                else:
                    self.qwen_tower(name, shape)
                self.free()
            if "hearing" in what and shape["ears"]:
                self.hearing(name, shape)
                self.free()
            if "first" in what and shape["tower"]["llava"]:
                self.first(name, shape)
                self.free()

    def free(self):
        import gc
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def numbers(text):
    return [int(v) for v in text.split(",")]


def names(text):
    return [v for v in text.split(",") if v]


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda", help="cuda or cpu")
    p.add_argument("--models", type=names, default=["q05", "q7"], help="shapes for decode, prefill")
    p.add_argument("--towers", type=names, default=["ov7", "qwen2.5-vl-7b"],
                   help="shapes for tower and first")
    p.add_argument("--what", type=names, default=TESTS, help="of " + ",".join(TESTS))
    p.add_argument("--contexts", type=numbers, default=[256, 2560, 25088])
    p.add_argument("--rows", type=numbers, default=[1, 6, 10, 26, 64])
    p.add_argument("--prefill", type=int, default=25088)
    p.add_argument("--frames", type=int, default=128)
    p.add_argument("--size", type=int, default=448, help="pixels of a side of Qwen's frames")
    p.add_argument("--repeat", type=int, default=10)
    p.add_argument("--generate", type=int, default=16, help="tokens of generate(); 0: none")
    p.add_argument("--csv", help="append the results to this file")
    p.add_argument("--commit", default="unknown")
    args = p.parse_args()
    known = read_shapes()
    for name in args.models + args.towers:
        if name not in known:
            sys.exit(f"peer_hf.py: there is no shape {name}")
    for test in args.what:
        if test not in TESTS:
            sys.exit(f"peer_hf.py: there is no test {test}; there are: {', '.join(TESTS)}")
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("peer_hf.py: there is no GPU that torch can use")
    with torch.inference_mode():
        Bench(args).run()


if __name__ == "__main__":
    main()
