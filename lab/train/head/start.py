"""What all commands that train heads on nano have in common: options, and the start of a run."""

import os

import torch
from tokenizers import Tokenizer

from train.common import Painter
from train.head import answers
from train.head.gguf import load_nano
from train.head.train import add_switches
from world.sprites import HELD_OUT_STYLE, STYLES, Sprites


def add_options(a, lengths):
    """lengths: frames of the clips to measure with, by default."""
    a.add_argument("--target", default="models/nano.gguf", metavar="NANO.gguf")
    a.add_argument("--shape", default="nano", help="of train.model.SHAPES (nano)")
    a.add_argument("--sprites", required=True, metavar="DIR")
    a.add_argument("--tokenizer", default=os.path.join(os.path.dirname(__file__), "..",
                                                       "tokenizer"))
    a.add_argument("--scale", type=float, default=1.0, help="of the number of clips (1)")
    a.add_argument("--clips", type=int, default=128, help="to measure with, of each length (128)")
    a.add_argument("--lengths", default=lengths, type=lambda t: tuple(map(int, t.split(","))),
                   help="frames of the clips to measure with (%s)" % ",".join(map(str, lengths)))
    a.add_argument("--max-text", type=int, default=answers.MAX_TEXT)
    a.add_argument("--tree", default="30-3-8,9-7-1",
                   help="total-depth-width of the drafts to measure (30-3-8,9-7-1)")
    a.add_argument("--ffn", type=int, default=0, help="of the head's layer (the target's)")
    a.add_argument("--workers", type=int)
    a.add_argument("-o", dest="out", required=True, metavar="DIR")
    add_switches(a)


def start(args, kinds, maker=answers.Maker):
    """The target on its device, and the clips of `kinds` as processes make them."""
    os.makedirs(args.out, exist_ok=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    sprites = Sprites(args.sprites, [s for s in STYLES if s != HELD_OUT_STYLE])
    tokenizer = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    # The processes are started before this one uses the GPU.
    items = answers.Items(maker(sprites, tokenizer),
                          [job for k in kinds for job in answers.jobs_of(*k[1:])], args.workers)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(args.seed)
    target = answers.Target(load_nano(args.target, args.shape), Painter(sprites, device),
                            tokenizer, device,
                            torch.bfloat16 if device.type == "cuda" else torch.float32)
    return target, items
