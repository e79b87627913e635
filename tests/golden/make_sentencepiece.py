#!/usr/bin/env python3
"""Small SentencePiece models with the options that change how they cut, and what sentencepiece makes of some lines.

    tests/golden/make_sentencepiece.py        writes tests/golden/sentencepiece/

Needs sentencepiece. A line is spelt with a character of U+0000 to U+00FF for each byte, since some are no UTF-8. The
10,000 lines are tools/compare_tokenizers.py's.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
from compare_tokenizers import OWN, with_unused  # noqa: E402
from tokenizer_lines import WORDS, lines  # noqa: E402

import sentencepiece  # noqa: E402

FOLDER = os.path.join(os.path.dirname(__file__), "sentencepiece")
corpus = [" ".join(WORDS[i % 97:]) for i in range(97)] + ["naïve Ünïcödé привет мир 日本語 こんにちは 世界"] * 4
whole = [line.encode() for line in lines(12, 30)] + ["<sep>foo bar  abc ▁of the<ctl>あ é".encode()]
broken = [line[:7] + b"\xff\xe3\x81" + line[7:40] + b"\xed\xa0\x80\xc3" for line in whole[:8]]
cases = {
    "unigram_own": dict(model_type="unigram", vocab_size=500, byte_fallback=True, user_defined_symbols=OWN, control_symbols=["<ctl>"]),
    "unigram_suffix": dict(model_type="unigram", vocab_size=250, treat_whitespace_as_suffix=True),
    "bpe_own": dict(model_type="bpe", vocab_size=500, byte_fallback=True, user_defined_symbols=OWN, control_symbols=["<ctl>", "あ"]),
    "bpe_phrases": dict(model_type="bpe", vocab_size=350, split_by_whitespace=False, add_dummy_prefix=False),
    "bpe_unused": dict(model_type="bpe", vocab_size=300),
}
os.makedirs(FOLDER, exist_ok=True)
with open(f"{FOLDER}/corpus.txt", "w") as file:
    file.write("\n".join(corpus))
with open(f"{FOLDER}/rules.tsv", "w") as file:
    file.write("\n".join(f"{ord(a):X}\t{' '.join('%X' % ord(c) for c in b)}" for a, b in [("ﬁ", "fi"), ("\u00a0", " "), ("\t", " "), ("…", "...")]) + "\n65 301\tE9\n")
golden = {"lines": [line.decode("latin-1") for line in whole + broken], "cases": {}}
for name, options in cases.items():
    path = f"{FOLDER}/{name}.model"
    sentencepiece.SentencePieceTrainer.train(input=f"{FOLDER}/corpus.txt", model_prefix=path[:-6], minloglevel=2, hard_vocab_limit=False,
                                             normalization_rule_tsv=f"{FOLDER}/rules.tsv", max_sentence_length=100000, **options)
    os.remove(path[:-6] + ".vocab")
    if name.endswith("unused"):
        model = with_unused(sentencepiece.SentencePieceProcessor(model_file=path))
        with open(path, "wb") as file:
            file.write(model)
    processor = sentencepiece.SentencePieceProcessor(model_file=path)
    ids = [processor.encode(line) for line in whole + broken]
    golden["cases"][name] = {"ids": ids, "decoded": [processor.decode(i) for i in ids]}
os.remove(f"{FOLDER}/corpus.txt")
os.remove(f"{FOLDER}/rules.tsv")
with open(f"{FOLDER}/golden.json", "w") as file:
    json.dump(golden, file, separators=(",", ":"))
