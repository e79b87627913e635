"""Training by tasks: the commands of the program as functions."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import typing

from . import _linnet
from .calls import call, is_utf8, path_of
from .errors import UserError
from .learner import goes_on

# What train() and plan() call tasks, and the configuration that each starts from.
TASKS = {
    "translate": "translate",
    "language": "text",
    "chat": "chat",
    "classify": "classify",
    "label": "label",
    "regress": "regress",
    "tag": "tag",
    "answers": "answers",
    "embeddings": "embeddings",
    "images": "images",
    "masked": "bert-base",
}


class TrainEvent(typing.NamedTuple):
    """What callbacks get after each step, and after each evaluation, where `metrics` has them by name and `loss` is
    that of the validation data. total_steps is an estimate."""

    step: int
    epoch: int
    total_steps: int
    loss: float
    rate: float
    seconds: float
    metrics: dict[str, float] | None


class TrainReport(typing.NamedTuple):
    """What train() has done. stopped: by a callback, after saving; `resume=True` goes on from there. best_: of the
    evaluation that chose the model; None if there was none."""

    run: str
    stopped: bool
    steps: int
    epochs: int
    seconds: float
    best_step: int | None
    best_loss: float | None
    best_metric: float | None


class Plan:
    """The memory that a run takes, known before it begins."""

    def __init__(self, found: dict[str, typing.Any]) -> None:
        self.memory: dict[str, int] = found["memory"]
        self.peak: int = found["peak"]
        self.limit: int = found["limit"]
        self.parameters: int = found["parameters"]
        self.batches: str = found["batches"]
        self.batch_key: str = found["batch_key"]
        self.largest_batch: int = found["largest_batch"]
        self.all_fit: bool = found["all_fit"]
        self.assumption: str = found["assumption"]
        self.recomputation: str = found["recomputation"]
        self.page: str = found["page"]

    @property
    def fits(self) -> bool:
        """Whether the machine has the memory, or the limit that was set allows it."""
        return self.peak <= self.limit

    def __str__(self) -> str:
        rows = [f"{name:<28} {size / 1e6:>10.1f} MB" for name, size in self.memory.items()]
        rows.append(f"{'in all':<28} {self.peak / 1e6:>10.1f} MB of {self.limit / 1e6:.1f}")
        if self.largest_batch and not self.all_fit:
            rows.append(f"largest {self.batch_key}: {self.largest_batch}")
        return "\n".join([f"{self.parameters} parameters; batches of {self.batches}", *rows])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The picture of the memory, as `linnet plan --html` draws it."""
        import html

        return f'<iframe srcdoc="{html.escape(self.page)}" width="100%" height="640" style="border:0"></iframe>'


class CheckLine(typing.NamedTuple):
    """One check: its name, "pass", "fail" or "skip", and a figure or the reason."""

    name: str
    verdict: str
    figure: str


class Check(typing.List[CheckLine]):
    """Whether a model is sane, check by check."""

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(line.verdict != "fail" for line in self)

    def __str__(self) -> str:
        return "\n".join(f"{line.verdict:<4}  {line.name:<28}  {line.figure}" for line in self)


def _text(value: typing.Any) -> str:
    """A value as a configuration spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(value: typing.Any, where: str) -> typing.Any:
    """A cell as JSON has it. One without a value, and bytes, are mistakes in the data."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or (value != value) is not False:  # NaN, NaT and pandas.NA, which is equal to nothing
        raise UserError(f"{where} has no value")
    if isinstance(value, (bytes, bytearray)):
        raise UserError(f"{where} is {type(value).__name__}; a text is wanted, as decode() makes it")
    return value


def _cell(field: str, cell: typing.Any) -> typing.Any:
    """A number or a list as a label, else the text of what was given."""
    is_number = isinstance(cell, (int, float)) and not isinstance(cell, bool)
    return cell if field == "label" and (is_number or isinstance(cell, (list, tuple))) else str(cell)


def _named(feature: typing.Any, cell: typing.Any) -> typing.Any:
    """The name that a datasets.ClassLabel gives a number, also within lists; other cells as they are."""
    cell = cell.tolist() if hasattr(cell, "tolist") else cell
    if hasattr(feature, "int2str") and isinstance(cell, int):
        return feature.int2str(cell) if cell >= 0 else None  # -1 stands for an unknown class
    within = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    return [_named(within, one) for one in cell] if within is not None and isinstance(cell, list) else cell


def _records(data: typing.Any) -> list[dict[str, typing.Any]] | None:
    """Rows by name, of a list of dicts, a dict of columns, pandas or datasets; None for anything else."""
    rows: typing.Sequence[dict[str, typing.Any]] = ()
    if hasattr(data, "column_names"):  # datasets.Dataset
        features = getattr(data, "features", None) or {}
        columns: typing.Any = {
            name: [_named(features.get(name), cell) for cell in data[name]] for name in data.column_names
        }
    elif hasattr(data, "columns") and hasattr(data, "itertuples"):  # pandas
        columns = dict(zip(map(str, data.columns), zip(*data.itertuples(index=False))))
    elif isinstance(data, dict):
        columns = data
    elif isinstance(data, (list, tuple)) and data and all(isinstance(row, dict) for row in data):
        rows, columns = data, {}
    else:
        return None
    for name, column in columns.items():
        if isinstance(column, (str, bytes)) or not hasattr(column, "__len__"):
            raise UserError(f'the column "{name}" is a {type(column).__name__}; a list of cells is wanted')
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f'"{name}" {len(column)}' for name, column in columns.items())
        raise UserError(f"the columns have different lengths: {lengths}")
    if columns:
        rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    return [{key: _plain(cell, f'row {i}, "{key}"') for key, cell in row.items()} for i, row in enumerate(rows)]


# Names of the cells of rows without names, by task and number of cells.
_FIELDS: dict[str, dict[int, list[str]]] = {
    "language": {1: ["text"]},
    "masked": {1: ["text"]},
    "translate": {2: ["source", "target"]},
    "embeddings": {2: ["anchor", "positive"]},
    **{task: {2: ["text", "label"], 3: ["text", "text_pair", "label"]} for task in ("classify", "label", "regress")},
}
# Of images too, whose rows name files. A column that the settings do not name has one of these names, in any letters.
_IMAGE_TASKS = ("images", "mnist", "resnet20", "vit-tiny", "label-images", "regress-images")
_IMAGE_COLUMNS = ("file", "image", "path", "filename", "file_name", "filepath", "file_path", "image_path")
_FIELDS.update({task: {2: ["file", "label"]} for task in _IMAGE_TASKS})


def _rows(data: typing.Any) -> list[list[typing.Any]]:
    """Rows of cells without names, all of the same length."""
    if not hasattr(data, "__iter__"):
        raise UserError(f"the data is a {type(data).__name__}; a file, rows or columns are wanted")
    rows = []
    for i, row in enumerate(data):
        if not hasattr(row, "__iter__"):
            raise UserError(f"row {i} is a {type(row).__name__}; a text, a tuple or a dict is wanted")
        cells = [row] if isinstance(row, (str, bytes)) else list(row)
        rows.append([_plain(cell, f"row {i}, value {k}") for k, cell in enumerate(cells)])
    if not rows or len({len(row) for row in rows}) != 1:
        raise UserError("the data has no rows, or rows of different lengths")
    return rows


def _renamed(task: str, records: list[dict[str, typing.Any]]) -> list[dict[str, typing.Any]]:
    """Records of a task that reads texts, or pairs of them, under the names that it reads."""
    names = list(records[0])
    if task == "translate":
        wanted = ["source", "target"] if {"source", "target"} <= set(names) else names
        if len(wanted) != 2:
            given = ", ".join(names)
            raise UserError(f'translate takes columns "source" and "target", or two of any name; there are {given}')
    elif task in ("language", "masked"):
        wanted = ["text"] if "text" in names else names
        if len(wanted) != 1:
            raise UserError(f'{task} takes a column "text", or one of any name; there are ' + ", ".join(names))
    else:
        return records
    fields = _FIELDS[task][len(wanted)]
    return [
        {field: str(_plain(record.get(name), f'row {i}, "{name}"')) for field, name in zip(fields, wanted)}
        for i, record in enumerate(records)
    ]


def _picture(cell: typing.Any, row: int) -> str:
    """The path of a row's picture from the working directory on, as that of a table begins at the table's folder."""
    if not isinstance(cell, (str, os.PathLike)):
        raise UserError(
            f"row {row} has a {type(cell).__name__} for its picture; pictures are given by path, and a linnet.Learner "
            "trains on arrays"
        )
    return os.path.abspath(path_of(cell))


def _data_file(task: str, data: typing.Any, name: str, run: str, chosen: bool = False, text_column: str = "") -> str:
    """A path as it is; else a file of the data. Rows whose names are known are JSON lines, which keep texts as they
    are; of others one column is a text, more are separated by tabs. chosen: the settings name columns, and text_column
    the one of texts or pictures."""
    if isinstance(data, (str, bytes, os.PathLike)):
        return path_of(data)
    if hasattr(data, "__next__"):  # an iterator, which can be read once
        data = list(data)
    rows: list[list[typing.Any]] = []
    records = _records(data)
    if records is None:
        rows = _rows(data)
        if task in _IMAGE_TASKS:
            rows = [[_picture(row[0], i), *row[1:]] for i, row in enumerate(rows)]
        fields = None if chosen else _FIELDS.get(task, {}).get(len(rows[0]))
        if fields:
            records = [{field: _cell(field, cell) for field, cell in zip(fields, row)} for row in rows]
    elif records:
        records = records if chosen else _renamed(task, records)
        usual = (key for key in records[0] if key.lower() in _IMAGE_COLUMNS)
        if task in _IMAGE_TASKS and (column := text_column or next(usual, "")):
            records = [
                {**row, column: _picture(row[column], i)} if column in row else row for i, row in enumerate(records)
            ]
    else:
        raise UserError("the data has no rows")
    if records is not None:
        ending, lines = ".jsonl", [_json_line(record, i) for i, record in enumerate(records)]
    else:
        ending = ".txt" if len(rows[0]) == 1 else ".tsv"
        lines = ["\t".join(" ".join(str(cell).split()) for cell in row) for row in rows]
    for i, line in enumerate(lines):
        if not is_utf8(line):
            raise UserError(f"row {i} has half of a pair of surrogates, which is no character")
    folder = os.path.normpath(run) + ".data"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name + ending)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    return path


def _json_line(record: dict[str, typing.Any], row: int) -> str:
    try:
        return json.dumps(record, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"row {row} has a cell that is no text, number or list of them: {error}") from None


def _choice(
    task: str | os.PathLike[str],
    data: typing.Any,
    valid: typing.Any,
    test: typing.Any,
    source: typing.Any,
    target: typing.Any,
    run: str,
    short: dict[str, typing.Any],
    settings: dict[str, typing.Any],
) -> dict[str, typing.Any]:
    name = path_of(task)
    choice: dict[str, typing.Any] = dict(config=TASKS.get(name, name), source="", target="", settings=[])
    chosen = any(key.endswith("_column") for key in settings)
    text_column = str(settings.get("text_column", ""))
    for split, file, value in (("data", "train", data), ("valid", "valid", valid), ("test", "test", test)):
        choice[split] = "" if value is None else _data_file(name, value, file, run, chosen, text_column)
    if source is not None or target is not None:
        if source is None or target is None:
            raise UserError("source and target go together")
        choice.update(source=_data_file(name, source, "source", run), target=_data_file(name, target, "target", run))
    for key, value in settings.items():
        key = {"model_from": "model.from"}.get(key, key)
        if isinstance(value, (bytes, os.PathLike)):
            value = path_of(value)
        choice["settings"].append(f"{key}={_text(value)}")
    for key in ("steps", "epochs", "batch", "rate"):
        choice[key] = None if short[key] is None else _text(short[key])
    choice.update(threads=short["threads"] or 0, device=short["device"] or "", memory=_text(short["memory"] or ""))
    return choice


class _NotebookBar:
    """One line that updates, where standard error is no terminal of ours but Jupyter's."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, event: TrainEvent) -> None:
        if event.metrics is None and time.monotonic() - self._last < 0.2:
            return
        self._last = time.monotonic()
        metrics = "".join(f"  {name} {value:.4g}" for name, value in (event.metrics or {}).items())
        text = f"step {event.step}/{event.total_steps}  loss {event.loss:.4f}{metrics}"
        sys.stderr.write("\r" + text.ljust(79) + ("\n" if event.metrics else ""))


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return bool(shell and getattr(shell, "get_ipython", lambda: None)().__class__.__name__ == "ZMQInteractiveShell")


def train(
    task: str | os.PathLike[str],
    data: typing.Any = None,
    run: str | os.PathLike[str] | None = None,
    *,
    valid: typing.Any = None,
    test: typing.Any = None,
    source: typing.Any = None,
    target: typing.Any = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    memory: str | int | None = None,
    device: str | None = None,
    threads: int | None = None,
    resume: bool = False,
    init: str | os.PathLike[str] = "",
    callbacks: typing.Sequence[typing.Callable[[TrainEvent], object]] = (),
    **settings: typing.Any,
) -> TrainReport:
    """Trains a model and leaves it in the folder `run` (default: runs/ and the task's name), for `linnet.load`.

    task: "translate", "language", "classify", "images", "masked", the name of a preset (`linnet.presets()`), a TOML
    file or a run. data: a file, as `linnet train --data` takes it, or rows: a list of texts or of (source, target) or
    (text, label), a list of dicts, a dict of columns, a pandas DataFrame, a datasets.Dataset, which go by their names
    ("text", "label" and so on: docs/data.md) and are written to the folder RUN.data; valid and test: the same. Pictures
    are given by path.
    source, target: two files or lists of lines. settings: keys of the configuration (docs/cli.md), for example
    context=128, model_from="bert-base".
    callbacks hear each step and each evaluation; False ends the run, an exception or Ctrl-C ends it too and is raised
    again, each after it was saved: resume=True goes on. Raises UserError, NumericError when a loss is not finite, and
    MachineError.
    """
    name = os.path.splitext(os.path.basename(path_of(task)))[0]
    folder = path_of(run) if run is not None else os.path.join("runs", name)
    short = dict(steps=steps, epochs=epochs, batch=batch, rate=rate, memory=memory, device=device, threads=threads)
    functions: list[typing.Callable[[TrainEvent], object]] = list(callbacks)
    if _in_notebook():
        functions.append(_NotebookBar())

    def hear(found: tuple[typing.Any, ...]) -> bool:
        event = TrainEvent(*found)
        return all([goes_on(function(event)) for function in functions])

    rows = os.path.normpath(folder) + ".data"  # see _data_file()
    had_rows = os.path.exists(rows)
    try:
        choice = _choice(task, data, valid, test, source, target, folder, short, settings)
        start = path_of(init)
        return TrainReport(*call(_linnet.train, choice=choice, run=folder, resume=resume, init=start, callbacks=hear))
    except BaseException:
        if not had_rows and not os.path.exists(folder):  # no run was begun
            shutil.rmtree(rows, ignore_errors=True)
        raise


def plan(
    task: str | os.PathLike[str],
    data: typing.Any = None,
    *,
    valid: typing.Any = None,
    test: typing.Any = None,
    source: typing.Any = None,
    target: typing.Any = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    memory: str | int | None = None,
    device: str | None = None,
    threads: int | None = None,
    exact: bool = False,
    **settings: typing.Any,
) -> Plan:
    """The memory that `train` with the same arguments would take, without training; shows itself as a table, in a
    notebook as a picture. exact: read the data, however many they are."""
    short = dict(steps=steps, epochs=epochs, batch=batch, rate=rate, memory=memory, device=device, threads=threads)
    with tempfile.TemporaryDirectory() as folder:  # of data that are no files
        choice = _choice(task, data, valid, test, source, target, os.path.join(folder, "run"), short, settings)
        return Plan(call(_linnet.plan, choice=choice, exact=exact))


def check(
    task: str | os.PathLike[str],
    data: typing.Any = None,
    *,
    valid: typing.Any = None,
    test: typing.Any = None,
    source: typing.Any = None,
    target: typing.Any = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    rate: float | None = None,
    threads: int | None = None,
    **settings: typing.Any,
) -> Check:
    """Whether a model is sane before it is trained: initial loss, overfitting, gradients, causality, padding, ..."""
    short = dict(steps=steps, epochs=epochs, batch=batch, rate=rate, memory=None, device=None, threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        choice = _choice(task, data, valid, test, source, target, os.path.join(folder, "run"), short, settings)
        return Check(CheckLine(*line) for line in _linnet.check(choice))


class Report:
    """A page about runs; shows itself in a notebook."""

    def __init__(self, page: str) -> None:
        self.page = page

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, one HTML file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page)

    def _repr_html_(self) -> str:
        import html

        return f'<iframe srcdoc="{html.escape(self.page)}" width="100%" height="800" style="border:0"></iframe>'


def report(*runs: str | os.PathLike[str], title: str = "") -> Report:
    """One page about a run, or several side by side: curves, memory, time, samples."""
    return Report(call(_linnet.report, runs=[path_of(run) for run in runs], title=title))


class TaskEvaluation(typing.NamedTuple):
    """How good a model is: the mean loss, what it is the mean of, the metrics by name, and a line for people."""

    loss: float
    count: int  # type: ignore[assignment]
    metrics: dict[str, float]
    line: str


def evaluate(
    model: str | os.PathLike[str],
    *,
    split: str = "",
    data: str | os.PathLike[str] = "",
    source: str | os.PathLike[str] = "",
    target: str | os.PathLike[str] = "",
    beams: int = 0,
    threads: int = 0,
    device: str = "cpu",
    quantize: str | None = None,
) -> TaskEvaluation:
    """Loss with BLEU, perplexity or accuracy of a run or a model folder, on files or on a split of its data: "test",
    "valid", or without a name the test data if the run has any, else those that the run was evaluated on."""
    if split not in ("", "test", "valid"):
        raise UserError(f'there is no split "{split}"; there are "test" and "valid"')
    options = dict(
        split="" if data or source else split,
        data=path_of(data),
        source=path_of(source),
        target=path_of(target),
        beams=beams,
        threads=threads,
        device=device,
        quantize=quantize or "",
    )
    return TaskEvaluation(*_linnet.evaluate(path_of(model), options))


def read_metrics(run: str | os.PathLike[str]) -> list[dict[str, typing.Any]]:
    """The lines of a run's metrics.jsonl, one for each step that was logged."""
    run = path_of(run)
    try:
        with open(os.path.join(run, "metrics.jsonl"), "rb") as file:
            return [json.loads(line) for line in file if line.endswith(b"\n")]  # the last one may be half-written
    except OSError:
        raise UserError(f"'{run}' is no run: it has no metrics.jsonl") from None
