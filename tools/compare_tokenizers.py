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

from tokenizer_lines import lines


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


FAMILIES = {"gpt2": gpt2}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet")
    parser.add_argument("data")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--only", default=",".join(FAMILIES))
    a = parser.parse_args()
    texts = lines(a.seed, a.count)
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        for name in a.only.split(","):
            FAMILIES[name](a, texts, report, scratch)
    sys.exit(1 if report.bad else 0)


if __name__ == "__main__":
    main()
