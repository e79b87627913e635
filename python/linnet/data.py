"""Data to train on: samples with named fields, and the loader that makes batches of them."""

from __future__ import annotations

import operator
import typing

from . import _linnet
from .calls import call, path_of
from .errors import UserError

Batch = typing.Dict[str, typing.Any]


def columns_of(data: typing.Any) -> dict[str, typing.Any]:
    """The columns of a dict, a pandas DataFrame or a datasets.Dataset by name."""
    if isinstance(data, dict):
        return data
    if hasattr(data, "column_names"):  # datasets.Dataset
        return {name: data[name] for name in data.column_names}
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):  # pandas
        return {str(name): data[name].to_numpy() for name in data.columns}
    raise UserError(
        f"data is a {type(data).__name__}; a Dataset, a dict of arrays, a DataFrame or a datasets.Dataset is wanted"
    )


def _is_ragged(values: typing.Any) -> bool:
    """Whether these are rows of different lengths: lists, or arrays of one axis in a list."""
    if str(getattr(values, "dtype", "object")) != "object":
        return False
    try:
        first = values[0]
        return (isinstance(first, (list, tuple)) or getattr(first, "ndim", 0) == 1) and len(set(map(len, values))) > 1
    except (TypeError, IndexError, KeyError):
        return False


def _ids(sequences: typing.Iterable[typing.Any]) -> list[list[int]]:
    return [row.tolist() if hasattr(row, "tolist") else list(row) for row in sequences]


class Dataset:
    """Fields of the same number of samples: arrays, or sequences of ids of any length (lists of lists).

    Dataset(images=array, labels=array), Dataset(data_frame), Dataset.idx(...), Dataset.text(...)
    """

    def __init__(self, data: typing.Any = None, **fields: typing.Any) -> None:
        self._core: typing.Any = _linnet.DatasetCore()
        columns = dict(columns_of(data) if data is not None else {}, **fields)
        for name, values in columns.items():
            self.add(name, values)

    @classmethod
    def _of(cls, core: typing.Any) -> Dataset:
        made = cls.__new__(cls)
        made._core = core
        return made

    def add(self, name: str, values: typing.Any, dtype: typing.Any = None) -> Dataset:
        """Adds a field: an array [samples, ...], or a list of lists of ids, whose batches are int32 [rows, length]
        padded with 0, with `name`_length int32 [rows] beside it."""
        return self._add(name, values, dtype, copies=True)

    def _add(self, name: str, values: typing.Any, dtype: typing.Any, copies: bool) -> Dataset:
        if _is_ragged(values):
            return self.add_sequences(name, values)
        call(self._core.add, name=name, values=values, dtype=dtype, copies=copies)
        return self

    def add_sequences(self, name: str, sequences: typing.Sequence[typing.Sequence[int]]) -> Dataset:
        """Adds sequences of ids, also where all have the same length."""
        call(self._core.add_sequences, name=name, sequences=_ids(sequences))
        return self

    @classmethod
    def from_function(
        cls, size: int, types: dict[str, tuple[str, tuple[int, ...]]], function: typing.Callable[[int], Batch]
    ) -> Dataset:
        """Samples from function(index), called by the loader's threads; types: (dtype, shape) of one sample."""
        for name, entry in types.items():
            is_pair = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[1], (tuple, list))
            if not is_pair or not all(hasattr(size, "__index__") for size in entry[1]):
                raise UserError(f'the type of "{name}" is {entry!r}; (dtype, shape) is wanted, as ("float32", (3,))')
        return cls._of(call(_linnet.DatasetCore.from_function, size=size, types=types, function=function))

    @classmethod
    def idx(cls, images: str, labels: str) -> Dataset:
        """MNIST's files, plain or gzip: fields images uint8 [H, W, C] and labels int32."""
        return cls._of(_linnet.DatasetCore.idx(path_of(images), path_of(labels)))

    @classmethod
    def image_folder(cls, folder: str, size: int = 0) -> Dataset:
        """FOLDER/CLASS/*.png, .jpg, .bmp: fields images uint8 [size, size, C] and labels int32."""
        return cls._of(call(_linnet.DatasetCore.image_folder, folder=path_of(folder), size=size))

    @classmethod
    def text(cls, path: str, tokenizer: str, length: int) -> Dataset:
        """A text cut into chunks: fields tokens and targets int32 [length]. tokenizer: a folder."""
        make = _linnet.DatasetCore.text
        return cls._of(call(make, path=path_of(path), tokenizer=path_of(tokenizer), length=length))

    @classmethod
    def chunks(cls, ids: typing.Any, length: int) -> Dataset:
        """The same of ids that the program has."""
        return cls._of(call(_linnet.DatasetCore.chunks, ids=ids, length=length))

    @classmethod
    def tsv(
        cls,
        path: str,
        tokenizer: str,
        text_column: int = 0,
        label_column: int = 1,
        header: bool = False,
        max_length: int = 512,
    ) -> Dataset:
        """Lines with a text and a label: fields tokens (a sequence) and labels int32. tokenizer: a folder."""
        files = dict(path=path_of(path), tokenizer=path_of(tokenizer))
        columns = dict(text_column=text_column, label_column=label_column, header=header, max_length=max_length)
        return cls._of(call(_linnet.DatasetCore.tsv, **files, **columns))

    def __len__(self) -> int:
        return len(self._core)

    @typing.overload
    def __getitem__(self, index: int) -> Batch: ...

    @typing.overload
    def __getitem__(self, index: slice) -> list[Batch]: ...

    def __getitem__(self, index: int | slice) -> Batch | list[Batch]:
        """A sample, or the list of those of a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not hasattr(index, "__index__"):
            raise TypeError(f"a sample's index is a whole number or a slice, and a {type(index).__name__} was given")
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"the dataset has {len(self)} samples; there is no {index}")
        return typing.cast(Batch, self._core.sample(index))

    def select(self, indices: typing.Sequence[int]) -> Dataset:
        """The samples with these indices, in this order."""
        return self._of(call(self._core.select, indices=list(indices)))

    def split(self, fraction: float, seed: int = 1) -> tuple[Dataset, Dataset]:
        """A part of `fraction` of the samples, drawn by the seed, and the others."""
        first, second = call(self._core.split, fraction=fraction, seed=seed)
        return self._of(first), self._of(second)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name} {dtype}{list(shape)}" for name, (dtype, shape) in self._core.sample_types().items())
        return f"linnet.Dataset({len(self)} samples: {fields})"


class Loader:
    """Batches of a dataset, made ahead by threads, always the same ones for the same seed. Iterating gives the batches
    of one epoch as dicts of NumPy arrays. The last one has the samples that are left, unless drop_last leaves them out;
    a learner that is made with the loader has planned for both shapes."""

    def __init__(
        self,
        data: typing.Any,
        batch: int = 32,
        shuffle: bool = False,
        seed: int = 1,
        drop_last: bool = False,
        workers: int = 1,
        prefetch: int = 2,
        buckets: typing.Sequence[int] = (),
        _pad_last: bool = False,
    ) -> None:
        dataset = data if isinstance(data, Dataset) else Dataset(data)
        self._core: typing.Any = call(
            _linnet.LoaderCore,
            data=dataset._core,
            batch=batch,
            shuffle=shuffle,
            seed=seed,
            drop_last=drop_last,
            workers=workers,
            prefetch=prefetch,
            buckets=list(buckets),
            pad_last=_pad_last,
        )

    def shapes(self) -> list[dict[str, tuple[str, tuple[int, ...]]]]:
        """(dtype, shape) of each array of each kind of batch."""
        return typing.cast("list[dict[str, tuple[str, tuple[int, ...]]]]", self._core.shapes())

    def __len__(self) -> int:
        return len(self._core)

    def next(self) -> Batch:
        """The next batch; begins the next epoch behind the last."""
        return typing.cast(Batch, self._core.next())

    def __repr__(self) -> str:
        return f"linnet.Loader({len(self)} batches, next: epoch {self.position[0]}, batch {self.position[1]})"

    def __iter__(self) -> typing.Iterator[Batch]:
        for _ in range(len(self) - self.position[1]):
            yield self.next()

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, batch) of the next batch, from 0."""
        return typing.cast("tuple[int, int]", self._core.position())

    def seek(self, epoch: int, batch: int = 0) -> None:
        """Goes to a position."""
        call(self._core.seek, epoch=epoch, batch=batch)
