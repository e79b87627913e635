#!/usr/bin/env python3
"""Linnet's tokenizers beside their originals on tools/tokenizer_lines.py's lines: ids and decoded text.

    tools/compare_tokenizers.py LINNET DATA [--seed 1] [--count 10000] [--only gpt2,...]

LINNET is the program, DATA the folder with gpt2/, bert/ and sentencepiece/. Needs tiktoken, tokenizers, sentencepiece.
Ends with 1 when a line differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from tokenizer_lines import lines, script_lines


def linnet(program, command, model, text, *flags):
    run = subprocess.run([program, "tokenizer", command, model, *flags], input=text, capture_output=True)
    if run.returncode:
        sys.exit(f"linnet {command} {model}: {run.stderr.decode()}")
    return run.stdout


def encode(program, model, texts, *flags):
    out = linnet(program, "encode", model, "".join(t + "\n" for t in texts).encode(), *flags).decode()
    return [[int(i) for i in line.split()] for line in out.split("\n")[:-1]]


def decode(program, model, ids, *flags):
    return linnet(program, "decode", model, "".join(" ".join(map(str, i)) + "\n" for i in ids).encode(), *flags)


class Report:
    def __init__(self):
        self.bad = 0

    def compare(self, name, texts, ours, theirs, show=3):
        if len(ours) != len(theirs):
            print(f"{name}: {len(ours)} lines instead of {len(theirs)}")
            self.bad += 1
            return
        wrong = [i for i in range(len(texts)) if ours[i] != theirs[i]]
        print(f"{name}: {len(texts) - len(wrong)} of {len(texts)} lines agree", flush=True)
        for i in wrong[:show]:
            at = next((k for k in range(min(len(ours[i]), len(theirs[i]))) if ours[i][k] != theirs[i][k]), None)
            print(f"  {ascii(texts[i])[:200]}\n    ours   {str(ours[i][max(0, (at or 0) - 3):][:14])}\n    theirs {str(theirs[i][max(0, (at or 0) - 3):][:14])}")
        self.bad += len(wrong)


def split_decoded(text, count):
    parts = text.split(b"\n")
    return parts[:-1] if len(parts) == count + 1 else None


def gpt2(a, texts, report, scratch):
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    folder = f"{a.data}/gpt2"
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=f"{folder}/vocab.bpe", encoder_json_file=f"{folder}/encoder.json")
    original = tiktoken.Encoding("gpt2", pat_str=r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
                                 mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    theirs = [original.encode(t, allowed_special="all") for t in texts]
    os.makedirs(f"{scratch}/gpt2", exist_ok=True)
    for name in ("encoder.json", "vocab.bpe"):
        os.path.exists(f"{scratch}/gpt2/{name}") or os.symlink(f"{folder}/{name}", f"{scratch}/gpt2/{name}")
    ours = encode(a.linnet, f"{scratch}/gpt2", texts)
    report.compare("gpt2 vocab.bpe, tiktoken", texts, ours, theirs)
    back = decode(a.linnet, f"{scratch}/gpt2", ours)
    print("gpt2 round trip:", "exact" if back == "".join(t + "\n" for t in texts).encode() else "BROKEN")
    report.bad += back != "".join(t + "\n" for t in texts).encode()
    fast(a, texts, report, scratch, "gpt2 tokenizer.json", f"{folder}/tokenizer.json")


def fast(a, texts, report, scratch, name, path, decoding=True):
    """tokenizer.json: ids with and without template, decoded text, offsets' places, and what Linnet writes."""
    import tokenizers
    original = tokenizers.Tokenizer.from_file(path)
    original.no_truncation()
    original.no_padding()
    theirs = original.encode_batch(texts, add_special_tokens=False)
    ours = encode(a.linnet, path, texts)
    report.compare(f"{name}, tokenizers", texts, ours, [e.ids for e in theirs])
    report.compare(f"{name} --special", texts, encode(a.linnet, path, texts, "--special"), [e.ids for e in original.encode_batch(texts)])
    marked = [t.replace("\n", " ") for t in original.decode_batch([e.ids for e in theirs], skip_special_tokens=False)]
    back = decode(a.linnet, path, [e.ids for e in theirs])
    if b"\n".join(m.encode() for m in marked) + b"\n" == back:
        print(f"{name} decode: agrees")
    else:
        got = split_decoded(back, len(texts))
        if got is None:
            print(f"{name} decode: other number of lines"); report.bad += 1
        else:
            report.compare(f"{name} decode", texts, [g.decode(errors="replace") for g in got], marked)


def bert(a, texts, report, scratch):
    import transformers
    from tokenizers import BertWordPieceTokenizer
    vocabulary = f"{a.data}/bert/bert-base-uncased-vocab.txt"
    for lowercase in (True, False):
        folder = f"{scratch}/bert-{lowercase}"
        os.makedirs(folder, exist_ok=True)
        os.path.exists(f"{folder}/vocab.txt") or os.symlink(vocabulary, f"{folder}/vocab.txt")
        with open(f"{folder}/tokenizer_config.json", "w") as file:
            json.dump({"do_lower_case": lowercase, "tokenizer_class": "BertTokenizer"}, file)
        original = BertWordPieceTokenizer(vocabulary, lowercase=lowercase)
        theirs = original.encode_batch(texts, add_special_tokens=True)
        report.compare(f"bert vocab.txt lowercase={lowercase}, tokenizers", texts, encode(a.linnet, folder, texts, "--special"), [e.ids for e in theirs])
        original.save(f"{scratch}/bert-{lowercase}.json")
        fast(a, texts, report, scratch, f"bert tokenizer.json lowercase={lowercase}", f"{scratch}/bert-{lowercase}.json")
    folder = f"{scratch}/bert-True"
    original = transformers.AutoTokenizer.from_pretrained(folder)
    report.compare("bert, transformers", texts, encode(a.linnet, folder, texts, "--special"), original(texts)["input_ids"])


def pipelines(a, texts, report, scratch):
    """Every step that Linnet knows, around a small model."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    corpus = lines(a.seed + 1, 2000)
    plain = [" ".join(w for w in line.split(" ") if w.isascii() or len(w) < 3)[:200] for line in corpus[:700]]
    cl100k = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    o200k = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    byte_level = lambda pattern: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    bpe = lambda **k: (models.BPE(**k), trainers.BpeTrainer(vocab_size=1000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<s>", "</s>", "<unk>", "[MASK]"], show_progress=False))
    unigram = lambda: (models.Unigram(), trainers.UnigramTrainer(vocab_size=3000, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False))
    wordpiece = lambda: (models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    template = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 1)])
    cases = {
        "cl100k": (bpe(), None, byte_level(cl100k), template, decoders.ByteLevel()),
        "o200k": (bpe(), None, byte_level(o200k), template, decoders.ByteLevel()),
        "roberta": (bpe(), None, pre_tokenizers.ByteLevel(add_prefix_space=True), processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), decoders.ByteLevel()),
        "bpe ignore_merges nfc": (bpe(ignore_merges=True), normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False), None, decoders.ByteLevel()),
        "bpe suffix": ((models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), trainers.BpeTrainer(vocab_size=1500, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False)), normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), pre_tokenizers.BertPreTokenizer(), None, decoders.BPEDecoder()),
        "bpe fuse_unk": ((models.BPE(unk_token="<unk>", fuse_unk=True), trainers.BpeTrainer(vocab_size=400, limit_alphabet=100, special_tokens=["<unk>"], show_progress=False)), normalizers.Replace(" ", "\u2581"), None, None, decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])),
        "unigram metaspace": (unigram(), normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")]), pre_tokenizers.Metaspace(), template, decoders.Metaspace()),
        "unigram first": (unigram(), normalizers.NFD(), pre_tokenizers.Metaspace(prepend_scheme="first"), None, decoders.Metaspace(prepend_scheme="first")),
        "unigram whitespace": (unigram(), normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]), None, decoders.Metaspace()),
        "wordpiece": (wordpiece(), normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]), pre_tokenizers.Whitespace(), None, decoders.WordPiece()),
        "wordpiece digits": (wordpiece(), normalizers.Prepend("x"), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation()]), None, decoders.WordPiece(cleanup=False)),
        "wordpiece behaviors": (wordpiece(), normalizers.Strip(), pre_tokenizers.Sequence([pre_tokenizers.Split(Regex("[aeiou]"), "merged_with_previous"), pre_tokenizers.Split("n", "merged_with_next"), pre_tokenizers.Split(Regex(r"\s"), "removed"), pre_tokenizers.Digits(), pre_tokenizers.Punctuation("contiguous")]), None, decoders.WordPiece()),
    }
    for name, ((model, trainer), normalizer, pre, post, decoder) in cases.items():
        tokenizer = Tokenizer(model)
        if normalizer: tokenizer.normalizer = normalizer
        if pre: tokenizer.pre_tokenizer = pre
        if decoder: tokenizer.decoder = decoder
        tokenizer.train_from_iterator(plain if name.startswith("unigram") else corpus, trainer)
        if post: tokenizer.post_processor = post
        path = f"{scratch}/{name.replace(' ', '_')}.json"
        tokenizer.save(path)
        fast(a, texts, report, scratch, name, path)


def pieces(a, texts, report, scratch):
    """SentencePiece models: the library's own ids, and the tokenizer.json that transformers makes of them."""
    import sentencepiece
    import transformers
    data = f"{a.data}/sentencepiece"
    train = lambda folder, name, **k: (os.makedirs(f"{scratch}/{folder}", exist_ok=True), sentencepiece.SentencePieceTrainer.train(
        input=f"{data}/botchan.txt,{data}/wagahaiwa_nekodearu.txt", model_prefix=f"{scratch}/{folder}/{name}", minloglevel=2, **k))
    train("t5", "spiece", vocab_size=8000, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    train("llama", "tokenizer", vocab_size=6000, model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
          remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True)
    configs = {"t5": {"tokenizer_class": "T5Tokenizer", "extra_ids": 100, "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
               "llama": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}}
    models = [f"{data}/test_model.model", f"{data}/test_ja_model.model", f"{scratch}/t5/spiece.model", f"{scratch}/llama/tokenizer.model"]
    texts = [t for t in texts if "<extra_id" not in t]
    for model in models:
        original = sentencepiece.SentencePieceProcessor(model_file=model)
        name = "/".join(model.split("/")[-2:])
        theirs = [original.encode(t) for t in texts]
        report.compare(f"{name}, sentencepiece", texts, encode(a.linnet, model, texts), theirs)
        back = split_decoded(decode(a.linnet, model, theirs), len(texts))
        report.compare(f"{name} decode", texts, [b.decode() for b in back], [original.decode(i) for i in theirs])
    for name, config in configs.items():
        with open(f"{scratch}/{name}/tokenizer_config.json", "w") as file:
            json.dump(config, file)
        transformers.AutoTokenizer.from_pretrained(f"{scratch}/{name}").save_pretrained(f"{scratch}/{name}-fast")
        fast(a, texts, report, scratch, f"{name} tokenizer.json", f"{scratch}/{name}-fast/tokenizer.json")


def with_unused(processor):
    """The model with every third of its usual pieces marked as unused."""
    def varint(value):
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])
    data, at, out, index = processor.serialized_model_proto(), 0, b"", 0
    def number():
        nonlocal at
        value = shift = 0
        while True:
            at += 1
            value |= (data[at - 1] & 127) << shift
            shift += 7
            if data[at - 1] < 128:
                return value
    while at < len(data):  # the file has fields of bytes only
        tag = number()
        size = number()
        body = data[at:at + size]
        at += size
        if tag == 10:  # a piece; the last type that it names counts
            usual = not (processor.is_control(index) or processor.is_unknown(index) or processor.is_byte(index))
            if usual and index % 3 == 0 and processor.id_to_piece(index) not in OWN:
                body += b"\x18\x05"
            index += 1
        out += varint(tag) + varint(len(body)) + body
    return out


OWN = ["<sep>", "foo bar", "\u00e9", "the", "\u2581of", "ab", "abc"]


def variants(a, texts, report, scratch):
    """SentencePiece models with every option that changes how they cut, on whole, very long and broken lines."""
    import random
    import sentencepiece
    data = f"{a.data}/sentencepiece"
    cases = {
        "unigram fallback": dict(model_type="unigram", byte_fallback=True, user_defined_symbols=OWN, control_symbols=["<ctl>"]),
        "unigram identity": dict(model_type="unigram", normalization_rule_name="identity", remove_extra_whitespaces=False),
        "unigram suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True),
        "unigram phrases": dict(model_type="unigram", split_by_whitespace=False, normalization_rule_name="nfkc_cf"),
        "unigram bare": dict(model_type="unigram", add_dummy_prefix=False, user_defined_symbols=OWN),
        "bpe fallback": dict(model_type="bpe", byte_fallback=True, user_defined_symbols=OWN, control_symbols=["<ctl>", "\u3042"]),
        "bpe suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True, normalization_rule_name="nmt_nfkc_cf"),
        "bpe phrases": dict(model_type="bpe", split_by_whitespace=False, add_dummy_prefix=False),
        "bpe blanks": dict(model_type="bpe", normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True),
    }
    choose = random.Random(a.seed)
    long = [" ".join(choose.sample(texts, 300)), "a" * 5000 + " b" * 5000, "\u3042\u3044\u3046 " * 9000, "the of and " * 20000]
    broken = []
    for text in texts[:2000]:
        raw = bytearray(text.encode())
        for _ in range(choose.randint(1, 4)):
            raw[choose.randrange(len(raw) + 1):0] = bytes([choose.randrange(128, 256)])
        broken.append(bytes(raw))
    raw_lines = [t.encode() for t in texts] + [l.encode() for l in long] + broken
    raw_lines = [line for line in raw_lines if b"\n" not in line]
    shown = [line.decode(errors="replace") for line in raw_lines]
    for name, options in cases.items():
        path = f"{scratch}/{name.replace(' ', '_')}.model"
        sentencepiece.SentencePieceTrainer.train(input=f"{data}/botchan.txt,{data}/wagahaiwa_nekodearu.txt", model_prefix=path[:-6],
                                                 minloglevel=2, vocab_size=5000, hard_vocab_limit=False, input_sentence_size=4000, **options)
        for unused in (False, True):
            original = sentencepiece.SentencePieceProcessor(model_file=path)
            if unused:  # a third of the vocabulary is not to be used
                path = path[:-6] + "_unused.model"
                with open(path, "wb") as file:
                    file.write(with_unused(original))
                original = sentencepiece.SentencePieceProcessor(model_file=path)
            label = name + (" unused" if unused else "")
            ours = linnet(a.linnet, "encode", path, b"".join(line + b"\n" for line in raw_lines)).decode()
            ours = [[int(i) for i in line.split()] for line in ours.split("\n")[:-1]]
            theirs = [original.encode(line) for line in raw_lines]
            report.compare(f"{label}, sentencepiece", shown, ours, theirs)
            back = linnet(a.linnet, "decode", path, "".join(" ".join(map(str, i)) + "\n" for i in theirs).encode())
            want = "".join(original.decode(i) + "\n" for i in theirs).encode()
            print(f"{label} decode:", "agrees" if back == want else "DIFFERS")
            report.bad += back != want


def kinds(a, scratch):
    """A trained folder of each kind that the families bring: yields name and folder, in the forms that hubs have."""
    import gzip
    import glob
    import sentencepiece
    import transformers
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    data = f"{a.data}/sentencepiece"
    corpus = script_lines(a.seed + 1, 6000) + [line for name in ("botchan", "wagahaiwa_nekodearu") for line in open(f"{data}/{name}.txt", encoding="utf-8").read().split("\n")[:3000]]
    for path in sorted(glob.glob(f"{a.data}/../translation/multi30k/train.*.gz")):
        corpus += gzip.open(path, "rt", encoding="utf-8").read().split("\n")[:2000]
    corpus = [line for line in corpus if line.strip()]
    wanted = a.kinds.split(",") if a.kinds else None
    skip = lambda name: wanted and name not in wanted
    quiet = dict(show_progress=False)

    def save(name, tokenizer):
        tokenizer.save_pretrained(f"{scratch}/{name}")
        return name, f"{scratch}/{name}"

    def files(name, tokenizer, config):
        """The model's own files and the settings alone."""
        folder = f"{scratch}/{name}-files"
        os.makedirs(folder)
        tokenizer._tokenizer.model.save(folder)
        with open(f"{folder}/tokenizer_config.json", "w") as file:
            json.dump(config, file)
        return f"{name}, files", folder

    for name, cls, options in (("bert-uncased", "BertTokenizer", {}), ("bert-cased", "BertTokenizer", dict(do_lower_case=False)),
                               ("bert-accents", "BertTokenizer", dict(strip_accents=False, tokenize_chinese_chars=False)), ("mpnet", "MPNetTokenizer", {})):
        if skip(name): continue
        if cls == "MPNetTokenizer":
            vocab = {t: i for i, t in enumerate(["<s>", "<pad>", "</s>", "[UNK]", "<mask>"])}
            empty = transformers.MPNetTokenizer(vocab=vocab)
        else:
            empty = transformers.BertTokenizer(**options)
        tokenizer = empty.train_new_from_iterator(corpus, 6000, **quiet)
        yield save(name, tokenizer)
        yield files(name, tokenizer, {"tokenizer_class": cls, **options})

    byte_level = {
        "gpt2": ("GPT2Tokenizer", {}), "gpt2-prefix": ("GPT2Tokenizer", dict(add_prefix_space=True)), "opt": ("GPT2Tokenizer", dict(bos_token="</s>", eos_token="</s>", unk_token="</s>", pad_token="<pad>", add_bos_token=True)),
        "roberta": ("RobertaTokenizer", {}), "roberta-prefix": ("RobertaTokenizer", dict(add_prefix_space=True)), "bart": ("BartTokenizer", {}),
        "qwen2": ("Qwen2Tokenizer", {}), "gpt-neox": ("GPTNeoXTokenizer", {}),
    }
    for name, (cls, options) in byte_level.items():
        if skip(name): continue
        tokenizer = getattr(transformers, cls)(**options).train_new_from_iterator(corpus, 5000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **quiet)
        if name == "qwen2":
            tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
            tokenizer.add_tokens(["<tool_call>", "</tool_call>"])
        yield save(name, tokenizer)
        if name not in ("qwen2", "gpt-neox"):
            yield files(name, tokenizer, {"tokenizer_class": cls, **options})

    llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    cut = lambda *steps: pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    split = lambda pattern: pre_tokenizers.Split(Regex(pattern), "isolated")
    custom = {  # folders whose class is no more than tokenizer.json
        "llama3": (dict(ignore_merges=True), None, cut(split(llama3)), ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], "<|begin_of_text|>", None),
        "starcoder2": ({}, None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), ["<|endoftext|>", "<fim_prefix>"], None, None),
        "modernbert": ({}, normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False), ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "|||IP_ADDRESS|||"], "[CLS]", "[SEP]"),
    }
    for name, (model, normalizer, pre, special, first, last) in custom.items():
        if skip(name): continue
        inner = Tokenizer(models.BPE(**model))
        if normalizer: inner.normalizer = normalizer
        inner.pre_tokenizer, inner.decoder = pre, decoders.ByteLevel()
        inner.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=5000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special, **quiet))
        if name == "modernbert":  # runs of spaces, as of GPT-NeoX
            inner.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
            inner.add_special_tokens([AddedToken("[MASK]", lstrip=True)])
        ids = [(t, inner.token_to_id(t)) for t in (first, last) if t]
        if ids: inner.post_processor = processors.TemplateProcessing(single=" ".join(x for x in (first, "$A", last) if x), pair=None, special_tokens=ids)
        yield save(name, transformers.PreTrainedTokenizerFast(tokenizer_object=inner))

    if not skip("wordlevel"):
        inner = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        inner.pre_tokenizer, inner.normalizer = pre_tokenizers.Whitespace(), normalizers.Lowercase()
        inner.train_from_iterator(corpus, trainers.WordLevelTrainer(vocab_size=5000, special_tokens=["[UNK]", "[PAD]"], **quiet))
        yield save("wordlevel", transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]"))

    text = f"{scratch}/corpus.txt"
    with open(text, "w") as file:
        file.write("\n".join(corpus))
    unigram = dict(model_type="unigram", vocab_size=10000)
    bpe = dict(model_type="bpe", vocab_size=10000, byte_fallback=True, split_digits=True, normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)
    tags = dict(user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\t", "  ", "   ", "<table>"])
    t5 = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    pieces = {  # class, file, training, settings
        "llama": ("LlamaTokenizer", "tokenizer.model", bpe, dict(add_bos_token=True, legacy=False)),
        "llama-legacy": ("LlamaTokenizer", "tokenizer.model", bpe, dict(add_bos_token=True, legacy=True)),
        "gemma": ("GemmaTokenizer", "tokenizer.model", {**bpe, **tags, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "bos_piece": "<bos>", "eos_piece": "<eos>", "add_dummy_prefix": False}, dict(add_bos_token=True)),
        "t5": ("T5Tokenizer", "spiece.model", {**unigram, **t5}, dict(extra_ids=100)),
        "xlm-roberta": ("XLMRobertaTokenizer", "sentencepiece.bpe.model", unigram, {}),
        "camembert": ("CamembertTokenizer", "sentencepiece.bpe.model", unigram, {}),
        "deberta-v2": ("DebertaV2Tokenizer", "spm.model", {**unigram, "pad_id": 0, "bos_id": 1, "bos_piece": "[CLS]", "eos_id": 2, "eos_piece": "[SEP]", "unk_id": 3, "unk_piece": "[UNK]", "pad_piece": "[PAD]"}, dict(do_lower_case=False)),
        "deberta-v2-lower": ("DebertaV2Tokenizer", "spm.model", {**unigram, "pad_id": 0, "bos_id": 1, "bos_piece": "[CLS]", "eos_id": 2, "eos_piece": "[SEP]", "unk_id": 3, "unk_piece": "[UNK]", "pad_piece": "[PAD]"}, dict(do_lower_case=True)),
        "albert": ("AlbertTokenizer", "spiece.model", {**unigram, "pad_id": 0, "pad_piece": "<pad>", "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "normalization_rule_name": "nmt_nfkc_cf"}, dict(do_lower_case=True)),
        "mbart": ("MBartTokenizer", "sentencepiece.bpe.model", unigram, dict(src_lang="en_XX", tgt_lang="ro_RO")),
        "nllb": ("NllbTokenizer", "sentencepiece.bpe.model", {**unigram, **{k: v for k, v in bpe.items() if k in ("model_type", "vocab_size")}}, dict(src_lang="eng_Latn", tgt_lang="fra_Latn")),
        "mbart50": ("MBart50Tokenizer", "sentencepiece.bpe.model", unigram, dict(src_lang="en_XX", tgt_lang="ro_RO")),
        "pegasus": ("PegasusTokenizer", "spiece.model", {**unigram, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, {}),
        "mt5": ("T5Tokenizer", "spiece.model", {**unigram, **t5, "byte_fallback": True}, dict(extra_ids=0)),
    }
    for name, (cls, file_name, training, options) in pieces.items():
        if skip(name): continue
        folder = f"{scratch}/{name}-files"
        os.makedirs(folder)
        sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=f"{folder}/model", minloglevel=2, character_coverage=0.99, **training)
        os.rename(f"{folder}/model.model", f"{folder}/{file_name}")
        with open(f"{folder}/tokenizer_config.json", "w") as file:
            json.dump({"tokenizer_class": cls, **options}, file)
        yield f"{name}, {file_name}", folder
        if name != "llama-legacy":  # transformers saves "legacy" in tokenizer.json alone, and does not read it there
            yield save(name, transformers.AutoTokenizer.from_pretrained(folder))

    if not skip("m2m100"):
        folder = f"{scratch}/m2m100"
        os.makedirs(folder)
        sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=f"{folder}/model", minloglevel=2, character_coverage=0.99, **bpe)
        os.rename(f"{folder}/model.model", f"{folder}/sentencepiece.bpe.model")
        model = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/sentencepiece.bpe.model")
        names = [model.id_to_piece(i) for i in range(len(model))]
        with open(f"{folder}/vocab.json", "w") as file:
            json.dump({n: i for i, n in enumerate(["<s>", "<pad>", "</s>", "<unk>", *[n for n in names if n not in ("<s>", "</s>", "<unk>")]])}, file)
        with open(f"{folder}/tokenizer_config.json", "w") as file:
            json.dump({"tokenizer_class": "M2M100Tokenizer", "src_lang": "de", "tgt_lang": "fr"}, file)
        yield "m2m100", folder

    if not skip("marian"):
        folder = f"{scratch}/marian"
        os.makedirs(folder)
        for side in ("source", "target"):
            sentencepiece.SentencePieceTrainer.train(input=text, model_prefix=f"{folder}/{side}", minloglevel=2, character_coverage=0.99, **unigram)
            os.rename(f"{folder}/{side}.model", f"{folder}/{side}.spm")
        names = [line.split("\t")[0] for line in open(f"{folder}/source.vocab", encoding="utf-8")]
        rest = [n for n in names if n not in ("<s>", "</s>", "<unk>")]
        with open(f"{folder}/vocab.json", "w") as file:
            json.dump({n: i for i, n in enumerate(["</s>", "<unk>", *rest, ">>fra<<", "<pad>"])}, file)
        with open(f"{folder}/tokenizer_config.json", "w") as file:
            json.dump({"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "fr"}, file)
        yield "marian", folder


def folders(a, texts, report, scratch):
    """Folders of every kind that the families bring, against AutoTokenizer, on lines of ten scripts."""
    import transformers
    transformers.logging.set_verbosity_error()
    rows = []
    for name, folder in kinds(a, scratch):
        original = transformers.AutoTokenizer.from_pretrained(folder)
        added = sorted(original.get_added_vocab()) + ["<s>", "</s>", "<|endoftext|>", "[MASK]", "<mask>", "<mask>.", ">>fra<<", ">>none<<"]
        texts = script_lines(a.seed, a.count, added)
        theirs = original(texts)["input_ids"]
        ours = encode(a.linnet, folder, texts, "--special")
        report.compare(name, texts, ours, theirs)
        rows.append((name, len(texts), sum(x != y for x, y in zip(ours, theirs))))
    print("\n| kind | lines | lines that differ |\n|---|---|---|")
    for row in rows:
        print("| %s | %d | %d |" % row)


FAMILIES = {"folders": folders, "gpt2": gpt2, "bert": bert, "pipelines": pipelines, "pieces": pieces, "variants": variants}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet")
    parser.add_argument("data")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--only", default=",".join(FAMILIES))
    parser.add_argument("--kinds", default="", help="of --only folders, some kinds: gpt2,albert,...")
    a = parser.parse_args()
    texts = lines(a.seed, a.count)
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        for name in a.only.split(","):
            FAMILIES[name](a, texts, report, scratch)
    sys.exit(1 if report.bad else 0)


if __name__ == "__main__":
    main()
