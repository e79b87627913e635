"""A task of `linnet train` in PyTorch: transformers, sentence-transformers, TRL and PEFT.

    build/peers/bin/python bench/peers/tasks.py make TASK FOLDER --real DATA
    build/peers/bin/python bench/peers/tasks.py train TASK FOLDER [--mode MODE] [--steps 20] [--seed 1]

`make` writes the model folder (random weights), the data, and task.json with the preset and the settings of
`linnet train`. `train` trains that folder on the same batches as Linnet, whose order is a function of seed and epoch
(ShuffledIndex, length_batches, ...), and prints one JSON object: losses and seconds of the steps, and the score of the
validation examples. MODE is eager, compile, float64, or of tasks with adapters recompute (layers again in the backward pass)
and fp32 (of a base that is bf16 otherwise). Dropout is 0 everywhere. DATA has the form of bench/check_presets.py's.
"""

import argparse
import array
import gzip
import itertools
import json
import lzma
import math
import random
import time
from pathlib import Path

import common
import torch
import transformers

BITS = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
ADAM = {"optimizer": "adamw", "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "clip_norm": 1.0}
DECAY = 0.01


# Linnet's order of batches (src/base/numbers.h, src/data/examples).


def mix64(x):
    x &= BITS
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & BITS
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & BITS
    return x ^ (x >> 31)


class ShuffledIndex:
    """A permutation of range(count)."""

    def __init__(self, count, key):
        self.count, self.key = count, key & BITS
        self.half = max(1, (max(count - 1, 0).bit_length() + 1) // 2)

    def __call__(self, value):
        mask = (1 << self.half) - 1
        while True:
            left, right = value >> self.half, value & mask
            for turn in range(4):
                left, right = right, left ^ (mix64(self.key + right + (turn << 56)) & mask)
            value = left << self.half | right
            if value < self.count:
                return value


def ordered_by_length(sizes, rows, key):
    """Shuffled, sorted by size within pools of 32 batches, and the batches shuffled."""
    count = -(-len(sizes) // rows)
    examples, batches = ShuffledIndex(len(sizes), key), ShuffledIndex(count, mix64(key + 1))
    order = [examples(i) for i in range(len(sizes))]
    pools = [sorted(order[i : i + 32 * rows], key=sizes.__getitem__) for i in range(0, len(order), 32 * rows)]
    order = list(itertools.chain.from_iterable(pools))
    return [order[batches(i) * rows : (batches(i) + 1) * rows] for i in range(count)]


def length_batches(sizes, rows, seed, epoch):
    return ordered_by_length(sizes, rows, mix64(mix64(seed + GOLDEN) + epoch))


def row_batches(sizes, rows, seed, epoch):
    """Of conversations so long that each has a row of its own; the longest is the first row."""
    longest = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    shuffled = ShuffledIndex(len(sizes), mix64(mix64(seed + 1) + epoch))
    order = [longest[shuffled(i)] for i in range(len(sizes))]
    return [order[i : i + rows] for i in range(0, len(order), rows)]


def fisher_yates(items, state):
    for left in range(len(items), 1, -1):
        while True:
            state = (state + GOLDEN) & BITS
            value = mix64(state)
            if value < BITS // left * left:
                break
        other = value % left
        items[left - 1], items[other] = items[other], items[left - 1]
    return items


def image_batches(count, rows, seed, epoch):
    order = fisher_yates(list(range(count)), mix64(mix64(seed + GOLDEN) + epoch))
    return [order[i : i + rows] for i in range(0, count, rows)]


def pair_batches(count, rows, seed, epoch):
    """Of translations in one bucket."""
    state = lambda stream: mix64(mix64(mix64(seed + GOLDEN) + epoch) + stream)
    order = fisher_yates(list(range(count)), state(1))
    return [order[start : start + rows] for start in fisher_yates(list(range(0, count, rows)), state(0))]


def stream_key(seed, use, epoch):
    return mix64(mix64(seed + GOLDEN) ^ use ^ mix64(epoch))


# Data.


def write_lines(path, records):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def sentiment(real, name, count):
    with open(f"{real}/text-classification/sst2/{name}.tsv", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file][:count]
    return [(text, "positive" if label == "1" else "negative") for text, label in lines]


def captions(real, name, count):
    with gzip.open(f"{real}/translation/multi30k/{name}.gz", "rt", encoding="utf-8") as file:
        return [line.strip() for line in itertools.islice(file, count)]


def names(draw, count, parts):
    """Invented names, of syllables."""
    syllables = "ba do ka lu mi no pe ra si ta vo wen zar mon dil for gan hel".split()
    made = set()
    while len(made) < count:
        made.add("".join(draw.choices(syllables, k=parts)).capitalize())
    return sorted(made)


# What both sides take from: a model folder.


def bert_tokenizer(real, folder):
    words = Path(real, "tokenizers/bert/bert-base-uncased-vocab.txt").read_text(encoding="utf-8")
    Path(folder, "vocab.txt").write_text(words, encoding="utf-8")
    tokenizer = transformers.BertTokenizer(vocab=str(Path(folder, "vocab.txt")))
    tokenizer.save_pretrained(folder)
    return tokenizer


def bert_config(**more):
    return transformers.BertConfig(
        vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more)  # fmt: skip


TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def byte_tokenizer(texts, folder, size):
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|pad|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return fast


def make_llama(real, folder, length):
    """Of 34 million parameters."""
    text = Path(real, "lm/wikitext-2/valid.txt").read_text(encoding="utf-8")
    tokenizer = byte_tokenizer(text.split("\n"), folder, 8000)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=length, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
        pad_token_id=tokenizer.pad_token_id)  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return tokenizer


# Scores, for which no package is needed.


def ranks_of(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    for _, run in itertools.groupby(order, key=values.__getitem__):
        same = list(run)
        for i in same:
            ranks[i] = start + (len(same) - 1) / 2
        start += len(same)
    return ranks


def spearman(a, b):
    a, b = (torch.tensor(ranks_of(list(values)), dtype=torch.float64) for values in (a, b))
    a, b = a - a.mean(), b - b.mean()
    return (a @ b / (a.norm() * b.norm())).item()


def f1(right, found, wanted):
    return 2 * right / (found + wanted) if found + wanted else 0.0


def entities(tags):
    """Of IOB2, as seqeval counts them: an I without its B begins an entity."""
    found, start, kind = set(), None, None
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, label = tag.partition("-")
        if start is not None and (prefix != "I" or label != kind):
            found.add((start, i, kind))
            start = None
        if start is None and prefix != "O":
            start, kind = i, label
    return found


class Task:
    """One row of the table. Subclasses name the preset, the form of batches and the loss."""

    preset = ""
    rows, context, rate = 16, 64, 1e-4
    score_name, score_steps = "loss", 0  # of the validation examples after so many steps
    decay = DECAY
    library = "transformers"
    file = "train.jsonl"
    valid_key = "data.valid_tsv"

    def __init__(self, folder):
        self.folder = Path(folder)
        self.model_folder = self.folder / "model"

    def settings(self):
        return {}

    def make(self, real, draw):
        raise NotImplementedError

    def describe(self):
        common_settings = ADAM | {
            "learning_rate": self.rate, "final_learning_rate": 0, "schedule": "constant", "warmup_steps": 0,
            "weight_decay": self.decay, "max_epochs": 0, "patience": 0, "precision": "fp32", "batch_size": self.rows, "batch_tokens": 0,
            "context": self.context, "save_every": 1_000_000, "metric": self.score_name,
        }  # fmt: skip
        return {"preset": self.preset, "data": self.file, "valid": [self.valid_key, self.valid_file()],
                "settings": common_settings | self.settings(), "score": self.score_name,
                "score_steps": self.score_steps, "library": self.library}  # fmt: skip

    def valid_file(self):
        return self.file.replace("train", "valid")

    def records(self, split):
        return read_lines(self.folder / self.file.replace("train", split))

    # Of the examples that records become: how long they are, and the batches of an epoch.
    def size(self, example):
        return len(example["ids"])

    def epoch(self, examples, seed, epoch):
        return length_batches([self.size(example) for example in examples], self.rows, seed, epoch)

    def batches(self, examples, seed):
        for epoch in itertools.count():
            for batch in self.epoch(examples, seed, epoch):
                yield [examples[i] for i in batch]

    # PyTorch's side of the training.
    def tokenizer(self):
        return transformers.AutoTokenizer.from_pretrained(self.model_folder)

    def load(self):
        raise NotImplementedError

    def examples(self, split):
        raise NotImplementedError

    def collate(self, batch):
        raise NotImplementedError

    def loss(self, model, batch):
        return model(**batch).loss

    def score(self, model, examples):
        return None

    def compiled(self, model):
        model.forward = torch.compile(model.forward, dynamic=True)
        return model

    def train(self, mode, steps, seed):
        torch.manual_seed(seed)
        model = self.load().train()
        if mode == "float64":  # what both sides round: for the differences of losses alone
            model.double()
        callee = self.compiled(model) if mode == "compile" else model
        matrices = [p for p in model.parameters() if p.requires_grad and p.ndim >= 2]
        others = [p for p in model.parameters() if p.requires_grad and p.ndim < 2]
        optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": self.decay}, {"params": others, "weight_decay": 0.0}],
            lr=self.rate, betas=(0.9, 0.999), eps=1e-8, fused=True)  # fmt: skip
        losses, seconds = [], []
        for batch in itertools.islice(self.batches(self.examples("train"), seed), steps):
            begin = time.perf_counter()
            loss = self.loss(callee, self.collate(batch))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            seconds.append(time.perf_counter() - begin)
        with torch.inference_mode():
            score = self.score(model.eval(), self.examples("valid"))
        model.save_pretrained(self.folder / "saved")  # as Linnet's run does
        return {"losses": losses, "seconds": seconds, "score": score}


def padded(rows, fill=0):
    longest = max(map(len, rows))
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows])


def mean_loss(task, model, batches, count):
    """Over all that a batch's loss is a mean of; `count` tells how many these are."""
    counts = [count(batch) for batch in batches]
    losses = [task.loss(model, task.collate(batch)).item() for batch in batches]
    return sum(n * loss for n, loss in zip(counts, losses)) / sum(counts)


def chunked(examples, rows):
    return [examples[i : i + rows] for i in range(0, len(examples), rows)]


class EncoderTask(Task):
    """Texts, or pairs of them, with something to learn of each."""

    valid_count = 256
    model_class = transformers.BertForSequenceClassification
    labels = ()

    def make_model(self, real, **more):
        bert_tokenizer(real, self.model_folder)
        if self.labels:
            more |= {"id2label": dict(enumerate(self.labels)),
                     "label2id": {label: i for i, label in enumerate(self.labels)}}  # fmt: skip
        self.model_class(bert_config(**more)).save_pretrained(self.model_folder)

    def load(self):
        return self.model_class.from_pretrained(self.model_folder)

    def label(self, record):
        raise NotImplementedError

    def examples(self, split):
        records = self.records(split)
        firsts, seconds = [r["text"] for r in records], [r.get("text_pair") for r in records]
        batch = self.tokenizer()(firsts, seconds if seconds[0] is not None else None, truncation=True,
                                 max_length=self.context)
        return [{"ids": ids, "types": types, "label": self.label(record)}
                for ids, types, record in zip(batch["input_ids"], batch["token_type_ids"], records)]  # fmt: skip

    def inputs(self, batch):
        return {"input_ids": padded([e["ids"] for e in batch]), "token_type_ids": padded([e["types"] for e in batch]),
                "attention_mask": padded([[1] * len(e["ids"]) for e in batch])}  # fmt: skip

    def collate(self, batch):
        return self.inputs(batch) | {"labels": torch.tensor([e["label"] for e in batch])}

    def logits(self, model, examples):
        return torch.cat([model(**self.inputs(batch)).logits for batch in chunked(examples, self.rows)])


class OneLabel(EncoderTask):
    preset, score_name, score_steps = "classify", "accuracy", 300
    labels = ("negative", "positive")

    def make(self, real, draw):
        for split, name, count in (("train", "train", None), ("valid", "dev", self.valid_count)):
            write_lines(self.folder / f"{split}.jsonl",
                        [{"text": text, "label": label} for text, label in sentiment(real, name, count)])
        self.make_model(real)

    def label(self, record):
        return self.labels.index(record["label"])

    def score(self, model, examples):
        wanted = torch.tensor([e["label"] for e in examples])
        return (self.logits(model, examples).argmax(-1) == wanted).double().mean().item()


class Pairs(OneLabel):
    """Whether the second sentence is of the same picture: a caption with its words left out here and there, or another."""

    score_steps = 120
    labels = ("other", "same")

    def make(self, real, draw):
        texts = captions(real, "train.en", 4000)
        for split, part in (("train", texts[:3488]), ("valid", texts[3488:])):
            records = []
            for i, text in enumerate(part):
                same = i % 2
                other = text if same else draw.choice(part)
                kept = " ".join(word for word in other.split() if draw.random() < 0.7)
                records.append({"text": text, "text_pair": kept or other, "label": self.labels[same]})
            write_lines(self.folder / f"{split}.jsonl", records)
        self.make_model(real)


class SeveralLabels(EncoderTask):
    """What a caption is about, by its words."""

    preset, score_name, score_steps = "label", "f1", 60
    words = {"people": "man woman people person men women", "children": "boy girl child children kid baby",
             "animals": "dog dogs cat horse bird", "sport": "ball game playing player soccer football running",
             "water": "water beach river lake ocean pool", "street": "street road sidewalk car bike bicycle"}  # fmt: skip
    labels = tuple(words)

    def make(self, real, draw):
        texts = captions(real, "train.en", 5000)
        sets = {label: set(words.split()) for label, words in self.words.items()}
        records = [{"text": text, "labels": [label for label in self.labels if sets[label] & set(text.lower().split())]}
                   for text in texts]
        write_lines(self.folder / "train.jsonl", records[: -self.valid_count])
        write_lines(self.folder / "valid.jsonl", records[-self.valid_count :])
        self.make_model(real, problem_type="multi_label_classification")

    def label(self, record):
        return [float(label in record["labels"]) for label in self.labels]

    def score(self, model, examples):
        wanted = torch.tensor([e["label"] for e in examples]) > 0.5
        found = self.logits(model, examples) > 0
        return f1((found & wanted).sum().item(), found.sum().item(), wanted.sum().item())


class Numbers(EncoderTask):
    """The sum of weights of a caption's words."""

    preset, score_name, score_steps = "regress", "spearman", 60
    labels = ("LABEL_0",)

    def make(self, real, draw):
        texts = captions(real, "train.en", 5000)
        weights = {}
        sums = [sum(weights.setdefault(word, draw.gauss(0, 1)) for word in text.lower().split()) for text in texts]
        records = [{"text": text, "label": round(value / 4, 3)} for text, value in zip(texts, sums)]
        write_lines(self.folder / "train.jsonl", records[: -self.valid_count])
        write_lines(self.folder / "valid.jsonl", records[-self.valid_count :])
        self.make_model(real, problem_type="regression")

    def label(self, record):
        return record["label"]

    def score(self, model, examples):
        return spearman(self.logits(model, examples)[:, 0].tolist(), [e["label"] for e in examples])


class Words(EncoderTask):
    """Names of people, places and firms in sentences: some are told by their words, some by what stands beside them."""

    preset, score_name, score_steps = "tag", "f1", 60
    model_class = transformers.BertForTokenClassification
    labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")
    forms = ("PER met PER in LOC .", "ORG opened an office in LOC .", "yesterday PER left ORG and moved to LOC .",
             "the people of LOC say that ORG pays well .", "PER , who was born in LOC , now works for ORG .",
             "nothing was heard from LOC since PER wrote .", "shares of ORG fell after PER spoke .")  # fmt: skip

    def make(self, real, draw):
        all_names = names(draw, 600, 3)
        kinds = {"PER": [f"{a} {b}" for a, b in zip(all_names[:200], all_names[100:300])],
                 "LOC": [*all_names[200:310], *(f"Port {a}" for a in all_names[310:420])], "ORG": [f"{a} and sons" for a in all_names[400:]]}  # fmt: skip

        def record():
            tokens, tags = [], []
            for word in " ".join(draw.sample(self.forms, 3)).split():
                parts = draw.choice(kinds[word]).split() if word in kinds else [word]
                tokens += parts
                tags += [f"{'I' if i else 'B'}-{word}" if word in kinds else "O" for i in range(len(parts))]
            return {"tokens": tokens, "tags": tags}

        write_lines(self.folder / "train.jsonl", [record() for _ in range(1600)])
        write_lines(self.folder / "valid.jsonl", [record() for _ in range(256)])
        self.make_model(real)

    def examples(self, split):
        records = self.records(split)
        batch = self.tokenizer()([r["tokens"] for r in records], is_split_into_words=True, truncation=True,
                                 max_length=self.context)
        examples = []
        for i, record in enumerate(records):
            words = batch.word_ids(i)
            first = [word is not None and word not in words[:at] for at, word in enumerate(words)]
            label = [self.labels.index(record["tags"][word]) if is_first else -100
                     for word, is_first in zip(words, first)]
            examples.append({"ids": batch["input_ids"][i], "types": batch["token_type_ids"][i], "label": label})
        return examples

    def collate(self, batch):
        return self.inputs(batch) | {"labels": padded([e["label"] for e in batch], -100)}

    def score(self, model, examples):
        right = found = wanted = 0
        for batch in chunked(examples, self.rows):
            for example, classes in zip(batch, model(**self.inputs(batch)).logits.argmax(-1).tolist()):
                places = [i for i, label in enumerate(example["label"]) if label >= 0]
                ours, theirs = (entities([self.labels[values[i]] for i in places])
                                for values in (classes, example["label"]))
                right, found, wanted = right + len(ours & theirs), found + len(ours), wanted + len(theirs)
        return f1(right, found, wanted)


class Answers(EncoderTask):
    """Which of a text's names is asked for. All texts have one length: transformers counts padding among the tokens that
    may be an answer."""

    preset, score_name, score_steps = "answers", "exact_match", 40
    rows, context = 8, 128
    model_class = transformers.BertForQuestionAnswering

    def make(self, real, draw):
        self.make_model(real)
        tokenizer = self.tokenizer()
        places, people = names(draw, 40, 2), names(draw, 300, 3)
        filler = captions(real, "train.en", 3000)

        def record():
            who, place = draw.choice(people), draw.choice(places)
            question = f"where does {who} live?"
            sentences = [f"{who} lives in {place}.", *draw.sample(filler, 4)]
            draw.shuffle(sentences)
            context = " ".join(sentences)
            while len(tokenizer(question, context)["input_ids"]) > self.context:
                context = context.rsplit(" ", 1)[0]
            while len(tokenizer(question, context)["input_ids"]) < self.context:
                context += " the"
            at = context.find(f"lives in {place}.")
            if at < 0:
                return record()
            return {"question": question, "context": context,
                    "answers": {"text": [place], "answer_start": [at + len("lives in ")]}}  # fmt: skip

        write_lines(self.folder / "train.jsonl", [record() for _ in range(1200)])
        write_lines(self.folder / "valid.jsonl", [record() for _ in range(128)])

    def examples(self, split):
        records = self.records(split)
        batch = self.tokenizer()([r["question"] for r in records], [r["context"] for r in records],
                                 return_offsets_mapping=True)
        examples = []
        for i, record in enumerate(records):
            inside = batch.sequence_ids(i)
            start, text = record["answers"]["answer_start"][0], record["answers"]["text"][0]
            covered = [span if part == 1 else (-1, -1) for span, part in zip(batch["offset_mapping"][i], inside)]
            begin = max(k for k, (a, b) in enumerate(covered) if 0 <= a <= start)
            end = min(k for k, (a, b) in enumerate(covered) if b >= start + len(text))
            examples.append({"ids": batch["input_ids"][i], "types": batch["token_type_ids"][i], "label": (begin, end),
                             "places": [k for k, part in enumerate(inside) if part == 1]})  # fmt: skip
        return examples

    def collate(self, batch):
        return self.inputs(batch) | {"start_positions": torch.tensor([e["label"][0] for e in batch]),
                                     "end_positions": torch.tensor([e["label"][1] for e in batch])}  # fmt: skip

    def score(self, model, examples):
        right = 0
        for batch in chunked(examples, self.rows):
            output = model(**self.inputs(batch))
            for row, example in enumerate(batch):
                first, last = example["places"][0], example["places"][-1] + 1
                scores = output.start_logits[row, first:last, None] + output.end_logits[row, None, first:last]
                allowed = torch.ones_like(scores).triu().tril(29)  # at most 30 tokens
                best = scores.masked_fill(allowed == 0, -math.inf).argmax().item()
                right += (first + best // (last - first), first + best % (last - first)) == example["label"]
        return right / len(examples)


class Embeddings(Task):
    """Captions and their translations, each other's negatives within a batch."""

    preset, score_name, score_steps = "embeddings", "mrr_10", 30
    library = "sentence-transformers"
    rows = 32

    def make(self, real, draw):
        import sentence_transformers
        from sentence_transformers.sentence_transformer import modules

        columns = [captions(real, f"train.{language}", 3000) for language in ("en", "de")]
        records = [{"anchor": a, "positive": b} for a, b in zip(*columns)]
        write_lines(self.folder / "train.jsonl", records[:-256])
        write_lines(self.folder / "valid.jsonl", records[-256:])
        plain = self.folder / "encoder"
        plain.mkdir(exist_ok=True)
        bert_tokenizer(real, plain)
        transformers.BertModel(bert_config()).save_pretrained(plain)
        encoder = modules.Transformer(str(plain), max_seq_length=self.context)
        pooling = modules.Pooling(encoder.get_embedding_dimension())
        sentence_transformers.SentenceTransformer(modules=[encoder, pooling], device="cpu").save(str(self.model_folder))

    def load(self):
        import sentence_transformers
        from sentence_transformers.sentence_transformer import losses

        model = sentence_transformers.SentenceTransformer(str(self.model_folder), device="cpu")
        model.max_seq_length = self.context
        self.ranking = losses.MultipleNegativesRankingLoss(model)
        return model

    def compiled(self, model):
        encoder = model[0].model
        encoder.forward = torch.compile(encoder.forward, dynamic=True)
        return model

    def examples(self, split):
        records = self.records(split)
        tokenizer = self.tokenizer()
        sizes = [[len(ids) for ids in tokenizer([r[name] for r in records], truncation=True,
                                                max_length=self.context)["input_ids"]]
                 for name in ("anchor", "positive")]
        return [record | {"size": max(both)} for record, *both in zip(records, *sizes)]

    def size(self, example):
        return example["size"]

    def collate(self, batch):
        return batch

    def loss(self, model, batch):
        features = [dict(model.preprocess([e[name] for e in batch])) for name in ("anchor", "positive")]
        return self.ranking(features, None)

    def score(self, model, examples):
        first, second = (torch.nn.functional.normalize(model.encode(
            [e[name] for e in examples], convert_to_tensor=True, batch_size=self.rows))
            for name in ("anchor", "positive"))  # fmt: skip
        scores = first @ second.T
        places = (scores > scores.diagonal()[:, None]).sum(-1).tolist()
        return sum(1 / (place + 1) for place in places if place < 10) / len(places)


class Masked(EncoderTask):
    """Tokens that are hidden in paragraphs of Wikipedia, in the positions that Linnet draws (token_chunks.cpp)."""

    preset = "bert-base"
    rows, context, score_steps = 8, 128, 60
    file, valid_key = "train.bin", "data.valid_text"
    model_class = transformers.BertForMaskedLM
    offsets, orders, masks = 0x6D61736B6F666673, 0x6D61736B6F726472, 0x6D61736B6D61736B
    pad, begin, end, mask, vocabulary = 0, 101, 102, 103, 30522

    def make(self, real, draw):
        text = Path(real, "lm/wikitext-2/valid.txt").read_text(encoding="utf-8").split("\n")
        self.make_model(real)
        # Token numbers, with [SEP] behind each paragraph.
        ids = [self.tokenizer()(line.strip())["input_ids"][1:] for line in text if len(line.split()) > 40]
        for split, part in (("train", ids[:-20]), ("valid", ids[-20:])):
            with open(self.folder / f"{split}.bin", "wb") as file:
                array.array("H", itertools.chain.from_iterable(part)).tofile(file)

    def examples(self, split):
        ids = array.array("H", Path(self.folder, f"{split}.bin").read_bytes()).tolist()
        documents, first = [], 0
        for at, token in enumerate([*ids, self.end]):
            if token == self.end:
                if at > first:
                    documents.append((first, ids[first:at]))
                first = at + 1
        return documents

    def batches(self, documents, seed):
        content = self.context - 2
        for epoch in itertools.count():
            offset = stream_key(seed, self.offsets, epoch) % content
            pieces = []
            for first, ids in documents:
                cuts = list(range(offset if len(ids) > content and offset > 0 else content, len(ids), content))
                for begin, end in zip([0, *cuts], [*cuts, len(ids)]):
                    pieces.append((first + begin, ids[begin:end]))
            key, masks = stream_key(seed, self.orders, epoch), stream_key(seed, self.masks, epoch)
            for batch in ordered_by_length([len(ids) for _, ids in pieces], self.rows, key):
                yield [self.hidden(*pieces[i], masks) for i in batch]

    def hidden(self, first, ids, key):
        """Of BERT's 15% of the tokens 80% become [MASK], 10% another token."""
        draws = sorted((mix64(key ^ mix64(first + i + GOLDEN)), i) for i, token in enumerate(ids)
                       if token not in (self.pad, self.begin, self.end, self.mask))
        count = max(1, math.floor(0.15 * len(ids) + 0.5))
        tokens, targets = list(ids), [-100] * len(ids)
        for bits, at in draws[:count]:
            targets[at] = ids[at]
            fate = (mix64(bits + 1) >> 11) * 2.0**-53
            if fate < 0.8:
                tokens[at] = self.mask
            elif fate < 0.9:
                tokens[at] = mix64(bits + 2) % self.vocabulary
        return {"ids": [self.begin, *tokens, self.end], "types": [0] * (len(ids) + 2),
                "label": [-100, *targets, -100]}  # fmt: skip

    def collate(self, batch):
        return self.inputs(batch) | {"labels": padded([e["label"] for e in batch], -100)}

    def score(self, model, documents):
        """The loss at masks that are always the same, every token once."""
        content, key = self.context - 2, stream_key(0, self.masks, -2)
        pieces = [self.hidden(first + at, ids[at : at + content], key)
                  for first, ids in documents for at in range(0, len(ids), content)]  # fmt: skip
        return mean_loss(self, model, chunked(sorted(pieces, key=self.size), self.rows),
                         lambda batch: sum(label >= 0 for e in batch for label in e["label"]))  # fmt: skip


class Tokens(Task):
    """The next token of a text."""

    preset = "text"
    rows, context, rate, score_steps = 4, 128, 3e-4, 60
    file, valid_key = "train.txt", "data.valid_text"
    offsets, orders = 0x6F66667365747300, 0x6F72646572730000

    def settings(self):
        return {"sample_length": 0}

    def make(self, real, draw):
        lines = Path(real, "lm/wikitext-2/valid.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        (self.folder / "train.txt").write_text("".join(lines[:2000]), encoding="utf-8")
        (self.folder / "valid.txt").write_text("".join(lines[2000:2060]), encoding="utf-8")
        make_llama(real, self.model_folder, self.context)

    def load(self):
        return transformers.AutoModelForCausalLM.from_pretrained(self.model_folder, dtype=torch.float32)

    def examples(self, split):
        return self.tokenizer()((self.folder / f"{split}.txt").read_text(encoding="utf-8"))["input_ids"]

    def batches(self, ids, seed):
        length, usable = self.context, len(ids) - 1
        most = min(length - 1, usable - length)
        count = (usable - most) // length
        for epoch in itertools.count():
            offset = stream_key(seed, self.offsets, epoch) % (most + 1)
            order = ShuffledIndex(count, stream_key(seed, self.orders, epoch))
            for batch in range(count // self.rows):
                starts = [offset + order(batch * self.rows + row) * length for row in range(self.rows)]
                yield [ids[start : start + length + 1] for start in starts]

    def collate(self, batch):
        return torch.tensor(batch)

    def loss(self, model, batch):
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    def score(self, model, ids):
        """The loss of every token but the first, in rows of the context."""
        rows = [[ids[i : i + self.context + 1]] for i in range(0, len(ids) - 1, self.context)]
        return mean_loss(self, model, rows, lambda row: len(row[0]) - 1)


class Tuned(Task):
    """A chat model and adapters beside its linear layers, with TRL's trainers and PEFT. Linnet writes the adapters that
    both begin with (adapter-SEED)."""

    library = "TRL"
    decay = 0.0
    valid_key = "data.valid_text"
    dtype = torch.float32  # of the base

    def settings(self):
        return {"lora.rank": 16, "lora.alpha": 32, "lora.base_storage": "fp32"}

    def describe(self):
        return super().describe() | {"adapter": True}

    def sentences(self, real):
        text = Path(real, "lm/wikitext-2/valid.txt").read_text(encoding="utf-8").replace("\n", " . ")
        return [words for words in (part.split() for part in text.split(" . ")) if len(words) > 12]

    def trainer(self, model, dataset, tokenizer, steps, mode):
        raise NotImplementedError

    def arguments(self, kind, steps, mode, **more):
        return kind(
            output_dir=str(self.folder / "trl"), max_steps=steps, per_device_train_batch_size=self.rows,
            learning_rate=self.rate, lr_scheduler_type="constant", warmup_steps=0, optim="adamw_torch_fused",
            adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0, logging_steps=1,
            save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=mode == "recompute", report_to=[],
            disable_tqdm=True, max_length=self.context, train_sampling_strategy="sequential",
            torch_compile=mode == "compile", **more)  # fmt: skip

    def train(self, mode, steps, seed):
        import datasets
        import peft

        datasets.disable_progress_bars()
        base = transformers.AutoModelForCausalLM.from_pretrained(self.model_folder, dtype=torch.float32 if mode == "fp32" else self.dtype)
        model = peft.PeftModel.from_pretrained(base, str(self.folder / f"adapter-{seed}"), is_trainable=True)
        tokenizer = self.tokenizer()
        records = self.records("train")
        examples = [record | {"size": self.tokens(tokenizer, record)} for record in records]
        ordered = itertools.chain.from_iterable(itertools.islice(self.batches(examples, seed), steps))
        dataset = datasets.Dataset.from_list([{k: v for k, v in e.items() if k != "size"} for e in ordered])
        losses, ends = [], []

        class Clock(transformers.TrainerCallback):
            def on_step_begin(self, *arguments, **named):
                if not ends:
                    ends.append(time.perf_counter())

            def on_step_end(self, *arguments, **named):
                ends.append(time.perf_counter())

            def on_log(self, arguments, state, control, logs=None, **named):
                if "loss" in (logs or {}):
                    losses.append(logs["loss"])

        trainer = self.trainer(model, dataset, tokenizer, steps, mode)
        trainer.add_callback(Clock())
        trainer.train()
        # One batch: TRL's mean of batches would weigh their tokens differently.
        valid = datasets.Dataset.from_list(self.records("valid"))
        trainer.args.per_device_eval_batch_size = len(valid)
        score = trainer.evaluate(valid)["eval_loss"] if self.score_steps else None
        model.save_pretrained(self.folder / "saved")
        return {"losses": losses, "seconds": [b - a for a, b in zip(ends, ends[1:])], "score": score}

    def size(self, example):
        return example["size"]

    def templated(self, tokenizer, messages):
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])


class Chats(Tuned):
    """What follows in a paragraph. Each conversation fills more than half of a row, so that Linnet packs none with
    another: TRL packs with kernels that a processor has not."""

    preset = "chat"
    rows, context, rate, score_steps, fullness = 4, 128, 2e-4, 40, 0.55

    def make(self, real, draw):
        self.write_conversations(real, draw, make_llama(real, self.model_folder, self.context), 80, 24)

    def write_conversations(self, real, draw, tokenizer, train, valid):
        sentences = self.sentences(real)
        turn = lambda role, words: [{"role": role, "content": " ".join(words)}]
        records, parts = [], self.context // 128
        while len(records) < train + valid:
            words = [word for sentence in draw.sample(sentences, 4 * parts) for word in sentence]
            words = words[: draw.randint(55 * parts, 90 * parts)]
            cut = len(words) // 3
            record = {"prompt": turn("user", words[:cut]), "completion": turn("assistant", words[cut:])}
            if self.context * self.fullness < self.tokens(tokenizer, record) <= self.context:
                records.append(record)
        write_lines(self.folder / "train.jsonl", records[:train])
        write_lines(self.folder / "valid.jsonl", records[train:])

    def tokens(self, tokenizer, record):
        return self.templated(tokenizer, record["prompt"] + record["completion"])

    def epoch(self, examples, seed, epoch):
        return row_batches([self.size(example) for example in examples], self.rows, seed, epoch)

    def trainer(self, model, dataset, tokenizer, steps, mode):
        import trl

        return trl.SFTTrainer(model=model, args=self.arguments(trl.SFTConfig, steps, mode), train_dataset=dataset,
                              processing_class=tokenizer)  # fmt: skip


class Laptop(Chats):
    """Adapters of a chat model of Qwen3-0.6B's sizes: a base of 4 bits here, of bf16 there. So losses are not alike.
    A conversation fills a row of 512 tokens."""

    rows, context, score_steps, fullness, dtype = 1, 512, 0, 0.97, torch.bfloat16
    sizes = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}

    def settings(self):
        return super().settings() | {"lora.base_storage": "int4", "memory": "1580MB"}

    def describe(self):
        return super().describe() | {"alike": False}

    def make(self, real, draw):
        text = Path(real, "lm/wikitext-2/valid.txt").read_text(encoding="utf-8")
        tokenizer = byte_tokenizer(text.split("\n"), self.model_folder, 8000)
        config = transformers.Qwen3Config(
            vocab_size=151936, num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, rope_theta=1e6,
            tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
            pad_token_id=tokenizer.pad_token_id, **self.sizes)  # fmt: skip
        transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(self.model_folder)
        self.write_conversations(real, draw, tokenizer, 24, 1)


class Preferences(Tuned):
    """DPO. The reference is computed before the first step on both sides."""

    preset = "preferences"
    rows, context, rate, score_steps = 4, 128, 2e-4, 40

    def make(self, real, draw):
        make_llama(real, self.model_folder, self.context)
        sentences = self.sentences(real)
        turn = lambda role, words: [{"role": role, "content": " ".join(words)}]
        records = []
        for _ in range(96):
            prompt, chosen, rejected = (draw.choice(sentences)[: draw.randint(10, 30)] for _ in range(3))
            records.append({"prompt": turn("user", prompt), "chosen": turn("assistant", chosen),
                            "rejected": turn("assistant", rejected)})  # fmt: skip
        write_lines(self.folder / "train.jsonl", records[:80])
        write_lines(self.folder / "valid.jsonl", records[80:])

    def settings(self):
        return super().settings() | {"beta": 0.1}

    def tokens(self, tokenizer, record):
        return max(self.templated(tokenizer, record["prompt"] + record[side]) for side in ("chosen", "rejected"))

    def trainer(self, model, dataset, tokenizer, steps, mode):
        import trl

        arguments = self.arguments(trl.DPOConfig, steps, mode, beta=0.1, precompute_ref_log_probs=True)
        return trl.DPOTrainer(model=model, args=arguments, train_dataset=dataset, processing_class=tokenizer)


class Translation(Task):
    """Captions in English and German, with a T5. One shape of batches, so that their order can be told."""

    preset, score_steps = "t5-small", 120
    file = "train.tsv"

    def describe(self):
        described = super().describe()
        del described["settings"]["context"]
        return described

    def settings(self):
        return {"num_buckets": 1}

    def make(self, real, draw):
        import tokenizers

        sides = [captions(real, f"train.{language}", 12000) for language in ("en", "de")]
        unigram = tokenizers.Tokenizer(tokenizers.models.Unigram())
        unigram.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
        unigram.decoder = tokenizers.decoders.Metaspace()
        unigram.train_from_iterator(itertools.chain(*sides), tokenizers.trainers.UnigramTrainer(
            vocab_size=8000, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"))  # fmt: skip
        unigram.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=unigram, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
        tokenizer.save_pretrained(self.model_folder)
        config = transformers.T5Config(
            vocab_size=len(tokenizer), d_model=384, d_kv=64, num_heads=6, d_ff=1024, num_layers=4, dropout_rate=0.0,
            decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)  # fmt: skip
        transformers.T5ForConditionalGeneration(config).save_pretrained(self.model_folder)
        pairs = [pair for pair in zip(*sides) if all(16 <= len(tokenizer(text)["input_ids"]) <= 24 for text in pair)]
        for split, part in (("train", pairs[:960]), ("valid", pairs[960:1024])):
            (self.folder / f"{split}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in part), encoding="utf-8")

    def load(self):
        return transformers.T5ForConditionalGeneration.from_pretrained(self.model_folder)

    def examples(self, split):
        lines = (self.folder / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        tokenizer = self.tokenizer()
        sides = [tokenizer(list(side))["input_ids"] for side in zip(*(line.split("\t") for line in lines))]
        return list(zip(*sides))

    def epoch(self, examples, seed, epoch):
        return pair_batches(len(examples), self.rows, seed, epoch)

    def collate(self, batch):
        sources, targets = zip(*batch)
        return {"input_ids": padded(sources), "attention_mask": padded([[1] * len(ids) for ids in sources]),
                "labels": padded(targets, -100)}  # fmt: skip

    def score(self, model, examples):
        return mean_loss(self, model, chunked(examples, self.rows), lambda batch: sum(len(ids) for _, ids in batch))


class Images(Task):
    """Natural images of 32 x 32 (CIFAR-10), with a ViT."""

    preset, score_name, score_steps = "vit-tiny", "accuracy", 60
    rows, rate = 32, 5e-4
    classes = "airplane automobile bird cat deer dog frog horse ship truck".split()
    file = "images"

    def describe(self):
        described = super().describe() | {"valid": None}
        for key in ("context", "batch_tokens"):
            del described["settings"][key]
        return described

    def settings(self):
        return {"augment_shift": 0, "augment_mirror": False, "augment_mixup": 0, "label_smoothing": 0}

    def make(self, real, draw):
        import PIL.Image

        counts = {"train": 2400, "valid": 400}
        with lzma.open(f"{real}/images/cifar10-8000/images.bin.xz") as file:
            for split, count in counts.items():
                for label in self.classes:
                    (self.folder / "images" / split / label).mkdir(parents=True, exist_ok=True)
                for i in range(count):
                    record = file.read(3073)
                    planes = torch.frombuffer(bytearray(record[1:]), dtype=torch.uint8).view(3, 32, 32)
                    path = self.folder / "images" / split / self.classes[record[0]] / f"{i:05}.png"
                    PIL.Image.fromarray(planes.permute(1, 2, 0).numpy()).save(path)
        config = transformers.ViTConfig(
            hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, image_size=32,
            patch_size=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            id2label=dict(enumerate(self.classes)),
            label2id={label: i for i, label in enumerate(self.classes)})  # fmt: skip
        transformers.ViTForImageClassification(config).save_pretrained(self.model_folder)
        processor = {"do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5] * 3,
                     "image_processor_type": "ViTImageProcessor", "image_std": [0.5] * 3, "resample": 2,
                     "rescale_factor": 1 / 255, "size": {"height": 32, "width": 32}}  # fmt: skip
        (self.model_folder / "preprocessor_config.json").write_text(json.dumps(processor))

    def load(self):
        return transformers.ViTForImageClassification.from_pretrained(self.model_folder)

    def examples(self, split):
        import numpy
        import PIL.Image

        paths = [path for label in self.classes for path in sorted((self.folder / "images" / split / label).iterdir())]
        pixels = [torch.from_numpy(numpy.array(PIL.Image.open(path))).permute(2, 0, 1) for path in paths]
        return [(image, self.classes.index(path.parent.name)) for image, path in zip(pixels, paths)]

    def epoch(self, examples, seed, epoch):
        return image_batches(len(examples), self.rows, seed, epoch)

    def collate(self, batch):
        images, labels = zip(*batch)
        return {"pixel_values": torch.stack(images).float() / 127.5 - 1, "labels": torch.tensor(labels)}

    def score(self, model, examples):
        batches = [self.collate(batch) for batch in chunked(examples, self.rows)]
        right = sum((model(**batch).logits.argmax(-1) == batch["labels"]).sum().item() for batch in batches)
        return right / len(examples)


TASKS = {
    "one label": OneLabel,
    "several labels": SeveralLabels,
    "numbers": Numbers,
    "pairs of texts": Pairs,
    "words": Words,
    "answers": Answers,
    "embeddings": Embeddings,
    "masked tokens": Masked,
    "next tokens": Tokens,
    "chats, LoRA": Chats,
    "preferences, LoRA": Preferences,
    "laptop chat, LoRA": Laptop,
    "translation": Translation,
    "images": Images,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["make", "train"])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--real", help="folder of real data")
    parser.add_argument("--mode", default="eager", choices=["eager", "compile", "recompute", "fp32", "float64"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    task = TASKS[options.task](options.folder)
    if options.what == "make":
        task.model_folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(1)
        task.make(options.real, random.Random(1))
        (options.folder / "task.json").write_text(json.dumps(task.describe(), indent=1) + "\n")
        return
    common.keep_freed_memory()
    started = common.seconds_since_start()
    found = task.train(options.mode, options.steps, options.seed)
    print(json.dumps({"peer": True, "version": torch.__version__, "imported_seconds": started} | found))


if __name__ == "__main__":
    main()
