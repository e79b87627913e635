"""What functions raise: one line that says where and what to do."""


class Error(Exception):
    """What every function of Linnet raises."""


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
