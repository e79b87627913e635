"""Writing text with a decoder of one's own."""

from __future__ import annotations

import typing

from . import _linnet
from .calls import call, path_of
from .errors import UserError
from .learner import Learner, goes_on
from .modules import GRU, LSTM, Conv1d, Decoder


class TextGenerator:
    """Writes tokens with a Decoder, with a cache of keys and values: positions may depend on earlier ones by
    CausalAttention alone. Other decoders need cache=False, which computes the whole text for each token. Its memory is
    taken when it is constructed."""

    def __init__(
        self,
        decoder: Decoder,
        slots: int = 1,
        max_length: int = 0,
        cache: bool = True,
        same_bits: bool = True,
        threads: int = 0,
    ) -> None:
        self._decoder = decoder
        self._kept: list[typing.Any] = []
        self._core: typing.Any = call(
            _linnet.GeneratorCore,
            decoder=decoder,
            kept=self._kept,
            slots=slots,
            max_length=max_length,
            cache=cache,
            same_bits=same_bits,
            threads=threads,
        )
        mixing = next((part for part in self._kept if isinstance(part, (LSTM, GRU, Conv1d))), None)
        if cache and mixing is not None:
            raise UserError(
                f"{type(mixing).__name__} keeps nothing of earlier positions, so the decoder needs cache=False"
            )

    def take(self, learner: Learner) -> TextGenerator:
        """Takes the weights of a learner of the same decoder."""
        self._core.take(learner._core)
        return self

    def load(self, path: str) -> TextGenerator:
        """Takes the weights that Learner.save() wrote."""
        self._core.load(path_of(path))
        return self

    def generate(
        self,
        prompts: typing.Sequence[typing.Sequence[int]],
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        ends: typing.Sequence[int] = (),
        listener: typing.Callable[[int, int], object] | None = None,
    ) -> list[list[int]]:
        """Continues each prompt; returns the new tokens. listener(row, token) hears each; False ends everything."""
        rows = [list(prompt) for prompt in prompts]
        hear = listener and (lambda row, token: goes_on(listener(row, token)))
        found: list[list[int]] = call(
            self._core.generate,
            prompts=rows,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            ends=list(ends),
            listener=hear,
        )
        return found
