"""What functions raise: one line that says where and what to do."""

import re

# Advice of the C++ library in messages, and what it is in Python.
_WORDS = [
    (
        "multiply by trace.row_mask() and count trace.sample_count(), or set LoaderOptions::pad_last to false",
        "make the learner and the batches with one linnet.Loader, whose last batch has no padding",
    ),
    ("cast() changes the type", '.astype("float32") changes the type'),
    ("sum(x) makes one", "x.sum() makes one"),
    ("sum(y) makes one", "y.sum() makes one"),
    ("Tracer::training()", "linnet.is_training()"),
    ("split_evenly:", "chunk:"),
    (
        "they are members of modules: Linear, Parameter",
        "they are attributes of modules, made before forward(): linnet.Linear(...), linnet.parameter(...)",
    ),
    ("set LoadOptions::filters", 'give layout="torch" or layout="linnet"'),
    (", expected i32 targets of shape", ', expected int32 targets (.astype("int32") makes them) of shape'),
    ("in a graph that does not train", "in a graph that does not train; do it under `if linnet.is_training():`"),
    ("--resume goes on with it, --run DIR names another", "resume=True goes on with it, run= names another"),
]
_KEY = re.compile(r"--set (?=[a-z_.]+=)")
_FILE_OR_COLUMN = re.compile(r"--(data|text-column|label-column) [A-Z]+(?:[.,][A-Za-z]+)?")


def _without_options(text: str) -> str:
    """The text with the options of the program, such as --text-column NAME, as arguments."""
    text = _KEY.sub("", text).replace("model.from=", "model_from=")
    return _FILE_OR_COLUMN.sub(lambda found: found[1].replace("-", "_") + "=", text)


class Error(Exception):
    """What every function of Linnet raises."""

    def __init__(self, message: str = "") -> None:
        parts = message.split("`")  # every second one is a command
        parts[::2] = map(_without_options, parts[::2])
        message = "`".join(parts)
        for word, python in _WORDS:
            message = message.replace(word, python)
        super().__init__(message)


class UserError(Error, ValueError):
    """A file, a configuration or an argument is wrong."""


class ShapeError(Error, ValueError):
    """Shapes or types of tensors do not fit; the message begins with the line of the program."""


class NumericError(Error, ArithmeticError):
    """A loss or a gradient is not finite."""


class MachineError(Error, RuntimeError):
    """The machine refuses: memory, disk, device."""


class InternalError(Error, RuntimeError):
    """A broken invariant of Linnet itself."""
