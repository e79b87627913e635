#!/usr/bin/env python3
"""What `linnet train`, `eval`, `predict` and `sweep` say of tasks on texts, beside the packages that define it.

    tools/check_tasks.py LINNET DATA [--only metrics,chats,preferences,embeddings,sweeps,bad-data] [--threads 1] [--seed 1]

LINNET is the program, DATA the folder of real data (text-classification/sst2, translation/multi30k, lm/wikitext-2,
tokenizers/bert). Models are small and random, in a temporary folder. Needs torch, transformers, TRL, PEFT,
sentence-transformers, scikit-learn, scipy, seqeval, ranx and pytrec_eval; reads nothing from the network. Each line
names what is compared, Linnet's figure, the reference's and the difference. Ends with 1 when one is outside its
tolerance.
"""
import argparse
import collections
import hashlib
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

# Nothing is looked for outside this machine.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench" / "peers"))
import tasks  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

warnings.simplefilter("ignore")

SUMS = 1e-12  # both sides sum the same double numbers in another order


class Report:
    def __init__(self):
        self.bad = 0

    def line(self, text, good=True):
        print(text if good else f"{text}  WRONG", flush=True)
        self.bad += not good

    def compare(self, name, ours, theirs, tolerance, relative=False):
        """Two numbers, or two lists whose greatest difference counts."""
        a, b = ([values] if isinstance(values, (int, float)) else list(values) for values in (ours, theirs))
        if len(a) != len(b):
            return self.line(f"{name}: {len(a)} numbers, reference {len(b)}", False)
        found = [abs(x - y) / (max(abs(y), 1e-300) if relative else 1) for x, y in zip(a, b)]
        worst = max(range(len(found)), key=lambda i: math.inf if math.isnan(found[i]) else found[i]) if found else None
        if worst is None:
            return self.line(f"{name}: nothing to compare", False)
        many = f" (of {len(a)}, the worst)" if len(a) > 1 else ""
        self.line(f"{name}: linnet {a[worst]!r}, reference {b[worst]!r}{many}, greatest {'relative ' if relative else ''}difference "
                  f"{found[worst]:.1e} (at most {tolerance:.0e})", found[worst] <= tolerance)


class Failed(Exception):
    pass


class Program:
    def __init__(self, path, threads):
        self.path, self.threads = os.path.abspath(path), threads
        self.environment = {k: v for k, v in os.environ.items() if k != "LINNET_LOG"}

    def command(self, *arguments, **settings):
        words = [self.path, *map(str, arguments)]
        if arguments[0] != "export":
            words += ["--threads", str(self.threads)]
        for key, value in settings.items():
            words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        return words

    def run(self, *arguments, text=None, timeout=600, **settings):
        done = subprocess.run(self.command(*arguments, **settings), input=text, capture_output=True, text=True, timeout=timeout,
                              env=self.environment)
        if done.returncode:
            raise Failed(f"{' '.join(done.args)}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def train(self, preset, data, run, timeout=900, **settings):
        shutil.rmtree(run, ignore_errors=True)
        self.run("train", preset, "--data", data, "--run", run, timeout=timeout, **settings)
        return tasks.read_lines(Path(run, "metrics.jsonl"))

    def evaluate(self, run, data):
        return json.loads(self.run("eval", run, "--data", data, "--json"))

    def predict(self, run, data):
        return [json.loads(line) for line in self.run("predict", run, data, "--json").splitlines()]

    def peak_mb(self, preset, data, run, **settings):
        """Of a training process: the highest resident memory in MB. (wait4 would tell this process's own where that is
        higher: a child has its parent's memory until it runs another program.)"""
        shutil.rmtree(run, ignore_errors=True)
        peak = 0
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(self.command("train", preset, "--data", data, "--run", run, **settings), stdout=subprocess.DEVNULL,
                                     stderr=errors, env=self.environment)
            while child.poll() is None:
                found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{child.pid}/status").read_text())
                peak = int(found[1]) if found else peak
                time.sleep(0.02)
            if child.returncode:
                errors.seek(0)
                raise Failed(errors.read()[-600:])
        return peak * 1024 / 1e6


# Steps that do without what changes from batch to batch.
PLAIN = {"schedule": "constant", "warmup_steps": 0, "final_learning_rate": 0, "max_epochs": 0, "patience": 0, "save_every": 1_000_000,
         "precision": "fp32"}


def small_bert(data, folder, kind, **more):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tasks.bert_tokenizer(data, folder)
    config = transformers.BertConfig(vocab_size=30522, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                                     hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more)
    kind(config).save_pretrained(folder)
    return tokenizer


def trained(a, scratch, name, preset, kind, train, valid, steps, **settings):
    """Writes the data, trains a small model on it -> the run and the validation file."""
    folder = Path(scratch, name)
    labels = settings.pop("labels", None)
    more = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}} if labels else {}
    small_bert(a.data, folder / "model", kind, **more, **settings.pop("config", {}))
    tasks.write_lines(folder / "train.jsonl", train), tasks.write_lines(folder / "valid.jsonl", valid)
    a.linnet.train(preset, folder / "train.jsonl", folder / "run", **PLAIN | {
        "model.from": folder / "model", "data.valid_tsv": folder / "valid.jsonl", "max_steps": steps, "eval_every": steps,
        "learning_rate": 1e-3, "batch_size": 16, "seed": a.seed} | settings)
    return folder / "run", folder / "valid.jsonl"


# 1. Metrics.


def labelled_captions(a, count):
    texts = tasks.captions(a.data, "train.en", count)
    sets = {label: set(words.split()) for label, words in tasks.SeveralLabels.words.items()}
    return [(text, [label for label in sets if sets[label] & set(text.lower().split())]) for text in texts]


def report_rows(report, name, ours, theirs, keys):
    """Rows of scikit-learn's or seqeval's report: precision, recall, F1, support."""
    mine = dict(ours.get("classes", {})) | {k: ours[k] for k in ("micro avg", "macro avg", "weighted avg") if k in ours}
    for key in keys:
        if key not in mine:
            if theirs[key]["support"] or key.endswith("avg"):
                report.line(f"{name}, {key}: linnet has no such row", False)
            continue
        fields = [("precision", "precision"), ("recall", "recall"), ("f1", "f1-score"), ("support", "support")]
        report.compare(f"{name}, {key} (precision, recall, F1, support)", [mine[key][x] for x, _ in fields],
                       [float(theirs[key][y]) for _, y in fields], SUMS)


def one_label(a, report, scratch):
    import sklearn.metrics as metrics
    draw = random.Random(a.seed)
    records = [{"text": text, "label": draw.choice(found) if found else "other"} for text, found in labelled_captions(a, 1800)]
    valid = [r for r in records[1500:] if r["label"] != "street"]  # a class that validation does not have
    sentiments = [{"text": text, "label": label} for text, label in tasks.sentiment(a.data, "train", 900)]
    for name, train, valid, steps in (("one label of seven, one of them missing", records[:1500], valid, 300),
                                      ("one label of two", sentiments[:700], sentiments[700:], 120)):
        run, file = trained(a, scratch, f"classes-{len(set(r['label'] for r in train))}", "classify",
                            transformers.BertForSequenceClassification, train, valid, steps, context=32,
                            labels=sorted({r["label"] for r in train}))
        ours = a.linnet.evaluate(run, file)
        found = [p["label"] for p in a.linnet.predict(run, file)]
        wanted = [r["label"] for r in valid]
        theirs = metrics.classification_report(wanted, found, output_dict=True, zero_division=0, labels=list(ours["classes"]))
        report.compare(f"metrics, {name}: accuracy", ours["accuracy"], metrics.accuracy_score(wanted, found), SUMS)
        # scikit-learn leaves a class out that is neither wanted nor found, unless it is told of it; Linnet counts it as 0.
        classes = list(ours["classes"])
        macro = metrics.f1_score(wanted, found, average="macro", labels=classes, zero_division=0)
        report.compare(f"metrics, {name}: macro F1 over all classes", ours["f1_macro"], macro, SUMS)
        short = metrics.f1_score(wanted, found, average="macro", zero_division=0)
        if short != macro:
            report.line(f"metrics, {name}: macro F1 over the classes that are wanted or found, scikit-learn's default: {short!r} (not Linnet's)")
        report.compare(f"metrics, {name}: weighted F1", ours["f1_weighted"], metrics.f1_score(wanted, found, average="weighted", zero_division=0), SUMS)
        of_one = {"pos_label": classes[-1], "average": "binary"} if len(classes) == 2 else {"labels": classes, "average": "macro"}
        report.compare(f"metrics, {name}: f1, {'of ' + classes[-1] if len(classes) == 2 else 'which is macro F1'}", ours["f1"],
                       metrics.f1_score(wanted, found, zero_division=0, **of_one), SUMS)
        report_rows(report, f"metrics, {name}", ours, theirs, [k for k in theirs if k not in ("accuracy", "micro avg")])
        report.compare(f"metrics, {name}: confusion matrix", itertools.chain.from_iterable(ours["confusion"]),
                       metrics.confusion_matrix(wanted, found, labels=classes).ravel().tolist(), 0)


def several_labels(a, report, scratch):
    import numpy
    import sklearn.metrics as metrics
    records = [{"text": text, "labels": found} for text, found in labelled_captions(a, 1800)]
    valid = [r for r in records[1500:] if "street" not in r["labels"]]
    labels = list(tasks.SeveralLabels.labels)
    run, file = trained(a, scratch, "several", "label", transformers.BertForSequenceClassification, records[:1500], valid, 400, context=32, labels=labels,
                        config={"problem_type": "multi_label_classification"})
    ours, predictions = a.linnet.evaluate(run, file), a.linnet.predict(run, file)
    labels = list(ours["classes"])
    matrix = lambda rows: numpy.array([[int(label in row) for label in labels] for row in rows])
    found, wanted = matrix([p["labels"] for p in predictions]), matrix([r["labels"] for r in valid])
    above = matrix([[label for label, p in each["probabilities"].items() if p > 0.5] for each in predictions])
    report.line(f"metrics, several labels: {len(valid)} texts, {int(found.sum())} labels found, {int(wanted.sum())} wanted; those above 0.5: "
                f"{'agree' if (found == above).all() else 'DIFFER'}", bool((found == above).all()))
    for key, theirs in (("f1", metrics.f1_score(wanted, found, average="micro", zero_division=0)),
                        ("f1_macro", metrics.f1_score(wanted, found, average="macro", zero_division=0)),
                        ("precision", metrics.precision_score(wanted, found, average="micro", zero_division=0)),
                        ("recall", metrics.recall_score(wanted, found, average="micro", zero_division=0)),
                        ("accuracy", metrics.accuracy_score(wanted, found))):
        report.compare(f"metrics, several labels: {key}", ours[key], theirs, SUMS)
    theirs = metrics.classification_report(wanted, found, target_names=labels, output_dict=True, zero_division=0)
    report_rows(report, "metrics, several labels", ours, theirs, [k for k in theirs if k != "samples avg"])


def numbers(a, report, scratch):
    import numpy
    import scipy.stats as stats
    draw = random.Random(a.seed)
    texts = tasks.captions(a.data, "train.en", 1300)
    weights = {}
    # Halves, and texts twice: ties on both sides.
    value = lambda text: round(sum(weights.setdefault(word, draw.gauss(0, 1)) for word in text.lower().split()) / 2) / 2
    records = [{"text": text, "label": value(text)} for text in texts]
    valid = records[1000:] + records[1000:1040]
    run, file = trained(a, scratch, "numbers", "regress", transformers.BertForSequenceClassification, records[:1000], valid, 60, context=32,
                        labels=["LABEL_0"], config={"problem_type": "regression"})
    ours = a.linnet.evaluate(run, file)
    found, wanted = (numpy.array(values, dtype=float) for values in ([p["number"] for p in a.linnet.predict(run, file)], [r["label"] for r in valid]))
    name = f"metrics, numbers ({len(valid)} texts, {len(set(wanted.tolist()))} different labels, {len(set(found.tolist()))} predictions)"
    report.compare(f"{name}: pearson", ours["pearson"], float(stats.pearsonr(found, wanted)[0]), SUMS)
    report.compare(f"{name}: spearman", ours["spearman"], float(stats.spearmanr(found, wanted)[0]), SUMS)
    report.compare(f"{name}: mse", ours["mse"], float(((found - wanted) ** 2).mean()), SUMS)
    report.compare(f"{name}: mae", ours["mae"], float(abs(found - wanted).mean()), SUMS)


def words(a, report, scratch):
    draw = random.Random(a.seed)
    maker = tasks.Words(Path(scratch, "words-made"))
    maker.folder.mkdir()
    maker.make_model = lambda real: None
    maker.make(a.data, draw)
    train, valid = maker.records("train"), maker.records("valid")
    # Validation tags that are no clean IOB2: an I without its B, an I of another kind, and a kind that is not there.
    kept = []
    for record in valid:
        tags = ["O" if tag.endswith("ORG") else tag for tag in record["tags"]]
        tags = [tag.replace("B-", "I-") if draw.random() < 0.2 else tag for tag in tags]
        tags = [("I-PER" if tag == "I-LOC" else tag) if draw.random() < 0.3 else tag for tag in tags]
        kept.append({"tokens": record["tokens"], "tags": tags})
    for name, rows, length in (("words", valid, 128), ("words with odd tags", kept, 128), ("words of sentences that are cut", valid, 48)):
        run, file = trained(a, scratch, name.replace(" ", "-"), "tag", transformers.BertForTokenClassification, train, rows, 60, context=length,
                            labels=list(tasks.Words.labels))
        ours = a.linnet.evaluate(run, file)
        if length < 128:  # Linnet leaves out the words that it does not see: their tags would count as missed
            tokenizer = transformers.AutoTokenizer.from_pretrained(run.parent / "model")
            seen = [max(i for i in tokenizer([r["tokens"]], is_split_into_words=True, truncation=True, max_length=length).word_ids(0) if i is not None) + 1
                    for r in rows]
            count = sum(len(r["tokens"]) for r in rows)
            report.line(f"metrics, {name} at {length} tokens: {count - sum(seen)} words of {count} are cut and count for nothing")
            rows = [{"tokens": r["tokens"][:n], "tags": r["tags"][:n]} for r, n in zip(rows, seen)]
        found = []
        for prediction, record in zip(a.linnet.predict(run, file), rows):
            ends = list(itertools.accumulate(len(word) + 1 for word in record["tokens"]))
            starts = [0, *ends[:-1]]
            tags = ["O"] * len(starts)  # of a cut sentence predict has no entities behind the cut
            for entity in prediction["entities"]:
                inside = [i for i, at in enumerate(starts) if entity["start"] <= at < entity["end"]]
                for i in inside:
                    tags[i] = ("B-" if i == inside[0] else "I-") + entity["label"]
            found.append(tags)
        check_tags(report, f"metrics, {name}, by predict", ours, [r["tags"] for r in rows], found, False)
        # The accuracy needs the tags themselves, which predict has joined: those of the exported folder in transformers.
        folder = Path(scratch, "words-out")
        a.linnet.run("export", run, "--out", folder, "--overwrite")
        check_tags(report, f"metrics, {name}, by the exported folder", ours, [r["tags"] for r in rows], tags_of(folder, rows, length), True)


def tags_of(folder, rows, length):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    found = []
    for row in rows:
        batch = tokenizer([row["tokens"]], is_split_into_words=True, return_tensors="pt", truncation=True, max_length=length)
        with torch.inference_mode():
            classes = model(**batch).logits[0].argmax(-1).tolist()
        of_word = batch.word_ids(0)
        found.append([model.config.id2label[classes[of_word.index(i)]] for i in range(len(row["tokens"]))])
    return found


def check_tags(report, name, ours, wanted, found, accuracy):
    import seqeval.metrics as metrics
    for key, theirs in (("precision", metrics.precision_score), ("recall", metrics.recall_score), ("f1", metrics.f1_score)):
        report.compare(f"{name}: {key}", ours[key], float(theirs(wanted, found)), SUMS)
    theirs = metrics.classification_report(wanted, found, output_dict=True, zero_division=0)
    report_rows(report, name, ours, theirs, list(theirs))
    if accuracy:
        report.compare(f"{name}: accuracy", ours["accuracy"], metrics.accuracy_score(wanted, found), SUMS)


def squad_words(text):
    """SQuAD's normalize_answer of evaluate-v1.1.py and v2.0."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def squad_f1(found, wanted, version):
    found, wanted = squad_words(found), squad_words(wanted)
    if version == 2 and (not found or not wanted):
        return float(found == wanted)
    same = sum((collections.Counter(found) & collections.Counter(wanted)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def answers(a, report, scratch):
    """Names with articles, punctuation, spaces and letters that SQuAD's rules treat in their own way."""
    draw = random.Random(a.seed)
    people, places = tasks.names(draw, 300, 3), tasks.names(draw, 40, 2)
    filler = tasks.captions(a.data, "train.en", 2000)
    odd = ["the {}", "{}, the Great", "“{}”", "İstanbul-{}", "{}\u00a0Hill", "An {}'s",
           "U.S. {}", "Straße {}", "a-{}", "{}\u2009— {}", "THE {} a", "the", "…"]

    def record(answerable):
        who, place = draw.choice(people), draw.choice(odd).replace("{}", draw.choice(places)) if draw.random() < 0.6 else draw.choice(places)
        sentences = [f"{who} lives in {place}.", *draw.sample(filler, 3)]
        draw.shuffle(sentences)
        context = " ".join(sentences)
        at = context.index(f"lives in {place}.") + len("lives in ")
        wanted = [(place, at)]
        if draw.random() < 0.5:  # several right answers: more and fewer words
            wanted += [(f"in {place}", at - 3), (place.split()[-1], at + len(place) - len(place.split()[-1]))]
        if draw.random() < 0.2:
            wanted.append((context[at : at + len(place) + 1], at))
        draw.shuffle(wanted)
        if not answerable:
            return {"question": f"where did {draw.choice(people)} go?", "context": context, "answers": {"text": [], "answer_start": []}}
        return {"question": f"where does {who} live?", "context": context, "answers": {"text": [t for t, _ in wanted], "answer_start": [s for _, s in wanted]}}

    for version in (1, 2):
        train, valid = ([record(version == 1 or draw.random() < 0.7) for _ in range(n)] for n in (800, 300))
        run, file = trained(a, scratch, f"answers-{version}", "answers", transformers.BertForQuestionAnswering, train, valid, 150, context=128)
        ours = a.linnet.evaluate(run, file)
        found = [p["answer"] for p in a.linnet.predict(run, file)]
        gold = [r["answers"]["text"] for r in valid]
        if version == 2:  # evaluate-v2.0.py: answers of which nothing is left do not count; none: the empty one
            gold = [[text for text in texts if squad_words(text)] or [""] for texts in gold]
        exact = [max(float(squad_words(p) == squad_words(text)) for text in texts) for p, texts in zip(found, gold)]
        f1 = [max(squad_f1(p, text, version) for text in texts) for p, texts in zip(found, gold)]
        kinds = f"{len(valid)} questions, {sum(p == '' for p in found)} empty answers, {sum(0 < x < 1 for x in f1)} in part"
        name = f"metrics, answers of SQuAD {version} ({kinds})"
        report.compare(f"{name}: exact match", ours["exact_match"], sum(exact) / len(exact), SUMS)
        report.compare(f"{name}: F1", ours["f1"], sum(f1) / len(f1), SUMS)
        if version == 2:
            has = [i for i, r in enumerate(valid) if r["answers"]["text"]]
            none = [i for i, r in enumerate(valid) if not r["answers"]["text"]]
            for key, values, rows in (("answered_exact_match", exact, has), ("answered_f1", f1, has), ("unanswered_exact_match", exact, none)):
                report.compare(f"{name}: {key}", ours[key], sum(values[i] for i in rows) / len(rows), SUMS)


def embedded(a, run, texts):
    import numpy
    rows = a.linnet.run("embed", run, text="".join(t + "\n" for t in texts)).splitlines()
    found = numpy.array([[float(x) for x in row.split()] for row in rows])
    return found / numpy.linalg.norm(found, axis=1, keepdims=True)


def retrieval(a, report, scratch):
    import numpy
    import pytrec_eval
    import ranx
    import scipy.stats as stats
    draw = random.Random(a.seed)
    texts = [t for t in tasks.captions(a.data, "train.en", 1200) if len(t.split()) > 5]
    half = lambda text: " ".join(w for w in text.split() if draw.random() < 0.6) or text
    train = [{"anchor": t, "positive": half(t)} for t in texts[:900]]
    valid = [{"anchor": t, "positive": half(t)} for t in texts[900:1100]]
    valid += [{"anchor": r["anchor"], "positive": half(r["anchor"])} for r in valid[:60]]  # several right answers
    valid += [{"anchor": half(r["anchor"]), "positive": r["positive"]} for r in valid[100:140]]  # one text for several
    run, file = trained(a, scratch, "retrieval", "embeddings", transformers.BertModel, train, valid, 60, context=64)
    # Texts that are the same but for their letters' case have one vector: their cosines are equal.
    tied = valid + [{"anchor": r["anchor"] + " !", "positive": r["positive"].upper()} for r in valid[:80]]
    tied_file = Path(scratch, "tied.jsonl")
    tasks.write_lines(tied_file, tied)
    for name, rows, path in (("embeddings", valid, file), ("embeddings with ties", tied, tied_file)):
        ours = a.linnet.evaluate(run, path)
        queries, documents = (list(dict.fromkeys(r[side] for r in rows)) for side in ("anchor", "positive"))
        cosines = embedded(a, run, queries) @ embedded(a, run, documents).T
        # trec_eval puts the greater name first where scores are equal, Linnet the document that came first.
        names = [f"d{899999 - i}" for i in range(len(documents))]
        qrels = collections.defaultdict(dict)
        for r in rows:
            qrels[f"q{queries.index(r['anchor'])}"][names[documents.index(r["positive"])]] = 1
        scores = {f"q{i}": dict(zip(names, map(float, row))) for i, row in enumerate(cosines)}
        equal = sum(len(row) - len(set(row.tolist())) for row in cosines)
        judge = pytrec_eval.RelevanceEvaluator(dict(qrels), {"ndcg_cut.10", "recall.1,10"}).evaluate(scores)
        title = f"metrics, {name} ({len(queries)} queries, {len(documents)} documents, {equal} equal cosines)"
        mean = lambda key: sum(row[key] for row in judge.values()) / len(judge)
        for key, theirs in (("ndcg_10", "ndcg_cut_10"), ("recall_1", "recall_1"), ("recall_10", "recall_10")):
            report.compare(f"{title}: {key} by pytrec_eval", ours[key], mean(theirs), SUMS)
        # ranx leaves open which of two equal scores is first, so it gets ranks in place of scores.
        order = {q: sorted(row, key=lambda d: (-row[d], -int(d[1:]))) for q, row in scores.items()}
        ranked = {q: {d: float(len(row) - i) for i, d in enumerate(row)} for q, row in order.items()}
        theirs = ranx.evaluate(ranx.Qrels(dict(qrels)), ranx.Run(ranked), ["mrr@10", "ndcg@10", "recall@1", "recall@10"], make_comparable=True)
        for key, other in (("mrr_10", "mrr@10"), ("ndcg_10", "ndcg@10"), ("recall_1", "recall@1"), ("recall_10", "recall@10")):
            report.compare(f"{title}: {key} by ranx", ours[key], float(theirs[other]), SUMS)
    # Pairs with scores, of few kinds.
    scored = []
    for t in texts[900:1150]:
        kept = draw.choice([0.0, 0.25, 0.5, 0.75, 0.9])
        scored.append({"sentence1": t, "sentence2": " ".join(w for w in t.split() if draw.random() < kept) or "nothing", "score": round(5 * kept, 1)})
    # A text beside itself has a cosine of 1 but for rounding, which would decide its rank.
    scored = [r for r in scored if r["sentence1"] != r["sentence2"]]
    path = Path(scratch, "scored.jsonl")
    tasks.write_lines(path, scored)
    ours = a.linnet.evaluate(run, path)
    found, wanted = [p["cosine"] for p in a.linnet.predict(run, path)], [r["score"] for r in scored]
    report.compare(f"metrics, pairs with scores ({len(wanted)}): spearman of the cosine", ours["spearman"], float(stats.spearmanr(found, wanted)[0]), SUMS)
    report.compare(f"metrics, pairs with scores ({len(wanted)}): pearson of the cosine", ours["pearson"], float(stats.pearsonr(found, wanted)[0]), 1e-8)
    cosines = (embedded(a, run, [r["sentence1"] for r in scored]) * embedded(a, run, [r["sentence2"] for r in scored])).sum(1)
    report.compare("metrics, pairs with scores: cosines of predict, by embed", found[: len(scored)], [float(x) for x in numpy.asarray(cosines)], 1e-6)


def rerankers(a, report, scratch):
    """Linnet has no ranking metrics of cross-encoders: the scores are compared, and what ranx makes of both sides'."""
    import ranx
    import sentence_transformers
    draw = random.Random(a.seed)
    texts = [t for t in tasks.captions(a.data, "train.en", 800) if len(t.split()) > 5]

    def pair(text, kept, key="label"):
        return {"text": text, "text_pair": " ".join(w for w in text.split() if draw.random() < kept) or draw.choice(texts), key: kept}

    train = [pair(t, draw.choice([0.0, 0.3, 0.7, 1.0])) for t in texts[:500]]
    run, _ = trained(a, scratch, "reranker", "regress", transformers.BertForSequenceClassification, train, train[:40], 60, context=64, labels=["LABEL_0"],
                     config={"problem_type": "regression"})
    folder = Path(scratch, "reranker-out")
    a.linnet.run("export", run, "--out", folder, "--overwrite")
    queries = texts[500:530]
    documents = [[pair(q, kept) for kept in (1.0, 0.7, 0.7, 0.3)] + [pair(draw.choice(texts), 0.7) | {"label": 0.0} for _ in range(12)] for q in queries]
    pairs = [(q, d["text_pair"]) for q, rows in zip(queries, documents) for d in rows]
    ours = [float(line.split("\t")[0]) for line in a.linnet.run("score", folder, text="".join(f"{x}\t{y}\n" for x, y in pairs)).splitlines()]
    encoder = sentence_transformers.CrossEncoder(str(folder), device="cpu", max_length=64)
    theirs = [float(x) for x in encoder.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)]
    report.compare(f"metrics, reranker: scores of {len(pairs)} pairs, CrossEncoder of sentence-transformers", ours, theirs, 1e-5)
    grade = {1.0: 3, 0.7: 2, 0.3: 1, 0.0: 0}
    qrels = ranx.Qrels({f"q{i}": {f"d{j}": grade[d["label"]] for j, d in enumerate(rows) if grade[d["label"]]} for i, rows in enumerate(documents)})
    figures = []
    for scores in (ours, theirs):
        each = iter(scores)
        figures.append(ranx.evaluate(qrels, ranx.Run({f"q{i}": {f"d{j}": next(each) for j in range(len(rows))} for i, rows in enumerate(documents)}),
                                     ["ndcg@10", "mrr@10", "recall@10"]))
    for key in figures[0]:
        report.compare(f"metrics, reranker: {key} by ranx of both sides' scores", float(figures[0][key]), float(figures[1][key]), SUMS)


def metrics(a, report, scratch):
    for part in (one_label, several_labels, numbers, words, answers, retrieval, rerankers):
        guarded(report, f"metrics, {part.__name__}", part, a, report, scratch)


def guarded(report, name, part, *arguments):
    """One part that breaks is a line, and the others go on."""
    try:
        part(*arguments)
    except Exception as error:  # noqa: BLE001
        report.line(f"{name}: {type(error).__name__}: {error}", False)


# 2. Chats.

# Mistral 7B Instruct v0.3's, without tools: the system message stands before the last question.
MISTRAL = (
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}"
    "{%- else %}{%- set loop_messages = messages %}{%- endif %}{{- bos_token }}{%- for message in loop_messages %}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}"
    "{%- if message['role'] == 'user' %}{%- if loop.last and system_message is defined %}"
    "{{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}"
    "{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}{%- elif message['role'] == 'assistant' %}"
    "{%- generation %}{{- ' ' + message['content']|trim + eos_token }}{%- endgeneration %}"
    "{%- else %}{{- raise_exception('Only user and assistant roles are supported, with the exception of an initial optional system message!') }}"
    "{%- endif %}{%- endfor %}")
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['role'] == 'assistant' %}{% generation %}"
    "{{ message['content'] + '<|im_end|>' + '\\n' }}{% endgeneration %}{% else %}{{ message['content'] + '<|im_end|>' + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<bos>", "<start_of_turn>",
           "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]", "<think>", "</think>"]  # fmt: skip
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def unmarked(template):
    return re.sub(r"\{%-? ?(end)?generation ?-?%\}", "", template)


def templates():
    """Name -> the template as published, the same with {% generation %} marks, begin and end token, what it takes."""
    import trl
    folder = Path(trl.__file__).parent / "chat_templates"
    read = lambda name: (folder / f"{name}.jinja").read_text(encoding="utf-8")
    return {
        "ChatML": (unmarked(CHATML), CHATML, None, "<|im_end|>", {"system", "turns"}),
        "Llama 3": (read("llama3"), read("llama3_training"), "<|begin_of_text|>", "<|eot_id|>", {"system", "turns"}),
        "Qwen3": (read("qwen3"), read("qwen3_training"), None, "<|im_end|>", {"system", "turns", "think"}),
        "Qwen3, TRL's for training": (read("qwen3_training"), read("qwen3_training"), None, "<|im_end|>", {"system", "turns", "think"}),
        "Gemma 3": (read("gemma3"), read("gemma3_training"), "<bos>", "<end_of_turn>", {"system", "turns"}),
        "Mistral": (unmarked(MISTRAL), MISTRAL, "<s>", "</s>", {"turns"}),
    }


def chat_folder(texts, folder, template, begin, end):
    import tokenizers
    from tokenizers import pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=1500, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=begin, eos_token=end, pad_token="<pad>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    # Large weights: the losses of tokens lie far apart, so that a wrong token shows in their mean.
    config = transformers.LlamaConfig(vocab_size=len(fast), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=4096, initializer_range=0.2, eos_token_id=fast.eos_token_id,
                                      bos_token_id=fast.bos_token_id, pad_token_id=fast.pad_token_id)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return fast


def conversations(a, count, able):
    draw = random.Random(a.seed)
    texts = [t for language in ("en", "de", "fr", "cs") for t in tasks.captions(a.data, f"train.{language}", 500)]
    odd = ["naïve 世界 🙂", "مرحبا", "два\nстрока", "\n\n- a\n- b\n", "  spaces  ", "```\nx = 1\n\n\ny\n```", "ok", ".", "é",
           "0123456789", "\tTab", "e\u0301 \u200d🏳️‍🌈", "line\r\nend"]
    empty = ["", " ", "\n", "."]

    def text():
        parts = draw.choices(texts, k=draw.randint(0, 2)) + draw.choices(odd, k=draw.randint(0, 2))
        draw.shuffle(parts)
        return draw.choice([" ", "\n", "\n\n"]).join(parts) or draw.choice(texts)

    def answer():
        found = draw.choice(empty) if draw.random() < 0.1 else text()
        if "think" in able and draw.random() < 0.5:
            found = f"<think>\n{text()}\n</think>\n\n{found}"
        return found

    found = []
    for _ in range(count):
        turns = draw.randint(1, 5) if "turns" in able else 1
        messages = [{"role": "system", "content": text()}] if "system" in able and draw.random() < 0.5 else []
        for _ in range(turns):
            messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": answer()}]
        found.append(messages)
    return found


def learned_by_hand(tokenizer, messages):
    """The texts of a conversation: their tokens, and of each whether it lies in an answer, behind the beginning of the
    answer and up to what the template writes at its end. There are several where the template writes earlier turns
    differently once later ones follow."""
    render = lambda some, prompt: tokenizer.apply_chat_template(some, tokenize=False, add_generation_prompt=prompt)
    texts = []
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            before, after = render(messages[:i], True), render(messages[: i + 1], False)
            assert after.startswith(before)
            if not texts or not after.startswith(texts[-1][0]):
                texts.append(("", []))
            texts[-1] = after, texts[-1][1] + [(len(before), len(after))]
    found = []
    for text, spans in texts:
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        # A token that is partly a question's is none of the answer's: the model never writes it. Of a character of
        # several tokens each has the offsets of the whole.
        found.append((encoding["input_ids"], [any(begin <= first and last <= end for begin, end in spans) for first, last in encoding["offset_mapping"]]))
    return found


def token_losses(model, ids):
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
    return [0.0, *torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none").tolist()]


def chats(a, report, scratch):
    for name, (template, marked, begin, end, able) in templates().items():
        guarded(report, f"chats, {name}", chat_template, a, report, Path(scratch, re.sub(r"\W+", "-", name)), name, template, marked, begin, end, able)
    guarded(report, "chats, packed", packed_chats, a, report, Path(scratch, "packed"))
    for storage in ("fp32", "bf16", "int8", "int4"):
        guarded(report, f"chats, adapters beside {storage}", adapter_gradients, a, report, Path(scratch, storage), storage)


def chat_run(a, folder, path, **settings):
    """A run whose weights are those of the folder: its adapters' product is 0."""
    a.linnet.train("chat", path, folder / "run", **PLAIN | {
        "model.from": folder / "model", "data.valid_text": path, "context": 4096, "batch_size": 1, "max_steps": 1, "eval_every": 1000, "learning_rate": 1e-30,
        "lora.rank": 2, "lora.base_storage": "fp32"} | settings)
    return folder / "run"


def chat_template(a, report, folder, name, template, marked, begin, end, able):
    folder.mkdir()
    made = conversations(a, 500, able)
    tokenizer = chat_folder([m["content"] for c in made for m in c], folder / "model", template, begin, end)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float64).eval()
    counts, sums, differ, partly, marked_alike, several = [], [], 0, 0, 0, 0
    for messages in made:
        texts = learned_by_hand(tokenizer, messages)
        chosen = [loss for ids, learned in texts for at, (loss, is_learned) in enumerate(zip(token_losses(model, ids), learned)) if is_learned and at > 0]
        counts.append(len(chosen)), sums.append(math.fsum(chosen))
        several += len(texts) > 1
        if len(texts) == 1 and ("think" not in able or template == marked):
            ids, learned = texts[0]
            marked_alike += 1
            theirs = tokenizer.apply_chat_template(messages, chat_template=marked, return_dict=True, return_assistant_tokens_mask=True)
            differ += theirs["input_ids"] != ids
            more = [i for i, (x, y) in enumerate(zip(theirs["assistant_masks"], learned)) if bool(x) != y]
            partly += bool(more)
            differ += any(not theirs["assistant_masks"][i] for i in more)  # ours has one that TRL's has not
    turns = sorted({sum(m["role"] == "assistant" for m in c) for c in made})
    title = f"chats, {name}, {len(made)} conversations of {turns[0]} to {turns[-1]} turns"
    if marked_alike:
        report.line(f"{title}: mask by hand beside {{% generation %}} marks: of {marked_alike} {differ} differ; in {partly} the marks also have a "
                    "token that begins before the answer", differ == 0)
    if several:
        report.line(f"{title}: {several} are learned answer by answer, since the template writes earlier turns differently")
    path = folder / "chats.jsonl"
    tasks.write_lines(path, [{"messages": c} for c in made])
    run = chat_run(a, folder, path)
    ours = a.linnet.evaluate(run, path)
    report.compare(f"{title}: tokens that are learned", ours["tokens"], sum(counts), 0)
    report.compare(f"{title}: mean loss", ours["loss"], math.fsum(sums) / sum(counts), 1e-6, relative=True)
    single = random.Random(a.seed).sample(range(len(made)), 40)
    single += [i for i, c in enumerate(made) if c[-1]["content"].strip() == "" and i not in single][:4]
    tokens, means = [], []
    for i in single:
        tasks.write_lines(folder / "one.jsonl", [{"messages": made[i]}])
        one = a.linnet.evaluate(run, folder / "one.jsonl")
        tokens.append(one["tokens"]), means.append(one["loss"])
    report.compare(f"{title}: tokens of {len(single)} of them alone", tokens, [counts[i] for i in single], 0)
    report.compare(f"{title}: mean loss of {len(single)} of them alone", means, [sums[i] / counts[i] for i in single], 1e-6, relative=True)


def packed_chats(a, report, folder):
    """Conversations in rows of their own, and all in one row."""
    folder.mkdir()
    template, _, begin, end, able = templates()["Llama 3"]
    made = conversations(a, 500, able)
    tokenizer = chat_folder([m["content"] for c in made for m in c], folder / "model", template, begin, end)
    sizes = [len(learned_by_hand(tokenizer, c)[0][0]) for c in made]
    length = 160
    chosen = [i for i, size in enumerate(sizes) if length * 0.55 < size <= length][:16]
    path = folder / "chats.jsonl"
    tasks.write_lines(path, [{"messages": made[i]} for i in chosen])
    found = {}
    for name, context, rows in (("packed", 4096, 1), ("unpacked", length, len(chosen))):
        lines = a.linnet.train("chat", path, folder / name, **PLAIN | {
            "model.from": folder / "model", "data.valid_text": path, "context": context, "batch_size": rows, "max_steps": 5, "eval_every": 5,
            "learning_rate": 1e-3, "lora.rank": 4, "lora.base_storage": "fp32", "seed": a.seed})
        train = [line for line in lines if line["split"] == "train"]
        found[name] = [line["loss"] for line in train], [line["grad_norm"] for line in train], [line["loss"] for line in lines if line["split"] == "valid"][-1]
    title = f"chats, packed ({len(chosen)} conversations of {sum(sizes[i] for i in chosen)} tokens in one row) and unpacked ({len(chosen)} rows of {length})"
    for i, what in enumerate(("losses of 5 steps", "gradient norms of 5 steps", "loss of the evaluation after them")):
        report.compare(f"{title}: {what}", found["packed"][i], found["unpacked"][i], 1e-6 if i != 1 else 1e-5, relative=True)
    # Conversations that are longer than the context: their first 64 tokens are read, and the 65th is still to be told.
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float64).eval()
    tasks.write_lines(path, [{"messages": c} for c in made[:100]])
    ours = a.linnet.evaluate(chat_run(a, folder, path, context=64), path)
    chosen = []
    for messages in made[:100]:
        ids, learned = learned_by_hand(tokenizer, messages)[0]
        chosen += [loss for at, (loss, is_learned) in enumerate(zip(token_losses(model, ids[:65]), learned)) if is_learned and at > 0]
    title = f"chats, 100 conversations, {sum(size > 64 for size in sizes[:100])} of them cut at 64 tokens"
    report.compare(f"{title}: tokens that are learned", ours["tokens"], len(chosen), 0)
    report.compare(f"{title}: mean loss", ours["loss"], math.fsum(chosen) / len(chosen), 1e-6, relative=True)


def adapter_gradients(a, report, folder, storage):
    """SGD without momentum: what a step changes in the adapters is the rate times their gradients."""
    import peft
    import safetensors.torch
    folder.mkdir()
    template, _, begin, end, able = templates()["Llama 3"]
    made = conversations(a, 30, able)
    tokenizer = chat_folder([m["content"] for c in made for m in c], folder / "model", template, begin, end)
    # Smaller weights than chat_folder() gives: with those, rounding alone moves gradients by 1e-4.
    config = transformers.AutoConfig.from_pretrained(folder / "model", initializer_range=0.06)
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "model")
    one = max(made[:10], key=lambda c: len(learned_by_hand(tokenizer, c)[0][0]))
    path, rate = folder / "chats.jsonl", 0.5
    tasks.write_lines(path, [{"messages": one}])

    def adapters(steps, rate=rate):
        run, out = folder / f"run-{steps}-{rate}", folder / f"adapters-{steps}-{rate}"
        a.linnet.train("chat", path, run, **PLAIN | {
            "model.from": folder / "model", "data.valid_text": path, "context": 1024, "batch_size": 1, "max_steps": steps, "eval_every": 1000, "optimizer": "sgd",
            "momentum": 0, "weight_decay": 0, "clip_norm": 0, "learning_rate": rate, "lora.rank": 4, "lora.base_storage": storage, "seed": a.seed})
        a.linnet.run("export", run, "--adapter", out)
        return run, out, safetensors.torch.load_file(out / "adapter_model.safetensors")

    # The base with the numbers that its packed weights stand for: the adapters' product is still 0.
    a.linnet.run("export", adapters(1, 1e-30)[0], "--out", folder / "base")
    _, before, first = adapters(3)
    second = adapters(4)[2]
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float64)
    model = peft.PeftModel.from_pretrained(base, str(before), is_trainable=True, autocast_adapter_dtype=False).double()
    (ids, learned), = learned_by_hand(tokenizer, one)
    wanted = torch.tensor([i for i, is_learned in enumerate(learned) if is_learned and i > 0])
    torch.nn.functional.cross_entropy(model(input_ids=torch.tensor([ids])).logits[0, wanted - 1], torch.tensor(ids)[wanted]).backward()
    theirs = {name.replace(".default", ""): p.grad for name, p in model.named_parameters() if p.requires_grad}
    ours = {name: (first[name].double() - second[name].double()) / rate for name in first}
    # Beside the gradient of all adapters: that of a matrix may be as small as the rounding of what it is the difference of.
    norm = lambda gradients: math.sqrt(sum(g.square().sum().item() for g in gradients))
    found = norm(ours[name] - theirs[name] for name in ours) / norm(theirs.values()) if set(ours) == set(theirs) else math.inf
    report.line(f"chats, adapters beside a base in {storage}: gradients of {len(ours)} matrices on {len(wanted)} tokens, beside PEFT in float64: "
                f"difference {found:.1e} of their norm (at most 1e-04)", found <= 1e-4 and len(ours) == 28)


# 3. Preferences.


def preferences(a, report, scratch):
    import datasets
    import peft
    import trl
    datasets.disable_progress_bars()
    steps = 20
    task = tasks.Preferences(scratch)
    task.model_folder.mkdir()
    task.make(a.data, random.Random(a.seed))
    # A smaller model than the one that is timed, with larger weights and rate, so that rewards move as far.
    task.rate = 1e-3
    config = transformers.AutoConfig.from_pretrained(task.model_folder)
    small = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**config.to_dict() | small | {"initializer_range": 0.04})).save_pretrained(task.model_folder)
    settings = task.describe()["settings"] | {"model.from": task.model_folder, "data.valid_text": scratch / "valid.jsonl", "max_steps": steps,
                                              "eval_every": 1, "seed": a.seed}
    a.linnet.train("preferences", scratch / "train.jsonl", scratch / "first", **settings | {"max_steps": 1, "learning_rate": 1e-30})
    a.linnet.run("export", scratch / "first", "--adapter", scratch / "adapter")
    lines = a.linnet.train("preferences", scratch / "train.jsonl", scratch / "run", **settings)
    ours = {split: [line for line in lines if line["split"] == split] for split in ("train", "valid")}

    base = transformers.AutoModelForCausalLM.from_pretrained(task.model_folder, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, str(scratch / "adapter"), is_trainable=True)
    tokenizer = task.tokenizer()
    examples = [record | {"size": task.tokens(tokenizer, record)} for record in task.records("train")]
    ordered = itertools.chain.from_iterable(itertools.islice(task.batches(examples, a.seed), steps))
    valid = datasets.Dataset.from_list(task.records("valid"))
    arguments = task.arguments(trl.DPOConfig, steps, "eager", beta=0.1, precompute_ref_log_probs=True, eval_strategy="steps", eval_steps=1,
                               per_device_eval_batch_size=len(valid))
    trainer = trl.DPOTrainer(model=model, args=arguments, processing_class=tokenizer, eval_dataset=valid,
                             train_dataset=datasets.Dataset.from_list([{k: v for k, v in e.items() if k != "size"} for e in ordered]))
    losses, evaluations = [], []

    class Log(transformers.TrainerCallback):
        def on_log(self, arguments, state, control, logs=None, **named):
            if "loss" in (logs or {}):
                losses.append(logs["loss"])
            if "eval_loss" in (logs or {}):
                evaluations.append(logs)

    trainer.add_callback(Log())
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    trainer.train()
    title = f"preferences, DPO with LoRA, {steps} steps of 4 pairs"
    report.compare(f"{title}: losses, TRL", [line["loss"] for line in ours["train"]], losses, 1e-4)
    for key, theirs in (("loss", "eval_loss"), ("chosen_reward", "eval_rewards/chosen"), ("rejected_reward", "eval_rewards/rejected"),
                        ("margin", "eval_rewards/margins"), ("accuracy", "eval_rewards/accuracies")):
        values = [line[key] for line in ours["valid"]]
        report.compare(f"{title}, {len(values)} evaluations of {len(valid)} pairs: {key} (from {values[0]:.4f} to {values[-1]:.4f}), TRL", values,
                       [line[theirs] for line in evaluations], 1e-4)


# 4. Embeddings.


def weights_of(a, run, folder):
    import safetensors.torch
    a.linnet.run("export", run, "--out", folder, "--overwrite")
    found = {}
    for file in Path(folder).rglob("*.safetensors"):
        found |= {name.removeprefix("bert."): tensor.double() for name, tensor in safetensors.torch.load_file(file).items()}
    return found


def greatest(ours, theirs):
    names = sorted(set(ours) & set(theirs))
    return max((ours[name] - theirs[name]).abs().max().item() for name in names), len(names)


def embeddings(a, report, scratch):
    task = tasks.Embeddings(scratch)
    task.model_folder.mkdir()
    task.make(a.data, random.Random(a.seed))
    guarded(report, "embeddings, cached gradients", cached_gradients, a, report, scratch, task)
    guarded(report, "embeddings, memory", cached_memory, a, report, scratch, task)
    guarded(report, "embeddings, spearman", embedding_score, a, report, scratch)


def cached_gradients(a, report, scratch, task):
    """SGD on one batch, twice: the weights' change is the rate times the gradients."""
    import sentence_transformers
    from sentence_transformers.sentence_transformer import losses as kinds
    rows, steps, rate = 128, 2, 0.05
    records = task.records("train")[:rows]
    tasks.write_lines(scratch / "one-batch.jsonl", records), tasks.write_lines(scratch / "few.jsonl", task.records("valid")[:32])
    settings = PLAIN | {"model.from": task.model_folder, "data.valid_tsv": scratch / "few.jsonl", "context": 64, "max_steps": steps, "eval_every": 1000,
                        "optimizer": "sgd", "momentum": 0, "weight_decay": 0, "clip_norm": 0, "learning_rate": rate, "batch_size": rows, "seed": a.seed}
    found = {}
    for name, parts in (("uncached", 1), ("cached", 8)):
        lines = a.linnet.train("embeddings", scratch / "one-batch.jsonl", scratch / name, **settings | {"micro_batches": parts})
        train = [line for line in lines if line["split"] == "train"]
        # What the run saves as its best is chosen by the loss; the state has the last weights.
        found[name] = [line["loss"] for line in train], weights_of(a, scratch / name, scratch / f"{name}-out"), [line["grad_norm"] for line in train]
    for name, kind in (("MultipleNegativesRankingLoss", lambda model: kinds.MultipleNegativesRankingLoss(model)),
                       ("CachedMultipleNegativesRankingLoss", lambda model: kinds.CachedMultipleNegativesRankingLoss(model, mini_batch_size=16))):
        model = sentence_transformers.SentenceTransformer(str(task.model_folder), device="cpu")
        model.max_seq_length = 64
        model.train()
        if "begin" not in found:
            found["begin"] = [], {k: v.double().clone() for k, v in model[0].model.state_dict().items()}, []
        loss_of = kind(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        values, norms = [], []
        for _ in range(steps):
            loss = loss_of([dict(model.preprocess([r[side] for r in records])) for side in ("anchor", "positive")], None)
            loss.backward()
            norms.append(math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters() if p.grad is not None)))
            optimizer.step(), optimizer.zero_grad()
            values.append(loss.item())
        found[name] = values, {k: v.double() for k, v in model[0].model.state_dict().items()}, norms
    begin = found["begin"][1]
    moved = max((found["uncached"][1][k] - begin[k]).abs().max().item() for k in begin if k in found["uncached"][1]) / rate
    for ours, theirs in (("cached", "uncached"), ("uncached", "MultipleNegativesRankingLoss"), ("cached", "MultipleNegativesRankingLoss"),
                         ("cached", "CachedMultipleNegativesRankingLoss")):
        title = f"embeddings, {rows} pairs, {steps} steps of SGD, {ours} and {theirs}"
        report.compare(f"{title}: losses", found[ours][0], found[theirs][0], 1e-5)
        report.compare(f"{title}: gradient norms", found[ours][2], found[theirs][2], 1e-5, relative=True)
        worst, count = greatest(found[ours][1], found[theirs][1])
        report.line(f"{title}: {count} weights, greatest difference {worst:.1e} (at most 1e-05); of the steps' summed gradients "
                    f"{worst / rate:.1e} (at most 1e-05; the greatest is {moved:.1e})", worst <= 1e-5 and worst / rate <= 1e-5 and count > 50)


def cached_memory(a, report, scratch, task):
    tasks.write_lines(scratch / "many.jsonl", task.records("train")[:1024])
    settings = PLAIN | {"model.from": task.model_folder, "data.valid_tsv": scratch / "few.jsonl", "context": 64, "max_steps": 1, "eval_every": 1000,
                        "learning_rate": 1e-5, "seed": a.seed}
    # Micro-batches need memory for the sum of their gradients, which is as large as the parameters.
    small = a.linnet.peak_mb("embeddings", scratch / "many.jsonl", scratch / "small", **settings | {"batch_size": 32})
    large = a.linnet.peak_mb("embeddings", scratch / "many.jsonl", scratch / "large", **settings | {"batch_size": 1024, "micro_batches": 32})
    report.line(f"embeddings, peak memory: 1,024 pairs in 32 micro-batches {large:.0f} MB, 32 pairs {small:.0f} MB, ratio {large / small:.3f} (at most 1.25)",
                large <= 1.25 * small)


class Scored(tasks.Embeddings):
    """Captions and what is left of them; the score is the share that is left."""

    score_name, score_steps = "spearman", 100

    def make(self, real, draw):
        super().make(real, draw)
        texts = [t for t in tasks.captions(real, "train.en", 4500) if len(t.split()) > 5]
        left = lambda text, share: " ".join(w for w in text.split() if draw.random() < share)
        tasks.write_lines(self.folder / "train.jsonl", [{"anchor": t, "positive": left(t, 0.6) or t} for t in texts[:3200]])
        rows = []
        for t in texts[3200:3600]:
            share = draw.random() * 0.9
            rest = [w for w in draw.choice(texts).split() if draw.random() > share]
            rows.append({"sentence1": t, "sentence2": f"{left(t, share)} {' '.join(rest)}".strip() or "nothing", "score": round(5 * share, 1)})
        tasks.write_lines(self.folder / "valid.jsonl", rows)

    def examples(self, split):
        return super().examples(split) if split == "train" else self.records(split)

    def score(self, model, examples):
        import scipy.stats as stats
        first, second = (torch.nn.functional.normalize(model.encode([e[side] for e in examples], convert_to_tensor=True))
                         for side in ("sentence1", "sentence2"))
        return float(stats.spearmanr((first * second).sum(-1).double().numpy(), [e["score"] for e in examples])[0])


def embedding_score(a, report, scratch):
    folder = scratch / "scored"
    task = Scored(folder)
    task.model_folder.mkdir(parents=True)
    torch.manual_seed(a.seed)
    task.make(a.data, random.Random(a.seed))
    steps = task.score_steps
    lines = a.linnet.train("embeddings", folder / "train.jsonl", folder / "run", **task.describe()["settings"] | {
        "model.from": task.model_folder, "data.valid_tsv": folder / "valid.jsonl", "max_steps": steps, "eval_every": steps, "seed": a.seed})
    theirs = task.train("eager", steps, a.seed)
    ours = [line["loss"] for line in lines if line["split"] == "train"]
    report.compare(f"embeddings, {steps} steps of 32 pairs: losses of the first 20, sentence-transformers", ours[:20], theirs["losses"][:20], 1e-4)
    report.compare(f"embeddings, {steps} steps of 32 pairs: losses of all, sentence-transformers", ours, theirs["losses"], 1e-2)
    report.compare(f"embeddings, {steps} steps of 32 pairs: spearman of {len(task.records('valid'))} scored pairs, sentence-transformers",
                   next(line["spearman"] for line in lines if line["split"] == "valid"), theirs["score"], 0.005)


# 5. Sweeps.

TIMES = {"seconds", "tokens_per_second", "texts_per_second", "rate", "memory_mb", "time", "minutes"}


def without_times(value, folder):
    if isinstance(value, dict):
        return {k: without_times(v, folder) for k, v in value.items() if k not in TIMES}
    if isinstance(value, list):
        return [without_times(v, folder) for v in value]
    return value.replace(str(folder), "SWEEP") if isinstance(value, str) else value


def sweeps(a, report, scratch):
    draw = random.Random(a.seed)
    lines = tasks.sentiment(a.data, "train", 600)
    (scratch / "reviews.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in lines), encoding="utf-8")
    command = lambda out: a.linnet.command(
        "sweep", "classify", "--data", scratch / "reviews.tsv", "--out", out, "--runs", 6, learning_rate="1e-4..1e-2", dropout="0,0.1", d_model=64, d_ff=128,
        num_layers=2, vocab_size=1000, context=64, max_steps=120, eval_every=40, save_every=15, warmup_steps=5, seed=3)
    begin = time.perf_counter()
    whole = subprocess.run(command(scratch / "whole"), capture_output=True, text=True, timeout=900, env=a.linnet.environment)
    if whole.returncode:
        raise Failed(whole.stderr[-600:])
    seconds = time.perf_counter() - begin
    # Moments are told by the lines of all runs' metrics, so that a busy machine does not move them.
    written = lambda: sum(p.read_bytes().count(b"\n") for p in (scratch / "killed").glob("*/metrics.jsonl"))
    total = sum(p.read_bytes().count(b"\n") for p in (scratch / "whole").glob("*/metrics.jsonl"))
    moments = sorted(draw.uniform(0.03, 0.9) * total for _ in range(4))
    killed = 0
    for moment in [*moments, math.inf]:
        with open(scratch / "out", "w") as file, open(scratch / "errors", "w") as error_file:
            child = subprocess.Popen(command(scratch / "killed"), stdout=file, stderr=error_file, env=a.linnet.environment)
        while child.poll() is None and written() < moment:
            time.sleep(0.01)
        if child.returncode is not None:
            break
        time.sleep(draw.uniform(0, 0.2))  # also in the midst of a step or of a file
        child.kill()
        killed += child.wait() == -signal.SIGKILL
        report.line(f"sweeps: killed after {written()} of {total} lines of metrics, with runs "
                    f"{', '.join(sorted(p.parent.name for p in (scratch / 'killed').glob('*/metrics.jsonl'))) or 'none'} begun")
    out, errors = ((scratch / name).read_text() for name in ("out", "errors"))
    if child.returncode:
        raise Failed(errors[-600:])
    report.line(f"sweeps: {killed} times killed (4 wanted); undisturbed in {seconds:.1f} s", killed == 4)
    times = re.compile(r"\b\d+(\.\d+)? ?(s|min|h)\b")
    hide = lambda text, folder: times.sub("TIME", text.replace(str(folder), "SWEEP")).splitlines()
    mine, theirs = hide(whole.stdout, scratch / "whole"), hide(out, scratch / "killed")
    report.line(f"sweeps: the table ({len(mine)} lines): {'equal' if mine == theirs else 'DIFFERS'}", mine == theirs)
    for line, other in zip(mine, theirs):
        if line != other:
            print(f"  undisturbed {line}\n  killed      {other}")
    files = [json.loads((scratch / name / "sweep.json").read_text()) for name in ("whole", "killed")]
    files = [without_times(value, scratch / name) for value, name in zip(files, ("whole", "killed"))]
    report.line(f"sweeps: sweep.json but for times: {'equal' if files[0] == files[1] else 'DIFFERS'}", files[0] == files[1])
    for name in sorted(p.name for p in (scratch / "whole").iterdir() if p.is_dir()):
        sums = [hashlib.sha256((scratch / side / name / "model.safetensors").read_bytes()).hexdigest() for side in ("whole", "killed")]
        curves = [without_times(tasks.read_lines(scratch / side / name / "metrics.jsonl"), scratch / side) for side in ("whole", "killed")]
        report.line(f"sweeps, run {name}: weights {'equal' if sums[0] == sums[1] else 'DIFFER'}, metrics.jsonl of {len(curves[0])} lines "
                    f"{'equal' if curves[0] == curves[1] else 'DIFFERS'}",
                    sums[0] == sums[1] and curves[0] == curves[1])


# 6. Bad data.


def bad_data(a, report, scratch):
    bert, chat = scratch / "bert", scratch / "chat"
    small_bert(a.data, bert, transformers.BertModel)
    gemma = "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + unmarked(CHATML)
    chat_folder(["Hello there, how are you?"] * 20, chat, gemma, "<bos>", "<|im_end|>")
    strict = scratch / "strict"
    chat_folder(["Hello there, how are you?"] * 20, strict, unmarked(MISTRAL), "<s>", "</s>")
    turn = lambda role, content: {"role": role, "content": content}
    good = "\n".join(f"a good text {i},{i % 2}" for i in range(40))
    rows = lambda records: "".join(json.dumps(r) + "\n" for r in records)
    tagged = [{"text": "Ada lived in London.", "entities": [{"start": 0, "end": 3, "label": "PER"}]}] * 20
    asked = [{"question": "Who?", "context": "Ada wrote it.", "answers": {"text": ["Ada"], "answer_start": [0]}}] * 20
    talks = [{"messages": [turn("user", "Hi"), turn("assistant", "Hello")]}] * 20
    pairs = [{"prompt": [turn("user", "Hi")], "chosen": [turn("assistant", "yes")], "rejected": [turn("assistant", "no")]}] * 20
    long = "how are you there " * 50
    cases = [
        ("an open quote in CSV", "classify", "csv", f'text,label\n{good}\n"never closed,1\nanother,0\n', bert),
        ("text behind a closing quote in CSV", "classify", "csv", f'text,label\n{good}\n"a "quoted" word",1\n', bert),
        ("an open quote in CSV of pairs", "embeddings", "csv", 'anchor,positive\na,b\nc,"d\n', bert),
        ("a row of CSV with too few fields", "classify", "csv", f"text,label\n{good}\nno label\n", bert),
        ("a row of CSV with too many fields", "classify", "csv", f"text,label\n{good}\na,b,1\n", bert),
        ("a label that is no number", "regress", "csv", f"text,label\n{good}\nanother,many\n", bert),
        ("a label that is nan", "regress", "csv", f"text,label\n{good}\nanother,nan\n", bert),
        ("a label that is no number, JSON", "regress", "jsonl", rows([{"text": "a", "label": 1.5}] * 20 + [{"text": "b", "label": "many"}]), bert),
        ("a score that is no number", "embeddings", "csv", "sentence1,sentence2,score\na,b,1\nc,d,high\n", bert),
        ("a span behind the text", "tag", "jsonl", rows([*tagged, {"text": "Ada", "entities": [{"start": 0, "end": 9, "label": "PER"}]}]), bert),
        ("a span that ends before it begins", "tag", "jsonl", rows([*tagged, {"text": "Ada", "entities": [{"start": 2, "end": 1, "label": "PER"}]}]), bert),
        ("a span that begins before the text", "tag", "jsonl", rows([*tagged, {"text": "Ada", "entities": [{"start": -1, "end": 2, "label": "PER"}]}]), bert),
        ("spans that overlap", "tag", "jsonl",
         rows([*tagged, {"text": "Ada B", "entities": [{"start": 0, "end": 5, "label": "PER"}, {"start": 0, "end": 3, "label": "PER"}]}]), bert),
        ("fewer tags than tokens", "tag", "jsonl", rows([{"tokens": ["Ada", "lived"], "tags": ["B-PER"]}] * 20), bert),
        ("an answer behind the text", "answers", "jsonl", rows([*asked, asked[0] | {"answers": {"text": ["Ada"], "answer_start": [500]}}]), bert),
        ("an answer that is not in the text", "answers", "jsonl", rows([*asked, asked[0] | {"answers": {"text": ["Bob"], "answer_start": [0]}}]), bert),
        ("an answer before the text", "answers", "jsonl", rows([*asked, asked[0] | {"answers": {"text": ["Ada"], "answer_start": [-3]}}]), bert),
        ("a role that the template refuses", "chat", "jsonl", rows([*talks, {"messages": [turn("system", "S"), *talks[0]["messages"]]}]), chat),
        ("turns that do not alternate", "chat", "jsonl", rows([*talks, {"messages": [turn("user", "Hi"), *talks[0]["messages"]]}]), strict),
        ("a role that nobody has", "chat", "jsonl", rows([*talks, {"messages": [turn("user", "Hi"), turn("oracle", "x"), turn("assistant", "y")]}]), strict),
        ("a role that ShareGPT has not", "chat", "jsonl",
         rows([{"conversations": [{"from": "oracle", "value": "x"}, {"from": "gpt", "value": "y"}]}] * 20), chat),
        ("preferences with a role that the template refuses", "preferences", "jsonl",
         rows([*pairs, pairs[0] | {"prompt": [turn("system", "S"), turn("user", "Hi")]}]), chat),
        ("chats without an assistant", "chat", "jsonl", rows([{"messages": [turn("user", "Hi")]}] * 20), chat),
        ("an answer that is null", "chat", "jsonl", rows([*talks, {"messages": [turn("user", "Hi"), turn("assistant", None)]}]), chat),
        ("a message without content", "chat", "jsonl", rows([*talks, {"messages": [{"role": "user"}, turn("assistant", "x")]}]), chat),
        ("a line that is no JSON", "chat", "jsonl", rows(talks) + '{"messages": [\n', chat),
        ("messages that are a text", "chat", "jsonl", rows([*talks, {"messages": "Hi"}]), chat),
        ("preferences without an answer", "preferences", "jsonl", rows([{"prompt": [turn("user", "Hi")], "chosen": [], "rejected": []}] * 20), chat),
        ("all tokens masked: prompts longer than the context", "chat", "jsonl",
         rows([{"messages": [turn("user", long), turn("assistant", "Hello")]}] * 20), chat),
        ("all tokens masked: preferences longer than the context", "preferences", "jsonl", rows([pairs[0] | {"prompt": [turn("user", long)]}] * 20), chat),
        ("all tokens masked: questions longer than the context", "answers", "jsonl", rows([asked[0] | {"question": f"{i} {long}"} for i in range(20)]), bert),
        ("all words without a token", "tag", "jsonl", rows([{"tokens": ["\u200b"], "tags": ["O"]}] * 20), bert),
        ("an empty column of labels", "classify", "csv", "text,label\n" + "a text,\n" * 20, bert),
        ("an empty column of texts", "classify", "csv", "text,label\n" + ",1\n,0\n" * 20, bert),
        ("an empty column of numbers", "regress", "csv", "text,label\n" + "a text,\n" * 20, bert),
        ("an empty column of labels, of several", "label", "csv", "text,labels\n" + "a text,\n" * 20, bert),
        ("an empty column of partners", "embeddings", "csv", "anchor,positive\n" + "a text,\n" * 20, bert),
        ("an empty column of tags", "tag", "conll", "Ada\nlived\n\n" * 20, bert),
        ("empty texts to ask of", "answers", "jsonl", rows([{"question": f"Who is {i}?", "context": "", "answers": []} for i in range(20)]), bert),
        ("a heading and nothing else", "classify", "csv", "text,label\n", bert),
        ("a table without the column of labels", "classify", "csv", "text,other\n" + "a,b\n" * 20, bert),
        ("one label alone", "classify", "csv", "text,label\n" + "a text,1\n" * 20, bert),
        ("an empty file", "classify", "csv", "", bert),
    ]  # fmt: skip
    for number, (name, preset, ending, text, model) in enumerate(cases):
        path, run = scratch / f"{number}.{ending}", scratch / f"run-{number}"
        path.write_text(text, encoding="utf-8")
        more = {"context": 32, "batch_size": 8, "model.from": model} | ({"lora.base_storage": "fp32"} if model != bert else {})
        done = subprocess.run(a.linnet.command("train", preset, "--data", path, "--run", run, "--steps", 1, **more), capture_output=True, text=True,
                              timeout=120, env=a.linnet.environment)
        said = [line for line in done.stderr.splitlines() if line.strip()]
        kept = [p.name for p in run.rglob("*.safetensors")] if run.exists() else []
        good = done.returncode == 2 and len(said) == 1 and not kept and "Traceback" not in done.stderr
        shown = said[-1].replace(str(scratch) + "/", "") if said else "nothing"
        left = f"a run folder with {kept}" if run.exists() else "no run folder"
        report.line(f"bad data, {name} ({preset}): exit code {done.returncode}, {len(said)} lines, {left}: {shown}", good)
        if len(said) > 1:
            for line in said[:-1]:
                print(f"  {line.replace(str(scratch) + '/', '')}")


CHECKS = {"metrics": metrics, "chats": chats, "preferences": preferences, "embeddings": embeddings, "sweeps": sweeps, "bad-data": bad_data}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet")
    parser.add_argument("data")
    parser.add_argument("--only", default=",".join(CHECKS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", help="a folder that is kept, in place of a temporary one")
    a = parser.parse_args()
    unknown = set(a.only.split(",")) - set(CHECKS)
    if unknown:
        sys.exit(f"there is no check {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    a.linnet = Program(a.linnet, a.threads)
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        for name in a.only.split(","):
            torch.manual_seed(a.seed)
            folder = Path(a.work or temporary, name)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            begin = time.perf_counter()
            guarded(report, name, CHECKS[name], a, report, folder)
            print(f"{name}: {time.perf_counter() - begin:.0f} seconds", flush=True)
    print(f"{report.bad} outside their tolerance")
    sys.exit(1 if report.bad else 0)


if __name__ == "__main__":
    main()
