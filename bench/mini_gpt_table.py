#!/usr/bin/env python3
"""A GPT of 6 layers, 8 heads and width 512 on WikiText-2's texts, one technique after another, beside PyTorch's own.

    bench/mini_gpt_table.py --data FOLDER [--steps 150] [--tokens 200]

FOLDER has valid.txt, which is trained on, and test.txt, which is scored. Training: fp32; + bf16 (PyTorch: autocast);
+ recompute of every layer (checkpointing). Inference: no cache; + key-value cache; + int8 (PyTorch: transformers, and
dynamic quantization). Then attention at 512, 1024 and 2048 tokens. Each stage has memory, tokens a second, perplexity
and a sample. Run by --python, a Python with torch and transformers. Results: bench/results/mini_gpt_table.md and .json.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import study
from study import show

PEER = Path(__file__).parent / "peers" / "mini_gpt.py"
PROMPT = "The history of the city began"
VOCABULARY, LAYERS, HEADS, WIDTH, BATCH = 8000, 6, 8, 512, 8
CHECKED_STEPS = 20  # of recomputation: their losses are those of the stage before, bit for bit
LENGTHS = (512, 1024, 2048)


class Table:
    def __init__(self, runs, options):
        self.runs, self.options = runs, options
        self.folder = study.common.HOME / "mini_gpt"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.texts = {}
        for name in ("valid", "test"):
            self.texts[name] = self.folder / f"{name}.txt"
            text = (Path(options.data) / f"{name}.txt").read_text()
            self.texts[name].write_text(text[:options.characters] if name == "test" else text)

    def key(self, stage: str) -> dict:
        return {"stage": stage, "steps": self.options.steps, "build": self.runs.build}

    # Training

    def train(self, stage: str, settings: list, steps: int) -> dict:
        """Trains in a run folder of the stage's -> speed, memory, the losses of all steps."""
        where = self.folder / stage.strip("+ ")

        def measure():
            shutil.rmtree(where, ignore_errors=True)
            extra = [part for setting in (f"data.text={self.texts['valid']}", f"vocab_size={VOCABULARY}",
                                          f"max_steps={self.options.steps}", "eval_every=1000000", "sample_length=0",
                                          *settings) for part in ("--set", setting)]
            # A run of fewer steps keeps the schedule of all.
            if steps < self.options.steps:
                extra += ["--set", "schedule=constant", "--set", f"max_steps={steps}"]
            _, peak, _ = self.runs.run(["train", "mini-gpt", *extra, "--run", where])
            lines = [json.loads(line) for line in (where / "metrics.jsonl").read_text().splitlines()]
            train = [line for line in lines if line["split"] == "train"]
            return {"memory_mb": peak, "speed": statistics.median(line["tokens_per_second"] for line in train),
                    "losses": [line["loss"] for line in train]}

        return self.runs.once(self.key(f"train {stage}") | {"settings": settings, "of": steps}, measure)

    def score(self, stage: str, run: str, arguments: list) -> dict:
        """Perplexity of the test text, and a sample."""
        def measure():
            where = self.folder / run
            scored, _, _ = self.runs.run(["eval", where, "--data", self.texts["test"], "--json", *arguments])
            sample, _, _ = self.runs.run(["generate", where, "--prompt", PROMPT, "--max-tokens", 40, "--temperature", 0.8,
                                          "--top-k", 40, "--echo", *arguments])
            return {"perplexity": json.loads(scored.stdout)["perplexity"], "sample": " ".join(sample.stdout.split())}

        return self.runs.once(self.key(f"score {stage}"), measure)

    def training(self) -> list[dict]:
        steps, few = self.options.steps, min(CHECKED_STEPS, self.options.steps)
        rows = []
        for stage, run, settings, peer in (
                ("fp32", "fp32", ["precision=fp32"], []),
                ("+ bf16", "bf16", ["precision=bf16"], ["--precision", "bf16"])):
            found = self.train(run, settings, steps)
            rows.append({"stage": stage, **found, **self.score(stage, run, [])})
            rows[-1]["peers"] = self.peers(["train", "--steps", steps, "--eval", self.ids("test"), *peer])
        # Under a schedule that does not depend on the number of steps, so that the two can be compared.
        base = self.train("bf16-few", ["precision=bf16"], few) if few < steps else rows[-1]
        again = self.train("recompute", ["precision=bf16", "recompute=block"], few)
        same = again["losses"] == base["losses"]
        rows.append({"stage": "+ recompute", "memory_mb": again["memory_mb"], "speed": again["speed"],
                     "perplexity": rows[-1]["perplexity"] if same else None, "same_losses": same,
                     "sample": f"as before: the losses of {few} steps are {'the same bits' if same else 'NOT THE SAME'}",
                     "peers": self.peers(["train", "--steps", few, "--precision", "bf16", "--checkpoint"])})
        return rows

    def peers(self, arguments: list) -> dict:
        subject = str(self.ids("valid"))
        return {mode: self.runs.peer(subject, [*arguments, "--mode", mode], script=PEER) for mode in ("eager", "compile")}

    def ids(self, name: str) -> Path:
        """The text as token ids, without its line ends, by the vocabulary that the first stage has learned."""
        path, text = self.folder / f"{name}.json", self.texts[name].read_text()
        command = [self.runs.linnet, "tokenizer", "encode", str(self.folder / "fp32")]
        encode = lambda given: subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
        if not path.exists() or path.stat().st_mtime < (self.folder / "fp32" / "config.toml").stat().st_mtime:
            path.write_text(json.dumps([int(token) for token in encode(text).split()]))
        return path

    # Inference

    def writing(self) -> list[dict]:
        rows = []
        exported = self.folder / "exported"
        if self.runs.with_peer:
            self.runs.once(self.key("export"), lambda: self.exported(exported))
        for stage, arguments, peer in (
                ("no cache", ["--no-cache"], ["--no-cache"]), ("+ key-value cache", [], []),
                ("+ int8", ["--quantize", "int8"], ["--int8", "--eval", self.ids("test") if self.runs.with_peer else ""])):
            found = self.runs.once(self.key(f"write {stage}") | {"tokens": self.options.tokens},
                                   lambda: self.write(arguments))
            row = {"stage": stage, **found}
            row |= self.score(stage, "fp32", [] if stage == "no cache" else arguments)
            row["peers"] = {"eager": self.runs.peer(str(exported), ["write", "--tokens", self.options.tokens, *peer],
                                                    script=PEER)}
            rows.append(row)
        return rows

    def exported(self, folder: Path) -> dict:
        self.runs.run(["export", self.folder / "fp32", "--out", folder, "--overwrite"], threads=False)
        return {"folder": str(folder)}

    def write(self, arguments: list) -> dict:
        """Tokens a second: the time for many less that for one, which has loading and the prompt in it."""
        def seconds(tokens: int) -> tuple[float, float]:
            began = time.perf_counter()
            _, peak, _ = self.runs.run(["generate", self.folder / "fp32", "--prompt", PROMPT, "--temperature", 0,
                                        "--ignore-end", "--max-tokens", tokens, *arguments])
            return time.perf_counter() - began, peak

        first = seconds(1)[0]
        many, peak = seconds(self.options.tokens)
        # On a busy machine a few tokens may seem to take no time at all.
        speed = (self.options.tokens - 1) / (many - first) if many > first else None
        return {"speed": speed, "memory_mb": peak}

    # Attention

    def attention(self) -> list[dict]:
        rows = []
        for length in LENGTHS:
            row = {"length": length, "scores_mb": HEADS * length * length * 4 / 1e6,
                   "linnet": self.runs.once(self.key(f"attention {length}"), lambda: self.profile(length)),
                   "pytorch": self.runs.peer(str(length), ["attention"], script=PEER)}
            rows.append(row)
        return rows

    def profile(self, length: int) -> dict:
        settings = [part for setting in (f"data.text={self.texts['valid']}", f"vocab_size={VOCABULARY}", "batch_size=1",
                                         f"max_seq_len={length}", "dropout=0", "precision=fp32", "sample_length=0")
                    for part in ("--set", setting)]
        done, _, _ = self.runs.run(["profile", "mini-gpt", *settings, "--profiled", 3, "--each", "--json"])
        times = {"forward": 0.0, "backward": 0.0}
        for row in json.loads(done.stdout)["rows"]:
            if row["phase"] in times and row["module"].endswith(".self_attn") and "attention" in row["op"]:
                times[row["phase"]] += row["ms"]
        planned, _, _ = self.runs.run(["plan", "mini-gpt", *settings, "--exact"])
        activations = next(float(line.split()[-2]) for line in planned.stdout.splitlines() if "activations" in line)
        return {"forward_ms": times["forward"] / LAYERS, "both_ms": sum(times.values()) / LAYERS,
                "activations_mb": activations}


def stage_page(rows: list[dict], modes: tuple) -> str:
    head = ["", "Linnet, MB", "tokens/s", "perplexity"]
    for mode in modes:
        name = "PyTorch" if mode == "eager" else "PyTorch compiled"
        head += [f"{name}, MB", "tokens/s", "perplexity"]
    lines = []
    for row in rows:
        cells = [row["stage"]]
        for found in (row, *(row["peers"].get(mode, {}) for mode in modes)):
            cells += [show(found.get("memory_mb")), show(found.get("speed"), 1), show(found.get("perplexity"), 2)]
        lines.append(cells)
    text = study.table(head, lines) + "\n"
    for row in rows:
        text += f"- {row['stage']}: {row['sample']}\n"
        text += "".join(f"- {row['stage']}, PyTorch {mode}: {found['error']}\n" for mode, found in row["peers"].items()
                        if found.get("error", "not run") != "not run")
    return text + "\n"


def attention_page(rows: list[dict]) -> str:
    head = ["tokens", "all scores, MB", "Linnet, forward ms", "with backward", "the step's activations, MB",
            "PyTorch SDPA, forward ms", "with backward", "MB", "scores in memory, forward ms", "with backward", "MB"]
    lines = []
    for row in rows:
        ours, theirs = row["linnet"], row["pytorch"]
        cells = [str(row["length"]), show(row["scores_mb"], 1), show(ours.get("forward_ms"), 2),
                 show(ours.get("both_ms"), 2), show(ours.get("activations_mb"), 1)]
        for name in ("sdpa", "steps"):
            found = theirs.get(name, {})
            cells += [show(found.get("forward_ms"), 2), show(found.get("both_ms"), 2), show(found.get("memory_mb"), 1)]
        lines.append(cells)
    text = study.table(head, lines) + "\n"
    sizes = sorted({int(size) for row in rows for size in row["pytorch"].get("chunks", {})})
    if sizes:
        text += ("Forward with a running softmax over chunks of keys, written with PyTorch's ops, ms by chunk size. "
                 "Linnet's kernel takes 64 queries against 256 keys at a time.\n\n")
        text += study.table(["tokens", *map(str, sizes)],
                            [[str(row["length"]), *(show(row["pytorch"]["chunks"].get(str(size)), 2) for size in sizes)]
                             for row in rows if "chunks" in row["pytorch"]]) + "\n"
    return text


def main():
    parser = study.parser("mini-gpt-table", __doc__)
    parser.add_argument("--data", required=True, help="folder with WikiText-2's valid.txt and test.txt")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--tokens", type=int, default=200, help="to write in each stage of inference")
    parser.add_argument("--characters", type=int, default=300_000, help="of the test text that are scored")
    options = parser.parse_args()
    for name in ("valid.txt", "test.txt"):
        if not (Path(options.data) / name).is_file():
            sys.exit(f"{options.data} has no {name}")
    runs = study.Study("mini_gpt_table", options)
    table = Table(runs, options)
    training, writing, attention = table.training(), table.writing(), table.attention()
    for row in training:
        row.pop("losses", None)
    runs.write(
        "A small GPT on WikiText-2, technique by technique",
        f"6 layers, 8 heads, width 512, a vocabulary of {VOCABULARY:,} learned from the text, batches of {BATCH} x 512 "
        f"tokens, dropout 0.1; {options.steps} steps on the validation text; perplexity a token of the test text's "
        f"first {options.characters:,} characters. Memory is Linnet's whole process, and PyTorch's without what the "
        "interpreter and its libraries hold; PyTorch's text has no line ends.\n\n## Training\n\n" + stage_page(training, ("eager", "compile")) +
        f"## Writing {options.tokens} tokens\n\n" + stage_page(writing, ("eager",)) +
        "## Attention of one layer, one text, causal, fp32\n\n" + attention_page(attention),
        {"training": training, "writing": writing, "attention": attention})


main()
