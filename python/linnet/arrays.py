"""Arrays of other packages as those that the library takes."""

from __future__ import annotations

import typing

import numpy as np

from .errors import UserError

_MOST_AXES = 6
Array = np.ndarray[typing.Any, typing.Any]


def as_numpy(value: typing.Any, name: str) -> Array:
    """An array of NumPy from anything that is one. Errors call it `name`."""
    if value is None or isinstance(value, (str, bytes, dict)):
        raise UserError(f"{name} is a {type(value).__name__}; an array is wanted")
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):  # PyTorch's; NumPy has no bfloat16
        value = value.detach().resolve_neg()  # NumPy has no lazy signs either
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    if hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] != 1:
        raise UserError(f"{name} lies on a device; give an array of the host, for example tensor.cpu()")
    try:
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (BufferError, TypeError, RuntimeError, ValueError):
        pass  # such as JAX's bfloat16, which has a type of its own for NumPy
    try:
        return np.asarray(value)
    except Exception as error:
        raise UserError(f"{name} is no array: {error}") from None


def convert(value: typing.Any, wanted: str | None, name: str) -> Array:
    """The elements row-major as `wanted`, or where that is None as the type the library has for them: float32, int32 or
    uint8. Integers that do not fit, fractions where integers are wanted and arrays of a device are errors that call
    the array `name`. A view of `value` where nothing changes."""
    array = as_numpy(value, name)
    if array.dtype == object and array.ndim == 1 and array.size and hasattr(array[0], "__len__"):
        try:  # a column of lists or arrays
            array = np.stack([np.asarray(row) for row in array])
        except ValueError:
            pass  # of different sizes: told below
    if array.ndim > _MOST_AXES:
        raise UserError(f"{name} has {array.ndim} axes; there are at most {_MOST_AXES}")
    kind = "f" if array.dtype.name == "bfloat16" else array.dtype.kind
    if kind not in "fiub" or array.dtype.itemsize > 8:
        what = "is no array of numbers" if kind in "OSU" else "has elements of a type that is not supported"
        raise UserError(f"{name} {what}; convert it to float32 or int32")
    natural = "float32" if kind == "f" else "uint8" if kind == "b" or array.dtype == np.uint8 else "int32"
    dtype = np.dtype(wanted or natural)
    if dtype.kind != "f" and array.dtype != dtype and array.size:
        if kind == "f" and not np.array_equal(array, np.trunc(array)):
            raise UserError(f"{name} has fractional numbers where {dtype.name} is wanted")
        for number in (array.min().item(), array.max().item()):  # Python's, which are compared exactly
            if not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
                raise UserError(f"{name} has the integer {number}, which does not fit {dtype.name}")
    return np.asarray(array, dtype, order="C")
