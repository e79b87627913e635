"""Training by tasks."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import struct
import threading
import typing

import linnet as ln
import numpy as np
import pytest

PAIRS = [(f"{a} {b}", f"{b} {a}") for a in "abcdefgh" for b in "ijklmnop"]
SMALL: dict[str, typing.Any] = dict(
    d_model=16, num_heads=2, num_layers=1, d_ff=32, max_seq_len=16, tokenizer="word", batch_size=16, metric="loss",
    eval_every=10, save_every=10, valid=PAIRS[:8],
)  # fmt: skip


def test_train_resume_report_evaluate() -> None:
    events: list[ln.TrainEvent] = []
    report = ln.train("translate", PAIRS, "run", steps=20, callbacks=[events.append], **SMALL)
    assert report.steps == 20 and not report.stopped and report.run == "run"
    assert [event.step for event in events if event.metrics is None] == list(range(1, 21))
    assert "bleu" in [event for event in events if event.metrics][0].metrics  # type: ignore[operator]
    assert ln.train("translate", PAIRS, "run", steps=30, resume=True, **SMALL).steps == 30
    assert len(ln.read_metrics("run")) >= 30
    ln.report("run").save("page.html")
    assert os.path.getsize("page.html") > 10_000
    assert ln.evaluate("run").count == ln.evaluate("run", split="valid").count
    assert ln.evaluate("run", split="valid").loss == pytest.approx(ln.evaluate("run", split="valid").loss)
    with ln.load("run") as model:
        assert model.info["kind"] == "translation" and model.translate(["a i", ""])[1] == ""
        with pytest.raises(ln.UserError, match="the model has no tokens of languages"):
            model.translate("a i", target_language="deu_Latn")


def test_false_stops_and_the_run_is_saved() -> None:
    report = ln.train("translate", PAIRS, "run", steps=50, callbacks=[lambda event: event.step < 7], **SMALL)
    assert report.stopped and report.steps == 7
    assert ln.train("translate", PAIRS, "run", steps=12, resume=True, **SMALL).steps == 12


def test_an_exception_stops_and_the_run_is_saved() -> None:
    def fail(event: ln.TrainEvent) -> None:
        if event.step == 5:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        ln.train("translate", PAIRS, "run", steps=50, callbacks=[fail], **SMALL)
    assert ln.train("translate", PAIRS, "run", steps=6, resume=True, **SMALL).steps == 6


def test_ctrl_c_stops_and_the_run_is_saved() -> None:
    begun = threading.Event()

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        ln.train("translate", PAIRS, "run", steps=100_000, callbacks=[lambda event: begun.set()], **SMALL)
    assert os.path.exists("run/training_state.safetensors")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_two_threads_train_at_once() -> None:
    reports: dict[str, ln.TrainReport] = {}

    def train(run: str) -> None:
        reports[run] = ln.train("translate", PAIRS, run, steps=10, **SMALL)

    threads = [threading.Thread(target=train, args=(run,)) for run in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reports["one"].best_loss == reports["two"].best_loss


def test_plan() -> None:
    small = {key: value for key, value in SMALL.items() if key not in ("eval_every", "save_every")}
    plan = ln.plan("translate", PAIRS, **small)
    assert plan.fits and plan.parameters > 0 and plan.peak == sum(plan.memory.values())
    assert "<iframe" in plan._repr_html_() and "parameters" in str(plan)
    assert not ln.plan("translate", PAIRS, memory="1000B", **small).fits
    assert ln.plan("translate", PAIRS, test=PAIRS, steps=30, epochs=2, rate=1e-3, **small).parameters == plan.parameters


def test_check() -> None:
    small = {key: value for key, value in SMALL.items() if key not in ("eval_every", "save_every")}
    check = ln.check("translate", PAIRS, **small)
    assert check.passed and "determinism" in str(check)


def test_data_from_pandas_and_columns() -> None:
    class Frame:  # what is asked of a DataFrame
        columns = ["source", "target"]

        def to_numpy(self) -> None: ...

        def itertuples(self, index: bool) -> typing.Iterator[tuple[str, str]]:
            return iter(PAIRS)

    columns = {"source": [a for a, _ in PAIRS], "target": [b for _, b in PAIRS]}
    losses = {ln.train("translate", data, run, steps=3, **SMALL).best_loss for data, run in
              ((PAIRS, "a"), (Frame(), "b"), (columns, "c"))}  # fmt: skip
    assert len(losses) == 1


def test_presets() -> None:
    assert "translate" in ln.presets()


def test_chats_and_labels_from_records(chatter: str, bert: str) -> None:
    small: dict[str, typing.Any] = dict(eval_every=4, save_every=4, batch_size=4, steps=4, context=20)
    chats = [{"messages": [{"role": "user", "content": f"hi {c}"}, {"role": "assistant", "content": "yes"}]} for c in
             "abcdefghijkl"]  # fmt: skip
    lora = {"lora.rank": 4}
    report = ln.train("chat", chats, "chat", model_from=chatter, **lora, **small)
    assert report.steps == 4
    labels = [{"text": f"the {animal} {c}", "labels": [animal, "x"]} for c in "abcdef" for animal in ("dog", "cat")]
    assert ln.train("label", labels, "label", model_from=bert, **small).steps == 4
    words = [{"tokens": ["the", animal], "tags": ["O", "B-ANIMAL"]} for animal in ("dog", "cat") for _ in range(6)]
    assert ln.train("tag", words, "tag", model_from=bert, **small).steps == 4
    numbers = [(f"the {animal}", number) for animal, number in (("dog", 1.5), ("cat", 0.25)) for _ in range(6)]
    report = ln.train("regress", numbers, "regress", model_from=bert, **small)
    assert "pearson" in ln.evaluate(report.run, split="valid").metrics


@pytest.mark.parametrize("columns", [False, True])
def test_rows_with_names_go_by_their_names(columns: bool) -> None:
    rows = [{"id": i, "label": "even" if i % 2 == 0 else "odd", "text": f"word{i % 2} again"} for i in range(40)]
    data: typing.Any = {name: [row[name] for row in rows] for name in rows[0]} if columns else rows
    ln.train("classify", data, "run", steps=2, num_layers=0)
    with ln.load("run") as model:
        assert model.classify("word0 again").label in ("even", "odd")


class ClassLabel:
    """As datasets.ClassLabel."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def int2str(self, value: int) -> str:
        return self.names[value]


class ListOf:
    """As datasets.Sequence, which is datasets.List in later versions."""

    def __init__(self, feature: ClassLabel) -> None:
        self.feature = feature


class Columns:
    """As datasets.Dataset."""

    def __init__(self, columns: dict[str, list[typing.Any]], features: dict[str, typing.Any]) -> None:
        self.columns, self.features, self.column_names = columns, features, list(columns)

    def __getitem__(self, name: str) -> list[typing.Any]:
        return self.columns[name]


def test_classes_of_a_dataset_have_its_names(bert: str) -> None:
    texts = [f"word{i % 2} again" for i in range(40)]
    labels = [i % 2 for i in range(40)]
    kind = ClassLabel(["odd", "even"])
    ln.train("classify", Columns({"text": texts, "label": labels}, {"label": kind}), "run", steps=2, num_layers=0)
    with ln.load("run") as model:
        assert model.classify("word0 again").label in ("even", "odd")
    tags = ListOf(ClassLabel(["O", "B-ANIMAL"]))
    words = Columns({"tokens": [["the", "dog"]] * 12, "ner_tags": [[0, 1]] * 12}, {"ner_tags": tags})
    small: dict[str, typing.Any] = dict(eval_every=1, save_every=1, batch_size=4, steps=1, context=20)
    ln.train("tag", words, "tag", model_from=bert, **small)
    with open("tag.data/train.jsonl", encoding="utf-8") as file:
        assert [json.loads(line)["ner_tags"] for line in file] == [["O", "B-ANIMAL"]] * 12
    with pytest.raises(ValueError, match=r'row 1, "label" has no value'):
        ln.train("classify", Columns({"text": ["a", "b"], "label": [0, -1]}, {"label": kind}), "none", steps=1)


def test_texts_keep_their_whitespace_and_may_come_from_a_generator() -> None:
    small: dict[str, typing.Any] = dict(steps=1, batch=4, context=16, d_model=16, num_heads=2, num_layers=1)
    text = "once\n\nupon   a\ttime there was a text"
    for data in ([text] * 40, ({"text": text, "id": i} for i in range(40)), {"id": [1] * 40, "text": [text] * 40}):
        ln.train("language", data, "run", tokenizer="char", **small)
        with open("run.data/train.jsonl", encoding="utf-8") as file:
            assert [json.loads(line) for line in file] == [{"text": text}] * 40
        shutil.rmtree("run")
    rows = [(f"a\n  b {i}", "even" if i % 2 == 0 else "odd") for i in range(40)]
    ln.train("classify", rows, "run", steps=1, num_layers=0)
    with open("run.data/train.jsonl", encoding="utf-8") as file:
        assert [tuple(json.loads(line).values()) for line in file] == rows


class NotKnown:
    """As pandas.NA, whose comparisons are neither true nor false."""

    def __ne__(self, other: object) -> NotKnown:  # type: ignore[override]
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


def test_a_cell_without_a_value_is_named() -> None:
    for rows in ([("a", "x"), ("b", None)], [{"text": "a", "label": 1}, {"text": "b", "label": float("nan")}]):
        with pytest.raises(ValueError, match=r"row 1, .* has no value"):
            ln.train("classify", rows, "run", steps=1)


@pytest.mark.parametrize(
    "data, message",
    [
        ([b"ab", b"cd"], "row 0, value 0 is bytes; a text is wanted"),
        ([{"text": b"ab", "label": "x"}], 'row 0, "text" is bytes; a text is wanted'),
        ({"text": "abc", "label": "xyz"}, 'the column "text" is a str; a list of cells is wanted'),
        ([{"text": "a\ud800b", "label": "x"}], "row 0 has half of a pair of surrogates"),
        ([{"text": "a", "label": object()}], "row 0 has a cell that is no text, number or list of them"),
        ([{"text": "a", "label": NotKnown()}], 'row 0, "label" has no value'),
    ],
)
def test_cells_that_are_no_texts_are_named(data: typing.Any, message: str) -> None:
    with pytest.raises(ln.UserError, match=message):
        ln.plan("classify", data)


def test_valid_and_test_go_to_the_keys_of_the_task() -> None:
    rows = [{"text": f"word{i} again and again"} for i in range(40)]
    small: dict[str, typing.Any] = dict(d_model=16, num_heads=2, num_layers=1, context=16, tokenizer="char")
    ln.train("text", rows, "run", valid=rows, test=rows, steps=1, batch=4, **small)
    pathlib.Path("rows.txt").write_text("".join(f"word{i % 2} again {i}\t{i % 2}\n" for i in range(40)))
    ln.train("classify", "rows.txt", "classes", valid="rows.txt", test="rows.txt", steps=1, num_layers=0)
    for run, keys in (("run", ("valid_text", "test_text")), ("classes", ("valid_tsv", "test_tsv"))):
        settings = pathlib.Path(run, "config.toml").read_text()
        assert all(re.search(f'^{key} = ".+"', settings, re.M) for key in keys), settings


def test_a_line_of_the_metrics_that_is_half_written_is_left_out() -> None:
    pathlib.Path("metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert ln.read_metrics(".") == [{"step": 1}, {"step": 2}]


def write_picture(path: str, color: int) -> None:
    """A BMP of 8 x 8 pixels."""
    pixels = bytes([color, 255 - color, 0]) * 64
    size = len(pixels)
    header = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54 + size, 0, 54, 40, 8, 8, 1, 24, 0, size, 0, 0, 0, 0)
    pathlib.Path(path).write_bytes(header + pixels)


@pytest.mark.parametrize("named", [False, True])
def test_pictures_are_found_from_the_working_directory_on(named: bool) -> None:
    os.mkdir("my  pictures")
    rows: list[typing.Any] = [(f"my  pictures/{i}.bmp", "dark" if i % 2 else "light") for i in range(20)]
    for i, (path, label) in enumerate(rows):
        write_picture(path, i if label == "dark" else 255 - i)
    if named:
        rows = [{"Image": pathlib.Path(path), "label": label} for path, label in rows]
    assert ln.train("images", rows, "run", steps=2, batch=4).steps == 2


def test_what_fails_at_once_leaves_no_folder() -> None:
    for message, rows in {
        f"no image '{os.getcwd()}/a.png'": [("a.png", "a"), ("b.png", "b")],
        "row 0 has a float for its picture; pictures are given by path": np.zeros((3, 32)),
        "row 0 has a list for its picture": {"image": list(np.zeros((3, 2, 2))), "label": ["a", "b", "a"]},
    }.items():
        with pytest.raises(ln.UserError, match=re.escape(message)):
            ln.train("images", rows, "run")
    with pytest.raises(ln.UserError, match="unknown key"):
        ln.train("translate", PAIRS, "run", no_key=1)
    assert not os.listdir(".")
