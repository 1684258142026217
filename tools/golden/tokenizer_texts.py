"""Texts that tokenizers get wrong: the same for the committed fixtures and the large comparison."""
import random

PIECES = """
|Hello, world!|It's we're I'VE you'll he'D I'm can't 'S 'T 'Re 'lL|it'\u017fx 'ſ 's's 'd've|don''t
|The quick brown fox jumps over the lazy dog.|x = foo(bar[3]) + 42; // done|def f(a, b):\n    return a**b\n
|3.14159 1,000,000 12345678 ½ ² Ⅷ ٣٤٥ १२३ 𝟙𝟚 ①|2024-01-31T23:59:59Z|v1.2.3-rc.4|0x1F 1e-9
|你好，世界！|我今天早上去公园跑步，天气很好。|日本語のテキスト、カタカナとひらがな。|한국어 문장입니다.|각 각 각
|Привет, как дела?|Γειά σου Κόσμε|שלום עולם|مرحبا بالعالم|สวัสดีชาวโลก|नमस्ते दुनिया|ሰላም ልዑል|வணக்கம்
|café cafe\u0301 e\u0301\u0327 e\u0327\u0301 a\u0308\u0301|\u1e9b\u0323 \u0344 \u0958 \u212b \u2126 \uf900|\u0301 alone|q\u0307\u0323 q\u0323\u0307
|o\u0302\u0323\u0301\u0316\u0315\u0345\u031b|\u1100\u1161\u11a8 \uac00\u11a8|\u0b47\u0b3e \u0bc6\u0bd7|\U0001d15e \U0001d160|>\u0338 =\u0338 <\u0338
|😀😃|👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 🤷🏿‍♀️|❤️ ☎️ 1️⃣ #️⃣|👨🏻‍💻 and 🧑🏾‍🚀!|🏴󠁧󠁢󠁥󠁮󠁧󠁿|text😀text
|\n|\n\n\n|\r\n\r\n|a\nb|a\n\nb|a \n b|  \n  \n  x|\n \n\t\n|x   |   x|x   y|\t\tx|x\t |\r\r|\n\n  indented|a\r\nb\rc
|\u00a0|a\u00a0b|a\u00a0\u00a0b|\u3000全角|a\u3000 b|\u0085|a\u0085b|\u2028\u2029|a\u200bb|a\u180eb|\u180e|\ufeffbom|a\u202fb|\u1680x
|!!!|... ---|?!\n\nNext|foo_bar-baz|http://example.com/a?b=c&d=%20e|<p class="x">&amp;</p>|$100 €5 ¥|@user #tag|{}[]()|""''``|/\\\\/|...\n
|naïve Ærøskøbing Straße ﬁ ﬀ Ǆ ĳ|İstanbul ıI|ẞß ſt ﬆ|Ａｂｃ１２３|x²y³|¼ cup|№ 5|™®©
|\u0000|\u0001\u0002|\u007f|\u0080\u009f|\ufffd|\ufffe|\U0010ffff|\ue000|\U000e0001
|\u1c89\ua7cb\U00010d4a\U00031350\U0002ebf0\U000105c0|a\U00010d40\U0001ccf1b|\U0001e4d0\U00011f50|\U00016d63\U00016d67\U00016d67\U00016d69
""".replace("\n|", "|").strip("\n")

WORDS = ("the of and a to in video shows person walking street camera then Frame moves left right "
         "BIG it's We're don't I'LL  hello  42 7 1999 3.5 ... , . ! ? - -- _ ( ) [ ] \" ' '' ` ~ @ # "
         "$ % ^ & * + = / \\ | < > : ; café naïve 你 好 视频 日本 한국 Привет 😀 👍🏽 🇩🇪 é e\u0301 "
         "\n \n\n \r\n \t   \u00a0 \u3000 \u200d \u0308 \u0323 's 'S 'T 'Ve 'ſ İ ß").split(" ")

RANGES = [(0x20, 0x7e, 30), (0x00, 0x1f, 2), (0x80, 0xff, 6), (0x100, 0x24f, 4), (0x300, 0x36f, 5),
          (0x370, 0x5ff, 4), (0x600, 0x1fff, 6), (0x2000, 0x2bff, 6), (0x3000, 0x30ff, 4),
          (0x4e00, 0x9fff, 6), (0xac00, 0xd7a3, 3), (0x1100, 0x11ff, 3), (0xe000, 0xffff, 2),
          (0x1f300, 0x1faff, 5), (0x10000, 0x1ffff, 3), (0x20000, 0x323af, 2), (0x1, 0x10ffff, 2)]


def pieces():
    return PIECES.split("|")


def hand_picked(special):
    """Each piece, pairs of pieces, added tokens in every position, and long runs."""
    base = [""] + pieces()
    texts = list(base)
    for i, a in enumerate(base):
        b = base[(i * 7 + 3) % len(base)]
        texts += [a + b, a + " " + b, a + "\n" + b, b + a.upper(), " " + a, a + " ", a + "\n\n"]
    for i, token in enumerate(special):
        a, b = base[i % len(base)], base[(i * 5 + 2) % len(base)]
        other = special[(i * 3 + 1) % len(special)]
        texts += [token, token + token, a + token + b, "in" + token + "word", token + other,
                  " " + token + " ", token + "\n", token[:-1], token[1:], "<" + token + ">",
                  token[:-1] + token, token.upper()]
    for c in ("a", " ", "\n", "\t", "é", "你", "1", "!", "\r\n", " \n", "\u0301", "\u0301\u0316", "ab "):
        texts += [c * n for n in (2, 3, 7, 64, 1000)] + [c * 50 + "x", "x" + c * 50, c * 9 + "\n" + c * 9]
    return texts


def every_character():
    """Every code point but surrogates, in blocks, alone between letters, spaces and digits."""
    texts = []
    for first in range(0, 0x110000, 64):
        chars = [chr(c) for c in range(first, first + 64) if not 0xd800 <= c <= 0xdfff]
        if chars:
            texts += ["a".join(chars), "".join(chars), " x".join(chars), "1 ".join(chars)]
    return texts


def random_text(rng: random.Random, special):
    kind = rng.random()
    n = int(rng.expovariate(1 / 25)) + 1
    if kind < 0.4:
        sep = rng.choice(["", " ", " ", " ", "\n"])
        return sep.join(rng.choice(WORDS) for _ in range(n))
    weights = [w for _, _, w in RANGES]
    out = []
    while len(out) < n:
        if special and rng.random() < 0.02:
            out.append(rng.choice(special))
            continue
        if rng.random() < 0.15:
            out.append(rng.choice(WORDS))
            continue
        lo, hi, _ = rng.choices(RANGES, weights)[0]
        run = rng.choice([1, 1, 1, 2, 4]) if kind < 0.9 else rng.randint(1, 12)
        for _ in range(run):
            c = rng.randint(lo, hi)
            if not 0xd800 <= c <= 0xdfff:
                out.append(chr(c))
    return "".join(out)
