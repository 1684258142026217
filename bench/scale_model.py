#!/usr/bin/env python3
"""A model on paper of one model over several devices, and of many users on many GPUs.

    scale_model.py [devices|cpus|users]      all three without an argument

Bytes are counted as src/dist gathers them; step times are those that were measured on one device
(doc/scale.md, bench/csv), divided by the number of devices, plus messages. What a link takes is an
assumption, named below: nothing here was run on several GPUs or machines.

Gathering: for each row of a step and each layer every rank gets the heads' results (q), W_o's
outputs (hidden), the feed-forward network's inner values (ffn) and W_down's outputs (hidden).
Summing, as most engines do: two sums of `hidden` numbers a layer, each of which a ring carries twice.
"""
import sys

# name: layers, hidden, ffn, q (heads * head_dim), kv (KV heads * head_dim), vocabulary
SHAPES = {
    "0.5B": (24, 896, 4864, 896, 128, 151936),
    "3B": (36, 2048, 11008, 2048, 256, 151936),
    "7B": (28, 3584, 18944, 3584, 512, 152064),
    "72B": (80, 8192, 29568, 8192, 1024, 152064),
}

# H200: measured here for weights (doc/engine.md: 7B in BF16, a step of one row at 25,088 tokens
# takes 4.1 ms, which is 15.2 GB of weights and 1.4 GB of keys and values).
H200_BYTES_S = 16.6e9 / 4.1e-3
H200_FLOPS = 25088 * 2 * 7.6e9 / 0.735  # the prompt of 25,088 rows in 735 ms
# NVLink 4: 450 GB/s in each direction, of which collectives reach about 80 %; 8 microseconds for a
# small collective of NCCL (assumed, not measured).
NVLINK_BYTES_S, NVLINK_S = 0.8 * 450e9, 8e-6
ETHERNETS = {"1 Gbit/s": (0.118e9, 50e-6), "10 Gbit/s": (1.18e9, 30e-6), "100 Gbit/s": (11.8e9, 15e-6)}


def weights(shape):
    layers, hidden, ffn, q, kv, vocab = SHAPES[shape]
    return layers * (hidden * (2 * q + 2 * kv) + 3 * hidden * ffn) + vocab * hidden


def kv_bytes(shape, tokens, size=2):
    layers, _, _, _, kv, _ = SHAPES[shape]
    return 2 * layers * kv * size * tokens


def gathered(shape, ranks, inner=4):
    """Bytes that a rank receives for one row; inner: of a number of q and ffn."""
    layers, hidden, ffn, q, _, _ = SHAPES[shape]
    return layers * (inner * (q + ffn) + 4 * 2 * hidden) * (ranks - 1) / ranks


def logit_bytes(shape, ranks):
    return 4 * SHAPES[shape][5] * (ranks - 1) / ranks


def summed(shape, ranks):
    layers, hidden = SHAPES[shape][:2]
    return layers * 2 * 4 * hidden * 2 * (ranks - 1) / ranks


def step(shape, ranks, rows, tokens, link, size=2.0, bandwidth=H200_BYTES_S, ways="gather", inner=4):
    """Seconds of a decoding step: rows answers at so many tokens of context each."""
    link_bytes, link_s = link
    own = (weights(shape) * size + rows * kv_bytes(shape, tokens)) / bandwidth / ranks
    if ranks == 1:
        return own, 0.0
    layers = SHAPES[shape][0]
    calls = layers * (4 if ways == "gather" else 2) + 2
    moved = gathered(shape, ranks, inner) if ways == "gather" else summed(shape, ranks)
    return own, calls * link_s + rows * (moved + logit_bytes(shape, ranks)) / link_bytes


def prefill(shape, ranks, rows, link, ways="gather", inner=4):
    own = rows * 2 * weights(shape) / H200_FLOPS / ranks
    moved = gathered(shape, ranks, inner) if ways == "gather" else summed(shape, ranks)
    return own, rows * moved / link[0] if ranks > 1 else 0.0


def devices():
    link = (NVLINK_BYTES_S, NVLINK_S)
    print("72B in BF16 on H200 with NVLink, 8,192 tokens of context a request; milliseconds")
    print("| GPUs | GB a GPU | step of 1 row | messages | step of 32 rows | messages | the same summed |"
          " prompt of 8,192 rows | messages | 16-bit inputs | summed |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for n in (2, 4, 8):
        one, one_m = step("72B", n, 1, 8192, link)
        many, many_m = step("72B", n, 32, 8192, link)
        _, many_s = step("72B", n, 32, 8192, link, ways="sum")
        own, moved = prefill("72B", n, 8192, link)
        _, half = prefill("72B", n, 8192, link, inner=2)
        _, sums = prefill("72B", n, 8192, link, ways="sum")
        print(f"| {n} | {weights('72B') * 2 / n / 1e9:.0f} | {1e3 * one:.1f} | {1e3 * one_m:.1f} |"
              f" {1e3 * many:.1f} | {1e3 * many_m:.1f} | {1e3 * many_s:.1f} | {1e3 * own:.0f} |"
              f" {1e3 * moved:.0f} | {1e3 * half:.0f} | {1e3 * sums:.0f} |")
    print()
    print("Bytes that a rank receives for one row, 4 ranks: gathered, gathered with 16-bit inputs of")
    print("products, summed; and logits, which rank 0 alone gathers")
    print("| model | gathered | 16-bit inputs | summed | gathered / summed | logits |")
    print("|---|---|---|---|---|---|")
    for s in SHAPES:
        g, h, a = gathered(s, 4), gathered(s, 4, 2), summed(s, 4)
        print(f"| {s} | {g / 1e6:.2f} MB | {h / 1e6:.2f} MB | {a / 1e6:.2f} MB | {g / a:.1f} |"
              f" {logit_bytes(s, 4) / 1e6:.2f} MB |")


# What a CPU node reads of weights a second: two cores of a Xeon with AMX, and a whole server of it.
NODES = {"25 GB/s": 25e9, "200 GB/s": 200e9}


def cpus():
    print("CPU nodes, weights in Q8_0, one row at 2,048 tokens; ms of a step, and of these messages")
    print("| model, a node reads | 1 node |" + "".join(f" {n} nodes, {e} |" for e in ETHERNETS for n in (2, 4)))
    print("|---|---|" + "---|" * 2 * len(ETHERNETS))
    for s in ("0.5B", "3B", "7B"):
        for name, node in NODES.items():
            one, _ = step(s, 1, 1, 2048, (1, 0), 34 / 32, node)
            cells = ""
            for link in ETHERNETS.values():
                for n in (2, 4):
                    own, m = step(s, n, 1, 2048, link, 34 / 32, node)
                    cells += f" {1e3 * (own + m):.0f} ({1e3 * m:.0f}) |"
            print(f"| {s}, {name} | {1e3 * one:.0f} |{cells}")


def users():
    """Each user asks one question every two minutes: 6,000 new tokens of video and text (or, for a
    second question about the same video, 60), an answer of 200 tokens, read at 10 tokens a second."""
    asks, new, answer, reading, reuse = 1 / 120, 6000, 200, 10.0, 0.5
    link = (NVLINK_BYTES_S, NVLINK_S)
    print("Users at one question in two minutes (6,000 tokens of prompt, of which half the questions find"
          " all but 60 in a cache; 200 tokens of answer at 10 a second or more), by GPUs")
    print("| model | GPUs of a replica | answers at a time | users of a replica | users on 8 GPUs | on 64 GPUs |"
          " GPUs for 10,000 users |")
    print("|---|---|---|---|---|---|---|")
    for shape, n in (("7B", 1), ("7B", 2), ("72B", 2), ("72B", 4), ("72B", 8)):
        room = n * 141e9 * 0.9 - weights(shape) * 2
        rows = int(min(256, room / kv_bytes(shape, new + answer)))
        row_s, message_s = step(shape, n, max(rows, 1), new + answer, link)
        own, moved = prefill(shape, n, new * (1 - reuse) + 60 * reuse, link)
        # A question takes its prompt's time whole, and its share of joint steps for each token.
        question = own + moved + answer * (row_s + message_s) / max(rows, 1)
        fast = (row_s + message_s) * reading < 1
        held = rows / (asks * answer / reading) if fast else 0
        each = int(min(0.8 / (asks * question), held))
        print(f"| {shape} | {n} | {rows} | {each:,} | {each * (8 // n):,} | {each * (64 // n):,} |"
              f" {-(-10000 // each) * n if each else '-'} |")


if __name__ == "__main__":
    parts = {"devices": devices, "cpus": cpus, "users": users}
    for name in sys.argv[1:] or parts:
        parts[name]()
        print()
