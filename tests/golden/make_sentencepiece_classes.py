#!/usr/bin/env python3
"""What the classes of transformers make of SentencePiece models: ids with template and their text.

    tests/golden/make_sentencepiece_classes.py        writes tests/golden/sentencepiece/classes.json, bert.model and t5.model

Needs sentencepiece, transformers and make_sentencepiece.py's models. Every line has letters that a class folds and
special tokens that it spells.
"""
import json
import os
import shutil
import sys
import tempfile

import sentencepiece
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools"))
from tokenizer_lines import WORDS  # noqa: E402

FOLDER = os.path.join(os.path.dirname(__file__), "sentencepiece")
with tempfile.TemporaryDirectory() as scratch:
    with open(f"{scratch}/corpus.txt", "w") as file:
        file.write("\n".join([" ".join(WORDS[i % 97:]) for i in range(97)] + ["naïve Ünïcödé the fox jumps"] * 4))
    for name, ids in (("bert", dict(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"])), ("t5", dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1))):
        sentencepiece.SentencePieceTrainer.train(input=f"{scratch}/corpus.txt", model_prefix=f"{scratch}/{name}", minloglevel=2, hard_vocab_limit=False, vocab_size=250,
                                                 model_type="unigram", normalization_rule_name="identity", max_sentence_length=100000, **ids)
        shutil.copy(f"{scratch}/{name}.model", FOLDER)
SPECIAL = ["</s>", "<s>", "<unk>", "<mask>", "[MASK]", "<pad>", "[CLS]", "<extra_id_3>", "<unk_7>", "<mask_1>", "en_XX", "<sep>"]
texts = [f"{w}  the Fox{SPECIAL[i % 12]} jumps\tnaïve ``x\'\' {SPECIAL[(i + 5) % 12]}, ½ ﬁ\u200bof" for i, w in enumerate(WORDS[:24])]
CLASSES = {
    "T5": ("t5", "spiece.model", {"extra_ids": 10}),
    "Albert": ("bert", "spiece.model", {"do_lower_case": True}),
    "XLMRoberta": ("unigram_own", "sentencepiece.bpe.model", {}),
    "Camembert": ("unigram_own", "sentencepiece.bpe.model", {}),
    "MBart": ("unigram_own", "sentencepiece.bpe.model", {"src_lang": "de_DE"}),
    "MBart50": ("unigram_own", "sentencepiece.bpe.model", {"src_lang": "de_DE"}),
    "Nllb": ("bpe_own", "sentencepiece.bpe.model", {}),
    "Pegasus": ("t5", "spiece.model", {}),
    "DebertaV2": ("bert", "spm.model", {"do_lower_case": True, "split_by_punct": True}),
    "Llama": ("bpe_own", "tokenizer.model", {"add_bos_token": True, "legacy": False}),
    "Gemma": ("bpe_phrases", "tokenizer.model", {"add_bos_token": True, "add_eos_token": True}),
}
golden = {"texts": texts, "classes": {}}
for name, (model, file_name, settings) in CLASSES.items():
    settings = {"tokenizer_class": name + "Tokenizer", **settings}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(f"{FOLDER}/{model}.model", f"{folder}/{file_name}")
        with open(f"{folder}/tokenizer_config.json", "w") as file:
            json.dump(settings, file)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(texts)["input_ids"]
    golden["classes"][name] = {"model": model, "file": file_name, "settings": settings, "ids": ids, "pair": tokenizer(texts[0], texts[1])["input_ids"],
                               "decoded": [tokenizer.decode(i, skip_special_tokens=True) for i in ids]}
with open(f"{FOLDER}/classes.json", "w") as file:
    json.dump(golden, file, separators=(",", ":"))
