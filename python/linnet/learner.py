"""Training by hand: a module, a loss and data."""

from __future__ import annotations

import os
import re
import traceback
import typing
import warnings
import weakref

from . import _linnet
from ._linnet import Adam, Group, LayerParameter, Loss, Parameter, Schedule, Tensor
from .calls import call, path_of
from .data import Batch, Dataset, Loader, columns_of
from .errors import ShapeError, UserError
from .modules import Conv1d, Conv2d, ConvReluPool, ConvTranspose2d, Module, PretrainedBert

# Where PyTorch's axes of filters are: [out, in, ...], of transposed convolutions [in, out, ...].
_FILTER_AXES: list[tuple[typing.Any, tuple[int, ...]]] = [
    ((Conv2d, ConvReluPool, ConvTranspose2d), (0, 3, 1, 2)),
    (Conv1d, (0, 2, 1)),
]
Metric = typing.Union[str, typing.Callable[..., typing.Any]]
Rate = typing.Union[float, Schedule, typing.Callable[[int], float]]


class StepResult(typing.NamedTuple):
    """What is known of a training step after it: the mean loss, the gradient's norm before clipping, the count of the
    loss, whether both are finite (if not, the parameters were left as they were), and whether the step was left out
    because fp16's loss scale was too large."""

    loss: float
    grad_norm: float
    count: int  # type: ignore[assignment]
    finite: bool
    skipped: bool


class Evaluation(typing.NamedTuple):
    """The mean loss, what it is the mean of, and the metrics by name."""

    loss: float
    count: int  # type: ignore[assignment]
    metrics: dict[str, float]


class FitEvent(typing.NamedTuple):
    """What callbacks of fit() get. evaluation: of the validation data, after an epoch; None after a step."""

    step: int
    epoch: int
    loss: float
    mean_loss: float
    grad_norm: float
    rate: float
    evaluation: Evaluation | None


class FitReport(typing.NamedTuple):
    """What fit() has done. reason: "epochs", "max_steps", "patience" or "callback"."""

    steps: int
    epochs: int
    loss: float
    reason: str
    best: Evaluation | None


class LoadReport(typing.NamedTuple):
    """What load() has done, as names: parameters that were taken, that keep their values, tensors of the file that were
    not used, and parameters whose shapes differ."""

    taken: list[str]
    fresh: list[str]
    unused: list[str]
    different: list[str]


def _evaluation(found: typing.Any) -> Evaluation | None:
    return None if found is None else Evaluation(*found)


def _place(value: typing.Any) -> int:
    """Where an array lies: a state of PyTorch has tied weights by both names."""
    return int(value.data_ptr()) if hasattr(value, "data_ptr") else id(value)


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str):
        raise UserError(f"{what} have names, and {name!r} is a {type(name).__name__}")


def _operands(values: dict[str, typing.Any], what: str) -> dict[str, typing.Any]:
    for name, value in values.items():
        _check_name(name, what)
        if not isinstance(value, (Tensor, Parameter, LayerParameter)):
            raise UserError(f'"{name}" is a {type(value).__name__}; {what} are tensors')
    return values


def _shapes_of(inputs: typing.Any, names: list[str]) -> list[dict[str, typing.Any]]:
    """Batch shapes from a Loader, an example batch (a dict, or arrays in the loss's order) or a list of those."""
    if isinstance(inputs, Loader):
        return inputs.shapes()
    if isinstance(inputs, dict):
        return [{name: _type_of(value, name) for name, value in inputs.items()}]
    if isinstance(inputs, list) and inputs and all(isinstance(entry, dict) for entry in inputs):
        return [_shapes_of(entry, names)[0] for entry in inputs]
    if isinstance(inputs, tuple):
        return _shapes_of(_named(inputs, names), names)
    raise UserError(
        f"the inputs of a learner are a {type(inputs).__name__}; an example batch (a dict of arrays, or a tuple in the "
        "order of the loss's parameters), a list of such dicts or a Loader is wanted"
    )


def _parameters_of(function: typing.Callable[..., typing.Any]) -> tuple[list[str], list[str], bool]:
    """The names of a function's parameters, of those without defaults, and whether it takes any others."""
    import inspect

    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = [p.name for p in named if p.default is p.empty]
    names = [p.name for p in named if p.kind != p.POSITIONAL_ONLY]
    return names, required, any(p.kind == p.VAR_KEYWORD for p in parameters)


def _name_line(error: UserError) -> None:
    """Puts the line of the program before the message of a mistake in a loss, unless it has one."""
    lines = [
        f"{os.path.basename(frame.f_code.co_filename)}:{number}: "
        for frame, number in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith(os.path.dirname(__file__))
    ]
    if lines and not re.match(r"[^:]+:\d+: ", str(error)):
        error.args = (lines[-1] + str(error),)


def _rows_of(shapes: list[dict[str, typing.Any]]) -> set[int]:
    return {sizes[0] for types in shapes for _, sizes in types.values() if sizes}


def _type_of(value: typing.Any, name: str) -> tuple[str, tuple[int, ...]]:
    _check_name(name, "the fields of a batch")
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return value[0], tuple(value[1])
    return _linnet.array_type(value, name)


def _named(arrays: typing.Sequence[typing.Any], names: list[str]) -> Batch:
    if len(arrays) > len(names):
        raise UserError(f"{len(arrays)} arrays are given, and the loss takes {len(names)}: {', '.join(names)}")
    return dict(zip(names, arrays))


class Learner:
    """A model with its loss, its optimizer and all of its memory.

    loss: a function whose parameters are named as the fields of batches. It records a graph of Tensors and returns
    a `linnet.Loss` (such as `cross_entropy(...)`) or a scalar Tensor, alone or as (loss, {"name": tensor}) with
    outputs for `predict` and metrics. inputs: a Loader, an example batch, or a list of them, one for each shape.
    optimizer: Sgd, Adam, AdamW, ... . precision: "fp32", "bf16", "int8", "tf32" or "fp16". memory: the most bytes
    to plan; layers of a list or a Sequential are computed again in the backward pass until the step fits. groups:
    parameters that are frozen or trained otherwise. shares: learners whose parameters this one has too; what they
    train is read before each step. One thread uses a learner at a time; several learners may be used by several
    threads. Raises ShapeError naming the line of the program, UserError and MachineError.
    """

    def __init__(
        self,
        model: Module,
        loss: typing.Callable[..., typing.Any],
        inputs: typing.Any,
        *,
        optimizer: typing.Any = None,
        clip_norm: float = 0.0,
        average_decay: float = 0.0,
        accumulate: int = 1,
        precision: str = "fp32",
        storage: str = "auto",
        device: str = "cpu",
        threads: int = 0,
        seed: int = 1,
        memory: int = 0,
        groups: typing.Sequence[Group] = (),
        training: bool = True,
        shares: typing.Sequence[Learner] = (),
    ) -> None:
        if not callable(loss):
            raise UserError("the loss of a learner is a function of the batch's fields")
        if model is None:
            raise UserError("a model is a linnet.Module, and None was given")
        groups, shares = list(groups), list(shares)
        for kind, what, entries in ((Group, "groups", groups), (Learner, "shares", shares)):
            for entry in entries:
                if not isinstance(entry, kind):
                    raise UserError(f"{what} has a {type(entry).__name__}; a list of linnet.{kind.__name__} is wanted")
        self._model = model
        self._loss = loss
        self._kept: list[typing.Any] = []
        self._shares: list[_Share] = []
        self._changes = 0  # of parameters, other than by steps
        self._position = (0, 0)  # epoch and batch at which the next fit() on data other than a Loader goes on
        self._batches = 0  # of an epoch of these data; 0: not known
        self._groups = groups
        self._trains = training
        self._is_mean = False
        names, required, takes_all = _parameters_of(loss)
        shapes = _shapes_of(inputs, names)
        given = list(shapes[0]) if shapes else []
        self._fields = {name for types in shapes for name in types}  # of the example batches
        # Of the first shape, as many as the planned batch has.
        self._rows = next((shape[0] for _, shape in (shapes[0] if shapes else {}).values() if shape), 32)
        # Arrays without names are given in this order.
        self._names = [name for name in names if name in given]
        if takes_all:
            self._names += [name for name in given if name not in names]
        missing = [name for name in required if name not in given]
        if missing:
            raise UserError(
                f"the loss takes {', '.join(missing)}, and the batches have {', '.join(given) or 'nothing'}"
            )
        options = dict(
            optimizer=optimizer if optimizer is not None else Adam(),
            clip_norm=float(clip_norm),
            average_decay=float(average_decay),
            accumulate=accumulate,
            precision=precision,
            storage=storage,
            device=device,
            threads=threads,
            seed=seed,
            memory=memory,
            training=training,
            groups=self._groups,
        )
        self._core: typing.Any = _linnet.LearnerCore(weakref.ref(self), model, self._kept, self._names, shapes, options)
        self._shares = [_Share(other, self._common(other)) for other in shares]

    def _record(self, tensors: dict[str, typing.Any]) -> tuple[typing.Any, typing.Any, dict[str, typing.Any]]:
        try:
            result = self._loss(**tensors)
        except UserError as error:
            _name_line(error)
            raise
        outputs: dict[str, typing.Any] = {}
        if isinstance(result, tuple) and len(result) == 2:
            result, outputs = result
            if not isinstance(outputs, dict):
                raise UserError("a loss returns (loss, outputs), where outputs is a dict of tensors")
        outputs = _operands(outputs, "outputs beside a loss")
        self._is_mean = not isinstance(result, Loss)
        if isinstance(result, Loss):
            return result.sum, result.count, outputs
        _operands({"loss": result}, "a linnet.Loss or a scalar, and outputs in a dict beside it,")
        return result, None, outputs

    def _common(self, other: Learner) -> dict[str, str]:
        """Names of parameters that the other learner trains, with what they are called here."""
        import fnmatch

        found = {}
        frozen = [pattern for group in other._groups if group.frozen for pattern in group.patterns]
        for part in other._kept:
            theirs, ours = other._core.path_of(part), self._core.path_of(part)
            if theirs is None or ours is None:
                continue
            for name, _, _ in other._core.parameters():
                if name == theirs or not theirs or name.startswith(theirs + "."):
                    if not any(fnmatch.fnmatchcase(name, pattern) for pattern in frozen):
                        rest = name[len(theirs) :].lstrip(".")
                        found[name] = ".".join(text for text in (ours, rest) if text)
        mine = [pattern for group in self._groups if group.frozen for pattern in group.patterns]
        for name in found.values() if self._trains else []:
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in mine):
                raise UserError(
                    f'"{name}" is trained by a learner in `shares`, and would be by this one: freeze it, as in '
                    f'groups=[linnet.Group(["{name}"], frozen=True)]'
                )
        if not found:
            raise UserError("a learner in `shares` trains no parameter of this model")
        return found

    def _take_shared(self) -> None:
        """Reads the parameters that other learners have trained since."""
        for share in self._shares:
            share.read_into(self)

    def _batch(self, arrays: typing.Sequence[typing.Any], named: Batch) -> Batch:
        if len(arrays) == 1 and isinstance(arrays[0], dict) and not named:
            return arrays[0]
        found = _named(arrays, self._names)
        if twice := [name for name in found if name in named]:
            raise UserError(f'"{twice[0]}" is given twice, by its place and by its name')
        if unknown := [name for name in named if name not in self._fields]:
            raise UserError(
                f'there is no field "{unknown[0]}"; the learner was made with {", ".join(sorted(self._fields))}'
            )
        return {**found, **named}

    def step(self, *batch: typing.Any, rate: float, **fields: typing.Any) -> StepResult:
        """One training step at a learning rate, on a batch: a dict, arrays in the order of the loss's parameters, or
        fields by name; with `accumulate`, a list of so many dicts. Arrays are anything with __dlpack__ or the buffer
        protocol, of the type and shape that was planned; int64 and float64 are converted."""
        if len(batch) == 1 and isinstance(batch[0], list) and not fields:
            batches = batch[0]
            for entry in batches:
                if not isinstance(entry, dict):
                    raise UserError(f"a list of micro-batches has dicts, and a {type(entry).__name__} was given")
        else:
            batches = [self._batch(batch, fields)]
        self._take_shared()
        return StepResult(*self._core.step(batches, float(rate)))

    def fit(
        self,
        data: typing.Any,
        *,
        epochs: int | None = None,
        rate: Rate = 1e-3,
        batch: int | None = None,
        shuffle: bool = True,
        validation: typing.Any = None,
        metrics: typing.Sequence[Metric] = (),
        patience: int = 0,
        max_steps: int = 0,
        callbacks: typing.Sequence[typing.Callable[[FitEvent], object]] = (),
        on_epoch: typing.Callable[[FitEvent], object] | None = None,
    ) -> FitReport:
        """Trains on a Loader, a Dataset or a dict of arrays, in batches of `batch` (as many as the inputs have). Where
        batches are shuffled, the samples behind the last whole batch of an epoch are left out; others come in the next
        one, also where it is of the next call: epochs are counted, and ordered, over all calls. Callbacks hear every
        step, on_epoch every epoch; False stops. Without epochs the data are gone through once, or as often as max_steps
        take. max_steps counts the steps of this call; a Schedule or a function as `rate` gets the number of all steps
        of the learner, from 1. Ctrl-C raises KeyboardInterrupt after the step; the learner can go on. Raises
        NumericError, naming the line, when a loss is not finite."""

        def heard(functions: typing.Sequence[typing.Callable[[FitEvent], object]]) -> typing.Any:
            if not functions and not self._shares:
                return None

            def hear(found: tuple[typing.Any, ...]) -> bool:
                self._take_shared()
                event = FitEvent(*found)._replace(evaluation=_evaluation(found[-1]))
                return all([goes_on(function(event)) for function in functions])

            return hear

        if metrics and validation is None:
            raise UserError("fit() with metrics needs validation data")
        if epochs == 0:
            raise UserError("epochs must be at least 1; without it the data are gone through once")
        if isinstance(rate, Schedule) and self.steps and rate(self.steps + 1) == 0:
            warnings.warn(
                f"the learner has taken {self.steps} steps, and its schedule has ended: the rate is 0 throughout. A "
                "schedule counts all steps of the learner; max_steps of fit() counts those of the call",
                stacklevel=2,
            )
        options = dict(
            epochs=epochs or 0,
            max_steps=max_steps,
            patience=patience,
            rate=rate,
            metrics=self._metrics(metrics),
            validation=None if validation is None else self._loader(validation, batch, False)._core,
            on_step=heard(list(callbacks)),
            on_epoch=heard([on_epoch] if on_epoch else []),
        )
        self._take_shared()
        loader = self._loader(data, batch, shuffle)
        if loader is data:
            found = self._core.fit(loader._core, options)
        else:
            epoch, begun = self._position
            is_known = self._batches in (0, len(loader)) and begun < len(loader)
            loader.seek(*(self._position if is_known else (epoch + (begun > 0), 0)))
            try:
                found = self._core.fit(loader._core, options)
            finally:
                self._position, self._batches = loader.position, len(loader)
        return FitReport(*found)._replace(best=_evaluation(found[-1]))

    def _loader(self, data: typing.Any, batch: int | None, shuffle: bool) -> Loader:
        if isinstance(data, Loader):
            return data
        size = self._rows if batch is None else batch
        data = data if isinstance(data, Dataset) else self._dataset(data)
        if shuffle and 0 < len(data) < size:
            raise UserError(
                f"the data have {len(data)} samples, and a batch has {size}: give batch=, or make the learner with "
                "fewer rows"
            )
        loader = Loader(data, batch=size, shuffle=shuffle, drop_last=shuffle)
        rows = _rows_of(loader.shapes())
        if rows <= _rows_of(self._planned):
            return loader
        # The last batch would have a shape that was not planned. It is padded, which a loss that is a mean cannot tell.
        if self._is_mean:
            raise UserError(
                f"the data make batches of {' and '.join(map(str, sorted(rows)))} rows, and the learner was planned "
                f"for others; make it with linnet.Loader(data, batch={self._rows}), or return a linnet.Loss"
            )
        return Loader(data, batch=size, shuffle=shuffle, _pad_last=True)

    def _dataset(self, data: typing.Any) -> Dataset:
        """Columns of arrays as a dataset for one call, which reads them where they are. Types are those that the loss
        was planned with, as step() converts them."""
        types, dataset = self._planned[0], Dataset()
        for name, values in columns_of(data).items():
            dataset._add(name, values, types[name][0] if name in types else None, copies=False)
        return dataset

    @staticmethod
    def _metrics(metrics: typing.Sequence[Metric]) -> list[typing.Any]:
        """Each a name, or a function of (batch, outputs, samples) that returns (sum, count)."""

        def cut(function: typing.Callable[..., typing.Any]) -> typing.Callable[..., tuple[float, float]]:
            def call(batch: Batch, outputs: Batch, samples: int) -> tuple[float, float]:
                if samples:  # rows behind them are padding
                    batch = {name: value[:samples] if value.ndim else value for name, value in batch.items()}
                    outputs = {name: value[:samples] if value.ndim else value for name, value in outputs.items()}
                found = function(batch, outputs)
                rows = max((value.shape[0] for value in batch.values() if value.ndim), default=1)
                try:
                    if isinstance(found, tuple) and len(found) == 2:
                        return float(found[0]), float(found[1])
                    return float(found) * rows, float(rows)
                except (TypeError, ValueError):
                    shape = f" of shape {found.shape}" if hasattr(found, "shape") else ""
                    raise UserError(
                        f'metric "{name}" returned a {type(found).__name__}{shape}; a mean or (sum, count) is wanted'
                    ) from None

            call.__name__ = name = getattr(function, "__name__", "metric")
            return call

        for metric in metrics:
            if isinstance(metric, str) and metric != "accuracy":
                raise UserError(
                    f'there is no metric "{metric}"; there are "accuracy" and functions of (batch, outputs)'
                )
            if not isinstance(metric, str) and not callable(metric):
                raise UserError("a metric is a name or a function of (batch, outputs)")
        return [metric if isinstance(metric, str) else cut(metric) for metric in metrics]

    def evaluate(self, data: typing.Any, metrics: typing.Sequence[Metric] = (), batch: int | None = None) -> Evaluation:
        """Loss and metrics, without dropout. A metric is "accuracy" (of an output `logits` and a field `labels`) or a
        function of (batch, outputs) that returns a mean or (sum, count)."""
        self._take_shared()
        return Evaluation(*self._core.evaluate(self._loader(data, batch, False)._core, self._metrics(metrics)))

    def predict(self, *batch: typing.Any, **fields: typing.Any) -> dict[str, typing.Any]:
        """The outputs that the loss names, as NumPy arrays. A batch may have fewer rows than planned, or more (they are
        computed in parts), and may leave out fields, such as labels; outputs that depend on them are left out. Fields
        that have no row for each sample keep their planned shape. An output that mixes rows needs as many rows as
        planned."""
        import numpy

        from .arrays import as_numpy

        given = self._batch(batch, fields)
        self._take_shared()
        arrays = {
            name: value if hasattr(value, "shape") else as_numpy(value, f'"{name}"') for name, value in given.items()
        }
        names, planned = self._row_fields({name: tuple(array.shape) for name, array in arrays.items()})
        if not names:
            return _without_sums(self._core.predict(arrays, 0))
        rows, most, parts = arrays[names[0]].shape[0], max(planned), []
        for at in range(0, rows, most):
            part = {name: array[at : at + most] if name in names else array for name, array in arrays.items()}
            found = _without_sums(self._core.predict(part, at // most))
            count = min(most, rows - at)
            for name, value in found.items():
                if value.ndim == 0 or value.shape[0] != count:
                    raise UserError(
                        f'the output "{name}" is no row for each sample, so it is there for batches of {most} rows '
                        f"alone, and {rows} are given"
                    )
            parts.append(found)
        return {name: numpy.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _row_fields(self, given: dict[str, tuple[int, ...]]) -> tuple[list[str], set[int]]:
        """Of fields with more or fewer rows than planned: the names of those that have a row for each sample, and the
        numbers of rows that are planned for them. No names where the shapes are planned, or differ in other axes."""
        plans = [{name: shape for name, (_, shape) in types.items() if name in given} for types in self._planned]
        shapes = {name: given[name] for name in plans[0]}
        if not given or any(0 in shape[:1] for shape in shapes.values()):
            wanted = ", ".join(self._names)
            raise UserError(f"predict() was given {'no rows' if given else 'nothing'}; the loss takes {wanted}")
        fitting = [
            plan
            for plan in plans
            if all(len(shape) == len(plan[name]) and shape[1:] == plan[name][1:] for name, shape in shapes.items())
        ]
        if shapes in plans or not fitting:
            return [], set()
        plan = max(fitting, key=lambda plan: sum(shape[0] for shape in plan.values() if shape))
        # A field of another size than planned has rows of samples, and so have all that are planned with as many.
        sizes = {shape[0] for name, shape in plan.items() if shape != shapes[name]}
        names = [name for name, shape in plan.items() if shape and shape[0] in sizes]
        if len(sizes) > 1 or len({shapes[name][0] for name in names}) > 1:
            rows = ", ".join(f'"{name}" {shapes[name][0]}' for name in names)
            raise UserError(f"the fields have different numbers of rows: {rows}")
        return names, {plan[names[0]][0] for plan in fitting}

    @property
    def _planned(self) -> list[dict[str, typing.Any]]:
        return typing.cast("list[dict[str, typing.Any]]", self._core.shapes())

    def _layouts(self) -> dict[str, tuple[int, ...]]:
        """Parameters whose axes PyTorch has in another order: which of ours each of its axes is."""
        found = {}
        for part in self._kept:
            order = next((order for kind, order in _FILTER_AXES if isinstance(part, kind)), None)
            if order:
                path = self._core.path_of(part)
                found[f"{path}.weight" if path else "weight"] = order
        return found

    def state_dict(self, layout: str = "linnet") -> dict[str, typing.Any]:
        """All parameters and buffers by name as NumPy views of the learner's memory: no copies; call push() after
        writing to one. layout="torch" gives copies with filters as [out, in, rows, columns] and PyTorch's names."""
        import numpy

        state = {name: self._core.parameter(name) for name, _, _ in self._core.parameters()}
        if not _is_torch(layout):
            return state
        filters = self._layouts()
        return {
            name: numpy.ascontiguousarray(value.transpose(filters[name])) if name in filters else value.copy()
            for name, value in state.items()
        }

    def load_state_dict(
        self, state: typing.Mapping[str, typing.Any], layout: str = "linnet", strict: bool = True
    ) -> LoadReport:
        """Takes parameters by name from arrays or torch tensors. strict: every parameter must be there, and nothing
        else. Raises UserError and ShapeError; then no parameter is changed."""
        from .arrays import convert

        for name in state:
            _check_name(name, "arrays of a state")
        shapes = {name: tuple(shape) for name, shape, _ in self._core.parameters()}
        filters = self._layouts() if _is_torch(layout) else {}
        report = LoadReport([], [], [name for name in state if name not in shapes], [])
        values = []
        for name, shape in shapes.items():
            if name not in state:
                report.fresh.append(name)
                continue
            given = state[name]
            value = convert(given.cpu() if hasattr(given, "cpu") else given, "float32", f'"{name}"')
            if name in filters and value.ndim == len(filters[name]):
                value = value.transpose([filters[name].index(axis) for axis in range(value.ndim)])
            if value.shape != shape:
                report.different.append(name)
                if strict:
                    raise ShapeError(f'"{name}" has the shape {list(value.shape)}; {list(shape)} is wanted')
                continue
            values.append((self._core.parameter(name), value))
            report.taken.append(name)
        tied = {_place(state[name]) for name in report.taken}
        unused = [name for name in report.unused if not name.endswith("num_batches_tracked")]
        unused = [name for name in unused if _place(state[name]) not in tied]
        if strict and (report.fresh or unused):
            raise UserError(
                f"the state has no {', '.join(report.fresh[:5])}"
                if report.fresh
                else f"the model has no {', '.join(unused[:5])}"
            )
        for parameter, value in values:
            parameter[...] = value
        self.push()
        return report

    def push(self) -> None:
        """Makes changes of state_dict()'s views known: to the device, to the moving average, and to learners that share
        the parameters."""
        self._changes += 1
        self._core.push()

    def gradient(self, name: str) -> typing.Any:
        """The gradient of the mean loss in the last step, before clipping, as a NumPy array."""
        return call(self._core.gradient, name=name)

    def save(self, path: str, type: str = "fp32") -> None:
        """Writes the weights by name as safetensors; `type` "bf16" or "fp16" rounds them to half the bytes."""
        call(self._core.save, path=path_of(path), type=type)

    def load(self, path: str, strict: bool = True, prefix: str = "", layout: str | None = None) -> LoadReport:
        """Reads weights by name from a file (safetensors, or torch.save()); `prefix` goes before each of its names.
        layout: how the file has filters, "torch" or "linnet"; None: as the file says or the shapes show, an error where
        both would fit."""
        filters = 0 if layout is None else 2 if _is_torch(layout) else 1  # C++'s FilterLayout
        known = self._layouts()
        for name, shape, _ in self._core.parameters():
            if filters == 2 and len(shape) in (3, 4) and name not in known:
                raise UserError(
                    f'"{name}" has {len(shape)} axes and is no filter, but load() would take it for one: read the '
                    'file, and call load_state_dict(state, layout="torch")'
                )
        self._changes += 1
        found = call(self._core.load, path=path_of(path), strict=strict, prefix=prefix, layout=filters)
        return LoadReport(*found)

    def load_bert(self, bert: PretrainedBert) -> LoadReport:
        """Reads the weights of a BERT folder into the part of the model that it is."""
        self._changes += 1
        return LoadReport(*self._core.load_bert(bert))

    def save_bert(self, bert: PretrainedBert, folder: str) -> None:
        """Writes a folder that transformers loads; all other parameters go to head.safetensors."""
        self._core.save_bert(bert, path_of(folder))

    def export_onnx(
        self,
        path: str,
        outputs: typing.Callable[..., typing.Any],
        inputs: typing.Any = None,
        *,
        open_axes: typing.Mapping[str, typing.Mapping[int, str]] | None = None,
        opset: int = 17,
    ) -> None:
        """Writes what `outputs` computes, with the weights that evaluation takes, as an ONNX file. The parameters
        of `outputs` are named as the file's inputs; it returns a tensor, "output" in the file, or a dict of
        tensors. inputs: an example of each, where they are no fields of the planned batches. open_axes: names of
        the axes whose sizes stay open, by input, as in {"x": {0: "batch", 1: "length"}}; without any here the first
        axis is open. opset: 14 to 18. int32 fields are int64 inputs of the file. Raises UserError naming the line
        whose op or sizes the file cannot have."""
        names, _, _ = _parameters_of(outputs)
        known = self._planned[0] if inputs is None else _shapes_of(inputs, names)[0]
        if missing := [name for name in names if name not in known]:
            raise UserError(f"the outputs take {', '.join(missing)}, and the inputs are {', '.join(known)}")

        def record(tensors: dict[str, typing.Any]) -> dict[str, typing.Any]:
            found = outputs(**tensors)
            return _operands(found if isinstance(found, dict) else {"output": found}, "outputs of a file")

        axes = {name: dict(of_one) for name, of_one in (open_axes or {}).items()}
        self._take_shared()
        types = {name: known[name] for name in names}
        call(self._core.export_onnx, outputs=record, inputs=types, path=path_of(path), open_axes=axes, opset=opset)

    def save_state(self, path: str, loader: Loader | None = None) -> None:
        """Writes all that the next steps follow from: weights, moments, the number of steps, where the loader is, or
        without one where fit() was."""
        self._core.save_state(path_of(path), *(loader.position if loader else self._position))

    def load_state(self, path: str, loader: Loader | None = None) -> tuple[int, int]:
        """Reads it back; the steps that follow have the bits that they would have had. Moves the loader."""
        self._changes += 1
        position: tuple[int, int] = self._core.load_state(path_of(path))
        self._position, self._batches = position, 0
        if loader:
            loader.seek(*position)
        return position

    @property
    def steps(self) -> int:
        """Steps so far."""
        return int(self._core.steps())

    def memory(self) -> Memory:
        """All memory that there will ever be, in bytes by kind."""
        return Memory(self._core.memory())

    def __repr__(self) -> str:
        size = sum(self.memory().values()) / 1e6
        return f"linnet.Learner({type(self._model).__name__}, {self.steps} steps, {size:.1f} MB)"


def _is_torch(layout: str) -> bool:
    if layout not in ("linnet", "torch"):
        raise UserError(f'there is no layout {layout!r}; there are "linnet" and "torch"')
    return layout == "torch"


class _Share:
    """Parameters that another learner trains, by their names there and here."""

    def __init__(self, other: Learner, names: dict[str, str]) -> None:
        self._other = other
        self._names = names
        self._seen = (-1, -1)  # steps and changes of the other one when they were read

    def read_into(self, learner: Learner) -> None:
        now = (self._other.steps, self._other._changes)
        if now == self._seen:
            return
        for theirs, ours in self._names.items():
            learner._core.parameter(ours)[...] = self._other._core.parameter(theirs)
        learner.push()
        self._seen = now


class Memory(typing.Dict[str, int]):
    """Bytes by kind; shows itself as a table."""

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        lines = [f"{kind:<{width}} {size / 1e6:>10.2f} MB" for kind, size in self.items()]
        return "\n".join([*lines, f"{'in all':<{width}} {sum(self.values()) / 1e6:>10.2f} MB"])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{kind}</td><td>{size / 1e6:.2f} MB</td></tr>" for kind, size in self.items())
        return f"<table>{rows}<tr><th>in all</th><th>{sum(self.values()) / 1e6:.2f} MB</th></tr></table>"


def _without_sums(outputs: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """Only what the loss names: without labels the sums mean nothing."""
    named = {name: value for name, value in outputs.items() if name not in ("loss_sum", "token_count")}
    if not named:
        raise UserError('the loss has no outputs to predict; it may return (loss, {"name": tensor})')
    return named


def goes_on(answer: object) -> bool:
    """Whether a callback's answer is anything but False, Python's or NumPy's."""
    is_numpys = getattr(answer, "ndim", None) == 0 and str(getattr(answer, "dtype", "")) == "bool"
    return answer is not False and not (is_numpys and not answer)
