"""Calls of the compiled part: arguments that it does not take are errors of one line, which names them."""

from __future__ import annotations

import atexit
import os
import re
import reprlib
import time
import typing

from . import _linnet
from .errors import UserError

_KINDS: dict[str, tuple[str, ...]] = {"int": ("__index__",), "float": ("__float__", "__index__")}


def call(function: typing.Callable[..., typing.Any], /, **arguments: typing.Any) -> typing.Any:
    """function(*arguments.values()), where `arguments` have the names that the caller's own arguments have."""
    try:
        return function(*arguments.values())
    except TypeError as error:
        text = str(error).replace("collections.abc.", "")
        is_inside = error.__traceback__ is None or error.__traceback__.tb_next is not None  # in the caller's functions
        if is_inside or "incompatible function arguments" not in text:
            raise
        wanted = re.findall(r"\barg\d*: (.+?)(?=, arg\d*:|, /|\))", text.partition("\n\n")[0])
        named = list(zip(arguments.items(), wanted))
        wrong = [(name, value, kind) for (name, value), kind in named if not _is_taken(value, kind)]
        given = [f"{name} = {_shown(value)} is not taken; {kind} is wanted" for name, value, kind in wrong[:1]]
        names = ", ".join(f"{name} = {_shown(value)}" for name, value in arguments.items())
        raise TypeError(given[0] if given else f"these arguments are not taken: {names}") from None


def _shown(value: typing.Any) -> str:
    return " ".join(reprlib.repr(value).split())


def _is_taken(value: typing.Any, kind: str) -> bool:
    """Whether a value is of a type as the compiled part names it, as far as that is known."""
    if many := re.fullmatch(r"Sequence\[(.*)\]", kind):
        return not isinstance(value, str) and all(_is_taken(one, many[1]) for one in value)
    if kind == "str":
        return isinstance(value, str) and is_utf8(value)
    if kind == "bool":
        return isinstance(value, bool)
    return kind not in _KINDS or any(hasattr(value, method) for method in _KINDS[kind])


def _end_calls() -> None:
    """From now on no other thread begins a call between C++ and Python, in which the end of Python would abort the
    process. Waits for those that run, 10 s at most."""
    end = time.monotonic() + 10
    while _linnet.end_calls() and time.monotonic() < end:
        time.sleep(0.001)


atexit.register(_end_calls)


def is_utf8(text: str) -> bool:
    """Whether a text is one in UTF-8: it has no half of a pair of surrogates, as file names of other encodings have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def path_of(path: str | bytes | os.PathLike[typing.Any]) -> str:
    """A path as open() takes it, as a text."""
    text = os.fsdecode(path)
    if not is_utf8(text):
        raise UserError(f"the path {text!r} is not in UTF-8: rename the file or the folder")
    return text


def text_of(text: typing.Any) -> str:
    """A text for a model."""
    if not isinstance(text, str):
        raise TypeError(f"a text is wanted, and a {type(text).__name__} was given")
    if not is_utf8(text):
        raise UserError(f"a text has half of a pair of surrogates, which is no character: {reprlib.repr(text)}")
    return text
