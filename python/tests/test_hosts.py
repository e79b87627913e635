"""Linnet within other programs: daemon threads at exit, subinterpreters, names of files, arguments of other types."""

import os
import pathlib
import subprocess
import sys
import typing

import linnet as ln
import numpy as np
import pytest

DAEMON = """
import sys, threading
import numpy as np, linnet as ln
x = np.ones((64, 8), np.float32)

def learner():
    net = ln.Linear(8, 8)
    return ln.Learner(net, lambda x: (ln.mse_loss(net(x), x), {"y": net(x)}), {"x": x[:8]}, threads=2)

def sample(i):
    return {"x": np.ones(3, np.float32) * i}

def read():
    return list(ln.Loader(ln.Dataset.from_function(20, {"x": ("float32", (3,))}, sample), batch=5, workers=2))

made, model = learner(), ln.load(sys.argv[2])
work = dict(
    record=learner,
    step=lambda: made.step(x[:8], rate=1e-3),
    fit=lambda: made.fit({"x": x}, rate=lambda step: 1e-3, callbacks=[lambda event: None]),
    predict=lambda: made.predict(x),
    generate=lambda: model.generate("5 6 7", max_tokens=4),
    stream=lambda: list(model.stream("5 6 7", max_tokens=4)),
    read=read,
    dataset=lambda: ln.Dataset.from_function(20, {"x": ("float32", (3,))}, sample),
)[sys.argv[1]]
begun = threading.Event()

def forever():
    while True:
        work()
        begun.set()

sys.setswitchinterval(1e-6)
for _ in range(1 if sys.argv[1] in ("step", "fit", "predict") else 3):
    threading.Thread(target=forever, daemon=True).start()
begun.wait()
"""


@pytest.mark.parametrize("work", ["record", "step", "fit", "predict", "generate", "stream", "read", "dataset"])
def test_a_process_may_end_while_daemon_threads_work(work: str, llama: str) -> None:
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", DAEMON, work, llama], capture_output=True, text=True)
        assert ended.returncode == 0 and "terminate" not in ended.stderr, ended.stderr


LATE = """
import atexit
def save():
    learner.step(x, rate=0)
    learner.save("late.safetensors")
atexit.register(save)  # runs after the package's own function
import numpy as np, linnet as ln
x, net = np.ones((4, 3), np.float32), ln.Linear(3, 2)
learner = ln.Learner(net, lambda x: net(x).sum(), {"x": x})
"""


def test_a_program_may_save_at_exit() -> None:
    subprocess.run([sys.executable, "-c", LATE], check=True)
    assert os.path.exists("late.safetensors")


def test_a_subinterpreter_is_refused_and_the_main_one_goes_on() -> None:
    try:
        import _interpreters as interpreters  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        interpreters = pytest.importorskip("_xxsubinterpreters")
    other = interpreters.create()
    code = f"""import sys
sys.path[:] = {sys.path!r}
try:
    import linnet
except ImportError as error:
    open("refused", "w").write(str(error))
"""
    interpreters.run_string(other, code)
    interpreters.destroy(other)
    assert "main interpreter" in pathlib.Path("refused").read_text()
    net = ln.Linear(3, 2)
    with pytest.raises(ln.UserError):
        net(np.ones((4, 3), np.float32))


def test_paths_may_be_bytes(llama: str, bert: str) -> None:
    text = ln.load(llama).generate("5 6 7", max_tokens=3, temperature=0)
    assert ln.load(os.fsencode(llama)).generate("5 6 7", max_tokens=3, temperature=0) == text
    assert ln.load_tokenizer(os.fsencode(bert)).vocab_size == ln.load_tokenizer(pathlib.Path(bert)).vocab_size
    net, x = ln.Linear(3, 2), np.ones((4, 3), np.float32)
    learner = ln.Learner(net, lambda x: net(x).sum(), {"x": x})
    learner.save(b"weights")
    assert learner.load(os.fsencode(os.path.abspath("weights"))).fresh == []


WRONG: dict[str, typing.Callable[[], typing.Any]] = {
    "path 'model_.udcfc' is not in UTF-8": lambda: ln.load("model_\udcfc"),
    "path 'weights_.udcfc' is not in UTF-8": lambda: ln.OnnxModule(os.fsencode("weights_") + b"\xfc"),
    "batch = 'x' is not taken; int is wanted": lambda: ln.Loader({"x": [1, 2]}, batch="x"),  # type: ignore[arg-type]
    "indices = .'x'. is not taken; Sequence.int. is wanted": lambda: ln.Dataset(x=[1, 2]).select(["x"]),  # type: ignore[list-item]
    "arguments are not taken: .*seed = -1": lambda: ln.Loader({"x": [1, 2]}, seed=-1),
    "inputs = '3' is not taken; int is wanted": lambda: ln.Linear("3", 2),  # type: ignore[arg-type]
    "value = None is not taken; float is wanted": lambda: ln.init.constant(None),  # type: ignore[arg-type]
    "resume = 'yes' is not taken; bool": lambda: ln.train("language", ["a"], "run", resume="yes"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_not_taken_is_named_in_a_line(message: str) -> None:
    with pytest.raises((TypeError, ln.UserError), match=message) as found:
        WRONG[message]()
    assert "\n" not in str(found.value)


def test_texts_are_checked_by_every_method(llama: str) -> None:
    model = ln.load(llama)
    for call in (model.score, model.generate, lambda text: model.score("5 6", source=text)):
        with pytest.raises(TypeError, match="^a text is wanted, and a list was given$"):
            call(["5 6"])
        with pytest.raises(ln.UserError, match="surrogates"):
            call("5 \udcfc")
