#!/usr/bin/env python3
"""Linnet's tokenizers beside tokenizers, tiktoken and sentencepiece on one thread, line by line, alternately.

    tools/bench_tokenizers.py LINNET MODEL TEXT [--rounds 7] [--fast tokenizer.json]

MODEL is a tokenizer.json or a SentencePiece model, of which --fast is what transformers made of it for tokenizers; TEXT
is a file. The sides take turns and medians are given. All take all lines and give ids; Linnet's time is
that of its program less what it takes on no lines, so it includes reading and printing.
"""
import argparse
import os
import statistics
import subprocess
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("linnet")
parser.add_argument("model")
parser.add_argument("text")
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--fast", help="tokenizers reads this file")
parser.add_argument("--gpt2", help="the folder with vocab.bpe and encoder.json: tiktoken, too")
a = parser.parse_args()
data = open(a.text, "rb").read()
lines = data.decode().split("\n")
sides = {}
if a.fast or a.model.endswith(".json"):
    import tokenizers
    hf = tokenizers.Tokenizer.from_file(a.fast or a.model)
    sides["tokenizers encode_batch_fast"] = lambda: hf.encode_batch_fast(lines, add_special_tokens=False)
if not a.model.endswith(".json"):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=a.model)
    sides["sentencepiece"] = lambda: sp.encode(lines, num_threads=1)
if a.gpt2:
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=f"{a.gpt2}/vocab.bpe", encoder_json_file=f"{a.gpt2}/encoder.json")
    tt = tiktoken.Encoding("gpt2", pat_str=r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
                           mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    sides["tiktoken"] = lambda: [tt.encode_ordinary(line) for line in lines]


def linnet():
    subprocess.run([a.linnet, "tokenizer", "encode", a.model], input=data, stdout=subprocess.DEVNULL, check=True)


def timed(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def empty():
    subprocess.run([a.linnet, "tokenizer", "encode", a.model], input=b"", stdout=subprocess.DEVNULL, check=True)


sides["linnet, whole program"] = linnet
sides["linnet, loading alone"] = empty
times = {name: [] for name in sides}
for _ in range(a.rounds):
    for name, action in sides.items():
        times[name].append(timed(action))
median = {name: statistics.median(seconds) for name, seconds in times.items()}
median["linnet"] = median["linnet, whole program"] - median["linnet, loading alone"]
for name, seconds in median.items():
    print(f"{name:32s} {seconds:8.3f} s  {len(data) / seconds / 1e6:8.2f} MB/s")
