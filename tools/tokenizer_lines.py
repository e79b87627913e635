#!/usr/bin/env python3
"""Lines that tokenizers tend to disagree about, the same for the same seed: mixed scripts, emoji sequences, control
characters, broken spacing, unassigned code points, stacked marks, very long words.

    tools/tokenizer_lines.py [--seed 1] [--count 10000] > lines.txt
"""
import argparse
import random
import sys
import unicodedata

RANGES = {  # scripts and blocks
    "latin": (0x41, 0x17F), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x4FF), "armenian": (0x530, 0x58F),
    "hebrew": (0x590, 0x5FF), "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F), "bengali": (0x980, 0x9FF),
    "tamil": (0xB80, 0xBFF), "thai": (0xE00, 0xE7F), "tibetan": (0xF00, 0xFFF), "georgian": (0x10A0, 0x10FF),
    "jamo": (0x1100, 0x11FF), "ethiopic": (0x1200, 0x137F), "khmer": (0x1780, 0x17FF), "vietnamese": (0x1E00, 0x1EFF),
    "greek_ext": (0x1F00, 0x1FFF), "punctuation": (0x2000, 0x206F), "super": (0x2070, 0x209F), "letterlike": (0x2100, 0x218F),
    "arrows": (0x2190, 0x23FF), "box": (0x2500, 0x27BF), "kangxi": (0x2E80, 0x2FDF), "cjk_punctuation": (0x3000, 0x303F),
    "kana": (0x3041, 0x30FF), "han": (0x4E00, 0x9FFF), "hangul": (0xAC00, 0xD7A3), "compat": (0xF900, 0xFAFF),
    "presentation": (0xFB00, 0xFDFF), "halfwidth": (0xFF00, 0xFFEF), "linear_b": (0x10000, 0x100FF),
    "gothic": (0x10330, 0x1034F), "deseret": (0x10400, 0x1044F), "math": (0x1D400, 0x1D7FF), "adlam": (0x1E900, 0x1E95F),
    "han_ext": (0x20000, 0x323AF), "private": (0xE000, 0xF8FF), "tags": (0xE0000, 0xE007F), "any": (0x1, 0x10FFFF),
    "bmp": (0x80, 0xFFFD),
}
SPACES = [" ", "  ", "   ", "\t", "\r", "\u00a0", "\u3000", "\u2003", "\u200b", "\u2028", "\u0085", "\u180e", "\ufeff", "\x0b", "\x0c",
          " \t ", "\r\r", " \u00a0 ", "\u202f", "\u1680", "\x1c", "\x1f"]
CONTROLS = [chr(c) for c in range(1, 32) if c != 10] + ["\x7f", "\x80", "\x9f", "\u200e", "\u202e", "\u2066", "\ufffd", "\ufffe", "\uffff",
            "\u00ad", "\u061c", "\ufff9", "\x00"]
EMOJI = ["😀", "👍🏽", "👩‍🚀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇯🇵🇫🇷", "❤️", "✌🏿", "1️⃣", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "🧑🏻‍❤️‍💋‍🧑🏾", "🫠", "🫨", "\U0001fae9", "☃︎"]
MARKS = ["\u0301", "\u0308", "\u0323", "\u0327", "\u20dd", "\u3099", "\u0489", "\u093c", "\u064b", "\u0e31", "\U0001d165", "\u302e", "\u1ab0"]
WORDS = """the of and to in a is that it he was for on are as with his they I at be this have from or one had by word but
not what all were we when your can said there use an each which she do how their if will up other about out many then
them these so some her would make like him into time has look two more write go see number no way could people my than
first water been call who oil its now find long down day did get come made may part Tokenizer TOKENIZATION
internationalization can't won't I'LL you're we'VE he'd it's 'tis don't 3.14159 1,000,000 12345678901234 0x1F600 C++ foo_bar
camelCaseWord http://example.com/a?b=c&d=%20 user@example.org #hashtag @mention $19.99 50% naïve café Ünïcödé straße
İstanbul ıI ſ Kelvin ﬁne Å ǅ ŉ ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ привет мир Здравствуйте שלום مرحبا नमस्ते สวัสดี こんにちは 世界 中文分词 한국어
日本語テキスト ｶﾀｶﾅ ＡＢＣ１２３ Ⅷ ½ x² H₂O … — – “quoted” ‘single’ «guillemets» (paren) [bracket] {brace} <tag> </s> <s> <pad>
<unk> [CLS] [MASK] ▁ ▁under Ġ Ċ <0x41> <|endoftext| ## ##ing a##b ... !!! ?!? -- --- ``code`` \\n \\t ~/path C:\\dir""".split()


def character(r, name=None):
    lo, hi = RANGES[name or r.choice(list(RANGES))]
    while True:
        c = r.randint(lo, hi)
        if c != 10 and not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def word(r):
    kind = r.random()
    if kind < 0.45:
        return r.choice(WORDS)
    if kind < 0.7:
        script = r.choice(list(RANGES))
        return "".join(character(r, script) for _ in range(r.randint(1, 8)))
    if kind < 0.78:
        return r.choice(EMOJI) * r.choice([1, 1, 1, 2])
    if kind < 0.84:
        return "".join(r.choice("aeiouEnxZ한かक") + "".join(r.choice(MARKS) for _ in range(r.randint(1, 3))) for _ in range(r.randint(1, 4)))
    if kind < 0.88:
        return r.choice(CONTROLS) * r.randint(1, 3)
    if kind < 0.92:
        return "".join(r.choice("0123456789") for _ in range(r.randint(1, 12)))
    if kind < 0.96:
        return "".join(r.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(r.randint(1, 6)))
    return "".join(character(r) for _ in range(r.randint(1, 6)))


def line(r):
    kind = r.random()
    if kind < 0.01:
        return ""
    if kind < 0.03:
        return "".join(r.choice(SPACES) for _ in range(r.randint(1, 12)))
    if kind < 0.05:  # a word without end
        piece = r.choice(["a", "ab", "Donaudampfschiff", "あ", "x̂", "한", "9", "-", "é", word(r) or "q"])
        return piece * r.randint(20, 120)
    if kind < 0.10:  # any code points, most of them unassigned
        return "".join(character(r, "any") for _ in range(r.randint(1, 20)))
    separators = SPACES if kind < 0.5 else [" "]
    text = ""
    for _ in range(r.randint(1, 16)):
        text += word(r)
        if r.random() < 0.85:
            text += r.choice(separators)
    return text


SCRIPTS = ["latin", "greek", "cyrillic", "hebrew", "arabic", "devanagari", "thai", "kana", "han", "hangul"]


def lexicon(script, size=600):
    """Words of one script, the same on every call: those of WORDS with a letter of the script, and random ones."""
    r = random.Random(script)
    lo, hi = RANGES[script]
    known = [w for w in WORDS if any(lo <= ord(c) <= hi for c in w)]
    letters = [c for c in map(chr, range(lo, hi + 1)) if unicodedata.category(c) in ("Lu", "Ll", "Lo")]
    marks = [c for c in map(chr, range(lo, hi + 1)) if unicodedata.category(c) in ("Mn", "Mc")] or ["\u0301"]
    common = r.sample(letters, min(len(letters), 300))
    return known + ["".join(r.choice(common) + (r.choice(marks) if r.random() < 0.15 else "") for _ in range(r.randint(1, 7)))
                    for _ in range(size - len(known))]


def script_lines(seed, count, added=()):
    """Lines of ten scripts in turn, with digits, emoji, marks, control characters, odd spaces and the tokens `added`."""
    r = random.Random(seed)
    words = {script: lexicon(script) for script in SCRIPTS}
    made = []
    for number in range(count):
        of_script = words[SCRIPTS[number % len(SCRIPTS)]]
        odd = r.random() < 0.5  # half of the lines are plain text
        text = r.choice(SPACES) if odd and r.random() < 0.2 else ""
        for _ in range(r.randint(1, 20)):
            kind = r.random()
            if not odd or kind < 0.6:
                text += of_script[min(int(r.expovariate(0.01)), len(of_script) - 1)]
            elif kind < 0.7 and added:
                text += r.choice(added)
            else:
                text += word(r)
            if r.random() < 0.9:
                text += r.choice(SPACES) if odd and r.random() < 0.3 else " "
            else:
                text += r.choice(["", ".", ",", "!", "-", "'", "\u3002", "\u060c", "\u0964"])
        made.append((text if odd else text.rstrip(" ")).replace("\n", " "))
    return made


def lines(seed, count):
    r = random.Random(seed)
    return [line(r).replace("\n", " ") for _ in range(count)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10000)
    arguments = parser.parse_args()
    sys.stdout.buffer.write("".join(text + "\n" for text in lines(arguments.seed, arguments.count)).encode())
