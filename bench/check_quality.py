#!/usr/bin/env python3
"""What 8 and 4 bits cost: accuracy and perplexity of trained models in every precision, as a table.

    bench/check_quality.py --data FOLDER --bert FOLDER [--linnet PROGRAM] [--work FOLDER] [--only sst2|shakespeare|wikitext]
                           [--out FILE.md]

FOLDER of --data holds text-classification/sst2, lm/tinyshakespeare and lm/wikitext-2; --bert is a MiniLM folder to fine-tune. Models are
trained, calibrated on training data alone and evaluated by the command line. Everything lies in the work folder: what is
there already is not computed again, so an interrupted check goes on. Exit code 1 if a bound is missed.
"""
import argparse, json, math, os, subprocess, sys


class Check:
    def __init__(self, arguments):
        self.linnet, self.work, self.data, self.bert = arguments.linnet, arguments.work, arguments.data, arguments.bert
        self.nice = arguments.nice
        os.makedirs(self.work, exist_ok=True)
        self.path = f"{self.work}/results.json"
        self.results = json.load(open(self.path)) if os.path.exists(self.path) else {}

    def run(self, *arguments):
        print("  linnet " + " ".join(arguments), file=sys.stderr, flush=True)
        result = subprocess.run(["nice", "-n", str(self.nice), self.linnet, *arguments], stdout=subprocess.PIPE, text=True)
        if result.returncode != 0:
            sys.exit(f"linnet {arguments[0]} ended with {result.returncode}")
        return result.stdout

    def train(self, name, *arguments):
        """A run folder, trained to its end."""
        folder = f"{self.work}/{name}"
        if not os.path.exists(f"{folder}/finished"):
            resume = ["--resume"] if os.path.exists(f"{folder}/training_state.safetensors") else []
            self.run("train", *arguments, "--run", folder, *resume)
            open(f"{folder}/finished", "w").close()
        return folder

    def quantize(self, model, examples, method, *arguments):
        folder = f"{model}-{method}"
        if not os.path.exists(f"{folder}/quantization.json"):
            self.run("quantize", model, "--calibrate", examples, "--method", method, "-o", folder, *arguments)
        return folder

    def evaluate(self, model, quantize, *arguments):
        key = f"{os.path.basename(model)} {quantize}"
        if key not in self.results:
            self.results[key] = json.loads(self.run("eval", model, "--quantize", quantize, "--json", *arguments))
            with open(self.path + ".tmp", "w") as file:
                json.dump(self.results, file, indent=1)
            os.replace(self.path + ".tmp", self.path)
        return self.results[key]


def sst2(check):
    """Rows (model, precision, accuracy, difference in points, bound)."""
    folder = f"{check.data}/text-classification/sst2"
    common = ["sst2", "--set", f"model.from={check.bert}", "--set", f"data_dir={folder}"]
    tuned = check.train("sst2", *common, "--epochs", "1", "--set", "precision=bf16")
    # The rate that was best on the validation texts, of 2e-6, 5e-6 and 2e-5.
    aware = check.train("sst2-int8", *common, "--init", tuned, "--set", "quantize=int8", "--steps", "30", "--lr", "5e-6", "--set",
                        "warmup_steps=3", "--set", "eval_every=30")
    models = [(tuned, "none", "fp32", None), (tuned, "int8", "int8", 0.5)]
    for method in ("minmax", "percentile", "entropy"):
        static = check.quantize(tuned, f"{folder}/train.tsv", method)
        models.append((static, "static", f"static, {method}", 0.7 if method == "minmax" else None))
    models += [(aware, "none", "fp32, trained for static int8 (30 steps more)", None), (aware, "static", "static of that", 0.2)]
    rows, exact = [], None
    for model, quantize, name, bound in models:  # each beside fp32 before the training for int8, which changes it, too
        accuracy = 100 * check.evaluate(model, quantize)["accuracy"]
        exact = accuracy if exact is None else exact
        change = accuracy - exact
        rows.append(("MiniLM on SST-2, test", name, f"{accuracy:.2f} %", "" if model == tuned and quantize == "none" else f"{change:+.2f} points",
                     bound, bound is None or change >= -bound))
    return rows


def shakespeare(check):
    text = f"{check.data}/lm/tinyshakespeare/input.txt"
    run = check.train("shakespeare", "shakespeare", "--set", f"text={text}", "--steps", "1000", "--set", "warmup_steps=100")
    return language(check, "GPT on tinyshakespeare, validation", run, text, 0.8)  # the validation text is the end


def wikitext(check):
    """WikiText-2's validation text is what is trained on: its training text is not needed for this comparison."""
    folder = f"{check.data}/lm/wikitext-2"
    run = check.train("wikitext", "text", "--set", "architecture=gpt", "--set", f"text={folder}/valid.txt", "--set",
                      f"test_text={folder}/test.txt", "--set", "max_seq_len=128", "--set", "sample_length=0", "--steps",
                      "800", "--set", "warmup_steps=80")
    return language(check, "GPT on WikiText-2, test", run, f"{folder}/valid.txt", 0.9, "--split", "test")


def language(check, name, run, text, share, *arguments):
    """Perplexities of a language model, for whose static scales the first `share` of a text is read."""
    examples = f"{run}-examples.txt"
    if not os.path.exists(examples):
        with open(text, encoding="utf-8") as file, open(examples, "w", encoding="utf-8") as out:
            body = file.read()
            body = body[: int(len(body) * share)].replace("\n", " ")
            out.writelines(body[i : i + 128] + "\n" for i in range(0, len(body), len(body) // 256))
    static = check.quantize(run, examples, "minmax", "--examples", "256")
    rows, exact = [], None
    for model, quantize, bound in [(run, "none", None), (run, "int8", 1), (static, "static", 1), (run, "int8-weights", 0.1),
                                   (run, "int4-weights", 2)]:
        perplexity = math.exp(check.evaluate(model, quantize, *arguments)["loss"])
        exact = exact or perplexity
        change = 100 * (perplexity / exact - 1)
        rows.append((name, "fp32" if quantize == "none" else quantize, f"{perplexity:.4f}",
                     "" if quantize == "none" else f"{change:+.2f} %", bound, bound is None or change <= bound))
    return rows


PARTS = {"sst2": sst2, "shakespeare": shakespeare, "wikitext": wikitext}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--linnet", default="build/release/bin/linnet")
    parser.add_argument("--data", required=True)
    parser.add_argument("--bert", default="")
    parser.add_argument("--work", default="build/quality")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--out", help="also writes the table to this file")
    arguments = parser.parse_args()
    parts = arguments.only or list(PARTS)
    if "sst2" in parts and not os.path.isdir(arguments.bert):
        sys.exit("--bert names no model folder; --only names parts that need none")
    check = Check(arguments)
    lines = ["| model | precision | accuracy or perplexity | change | bound | |", "|---|---|---|---|---|---|"]
    missed = False
    for part in parts:
        for model, precision, figure, change, bound, good in PARTS[part](check):
            missed = missed or not good
            lines.append(f"| {model} | {precision} | {figure} | {change} | {'' if bound is None else bound} | "
                         f"{'' if bound is None else 'yes' if good else 'no'} |")
    table = "\n".join(lines) + "\n"
    print(table, end="")
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write(table)
    return missed


if __name__ == "__main__":
    sys.exit(main())
