"""Trained models: runs, packed files and model folders as transformers writes them."""

from __future__ import annotations

import json
import os
import typing

from . import _linnet
from ._linnet import Tokenizer
from .calls import call, path_of, text_of
from .errors import UserError

Message = typing.Mapping[str, str]


class Classification(typing.NamedTuple):
    """The likeliest class of a text, its probability, and those of all classes."""

    label: str
    probability: float
    probabilities: dict[str, float]


Texts = typing.Union[str, "tuple[str, str]"]


class Score(typing.NamedTuple):
    """The natural logarithm of a text's probability, and the number of tokens that were scored."""

    log_probability: float
    tokens: int


class Stream:
    """A text as it is written: iterate over its pieces, with `for` or `async for`. Closing it, or leaving it to the
    garbage collector, ends the text."""

    def __init__(self, core: typing.Any) -> None:
        self._core = core

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        piece: str | None = self._core.next()
        if piece is None:
            raise StopIteration
        return piece

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        import asyncio

        piece: str | None = await asyncio.get_running_loop().run_in_executor(None, self._core.next)
        if piece is None:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """Ends the text."""
        self._core.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Model:
    """A loaded model; `linnet.load` makes it. Any number of threads may use it at once: their texts are computed
    together, and each text gives the same bits whatever is computed beside it."""

    def __init__(self, folder: str, options: dict[str, typing.Any]) -> None:
        self.folder = folder
        self._adapters = options["adapters"]
        self._core: typing.Any = _linnet.ModelCore(folder, options)

    def _stream(
        self, given: dict[str, typing.Any], options: dict[str, typing.Any], translates: bool = False
    ) -> typing.Any:
        """given: the prompt or the messages. With the options they are a line of `linnet generate --jsonl`."""
        texts = []
        for name, value in {**given, **options}.items():
            if value is None:
                continue
            try:
                text = json.dumps(value, default=lambda value: value.item(), allow_nan=False, ensure_ascii=False)
            except (AttributeError, TypeError, ValueError):
                raise UserError(f"the option {name} is {value!r}, which is none of its values") from None
            texts.append(f"{json.dumps('beam' if name == 'beams' else name)}: {text}")
        return self._core.stream(text_of("{" + ", ".join(texts) + "}"), translates)

    def generate(self, prompt: str, **options: typing.Any) -> str:
        """The text that follows a prompt, or answers it, without the prompt. Options: max_tokens, temperature, top_p,
        top_k, min_p, repetition_penalty, frequency_penalty, presence_penalty, logit_bias (of tokens by id), beams,
        length_penalty (of a search), stop, ignore_end, seed, adapter (the name of one that was loaded as "NAME=FOLDER",
        or "none"), source_language and target_language (of a translation), and response_format, as OpenAI has it; what
        is not given is as the model's author says."""
        return typing.cast(str, self._stream({"prompt": text_of(prompt)}, options).finish())

    def stream(self, prompt: str, **options: typing.Any) -> Stream:
        """The same piece by piece, in whole characters."""
        return Stream(self._stream({"prompt": text_of(prompt)}, options))

    def chat(self, messages: str | typing.Sequence[Message], **options: typing.Any) -> str:
        """The answer to a question, or to a conversation of {"role": ..., "content": ...}, by the chat template."""
        return typing.cast(str, self._stream({"messages": _conversation(messages)}, options).finish())

    def stream_chat(self, messages: str | typing.Sequence[Message], **options: typing.Any) -> Stream:
        """The same piece by piece."""
        return Stream(self._stream({"messages": _conversation(messages)}, options))

    @typing.overload
    def translate(self, text: str, **options: typing.Any) -> str: ...
    @typing.overload
    def translate(self, text: typing.Sequence[str], **options: typing.Any) -> list[str]: ...
    def translate(self, text: str | typing.Sequence[str], **options: typing.Any) -> str | list[str]:
        """The translation of a text, or of each of a list, which are computed together. Options are generate()'s."""
        lines = [text_of(line) for line in _texts(text)]
        streams = [self._stream({"prompt": line}, options, translates=True) if line.strip() else None for line in lines]
        found = [stream.finish() if stream else "" for stream in streams]
        return found[0] if isinstance(text, str) else found

    def embed(self, texts: str | typing.Sequence[str]) -> typing.Any:
        """Embeddings, a NumPy array float32 [texts, width]; of one text [width]. Texts that are too long are cut. They
        have length 1, unless a folder of sentence-transformers says otherwise."""
        listed = _texts(texts)
        for text in listed:
            if not isinstance(text, str):
                raise UserError(f"a text is wanted, and a {type(text).__name__} was given")
        rows = self._core.embed([text_of(text) for text in listed])
        return rows[0] if isinstance(texts, str) else rows

    def probabilities(self, texts: typing.Sequence[Texts]) -> typing.Any:
        """The probability of each class for each text, or each two (a, b): a NumPy array float32 [texts, classes]. A
        model of numbers gives these."""
        pairs = [text if isinstance(text, tuple) else (text, None) for text in _texts(texts)]
        if any(len(pair) != 2 or not isinstance(pair[0], str) for pair in pairs):
            raise UserError("a text to classify is a str, or a tuple of two")
        seconds = [None if second is None else text_of(second) for _, second in pairs]
        return self._core.classify([text_of(first) for first, _ in pairs], seconds)

    @typing.overload
    def classify(self, texts: Texts) -> Classification: ...  # type: ignore[overload-overlap]
    @typing.overload
    def classify(self, texts: typing.Sequence[Texts]) -> list[Classification]: ...
    def classify(self, texts: Texts | typing.Sequence[Texts]) -> Classification | list[Classification]:
        """The class of a text or of two texts (a, b), or of each of a list."""
        one = isinstance(texts, (str, tuple))
        rows = self.probabilities([texts] if one else texts)  # type: ignore[list-item]
        names = self.info["classes"]
        found = []
        for row in rows:
            best = int(row.argmax())
            found.append(Classification(names[best], float(row[best]), {n: float(p) for n, p in zip(names, row)}))
        return found[0] if one else found

    def rerank(self, query: str, documents: typing.Sequence[str], top: int | None = None) -> list[tuple[int, float]]:
        """Places and scores of the documents that fit a query best, best first: of a cross-encoder, whose one output
        for (query, document) is the score. top: at most so many; None: all."""
        if isinstance(documents, str):
            raise UserError("the documents to rerank are a list of texts, and a str was given")
        if top is not None and top < 0:
            raise UserError(f"top = {top} is below 0")
        scores = self.probabilities([(query, document) for document in documents])
        if scores.shape[1] != 1:
            raise UserError(f"'{self.folder}' tells classes; a reranker gives one number for two texts")
        order = (-scores[:, 0]).argsort(kind="stable")[:top]
        return [(int(place), float(scores[place, 0])) for place in order]

    def score(self, text: str, source: str = "") -> Score:
        """How likely the model finds a text; a translator wants its source. The weights are loaded once more for it."""
        if any("=" in adapter and not os.path.exists(adapter) for adapter in self._adapters):
            raise UserError("score() takes adapters without a name alone: load the model with adapters=FOLDER")
        return Score(*self._core.score(text_of(text), text_of(source)))

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return _linnet.load_tokenizer(self.folder)

    @property
    def info(self) -> dict[str, typing.Any]:
        """kind ("language", "translation", "classifier", "embedder"), folder, classes, width, ..."""
        return typing.cast("dict[str, typing.Any]", self._core.info())

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder that transformers loads: of a run its best weights, else a copy."""
        folder = path_of(folder)
        if self._adapters:
            raise UserError("save_pretrained() writes the folder's own weights, without the adapters")
        if os.path.exists(folder) and os.path.samefile(self.folder, folder):
            raise UserError(f"'{self.folder}' is the folder that the model is read from; give another one")
        if _linnet.is_run(self.folder):
            _linnet.export_run(self.folder, folder)
        elif os.path.isdir(self.folder):
            import shutil

            shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        else:
            raise UserError(f"'{self.folder}' is one file; save_pretrained() is for runs and model folders")

    def close(self) -> None:
        """Frees the memory, when texts that are being computed are done."""
        self._core.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            return f"linnet.Model({self.folder!r}, {self.info['kind']})"
        except UserError:
            return f"linnet.Model({self.folder!r}, closed)"


def _texts(texts: str | typing.Sequence[typing.Any]) -> list[typing.Any]:
    if isinstance(texts, (dict, bytes)) or not hasattr(texts, "__iter__"):
        raise UserError(f"a text or a list of texts is wanted, and a {type(texts).__name__} was given")
    return [texts] if isinstance(texts, str) else list(texts)


def _conversation(messages: str | typing.Sequence[Message]) -> list[dict[str, str]]:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not hasattr(messages, "__iter__"):
        raise UserError(f"a text or a list of messages is wanted, and a {type(messages).__name__} was given")
    listed = list(messages)
    if not listed:
        raise UserError("a conversation has at least one message")
    for i, message in enumerate(listed):
        if not isinstance(message, typing.Mapping) or "role" not in message:
            raise UserError(f'message {i} is {message!r}; a dict with "role" and "content" is wanted')
        if message.get("content") is None and not message.get("tool_calls"):
            raise UserError(f'message {i} has no "content"')
    return [dict(message) for message in listed]


def load(
    path: str | os.PathLike[str],
    *,
    device: str = "cpu",
    threads: int = 0,
    quantize: str | None = None,
    keep: typing.Sequence[str] = (),
    adapters: str | os.PathLike[str] | typing.Sequence[str | os.PathLike[str]] = (),
    slots: int = 8,
    beams: int = 0,
    max_length: int = 0,
) -> Model:
    """Loads a run, a packed file or a model folder.

    device: "cpu", "cuda" or "cuda:N". threads: 0 uses all that the process may. quantize: how weights are kept, as
    `linnet generate --quantize` takes it: "none" (fp32), "bf16", "int8", "int8-weights", "int4-weights" or "static";
    None: as the folder or file has them. keep: patterns of parameters that stay as they are. adapters: a folder of LoRA
    adapters, which all texts take, or several as "NAME=FOLDER", of which each text takes the one that `adapter` of
    generate() names. slots: texts that are written at once. beams: the most of a search. max_length: tokens of a text
    with its prompt, 0: the model's, at most 2048. Raises UserError when the path holds no such model.
    """
    if isinstance(adapters, (str, bytes, os.PathLike)):
        adapters = [adapters]
    options = dict(
        device=device,
        threads=threads,
        quantize=quantize or "",
        keep=list(keep),
        adapters=[path_of(adapter) for adapter in adapters],
        slots=slots,
        beams=beams,
        max_length=max_length,
    )
    return Model(path_of(path), options)


def load_tokenizer(folder: str | os.PathLike[str], target: bool = False) -> Tokenizer:
    """The tokenizer of a run or a model folder; target: of a translation's other side."""
    return typing.cast(Tokenizer, call(_linnet.load_tokenizer, folder=path_of(folder), target=target))
