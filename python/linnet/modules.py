"""Modules and layers. A module's parts are its attributes: modules, parameters, and lists, tuples and dicts of them.
Their names are PyTorch's: `encoder.layers.0.weight`. Images and filters have their channels last."""

from __future__ import annotations

import copyreg
import operator
import typing

from . import _linnet
from ._linnet import Initializer, LayerParameter, Loss, Parameter, Tensor
from .calls import call, path_of
from .errors import UserError

# Modules may hold functions, such as relu: copies have the same ones, and pickle writes their names.
copyreg.pickle(type(_linnet.relu), lambda function: function.__name__)

TensorLike = typing.Union[Tensor, Parameter, LayerParameter]


def _parameter(shape: typing.Sequence[int], init: Initializer, buffer: bool) -> Parameter:
    if not isinstance(init, Initializer):
        raise UserError(
            f"init is a {type(init).__name__}; one of linnet.init is wanted, such as linnet.init.constant(0)"
        )
    if not hasattr(shape, "__iter__"):
        raise UserError(f"shape = {shape!r}; a tuple of sizes is wanted, such as ({shape!r},)")
    return typing.cast(Parameter, call(_linnet.parameter, shape=list(shape), init=init, buffer=buffer))


def parameter(shape: typing.Sequence[int], init: Initializer | None = None) -> Parameter:
    """An array that training changes; without `init` it begins as Glorot's uniform rule says."""
    return _parameter(shape, _linnet.init_xavier_uniform() if init is None else init, False)


def Buffer(shape: typing.Sequence[int], init: Initializer | None = None) -> Parameter:
    """State that is saved and not trained, such as running statistics; zeros without `init`.
    `update_buffer(buffer, x)`, under `if is_training():`, sets what it holds after the step, and what reading it later
    in the loss gives; elements that are not finite stay as they were."""
    return _parameter(shape, _linnet.init_constant(0) if init is None else init, True)


class Module:
    """A part of a model, or a whole one. Subclasses set parts as attributes and define `forward`."""

    _spec: typing.Any = None

    def forward(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Records what the module computes."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Calls forward(); errors in it name the module."""
        return _linnet.call(self, *args, **kwargs)

    def __repr__(self) -> str:
        return _shown(self, ())


def _shown(part: typing.Any, above: tuple[int, ...]) -> str:
    """A part with its own parts below it; `above` are those that hold it, of which it may hold one again."""
    if id(part) in above:
        return "..."
    if isinstance(part, Parameter) or (isinstance(part, Module) and type(part).__repr__ is not Module.__repr__):
        return repr(part)
    lines = [f"\n({name}): {_shown(value, (*above, id(part)))}" for name, value in parts_of(part)]
    inside = "".join(lines).replace("\n", "\n  ")
    return f"{type(part).__name__}({inside}\n)" if inside else f"{type(part).__name__}()"


def parts_of(holder: typing.Any) -> list[tuple[str, typing.Any]]:
    """Names and parts of a module or a container: modules, parameters, and containers that have some."""
    is_module = isinstance(holder, Module)
    if is_module or isinstance(holder, dict):
        entries = list((vars(holder) if is_module else holder).items())
    else:
        entries = list(enumerate(holder))
    return [
        (str(name), value)
        for name, value in entries
        if isinstance(value, (Module, Parameter))
        or (isinstance(value, (list, tuple, dict)) and value is not holder and parts_of(value))
    ]


class _Layer(Module):
    def __init__(self, spec: typing.Any, text: str) -> None:
        self._spec = spec
        self._text = text

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> Tensor:
        """Applies the layer."""
        return typing.cast(Tensor, super().__call__(*args, **kwargs))

    def forward(self, x: TensorLike) -> Tensor:
        """Applies the layer."""
        return _linnet.apply(self, x)

    def __getattr__(self, name: str) -> LayerParameter:
        if name in ("weight", "bias", "running_mean", "running_var"):
            return LayerParameter(self, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: typing.Any) -> None:
        if name in ("weight", "bias"):
            raise UserError(
                f"the {name} of a layer cannot be replaced; to share one, use it in an operation: "
                "matmul(x, self.embedding.weight, trans_b=True)"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._text})"


class Linear(_Layer):
    """y = x weight^T + bias: [..., inputs] -> [..., outputs]. weight [outputs, inputs], bias [outputs]."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, init: Initializer | None = None) -> None:
        super().__init__(
            call(_linnet.linear, inputs=inputs, outputs=outputs, bias=bias, init=init), f"{inputs}, {outputs}"
        )


class Embedding(_Layer):
    """Rows of a table: ids int32 [...] -> [..., width]. weight [rows, width], which begins with a deviation of 1, as in
    PyTorch; for a table that is the output layer too, init=init.normal(0.02) is usual. `scaled`: rows are multiplied by
    sqrt(width), as in the Transformer of 2017, and begin with a deviation of 1 / sqrt(width)."""

    def __init__(self, rows: int, width: int, init: Initializer | None = None, scaled: bool = False) -> None:
        super().__init__(
            call(_linnet.embedding_layer, rows=rows, width=width, init=init, scaled=scaled), f"{rows}, {width}"
        )


class LayerNorm(_Layer):
    """Layer normalization over the last axis. weight, bias [width] unless `affine` is False."""

    def __init__(self, width: int, epsilon: float = 1e-5, affine: bool = True) -> None:
        super().__init__(call(_linnet.layer_norm_layer, width=width, epsilon=epsilon, affine=affine), f"{width}")


class RMSNorm(_Layer):
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis. weight [width]."""

    def __init__(self, width: int, epsilon: float = 1e-6) -> None:
        super().__init__(call(_linnet.rms_norm_layer, width=width, epsilon=epsilon), f"{width}")


class GroupNorm(_Layer):
    """Group normalization: [N, ..., channels]. weight, bias [channels]."""

    def __init__(self, groups: int, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__(
            call(_linnet.group_norm_layer, groups=groups, channels=channels, epsilon=epsilon), f"{groups}, {channels}"
        )


class BatchNorm(_Layer):
    """Batch normalization over all axes but the last: [..., channels]. weight, bias, running_mean, running_var."""

    def __init__(self, channels: int, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(
            call(_linnet.batch_norm_layer, channels=channels, epsilon=epsilon, momentum=momentum), f"{channels}"
        )


class Dropout(_Layer):
    """Zeroes elements with this probability while training, and scales the others up."""

    def __init__(self, probability: float = 0.5) -> None:
        super().__init__(call(_linnet.dropout_layer, probability=probability), f"{probability}")


_Pair = typing.Union[int, tuple[int, int]]


def _pair(size: _Pair) -> tuple[int, int]:
    """(rows, columns); columns below 0: as many as rows."""
    if isinstance(size, (tuple, list)) and len(size) != 2:
        raise UserError(f"a size of images is a number or (rows, columns), and {size!r} was given")
    return (size[0], size[1]) if isinstance(size, (tuple, list)) else (operator.index(size), -1)


class _Convolution(_Layer):
    _make: typing.Callable[..., typing.Any]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: _Pair,
        stride: int = 1,
        padding: _Pair = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        init: Initializer | None = None,
        **more: int,
    ) -> None:
        spec = call(
            self._make,
            inputs=inputs,
            outputs=outputs,
            size=_pair(size),
            stride=stride,
            padding=_pair(padding),
            dilation=dilation,
            groups=groups,
            bias=bias,
            init=init,
            **more,
        )
        super().__init__(spec, f"{inputs}, {outputs}, {size}")


class Conv2d(_Convolution):
    """Convolution of images [N, H, W, inputs] -> [N, H', W', outputs], H' = (H + 2 padding - dilation (size - 1) - 1) /
    stride + 1. `size` and `padding` may be (rows, columns). weight [outputs, rows, columns, inputs / groups], bias
    [outputs]. groups = inputs: depthwise."""

    _make = staticmethod(_linnet.conv2d_layer)


class Conv1d(_Convolution):
    """Convolution along sequences [N, L, inputs] -> [N, L', outputs]. weight [outputs, size, inputs / groups], bias
    [outputs]."""

    _make = staticmethod(_linnet.conv1d_layer)


class ConvTranspose2d(_Convolution):
    """Transposed convolution [N, H, W, inputs] -> [N, H', W', outputs], H' = (H - 1) stride - 2 padding + dilation
    (size - 1) + output_padding + 1. weight [inputs, size, size, outputs / groups], bias [outputs]."""

    _make = staticmethod(_linnet.conv_transpose2d_layer)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int = 1,
        init: Initializer | None = None,
    ) -> None:
        super().__init__(
            inputs, outputs, size, stride, padding, dilation, groups, bias, init, output_padding=output_padding
        )


class LSTM(_Layer):
    """Long short-term memory: [B, T, inputs] -> the hidden states of all positions, [B, T, hidden]. One layer, with the
    parameters of torch.nn.LSTM: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(call(_linnet.lstm_layer, inputs=inputs, hidden=hidden), f"{inputs}, {hidden}")


class GRU(_Layer):
    """Gated recurrent unit: [B, T, inputs] -> the hidden states of all positions, [B, T, hidden]. One layer, with the
    parameters of torch.nn.GRU."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(call(_linnet.gru_layer, inputs=inputs, hidden=hidden), f"{inputs}, {hidden}")


class ConvReluPool(_Layer):
    """3 x 3 convolution, ReLU and 2 x 2 max pooling in one pass over memory: [N, H, W, inputs], float32 or uint8, ->
    [N, H / 2, W / 2, outputs]. Bytes are scaled to (x / 255 - mean[c]) / deviation[c]."""

    def __init__(
        self, inputs: int, outputs: int, mean: typing.Sequence[float] = (), deviation: typing.Sequence[float] = ()
    ) -> None:
        for name, given in (("mean", mean), ("deviation", deviation)):
            if not hasattr(given, "__iter__"):
                raise UserError(
                    f"ConvReluPool's {name} has a number for each channel, and {given!r} was given; filters are 3 x 3"
                )
        make = _linnet.conv_relu_pool_layer
        spec = call(make, inputs=inputs, outputs=outputs, mean=list(mean), deviation=list(deviation))
        super().__init__(spec, f"{inputs}, {outputs}")


class MultiHeadAttention(_Layer):
    """Scaled dot-product attention with many heads. in_proj_weight [width + 2 kv_heads * (width / heads), width] stacks
    queries, keys and values; out_proj.weight [width, width]."""

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int = 0,
        dropout: float = 0.0,
        rotary_theta: float = 0.0,
        biases: bool = True,
    ) -> None:
        spec = call(
            _linnet.attention_layer,
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            dropout=dropout,
            rotary_theta=rotary_theta,
            biases=biases,
        )
        super().__init__(spec, f"{width}, {heads}")

    def forward(
        self,
        x: TensorLike,
        memory: TensorLike | None = None,
        lengths: TensorLike | None = None,
        causal: bool = False,
    ) -> Tensor:
        """x [B, T, width] attends to itself, or to memory [B, S, width]. lengths int32 [B]: how many positions of each
        row count. causal: a position sees itself and those before it alone."""
        return _linnet.attend(self, x, memory, lengths, causal)


class CausalAttention(MultiHeadAttention):
    """Attention of each position to itself and those before it, for decoders."""

    def forward(self, x: TensorLike) -> Tensor:  # type: ignore[override]
        """x [B, T, width] -> [B, T, width]."""
        return _linnet.attend(self, x, None, None, True)


class PretrainedBert(_Layer):
    """The encoder of a BERT folder of transformers. `Learner.load_bert` reads its weights, `save_bert` writes a
    folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(_linnet.bert_layer(path_of(folder)), repr(path_of(folder)))

    def forward(self, tokens: TensorLike, lengths: TensorLike, types: TensorLike | None = None) -> Tensor:  # type: ignore[override]
        """tokens, types int32 [B, T], lengths int32 [B] -> states [B, T, width]."""
        return _linnet.bert(self, tokens, lengths, types)

    def pooled(self, states: TensorLike) -> Tensor:
        """The state of the first token through the folder's dense layer and tanh: [B, T, width] -> [B, width]."""
        return _linnet.bert_pooled(self, states)


class OnnxModule(_Layer):
    """The network of an ONNX file, or of a folder that `linnet import` wrote, as a part of a model. Its weights begin
    with the file's values and are trained as all others are. Images of PyTorch's files are [N, C, H, W], which
    `permute(x, (0, 3, 1, 2))` makes of [N, H, W, C]."""

    def __init__(self, path: str) -> None:
        super().__init__(_linnet.onnx_layer(path_of(path)), repr(path_of(path)))

    def forward(self, x: TensorLike | dict[str, TensorLike]) -> typing.Any:
        """A tensor -> the first output, of a network of one input; a dict of the inputs -> a dict of all outputs."""
        return _linnet.onnx_named(self, x) if isinstance(x, dict) else _linnet.onnx(self, x)


class Sequential(Module):
    """Modules and functions applied one after another; names are their numbers, as in PyTorch."""

    def __init__(self, *parts: typing.Callable[[typing.Any], typing.Any]) -> None:
        for index, part in enumerate(parts):
            setattr(self, str(index), part)
        self._order = [str(index) for index in range(len(parts))]

    def forward(self, x: TensorLike) -> typing.Any:
        """Applies all of them."""
        result: typing.Any = x
        for name in self._order:
            result = getattr(self, name)(result)
        return result


class Decoder(Module):
    """A language model that gives each position's state from the tokens up to it. All mixing of positions is done by
    CausalAttention. Subclasses set `vocab_size` and `max_length` and define `states` and `head`."""

    vocab_size: int
    max_length: int

    def states(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """tokens, positions int32 [B, T] -> states [B, T, D]."""
        raise NotImplementedError(f"{type(self).__name__} defines no states()")

    def head(self) -> TensorLike:
        """The output layer [V, D]: logits are states head^T. Often the weight of the token embedding."""
        raise NotImplementedError(f"{type(self).__name__} defines no head()")


def decoder_loss(decoder: Decoder, tokens: Tensor, targets: Tensor) -> Loss:
    """The cross-entropy of the next tokens: tokens and targets int32 [B, T]."""
    states = decoder.states(tokens, _linnet.positions(tokens))
    return _linnet.linear_cross_entropy(states, decoder.head(), targets)
