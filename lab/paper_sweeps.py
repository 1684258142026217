"""What lab/paper varies: for each paper panels of curves, each point a method of `prevue-lab bench`
(NAME+OPTION=VALUE, doc/bench.md), and the numbers that the paper itself reports for such a figure.

The papers' numbers are accepted drafted tokens a pass unless a panel says otherwise; where a paper
counts the model's own token too, one was subtracted, and the note says so."""

from collections import namedtuple

# points: {curve: [(x, method)]}; theirs: {curve: [(x, value)]}, note: where those come from
Panel = namedtuple("Panel", "name title x figure points theirs note")

RATIOS = (0.5, 0.75, 0.9, 0.95, 0.99)
ACCEPTED = "accepted_per_pass"


def ratios(method, view, values=RATIOS, more=""):
    return [(r, f"{method}+view={view}+ratio={r}{more}") for r in values]


# Its baselines and its ablation: guidance by the draft model's own attention.
GUIDES = ("random", "uniform", "attention", "specvlm", "specvlm-draft")
SPECVLM = [
    Panel("ratio", "Share of the video tokens pruned, tree of 25", "share pruned", ACCEPTED,
          {**{v: ratios("sd-tree", v) for v in GUIDES},
           "full": [(0, "sd-tree")], "none": [(1, "sd-tree+view=none")]},
          {"full": [(0, 3.68)], "random": [(0.9, 3.19)], "specvlm": [(0.9, 3.48)]},
          "LLaVA-OneVision 72B-7B, VideoDetailCaption, 8 x A100"),
    Panel("chain", "The same with chains of 5", "share pruned", ACCEPTED,
          {**{v: ratios("sd", v) for v in GUIDES},
           "full": [(0, "sd")], "none": [(1, "sd+view=none")]},
          {"full": [(0, 3.12)], "specvlm": [(0.9, 2.79)]},
          "LLaVA-OneVision 72B-7B, VideoDetailCaption (chain of 5)"),
    Panel("baselines", "Baselines at 0.9, chain of 5", "", ACCEPTED,
          {v: [(0.9, f"sd+view={v}+ratio=0.9")]
           for v in ("window-front", "window-middle", "window-back", "frame", "fastvid-exact",
                     "dycoke-exact", "specvlm-grid")}, {}, ""),
    Panel("lambda", "Lambda of SpecVLM at 0.9, chain of 5", "lambda", ACCEPTED,
          {"specvlm": [(x, f"sd+view=specvlm+ratio=0.9+lambda={x}")
                       for x in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)]}, {}, ""),
    Panel("self", "The target's own weights draft, tree of 25", "share pruned", ACCEPTED,
          {"full": [(0, "sd-tree:self")], "random": [(0.9, "sd-rand:self")],
           "specvlm": [(0.9, "specvlm:self")]},
          {"full": [(0, 4.50)], "random": [(0.9, 3.81)], "specvlm": [(0.9, 3.98)]},
          "LLaVA-OneVision 7B-7B, VideoDetailCaption"),
    Panel("positions", "Positions of the kept tokens, chain of 5", "share pruned", ACCEPTED,
          {f"{v}, {p}": ratios("sd", v, (0.9, 0.95, 0.99), f"+draft-pos={p}")
           for v in ("random", "specvlm") for p in ("compact", "original")}, {}, ""),
]

TERMS = ("attention", "time", "space", "attention/time", "attention/space", "time/space",
         "attention/time/space")

HIPPO = [
    Panel("views", "Views in chains of 5", "share pruned", ACCEPTED,
          {v: ratios("sd", v) for v in ("random", "specvlm", "holistic", "alignment")}, {}, ""),
    Panel("terms", "Terms of the holistic score, chain of 5", "share pruned", ACCEPTED,
          {t: ratios("sd", "holistic", (0.9, 0.95, 0.99), f"+terms={t}") for t in TERMS}, {}, ""),
    Panel("layers", "Share of the layers whose attention is used, 0.95 pruned", "share of layers",
          ACCEPTED,
          {"holistic": [(x, f"sd+view=holistic+ratio=0.95+layer={x}") for x in (0.25, 0.5, 0.75)] +
           [(1.0, "sd+view=holistic+ratio=0.95")]}, {}, ""),
    Panel("crops", "Crops as published", "share pruned", ACCEPTED,
          {"literal": ratios("sd", "holistic", (0.9, 0.95, 0.99), "+crops=literal")}, {}, ""),
    Panel("run", "Mean run between two rejections", "share pruned", "mean_run",
          {"holistic": ratios("sd", "holistic"), "full": [(0, "sd")]},
          {"holistic": [(0.9, 8.05)]}, "MAT, LLaVA-OneVision 7/72B, VideoDetailCaption, 4 x H200"),
]

PARALLELVLM = [
    Panel("ratio", "Mean run between two rejections by share pruned", "share pruned", "mean_run",
          {"alignment": ratios("sd", "alignment"), "full": [(0, "sd")],
           "none": [(1, "sd+view=none")]},
          {"alignment": [(0.9, 6.82), (0.95, 6.53), (0.99, 5.74)], "none": [(1, 4.53)]},
          "M, LLaVA-OneVision 7B/72B, VideoDetailCaption, 8 x L40S"),
    Panel("layer", "Layers that alignment looks at, 0.9 pruned, chain of 5", "share of layers",
          ACCEPTED,
          {f"text {t}": [(x, f"sd+view=alignment+ratio=0.9+layer={x}+text={t}")
                         for x in (0.25, 0.5, 0.75)] for t in ("all", "after")}, {}, ""),
    Panel("window", "Window of serial chains, no video and all of it", "window", ACCEPTED,
          {v: [(g, f"sd+view={v}+window={g}") for g in (3, 5, 9)] for v in ("none", "full")},
          {}, ""),
]

SPARROW = [
    Panel("shapes", "nano-head by shape of the proposal", "", ACCEPTED,
          {"fitted": [(0, "sparrow")], "chain of 5": [(0, "sparrow+shape=chain+window=5")],
           "tree of 25": [(0, "sparrow+shape=tree")],
           "30-3-8": [(0, "sparrow+shape=dynamic")]},
          {"30-3-8": [(0, 2.89)]}, "Sparrow, Qwen2.5-VL-7B, VideoDetailCaption, 3.89 with the "
          "model's own token"),
    Panel("video", "The same head with rows for the video (msd), tree 30-3-8", "", ACCEPTED,
          {"no video rows": [(0, "sparrow+shape=dynamic")], "video rows": [(0, "msd")]},
          {}, ""),
]

# A few points of all of them, for many or long clips.
FEW = (0.9, 0.95, 0.99)
CORE = [
    Panel("views", "Views in chains of 5", "share pruned", ACCEPTED,
          {"full": [(0, "sd")], "none": [(1, "sd+view=none")],
           **{v: ratios("sd", v, FEW) for v in ("random", "specvlm", "holistic")},
           **{v: ratios("sd", v, (0.9,)) for v in ("uniform", "attention", "alignment")}}, {}, ""),
    Panel("trees", "Tree of 25", "share pruned", ACCEPTED,
          {"full": [(0, "sd-tree")], **{v: ratios("sd-tree", v, (0.9,))
                                        for v in ("random", "specvlm")}},
          {"full": [(0, 3.68)], "random": [(0.9, 3.19)], "specvlm": [(0.9, 3.48)]},
          "LLaVA-OneVision 72B-7B, VideoDetailCaption, 8 x A100"),
    Panel("self", "The target's own weights draft, chain of 5", "share pruned", ACCEPTED,
          {v: ratios("sd:self", v, (0.9,)) for v in ("random", "specvlm", "holistic")}, {}, ""),
    Panel("heads", "nano-head, trees sized by price", "", ACCEPTED, {"sparrow": [(0, "sparrow")]},
          {}, ""),
]

# Fewer still: what is asked about harder clips.
HARD = [
    Panel("views", "Views in chains of 5", "share pruned", ACCEPTED,
          {"full": [(0, "sd")], "none": [(1, "sd+view=none")],
           **{v: ratios("sd", v, (0.9, 0.99)) for v in ("random", "specvlm", "holistic")}}, {}, ""),
    Panel("heads", "nano-head", "", ACCEPTED, {"fitted": [(0, "sparrow")]}, {}, ""),
]

# The target drafts for itself: it was trained on whole videos, and favours no view.
SELF = [
    Panel("self", "The target's own weights draft, chain of 5", "share pruned", ACCEPTED,
          {"full": [(0, "sd:self")], **{v: ratios("sd:self", v, (0.9,))
                                        for v in ("random", "uniform", "attention", "specvlm",
                                                  "holistic")}}, {}, ""),
]

# Methods that prune the target itself (--lossy), and what they gain beside lossless drafting.
LOSSY_NAMES = ("fastv", "sparsevlm", "pyramiddrop", "dycoke")


def lossy_points(values):
    return {n: [(r, f"ar+lossy={n}:{r}") for r in values] for n in LOSSY_NAMES}


LOSSY_RATIOS = (0.5, 0.75, 0.9)
LOSSLESS = {"full": [(0, "ar")], "sd, lossless": [(0, "sd")], "sparrow, lossless": [(0, "sparrow")]}
LOSSY = [
    Panel("agreement", "Tokens in common with the lossless answer", "share pruned", "agreement",
          lossy_points(LOSSY_RATIOS),
          {"fastv": [(0.9, 0.846)], "sparsevlm": [(0.9, 0.871)], "pyramiddrop": [(0.9, 0.878)],
           "dycoke": [(0.9, 0.909)]},
          "acceptance, LLaVA-OneVision 72B, a tenth retained, 8 x L40S"),
    Panel("same", "Share of answers equal to the lossless one", "share pruned", "same_text",
          lossy_points(LOSSY_RATIOS), {}, ""),
    Panel("kept", "Keys and values of the video that a token reads", "share pruned", "video_kept",
          lossy_points(LOSSY_RATIOS), {}, ""),
    Panel("decode", "Milliseconds of decoding a token", "share pruned", "decode_ms",
          {**LOSSLESS, **lossy_points(LOSSY_RATIOS)}, {}, ""),
    Panel("prefill", "Seconds of prefill", "share pruned", "prefill_s",
          {"full": [(0, "ar")], **lossy_points(LOSSY_RATIOS)}, {}, ""),
    Panel("total", "Seconds from the video to the last token", "share pruned", "total_s",
          {**LOSSLESS, **lossy_points(LOSSY_RATIOS)}, {}, ""),
]

# Another draft model (-d) judges the views.
SECOND = [
    Panel("views", "Views in chains of 5", "share pruned", ACCEPTED,
          {"full": [(0, "sd")], "none": [(1, "sd+view=none")],
           **{v: ratios("sd", v, (0.9, 0.99))
              for v in ("random", "uniform", "attention", "specvlm", "holistic")}}, {}, ""),
]

# Sparse-to-Dense: entries of the KV cache that the sparse drafter keeps in each layer.
STD = [
    Panel("keep", "The target on a part of its own KV cache, chain of 9", "entries kept", ACCEPTED,
          {"std": [(k, f"std+keep={k}") for k in (128, 256, 512, 1024)]},
          {"std": [(1024, 7.04)]}, "ParallelVLM's run of STD, LLaVA-OneVision 7B, 8.04 with the "
          "model's own token"),
]

PAPERS = {"core": CORE, "hard": HARD, "self": SELF, "second": SECOND, "specvlm": SPECVLM,
          "hippo": HIPPO, "parallelvlm": PARALLELVLM, "sparrow": SPARROW, "lossy": LOSSY,
          "std": STD}


def words_of(panels):
    """All methods of the panels, each once."""
    return list(dict.fromkeys(m for p in panels for points in p.points.values()
                              for _, m in points))
