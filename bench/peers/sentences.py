"""The losses of `linnet train embeddings` beside those of sentence-transformers, and of `linnet train answers` beside
those of transformers.

    build/peers/bin/python bench/peers/sentences.py LINNET MODEL_FOLDER

MODEL_FOLDER is one of sentence-transformers, such as all-MiniLM-L6-v2. Both programs take 20 steps of AdamW without
dropout, each on the same batch of 16 examples. Prints a line for each loss: the first and the last loss of the peer, and
the greatest difference between the losses of a step. Then what Linnet exports is loaded by both: embeddings, and answers.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

ROWS, STEPS, RATE, DECAY, TOKENS = 16, 20, 2e-5, 0.01, 112
SUBJECTS = ["a dog", "the old bank", "my neighbor", "a small town", "the court", "a violinist", "the museum", "one child"]
ACTIONS = ["crosses the wide river", "closes early on Fridays", "sings in the morning rain", "pays more than last year",
           "waits for an answer", "buys two red bicycles", "remembers every summer", "paints a quiet house by the sea"]


def sentences(generator, count):
    return [f"{generator.choice(SUBJECTS)} {generator.choice(ACTIONS)} {generator.randint(1, 99)}" for _ in range(count)]


def optimizer_of(model):
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": DECAY},
              {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)


def train(model, loss_of):
    optimizer = optimizer_of(model)
    values = []
    for _ in range(STEPS):
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values


def linnet_losses(program, preset, folder, work, file, settings):
    run = os.path.join(work, "run")
    shutil.rmtree(run, ignore_errors=True)
    fixed = ["context=128", f"max_steps={STEPS}", f"learning_rate={RATE}", "schedule=constant", "warmup_steps=0",
             "clip_norm=0", "metric=loss", "eval_every=20", "max_epochs=0", f"model.from={folder}",
             f"data.valid_tsv={file}", "seed=1"]
    if not any(setting.startswith("batch_size") for setting in settings):
        fixed.append(f"batch_size={ROWS}")
    command = [program, "train", preset, "--run", run, "--data", file]
    for setting in fixed + settings:
        command += ["--set", setting]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with open(os.path.join(run, "metrics.jsonl")) as lines:
        steps = [json.loads(line) for line in lines]
    return [step["loss"] for step in steps if step["split"] == "train"]


def report(name, theirs, ours):
    assert len(theirs) == len(ours) == STEPS, (len(theirs), len(ours))
    worst = max(abs(a - b) for a, b in zip(theirs, ours))
    print(f"{name:28} {theirs[0]:.6f} -> {theirs[-1]:.6f}   greatest difference {worst:.1e}", flush=True)
    return worst


def exported(program, work):
    out = os.path.join(work, "out")
    shutil.rmtree(out, ignore_errors=True)
    subprocess.run([program, "export", os.path.join(work, "run"), "--out", out], check=True, stdout=subprocess.DEVNULL)
    return out


def embedded_alike(program, work, texts):
    out = exported(program, work)
    lines = subprocess.run([program, "embed", out], input="\n".join(texts) + "\n", text=True, check=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    ours = torch.tensor([[float(number) for number in line.split()] for line in lines])
    theirs = torch.tensor(SentenceTransformer(out, device="cpu").encode(texts))
    difference = (ours - theirs).abs().max().item()
    print(f"embeddings of the exported folder: greatest difference {difference:.1e}", flush=True)
    return difference


def answered_alike(program, work, questions):
    out = exported(program, work)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(out).eval()
    lines = "".join(f"{question}\t{context}\n" for question, context, *_ in questions)
    found = subprocess.run([program, "predict", out, "--json"], input=lines, text=True, check=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    same = 0
    for line, (question, context, *_) in zip(found, questions):
        batch = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt")
        offsets, inside = batch.pop("offset_mapping")[0].tolist(), batch.sequence_ids(0)
        with torch.no_grad():
            output = model(**batch)
        places = [i for i, part in enumerate(inside) if part == 1]
        start, end = max(((i, j) for i in places for j in places if i <= j < i + 30),
                         key=lambda span: (output.start_logits[0, span[0]] + output.end_logits[0, span[1]]).item())
        answer = json.loads(line)
        same += (answer["start"], answer["end"]) == (offsets[start][0], offsets[end][1])
    print(f"answers of the exported folder: {same} of {len(questions)} the same", flush=True)
    return 0 if same == len(questions) else 1


def embeddings(program, folder, work):
    generator = random.Random(5)
    firsts, seconds, thirds = (sentences(generator, ROWS) for _ in range(3))
    scores = [round(generator.uniform(0, 1), 2) for _ in range(ROWS)]
    files = {}
    for name, columns in {"pairs": [firsts, seconds], "triplets": [firsts, seconds, thirds],
                          "scored": [firsts, seconds, [str(score) for score in scores]]}.items():
        files[name] = os.path.join(work, name + ".tsv")
        with open(files[name], "w") as file:
            file.writelines("\t".join(row) + "\n" for row in zip(*columns))
    width = json.load(open(os.path.join(folder, "config.json")))["hidden_size"]
    matryoshka = [width, width // 2, width // 4]
    cases = [
        ("in_batch", "pairs", losses.MultipleNegativesRankingLoss, []),
        ("in_batch with negatives", "triplets", losses.MultipleNegativesRankingLoss, []),
        ("triplet", "triplets", losses.TripletLoss, ["embeddings.loss=triplet"]),
        ("cosent", "scored", losses.CoSENTLoss, []),
        ("cosine", "scored", losses.CosineSimilarityLoss, ["embeddings.loss=cosine"]),
        ("in_batch, matryoshka", "pairs",
         lambda model: losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), matryoshka),
         ["embeddings.dimensions=" + ",".join(map(str, matryoshka))]),
        ("in_batch, 4 rows at a time", "pairs",
         lambda model: losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=8), ["micro_batches=4"]),
    ]
    worst = 0
    for name, data, kind, settings in cases:
        model = SentenceTransformer(folder, device="cpu")
        model.max_seq_length = 128
        model.train()
        columns = [firsts, seconds] + ([thirds] if data == "triplets" else [])
        features = [model.preprocess(column) for column in columns]
        loss = kind(model)
        labels = torch.tensor(scores) if data == "scored" else None
        theirs = train(model, lambda: loss([dict(part) for part in features], labels))
        worst = max(worst, report(name, theirs, linnet_losses(program, "embeddings", folder, work, files[data], settings)))
    return max(worst, embedded_alike(program, work, firsts + seconds))


def answers(program, folder, work):
    generator = random.Random(7)
    questions, lines = [], []
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for i in range(ROWS):
        context = ". ".join(sentences(generator, 6)) + "."
        # Of one length: transformers counts padding among the tokens that may be an answer.
        while len(tokenizer(f"what about number {i}?", context)["input_ids"]) < TOKENS:
            context += " the"
        start = context.index(" ", generator.randint(0, len(context) // 2)) + 1
        text = context[start:start + 20].rsplit(" ", 1)[0].strip()
        questions.append((f"what about number {i}?", context, text, context.index(text, start)))
        lines.append({"question": questions[-1][0], "context": context,
                      "answers": {"text": [text], "answer_start": [questions[-1][3]]}})
    file = os.path.join(work, "answers.jsonl")
    with open(file, "w") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    torch.manual_seed(1)
    head = os.path.join(work, "head")  # one head for both, drawn here
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(folder)
    model.save_pretrained(head)
    tokenizer.save_pretrained(head)
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(head).train()
    batch = tokenizer([q[0] for q in questions], [q[1] for q in questions], return_offsets_mapping=True, return_tensors="pt")
    assert batch["input_ids"].shape[1] == TOKENS
    starts, ends = [], []
    for i, (_, _, text, start) in enumerate(questions):
        ids = batch.sequence_ids(i)
        covered = [(a, b) if ids[k] == 1 else (-1, -1) for k, (a, b) in enumerate(batch["offset_mapping"][i].tolist())]
        starts.append(max(k for k, (a, b) in enumerate(covered) if 0 <= a <= start))
        ends.append(min(k for k, (a, b) in enumerate(covered) if b >= start + len(text)))
    batch.pop("offset_mapping")
    labels = {"start_positions": torch.tensor(starts), "end_positions": torch.tensor(ends)}
    theirs = train(model, lambda: model(**batch, **labels).loss)
    worst = report("answers", theirs, linnet_losses(program, "answers", head, work, file, []))
    return max(worst, answered_alike(program, work, questions))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    transformers.logging.set_verbosity_error()
    torch.set_flush_denormal(True)
    torch.set_num_threads(2)
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, "model")
        shutil.copytree(sys.argv[2], folder)
        path = os.path.join(folder, "config.json")
        config = json.load(open(path)) | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        json.dump(config, open(path, "w"))
        worst = max(embeddings(program, folder, work), answers(program, folder, work))
    sys.exit(0 if worst < 1e-4 else "a loss differs by more than 1e-4")


if __name__ == "__main__":
    main()
