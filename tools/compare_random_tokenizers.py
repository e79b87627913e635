#!/usr/bin/env python3
"""Random tokenizer.json files (models, normalizers, pre-tokenizers, templates, added tokens) beside tokenizers.

    tools/compare_random_tokenizers.py LINNET [--first 0] [--count 100]

LINNET is the program. Of each file 100 lines of mixed scripts are compared: ids, and ids with the template. Needs
tokenizers. Ends with 1 when a line differs.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile

from tokenizer_lines import lines
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = [GPT2, LLAMA3, r"\s+", r"\w+|[^\w\s]+", r"\p{N}{1,3}", r"(?<=[a-z])(?=[A-Z])", r"\b", r"^", r"[[:punct:]]+"]
PATTERNS += [r"\p{Han}", r"[\p{Hiragana}\p{Katakana}]+", r"\P{Latin}+", r"x*"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
SPECIAL = ["<unk>", "<s>", "</s>", "<mask>", "[X]"]


def flip(r, share=0.5):
    return r.random() < share


def normalizer(r):
    bert = dict(clean_text=flip(r), handle_chinese_chars=flip(r), strip_accents=r.choice([None, True, False]))
    kinds = [
        normalizers.NFC,
        normalizers.NFD,
        normalizers.NFKC,
        normalizers.NFKD,
        normalizers.Lowercase,
        normalizers.StripAccents,
        lambda: normalizers.Strip(left=flip(r), right=flip(r)),
        lambda: normalizers.Replace(r.choice([" ", "a", Regex(r"\s+"), Regex(r"[0-9]")]), r.choice(["_", " ", ""])),
        lambda: normalizers.Prepend("▁"),
        lambda: normalizers.BertNormalizer(**bert, lowercase=flip(r)),
    ]
    return normalizers.Sequence([r.choice(kinds)() for _ in range(r.choice([0, 1, 1, 2, 3]))])


def pre_tokenizer(r, byte_level):
    def split(pattern):
        return pre_tokenizers.Split(pattern, r.choice(BEHAVIORS), invert=flip(r, 0.3))

    scheme = r.choice(["always", "never", "first"])
    kinds = [
        lambda: split(Regex(r.choice(PATTERNS))),
        lambda: split(r.choice([" ", "a", "é"])),
        lambda: pre_tokenizers.Metaspace(prepend_scheme=scheme, split=flip(r)),
        pre_tokenizers.BertPreTokenizer,
        pre_tokenizers.Whitespace,
        pre_tokenizers.WhitespaceSplit,
        lambda: pre_tokenizers.CharDelimiterSplit(" "),
        lambda: pre_tokenizers.Punctuation(behavior=r.choice(BEHAVIORS)),
        lambda: pre_tokenizers.Digits(individual_digits=flip(r)),
    ]
    steps = [r.choice(kinds)() for _ in range(r.choice([0, 1, 1, 2]))]
    if byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=flip(r), use_regex=flip(r)))
    return pre_tokenizers.Sequence(steps)


def made(r, corpus):
    kind = r.choice(["bpe", "bytes", "wordpiece", "unigram", "wordlevel"])
    training = dict(vocab_size=r.choice([1000, 1500]), special_tokens=SPECIAL, show_progress=False)
    parts = {"end_of_word_suffix": "</w>"} if flip(r, 0.3) else {}
    unknown = {"unk_token": "<unk>"} if flip(r) else {}
    model, trainer = {
        "bpe": lambda: (models.BPE(fuse_unk=flip(r), **unknown, **parts), trainers.BpeTrainer(**training, **parts)),
        "bytes": lambda: (
            models.BPE(),
            trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **training),
        ),
        "wordpiece": lambda: (models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer(**training)),
        "unigram": lambda: (models.Unigram(), trainers.UnigramTrainer(unk_token="<unk>", **training)),
        "wordlevel": lambda: (models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(**training)),
    }[kind]()
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer(r), pre_tokenizer(r, kind == "bytes")
    tokenizer.train_from_iterator(corpus, trainer)
    strips = dict(single_word=flip(r, 0.3), lstrip=flip(r, 0.3), rstrip=flip(r, 0.3), normalized=False)
    tokenizer.add_tokens([AddedToken(r.choice(["<|end|>", "the"]), **strips)])
    template = dict(single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.post_processor = r.choice(
        [processors.TemplateProcessing(**template), processors.BertProcessing(("</s>", 2), ("<s>", 1))]
    )
    return tokenizer


def encoded(linnet, folder, texts, *options):
    run = subprocess.run(
        [linnet, "tokenizer", "encode", folder, *options],
        input="".join(f"{t}\n" for t in texts).encode(),
        capture_output=True,
    )
    if run.returncode:
        raise RuntimeError(run.stderr.decode().strip())
    return [[int(id) for id in line.split()] for line in run.stdout.decode().split("\n")[:-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    a = parser.parse_args()
    linnet, bad = os.path.abspath(a.linnet), 0
    corpus = lines(1, 300)
    for seed in range(a.first, a.first + a.count):
        r = random.Random(seed)
        texts = [
            t + r.choice(["", "", " <mask> ", "[X]", "<|end|>the"]) + r.choice(["", "x"]) for t in lines(seed + 2, 100)
        ]
        texts = [t for t in texts if t and "\n" not in t]
        with tempfile.TemporaryDirectory() as folder:
            try:
                made(r, corpus).save(f"{folder}/tokenizer.json")
                original = Tokenizer.from_file(f"{folder}/tokenizer.json")
                theirs = [original.encode(t, add_special_tokens=False).ids for t in texts]
                with_template = [original.encode(t).ids for t in texts]
                found = [encoded(linnet, folder, texts), encoded(linnet, folder, texts, "--special")]
            except BaseException as error:  # tokenizers may panic
                if isinstance(error, KeyboardInterrupt):
                    raise
                print(f"{seed}: {type(error).__name__}: {' '.join(str(error).split())[:150]}", flush=True)
                continue
        wrong = [
            t
            for ours, expected in zip(found, (theirs, with_template))
            for t, x, y in zip(texts, ours, expected)
            if x != y
        ]
        print(
            f"{seed}: {f'{len(wrong)} lines differ, such as {ascii(wrong[0])[:150]}' if wrong else 'all agree'}",
            flush=True,
        )
        bad += len(wrong)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
