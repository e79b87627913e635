"""What functions raise: one line that says where and what to do."""

# Words of the C++ library in messages, and what they are in Python.
_WORDS = [
    (
        "multiply by trace.row_mask() and count trace.sample_count(), or set LoaderOptions::pad_last to false",
        "make the learner and the batches with one linnet.Loader, whose last batch has no padding",
    ),
    (
        "row_mask() and sample_count() come after an input that has rows",
        "the loss is a mean over the rows of a batch, and no field of the batch has rows",
    ),
    ("set LoadOptions::filters", 'give layout="torch" or layout="linnet"'),
    ("training = false", "training=False"),
    ("Learner::save_state()", "Learner.save_state()"),
    (", expected i32 targets of shape", ', expected int32 targets (.astype("int32") makes them) of shape'),
    ("in a graph that does not train", "in a graph that does not train; do it under `if linnet.is_training():`"),
    ("--resume goes on with it, --run DIR names another", "resume=True goes on with it, run= names another"),
    ("--text-column NAME", "text_column="),
    ("--label-column NAME", "label_column="),
    ("(--data FILE)", "(data=)"),
    ("(--data FOLDER)", "(data=)"),
    ("--set model.from=", "model_from="),
    ("--set ", ""),
]


class Error(Exception):
    """What every function of Linnet raises."""

    def __init__(self, message: str = "") -> None:
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
