#!/usr/bin/env python3
"""Runs `linnet check` on every preset, with real data, and writes a table of outcomes and seconds.

    LINNET_DATA=FOLDER bench/check_presets.py [--linnet PROGRAM] [--only NAME]... [--out FILE.md]

LINNET_DATA holds translation/multi30k, lm/tinyshakespeare, images/mnist, images/cifar10-8000, text-classification/sst2
and tokenizers/{bert,gpt2}. What a preset needs besides is made in a temporary folder: images as files, texts of
other tasks, and for the presets that begin with a folder a BERT of their size or a small GPT with random weights. Exit code 1 if a check fails.
"""
import argparse, gzip, json, lzma, os, re, resource, shutil, struct, subprocess, sys, tempfile, time, zlib

CIFAR = "airplane automobile bird cat deer dog frog horse ship truck".split()


def write_png(path, width, height, rgb):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + rgb[3 * width * y:3 * width * (y + 1)] for y in range(height))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def make_images(data, folder, count=400):
    with lzma.open(f"{data}/images/cifar10-8000/images.bin.xz") as file:
        for i in range(count):
            record = file.read(3073)
            planes = [record[1 + 1024 * c:1 + 1024 * (c + 1)] for c in range(3)]
            os.makedirs(f"{folder}/{CIFAR[record[0]]}", exist_ok=True)
            write_png(f"{folder}/{CIFAR[record[0]]}/{i}.png", 32, 32, bytes(v for pixel in zip(*planes) for v in pixel))
    return folder


def make_bert(linnet, data, folder):
    """A BERT folder of MiniLM's size whose weights are random but for one step of training."""
    run, quiet = folder + ".run", dict(check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([linnet, "train", "bert-base", "--run", run, "--steps", "1", "--batch", "1", "--set", "context=16", "--set",
                    "d_model=384", "--set", "num_layers=6", "--set", f"text={data}/lm/wikitext-2/test.txt", "--set", "d_ff=1536",
                    "--set", f"tokenizer_dir={data}/tokenizers/bert/bert-base-uncased-vocab.txt"], **quiet)
    subprocess.run([linnet, "export", run, "--out", folder], **quiet)
    return folder


def make_decoder(linnet, data, folder):
    """A small GPT's folder with a chat template; its weights are random but for one step of training."""
    run, quiet = folder + ".run", dict(check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([linnet, "train", "mini-gpt", "--run", run, "--steps", "1", "--batch", "1", "--set", "context=64", "--set",
                    f"text={data}/lm/tinyshakespeare/input.txt", "--set", f"tokenizer_dir={data}/tokenizers/gpt2"], **quiet)
    subprocess.run([linnet, "export", run, "--out", folder], **quiet)
    with open(f"{folder}/chat_template.jinja", "w") as file:
        file.write("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                   "{% if add_generation_prompt %}assistant: {% endif %}")
    return folder


def make_texts(data, folder, count=400):
    """Sentences of SST-2 as other tasks: numbers, several labels, tags of words, conversations, pairs of answers."""
    os.makedirs(folder)
    with open(f"{data}/text-classification/sst2/train.tsv") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][:count]
    def write(name, lines):
        with open(f"{folder}/{name}", "w") as file:
            file.writelines(line + "\n" for line in lines)
        return f"{folder}/{name}"
    turns = lambda role, text: [{"role": role, "content": text}]
    judge = lambda label: "I liked it." if label == "1" else "I did not like it."
    return {
        "regress": write("numbers.tsv", (f"{text}\t{len(text) / 100}" for text, _ in rows)),
        "label": write("labels.jsonl", (json.dumps({"text": text, "labels": ["good"] * int(label) + ["long"] * (len(text) > 60)})
                                        for text, label in rows)),
        "tag": write("tags.conll", ("".join(f"{word} {'B-ARTICLE' if word in ('a', 'an', 'the') else 'O'}\n" for word in text.split())
                                    for text, _ in rows)),
        "chat": write("chats.jsonl", (json.dumps({"messages": turns("user", text) + turns("assistant", judge(label))})
                                      for text, label in rows)),
        "preferences": write("pairs.jsonl", (json.dumps({
            "prompt": turns("user", text), "chosen": turns("assistant", judge(label)),
            "rejected": turns("assistant", judge(str(1 - int(label))))}) for text, label in rows)),
    }


def presets(linnet, data, folder):
    """Of each preset the arguments that name its data."""
    multi30k, text = f"{data}/translation/multi30k", f"text={data}/lm/tinyshakespeare/input.txt"
    sst2, bert_words = f"{data}/text-classification/sst2", f"tokenizer_dir={data}/tokenizers/bert/bert-base-uncased-vocab.txt"
    pairs = ["--source", f"{multi30k}/train.en.gz", "--target", f"{multi30k}/train.de.gz"]
    gpt2 = ["--set", text, "--set", f"tokenizer_dir={data}/tokenizers/gpt2"]
    pictures, bert = make_images(data, f"{folder}/pictures"), make_bert(linnet, data, f"{folder}/bert")
    decoder, texts = make_decoder(linnet, data, f"{folder}/decoder"), make_texts(data, f"{folder}/texts")
    beginning = {"chat": decoder, "preferences": decoder}
    return {
        **{name: ["--data", path, "--set", f"model.from={beginning.get(name, bert)}"] for name, path in texts.items()},
        "dates": [], "reference": [], "translate": pairs, "multi30k": ["--set", f"data_dir={multi30k}"],
        "t5-small": [*pairs, "--set", "vocab_size=8000"],  # 29,000 pairs do not make up T5's 32,000 pieces
        "shakespeare": ["--set", text], "text": ["--set", text], "mini-gpt": gpt2, "gpt2-124m": gpt2,
        "bert-base": ["--set", text, "--set", bert_words],
        "classify": ["--data", f"{sst2}/train.tsv", "--set", f"model.from={bert}"],
        "sst2": ["--set", f"data_dir={sst2}", "--set", f"model.from={bert}"],
        "mnist": ["--set", f"data_dir={data}/images/mnist"], "images": ["--data", pictures], "resnet20": ["--data", pictures],
        "vit-tiny": ["--data", pictures],
    }


def check(linnet, name, arguments):
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    result = subprocess.run([linnet, "check", name, "--json", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if result.returncode not in (0, 1):
        return [{"name": "does not run", "verdict": "fail", "figure": result.stderr.strip().splitlines()[-1]}], time.time() - began, used
    return json.loads(result.stdout)["checks"], time.time() - began, used


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--linnet", default="build/release/bin/linnet")
    parser.add_argument("--only", action="append", help="a preset")
    parser.add_argument("--out", help="also writes the table to this file")
    arguments = parser.parse_args()
    data = os.environ.get("LINNET_DATA", "")
    if not os.path.isdir(f"{data}/translation/multi30k"):
        sys.exit("LINNET_DATA names no folder with translation/multi30k and the like")
    lines = ["| preset | passed | skipped | failed | seconds | of processors |", "|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        todo = presets(arguments.linnet, data, folder)
        listed = re.findall(r"^(\S+)", subprocess.run([arguments.linnet, "presets"], check=True, stdout=subprocess.PIPE, text=True).stdout, re.M)
        missing = sorted(set(listed) - set(todo))
        print("\n".join(lines), flush=True)
        failed = bool(missing)
        for name in arguments.only or listed:
            if name in missing:
                continue
            checks, seconds, used = check(arguments.linnet, name, todo[name])
            count = lambda verdict: sum(line["verdict"] == verdict for line in checks)
            wrong = "; ".join(f"{line['name']}: {line['figure']}" for line in checks if line["verdict"] == "fail")
            failed = failed or bool(wrong)
            lines.append(f"| {name} | {count('pass')} | {count('skip')} | {wrong or 0} | {seconds:.1f} | {used:.1f} |")
            print(lines[-1], flush=True)
    for name in missing:
        print(f"{name}: this script does not know its data")
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write("\n".join(lines) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
