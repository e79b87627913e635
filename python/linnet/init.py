"""Initial values of parameters. Fans of a weight [out, in] are in and out; of filters [out, rows, columns, in] they are
rows * columns * in and rows * columns * out."""

from __future__ import annotations

import typing

from . import _linnet
from ._linnet import Initializer
from .calls import call


def constant(value: float) -> Initializer:
    """The same value everywhere."""
    return typing.cast(Initializer, call(_linnet.init_constant, value=value))


def zeros() -> Initializer:
    """0 everywhere."""
    return _linnet.init_constant(0)


def ones() -> Initializer:
    """1 everywhere."""
    return _linnet.init_constant(1)


def uniform(bound: float) -> Initializer:
    """U(-bound, bound)."""
    return typing.cast(Initializer, call(_linnet.init_uniform, bound=bound))


def normal(deviation: float) -> Initializer:
    """N(0, deviation^2)."""
    return typing.cast(Initializer, call(_linnet.init_normal, deviation=deviation))


def truncated_normal(deviation: float) -> Initializer:
    """N(0, deviation^2), of which values beyond two deviations are drawn again."""
    return typing.cast(Initializer, call(_linnet.init_truncated_normal, deviation=deviation))


def xavier_uniform() -> Initializer:
    """U(-a, a), a = sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    return _linnet.init_xavier_uniform()


def xavier_normal() -> Initializer:
    """N(0, 2 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    return _linnet.init_xavier_normal()


def he_uniform() -> Initializer:
    """U(-a, a), a = sqrt(6 / fan_in), for layers that ReLU follows (He et al. 2015)."""
    return _linnet.init_he_uniform()


def he_normal() -> Initializer:
    """N(0, 2 / fan_in), for layers that ReLU follows (He et al. 2015)."""
    return _linnet.init_he_normal()


def lecun_normal() -> Initializer:
    """N(0, 1 / fan_in) (LeCun et al. 1998)."""
    return _linnet.init_lecun_normal()


def values(values: typing.Any) -> Initializer:
    """These values: an array of the parameter's shape, or all of its elements in a row."""
    return _linnet.init_values(values)
