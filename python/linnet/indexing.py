"""Indexing of tensors, x[2, 1:5, None, ...]."""

from __future__ import annotations

import operator
import typing

from . import _linnet
from .errors import ShapeError


def cuts(shape: tuple[int, ...], index: typing.Any) -> tuple[list[tuple[int, int, int]], list[int]]:
    """The slices (axis, start, size) that an index takes of a tensor, and the shape of what it gives."""
    entries = index if isinstance(index, tuple) else (index,)
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if used > len(shape):
        raise _error(f"a tensor of shape {list(shape)} has fewer axes than {used}")
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise _error("an index has more than one `...`")
    slices, sizes, axis = [], [], 0
    for entry in entries:
        if entry is None:
            sizes.append(1)
        elif entry is Ellipsis:
            end = axis + len(shape) - used
            sizes.extend(shape[axis:end])
            axis = end
        else:
            start, size = _cut(entry, shape[axis], axis)
            if size != shape[axis]:
                slices.append((axis, start, size))
            if isinstance(entry, slice):
                sizes.append(size)
            axis += 1
    return slices, sizes + list(shape[axis:])


def _cut(entry: typing.Any, size: int, axis: int) -> tuple[int, int]:
    """Where an entry begins on an axis, and how many elements it takes."""
    where = f"axis {axis} of {size} elements"
    if isinstance(entry, slice):
        start, stop, step = entry.indices(size)
        if step != 1:
            raise _error(f"{where} is sliced by a step other than 1")
        if stop <= start:
            raise _error(f"{where} is sliced to nothing")
        return start, stop - start
    try:
        at = operator.index(entry)
    except TypeError:
        raise _error(
            "a tensor is indexed by integers, slices, None and ...; gather(x, ids) looks rows up, "
            "where(condition, a, b) chooses elements"
        ) from None
    if not -size <= at < size:
        raise _error(f"{where} has no number {at}")
    return at % size, 1


def _error(what: str) -> ShapeError:
    return ShapeError(f"{_linnet.line()}: {what}")


def sizes(elements: int, wanted: typing.Sequence[int]) -> list[int]:
    """The sizes of a shape of so many elements, of which one may be -1: what the others leave."""
    known = 1
    for size in wanted:
        known *= size if size != -1 else 1
    rest = elements // known if known > 0 and elements % known == 0 else 0
    found = [int(size) for size in wanted]
    if -1 in found:
        found[found.index(-1)] = rest or -1  # which is no size: the error shows what was wanted
    return found
