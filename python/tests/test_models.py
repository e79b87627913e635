"""Loaded models: answers, threads, cancelling, forks."""

import asyncio
import concurrent.futures
import gc
import os
import shutil
import signal
import subprocess
import threading
import typing

import linnet as ln
import numpy as np
import pytest
from conftest import GOLDEN

TEXTS = ["good film", "bad film", "the dog", "a cat a cat"]


def test_embed(bert: str) -> None:
    with ln.load(bert) as model:
        rows = model.embed(TEXTS)
        assert rows.shape == (4, model.info["width"]) and rows.dtype == np.float32
        np.testing.assert_array_equal(model.embed(TEXTS[2]), rows[2])
        assert model.embed([]).shape == (0, rows.shape[1])
        assert "embedder" in repr(model)


def test_generate_and_stream(llama: str) -> None:
    model = ln.load(llama)
    options: dict[str, typing.Any] = dict(max_tokens=8, temperature=0)
    text = model.generate("5 6 7", **options)
    assert len(text.split()) == 8
    pieces = list(model.stream("5 6 7", **options))
    assert "".join(pieces) == text and len(pieces) > 1
    assert model.generate("5 6 7", max_tokens=8, stop=text.split()[3]) != text
    assert model.generate("5 6 7", logit_bias={9: 100}, **options).split() == ["9"] * 8
    with pytest.raises(ln.UserError, match="response_format"):
        model.generate("5", response_format={"type": "xml"})

    async def listen() -> str:
        return "".join([piece async for piece in model.stream("5 6 7", **options)])

    assert asyncio.run(listen()) == text


def test_any_number_of_threads_give_the_same_text(llama: str) -> None:
    model = ln.load(llama, slots=3)
    prompts = [f"{5 + i % 4} 6 7" for i in range(32)]
    alone = {prompt: model.generate(prompt, max_tokens=6, temperature=0) for prompt in set(prompts)}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda prompt: model.generate(prompt, max_tokens=6, temperature=0), prompts))
    assert found == [alone[prompt] for prompt in prompts]


def test_a_stream_that_is_left_ends(llama: str) -> None:
    model = ln.load(llama, slots=1)
    for _ in range(20):
        stream = model.stream("5 6 7", max_tokens=20)
        next(stream)
        del stream
    assert model.generate("5 6 7", max_tokens=2, temperature=0)


def test_a_conversation_has_a_message(chatter: str) -> None:
    with pytest.raises(ln.UserError, match="at least one message"):
        ln.load(chatter).chat([], max_tokens=2)


def test_closing_while_threads_compute(llama: str) -> None:
    model = ln.load(llama)
    streams = [model.stream("5 6 7", max_tokens=20) for _ in range(4)]
    closer = threading.Thread(target=model.close)
    closer.start()
    for stream in streams:
        assert "".join(stream)
    closer.join()
    with pytest.raises(ln.UserError, match="closed"):
        model.generate("5")


def test_a_forked_child_opens_the_model_anew(llama: str) -> None:
    model = ln.load(llama)
    text = model.generate("5 6 7", max_tokens=6, temperature=0)
    child = os.fork()
    if child == 0:
        same = model.generate("5 6 7", max_tokens=6, temperature=0) == text
        del model
        gc.collect()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_ctrl_c_ends_a_text(llama: str) -> None:
    model = ln.load(llama, slots=1)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            model.generate("5 6 7", max_tokens=20)
    assert model.generate("5 6 7", max_tokens=2)


def test_score_tokenizer_and_saving(llama: str, bert: str) -> None:
    score = ln.load(llama).score("5 6 7")
    assert score.tokens > 0 and score.log_probability < 0
    with ln.load(bert) as model:
        ids = model.tokenizer.encode("the dog")
        assert model.tokenizer.decode(ids) == "the dog"
        assert repr(model.tokenizer) == "linnet.Tokenizer(wordpiece, 12 tokens)"
        model.save_pretrained("copy")
    np.testing.assert_array_equal(ln.load("copy").embed("the dog"), ln.load(bert).embed("the dog"))


def test_quantized(bert: str) -> None:
    exact, rounded = ln.load(bert).embed(TEXTS), ln.load(bert, quantize="int8").embed(TEXTS)
    assert 0 < np.abs(exact - rounded).max() < 0.1


def test_a_folder_with_scales_is_computed_as_it_is(bert: str) -> None:
    folder = shutil.copytree(GOLDEN / "bert_classifier", "classifier")
    shutil.copy(f"{bert}/vocab.txt", folder)
    with open("texts.txt", "w", encoding="utf-8") as file:
        file.writelines(text + "\n" for text in TEXTS * 4)
    subprocess.run(["linnet", "quantize", folder, "--calibrate", "texts.txt", "-o", "static"], check=True)
    as_it_is, static, exact = (ln.load("static", quantize=way).probabilities(TEXTS) for way in (None, "static", "none"))
    np.testing.assert_array_equal(as_it_is, static)
    assert 0 < np.abs(exact - static).max() < 0.1


def test_options_that_are_none_of_their_values(llama: str) -> None:
    model = ln.load(llama)
    text = model.generate("5", max_tokens=2, temperature=0)
    assert model.generate("5", max_tokens=2, temperature=0, seed=None) == text
    for options in (dict(temperature=float("nan")), dict(max_tokens=object())):
        with pytest.raises(ln.UserError, match=f"the option {next(iter(options))} is "):
            model.generate("5", **options)
    ended = model.generate("5", max_tokens=20, temperature=0)
    assert len(model.generate("5", max_tokens=20, temperature=0, ignore_end=True)) > len(ended)
    assert model.generate("5", max_tokens=2, temperature=0, length_penalty=2) == text
    with pytest.raises(ln.UserError, match=r'no setting "max_token" \(did you mean "max_tokens"\?\)'):
        model.generate("5", max_token=2)
    with pytest.raises(ln.UserError, match="is the folder that the model is read from"):
        model.save_pretrained(llama)
    model.close()
    assert "closed" in repr(model)


def test_adapters_are_chosen_by_name(llama: str) -> None:
    adapter, options = str(GOLDEN.parent / "lora" / "llama"), dict(max_tokens=8, temperature=0)
    base = ln.load(llama).generate("5 6 7", **options)
    adapted = ln.load(llama, adapters=adapter).generate("5 6 7", **options)
    assert ln.load(llama, adapters=[adapter]).generate("5 6 7", **options) == adapted != base
    named = ln.load(llama, adapters=[f"fr={adapter}"])
    assert named.generate("5 6 7", adapter="fr", **options) == adapted
    assert named.generate("5 6 7", **options) == base == named.generate("5 6 7", adapter="none", **options)
    with pytest.raises(ln.UserError, match='no adapters "de"; there are fr'):
        named.generate("5 6 7", adapter="de")
    with pytest.raises(ln.UserError, match="adapters without a name"):
        named.score("5 6 7")


def test_texts_that_are_none(llama: str, bert: str) -> None:
    model, embedder = ln.load(llama), ln.load(bert)
    calls: dict[str, typing.Callable[[], typing.Any]] = {
        "at least one message": lambda: model.chat([]),
        'message 0 has no "content"': lambda: model.chat([{"role": "user"}]),
        "message 0 is 'a'; a dict": lambda: model.chat(["a"]),  # type: ignore[list-item]
        '"seed" is not a whole number': lambda: model.generate("5", seed=-1),
        "a NoneType was given": lambda: embedder.embed([None]),  # type: ignore[list-item]
        "a dict was given": lambda: embedder.classify({"text": "a"}),  # type: ignore[call-overload]
        "a str was given": lambda: embedder.rerank("q", "abc"),
        "top = -1 is below 0": lambda: embedder.rerank("q", ["a", "b"], top=-1),
    }
    for message, call in calls.items():
        with pytest.raises(ln.UserError, match=message):
            call()


def test_models_that_are_closed_leave_nothing(bert: str, llama: str) -> None:
    from test_learner import resident

    def some(count: int) -> None:
        for _ in range(count):
            ln.load(bert, threads=1).embed("the dog")
            ln.load(llama, threads=1).close()
        gc.collect()

    some(30)
    before = resident()
    some(60)
    assert resident() - before < 8 << 20


def test_a_packed_file(bert: str) -> None:
    subprocess.run(["linnet", "pack", bert, "-o", "bert.linnet"], check=True, stderr=subprocess.DEVNULL)
    np.testing.assert_array_equal(ln.load("bert.linnet").embed("the dog"), ln.load(bert).embed("the dog"))


def test_two_texts_are_judged(bert: str) -> None:
    shutil.copytree(GOLDEN / "bert_classifier", "pairs")
    shutil.copy(f"{bert}/vocab.txt", "pairs/vocab.txt")
    texts = [("good film", "a dog"), ("a dog", "good film"), ("bad cat", "the film")]
    with open("pairs.tsv", "w") as file:
        file.writelines(f"{a}\t{b}\n" for a, b in [("text", "pair"), *texts])
    printed = subprocess.run(
        ["linnet", "predict", "pairs", "--pair-column", "pair", "pairs.tsv"], capture_output=True, text=True, check=True
    )
    with ln.load("pairs") as model:
        found = model.classify(texts)
        assert model.classify(texts[0]) == found[0]
        assert found[0].probabilities != model.classify("good film a dog").probabilities
        mixed = model.probabilities(["good film", texts[1]])
        np.testing.assert_array_equal(mixed[1], list(map(np.float32, found[1].probabilities.values())))
        with pytest.raises(ln.UserError, match="reranker"):
            model.rerank("good film", ["a dog"])
    for line, one in zip(printed.stdout.splitlines(), found):
        label, probability = line.split("\t")[:2]
        assert label == one.label and abs(float(probability) - one.probability) < 1e-6


def test_texts_that_are_cut_within_a_character() -> None:
    lines = [f"{a} × {b} = “{a * b}” café 🙂 ≈" for a in range(60) for b in range(20)]
    options: dict[str, typing.Any] = dict(d_model=32, num_layers=1, num_heads=2, context=32)
    ln.train("language", lines, "run", steps=20, batch_size=4, **options)
    with ln.load("run") as model:
        texts = [model.generate("1", max_tokens=20, temperature=2.0, seed=seed) for seed in range(20)]
        assert "".join(model.stream("1", max_tokens=20, temperature=2.0, seed=0)) == texts[0]
    assert any("\ufffd" in text for text in texts)


def test_a_decoder_of_recurrent_layers_has_no_cache() -> None:
    class Writer(ln.Decoder):
        def __init__(self) -> None:
            self.vocab_size, self.max_length = 10, 16
            self.table, self.layers = ln.Embedding(10, 8), [ln.LSTM(8, 8)]

        def states(self, tokens: ln.Tensor, positions: ln.Tensor) -> ln.Tensor:
            return self.layers[0](self.table(tokens))

        def head(self) -> ln.LayerParameter:
            return self.table.weight

    batch = {name: np.ones((2, 16), np.int32) for name in ("tokens", "targets")}
    with pytest.raises(ln.UserError, match="LSTM"):
        ln.TextGenerator(Writer())
    learner = ln.Learner(writer := Writer(), lambda tokens, targets: ln.decoder_loss(writer, tokens, targets), batch)
    written = ln.TextGenerator(writer, cache=False).take(learner).generate([[1]], max_tokens=3)
    assert len(written[0]) == 3
