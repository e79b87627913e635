#!/usr/bin/env python3
"""Small tokenizers of every kind and what their originals make of tools/tokenizer_lines.py's lines.

    tests/golden/make_tokenizers.py        writes tests/golden/tokenizers/

Needs tokenizers and sentencepiece. The 10,000 lines are tools/compare_tokenizers.py's.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
from tokenizer_lines import WORDS, lines  # noqa: E402

import sentencepiece  # noqa: E402
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

FOLDER = os.path.join(os.path.dirname(__file__), "tokenizers")
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
texts = lines(11, 48)
corpus = [" ".join(WORDS[i % 97:]) for i in range(97)] + ["naïve Ünïcödé привет мир 日本語 こんにちは 世界"] * 4
quiet = dict(show_progress=False)
template = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 1)])
bytes_ = dict(initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **quiet)


def make(model, trainer, normalizer, pre, post, decoder):
    tokenizer = Tokenizer(model)
    if normalizer: tokenizer.normalizer = normalizer
    if pre: tokenizer.pre_tokenizer = pre
    if decoder: tokenizer.decoder = decoder
    tokenizer.train_from_iterator(corpus, trainer)
    if post: tokenizer.post_processor = post
    return tokenizer


special = ["<s>", "</s>", "<unk>", "[MASK]"]
tokenizers = {
    "gpt2": make(models.BPE(), trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>"], **bytes_), None,
                 pre_tokenizers.ByteLevel(add_prefix_space=False), processors.ByteLevel(trim_offsets=False), decoders.ByteLevel()),
    "roberta": make(models.BPE(), trainers.BpeTrainer(vocab_size=500, special_tokens=special, **bytes_), None,
                    pre_tokenizers.ByteLevel(add_prefix_space=True), processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), decoders.ByteLevel()),
    "llama3": make(models.BPE(ignore_merges=True), trainers.BpeTrainer(vocab_size=500, special_tokens=special, **bytes_), None,
                   pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CL100K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), template, decoders.ByteLevel()),
    "bert": make(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=600, special_tokens=["[UNK]", "[CLS]", "[SEP]"], **quiet),
                 normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)), decoders.WordPiece()),
    "llama": make(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainers.BpeTrainer(vocab_size=800, special_tokens=special + ["<0x%02X>" % b for b in range(256)], **quiet),
                  normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), None, template,
                  decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])),
    "unigram": make(models.Unigram(), trainers.UnigramTrainer(vocab_size=500, special_tokens=special, unk_token="<unk>", **quiet),
                    normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]), pre_tokenizers.Metaspace(), template, decoders.Metaspace()),
    "steps": make(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[UNK]"], **quiet),
                  normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(), normalizers.Strip()]),
                  pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Split("e", "merged_with_next")]),
                  None, decoders.WordPiece(cleanup=False)),
    "words": make(models.WordLevel(unk_token="[UNK]"), trainers.WordLevelTrainer(vocab_size=400, special_tokens=["[UNK]", "[MASK]"], **quiet),
                  normalizers.Lowercase(), pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("-"), pre_tokenizers.Whitespace()]), None, None),
}
os.makedirs(FOLDER, exist_ok=True)
golden = {"lines": texts, "cases": {}}
for name, tokenizer in tokenizers.items():
    tokenizer.save(f"{FOLDER}/{name}.json", pretty=False)
    plain = [tokenizer.encode(t, add_special_tokens=False) for t in texts]
    pairs = [tokenizer.encode(texts[i], texts[i + 1]) for i in range(20)]
    golden["cases"][name] = {
        "ids": [e.ids for e in plain],
        "offsets": [[x for pair in e.offsets for x in pair] for e in plain[:50]],
        "pair_ids": [e.ids for e in pairs], "pair_types": [e.type_ids for e in pairs],
        "decoded": [tokenizer.decode(e.ids, skip_special_tokens=False) for e in plain[:50]],
    }
with open(f"{FOLDER}/corpus.txt", "w") as file:
    file.write("\n".join(corpus))
with open(f"{FOLDER}/rules.tsv", "w") as file:
    file.write("\n".join(f"{ord(a):X}\t{' '.join('%X' % ord(c) for c in b)}" for a, b in
                         [("ﬁ", "fi"), ("½", "1/2"), ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("Ａ", "A"), ("…", "...")]) + "\n65 301\tE9\n")
common = dict(input=f"{FOLDER}/corpus.txt", minloglevel=2, hard_vocab_limit=False, normalization_rule_tsv=f"{FOLDER}/rules.tsv", max_sentence_length=100000)
for name, options in {"t5": dict(vocab_size=400, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
                      "spbpe": dict(vocab_size=700, model_type="bpe", byte_fallback=True)}.items():
    sentencepiece.SentencePieceTrainer.train(model_prefix=f"{FOLDER}/{name}", **common, **options)
    os.remove(f"{FOLDER}/{name}.vocab")
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{FOLDER}/{name}.model")
    golden["cases"][name] = {"ids": [processor.encode(t) for t in texts], "decoded": [processor.decode(processor.encode(t)) for t in texts[:50]]}
os.remove(f"{FOLDER}/corpus.txt")
os.remove(f"{FOLDER}/rules.tsv")
with open(f"{FOLDER}/golden.json", "w") as file:
    json.dump(golden, file, separators=(",", ":"))
