"""A BERT encoder at inference in PyTorch (eager, compiled, dynamically quantized), ONNX Runtime, OpenVINO and zentorch.

    encoder.py make FOLDER --layers 12 --width 768 --heads 12      a model folder with random weights
    encoder.py MODE --model FOLDER --batches 1,8 --lengths 32,128 [--seconds 1] [--threads 2]

Prints one line of JSON: for each batch and length the median latency and the 95th and 99th percentile, in milliseconds;
the time to load, and the memory that the process took beyond what it held when its libraries were there.

Files that a mode needs are made once and kept beside the model. ONNX Runtime gets the file that its own tools make of
PyTorch's export: fused by its transformer optimizer, quantized (weights of each channel) by quantize_dynamic. OpenVINO
converts the PyTorch model itself, because its attention is slower from the ONNX file; NNCF quantizes the result, with
tokens of the benchmark for calibration.

OpenVINO, zentorch and PyTorch's compiler compile for one batch and length at a time, in the warm-up of that row.
Neither the latencies nor the time to load count this. In PyTorch's and zentorch's bf16, weights and activations are
bf16, which is faster than autocast.

All modes need torch and transformers. OpenVINO's also need openvino and nncf, zentorch's zentorch, the others onnx and
onnxruntime.
"""

import argparse
import importlib.metadata
import json
import multiprocessing
import sys
import time
from pathlib import Path

import common

VOCABULARY, POSITIONS = 30522, 512
MODES = ("eager", "compile", "quantized", "ort", "ort-int8", "eager-bf16", "compile-bf16", "openvino", "openvino-bf16",
         "openvino-int8", "openvino-int8-bf16", "zentorch", "zentorch-bf16")
FEWEST = 5  # runs of a row
CALIBRATION_TEXTS, CALIBRATION_LENGTHS = 8, (32, 128, 512)  # for NNCF: so many texts of each length


def make(folder: str, layers: int, width: int, heads: int) -> None:
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=VOCABULARY, hidden_size=width, num_hidden_layers=layers,
                                     num_attention_heads=heads, intermediate_size=4 * width,
                                     max_position_embeddings=POSITIONS)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)


def opened(folder: str):
    import transformers

    return transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()


def hidden(model):
    """A module of (tokens, mask) -> the last hidden state, for tracing."""
    import torch

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    return Hidden()


def tokens_of(batch: int, length: int):
    """Tokens of a row, the same in all modes."""
    import numpy

    return ((numpy.arange(batch * length) * 7919 + 101) % VOCABULARY).reshape(batch, length).astype(numpy.int64)


def onnx_file(folder: str, int8: bool) -> str:
    fused, quantized = Path(folder) / "fused.onnx", Path(folder) / "int8.onnx"
    if not fused.exists():
        import torch
        from onnxruntime.transformers import optimizer

        model, plain = opened(folder), Path(folder) / "plain.onnx"
        example = torch.ones(2, 16, dtype=torch.long)
        torch.onnx.export(hidden(model), (example, example), str(plain), input_names=["input_ids", "attention_mask"],
                          output_names=["hidden"], opset_version=17, dynamo=False,
                          dynamic_axes={name: {0: "batch", 1: "length"}
                                        for name in ("input_ids", "attention_mask", "hidden")})
        made = optimizer.optimize_model(str(plain), model_type="bert", num_heads=model.config.num_attention_heads,
                                        hidden_size=model.config.hidden_size)
        made.save_model_to_file(str(fused))
        plain.unlink()
    if int8 and not quantized.exists():
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic

        # The fused operators have no shape inference: the tensors between them are floats.
        quantize_dynamic(str(fused), str(quantized), per_channel=True, weight_type=QuantType.QInt8,
                         extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    return str(quantized if int8 else fused)


def openvino_file(folder: str, int8: bool) -> str:
    plain, quantized = Path(folder) / "openvino.xml", Path(folder) / "openvino_int8.xml"

    def save(model, path: Path) -> None:
        draft = path.with_name("draft.xml")  # with draft.bin: an interrupted run leaves no half of a model
        openvino.save_model(model, draft, compress_to_fp16=False)
        draft.with_suffix(".bin").rename(path.with_suffix(".bin"))
        draft.rename(path)

    if not plain.exists():
        import openvino
        import torch

        example = torch.ones(2, 16, dtype=torch.long)
        inputs = {"input_ids": example, "attention_mask": example}
        with torch.inference_mode():
            save(openvino.convert_model(hidden(opened(folder)), example_input=inputs), plain)
    if int8 and not quantized.exists():
        import nncf
        import numpy
        import openvino

        texts = [tokens_of(CALIBRATION_TEXTS, length)[row:row + 1]
                 for length in CALIBRATION_LENGTHS for row in range(CALIBRATION_TEXTS)]
        data = nncf.Dataset([{"input_ids": text, "attention_mask": numpy.ones_like(text)} for text in texts])
        save(nncf.quantize(openvino.Core().read_model(plain), data, subset_size=len(texts),
                           model_type=nncf.ModelType.TRANSFORMER), quantized)
    return str(quantized if int8 else plain)


FILES = {"ort": onnx_file, "openvino": openvino_file}  # what a mode begins with -> what makes its file


def make_files(mode: str, folder: str) -> None:
    """Makes the file that a mode reads besides the model folder. It does so in another process: the run would reuse
    memory that the conversion freed, and seem to take less."""
    library = mode.split("-")[0]
    if library not in FILES:
        return
    child = multiprocessing.get_context("spawn").Process(target=FILES[library], args=(folder, "int8" in mode))
    child.start()
    child.join()
    if child.exitcode != 0:
        sys.exit(f"Error: no model for {mode}: its conversion failed")


def imported(mode: str) -> str:
    """Imports the mode's libraries, so that its memory does not count them -> their versions."""
    if mode.startswith("openvino"):
        import openvino  # noqa: F401

        return " and ".join(f"{name} {importlib.metadata.version(name.lower())}" for name in ("OpenVINO", "NNCF"))
    import torch

    if mode.startswith("zentorch"):
        import zentorch  # noqa: F401  its import registers the backend

        return f"zentorch {importlib.metadata.version('zentorch')} on PyTorch {torch.__version__}"
    return f"{torch.__version__}, ONNX Runtime {importlib.metadata.version('onnxruntime')}"


def openvino_run(mode: str, folder: str, threads: int):
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "bf16" if mode.endswith("bf16") else "f32", "PERFORMANCE_HINT": "LATENCY",
                "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    model = core.read_model(openvino_file(folder, "int8" in mode))
    shape, request = None, None

    def run(tokens, mask):
        nonlocal shape, request
        if tokens.shape != shape:
            shape, request = tokens.shape, None  # frees the model of the last shape first
            model.reshape({"input_ids": shape, "attention_mask": shape})
            request = core.compile_model(model, "CPU", settings).create_infer_request()
        return request.infer({"input_ids": tokens, "attention_mask": mask}, share_inputs=True, share_outputs=True)

    return run


def torch_run(mode: str, folder: str):
    import torch

    model = opened(folder)
    if mode.endswith("bf16"):
        model = model.to(torch.bfloat16)
    if mode == "quantized":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    if mode.startswith("compile"):
        import torch._inductor.config

        torch._inductor.config.freezing = True  # packs the weights for the products; zentorch does so by itself
        model = torch.compile(model, dynamic=False)
    if mode.startswith("zentorch"):
        model = torch.compile(model, backend="zentorch", dynamic=False)
    shape = None

    def run(tokens, mask):
        nonlocal shape
        if tokens.shape != shape:
            shape = tokens.shape
            torch.compiler.reset()  # else the packed weights of all shapes stay, and the ninth shape runs eagerly
        with torch.inference_mode():
            return model(input_ids=tokens, attention_mask=mask).last_hidden_state

    return run


def make_run(mode: str, folder: str, threads: int):
    """-> run(tokens, mask), both torch tensors for PyTorch and zentorch and numpy arrays for the others."""
    if mode.startswith("ort"):
        import onnxruntime

        path = onnx_file(folder, mode == "ort-int8")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda tokens, mask: session.run(None, {"input_ids": tokens, "attention_mask": mask})
    if mode.startswith("openvino"):
        return openvino_run(mode, folder, threads)
    import torch

    torch.set_num_threads(threads)
    return torch_run(mode, folder)


def measured(mode: str, run, batch: int, length: int, seconds: float) -> dict:
    import numpy

    tokens = tokens_of(batch, length)
    mask = numpy.ones_like(tokens)
    if not mode.startswith(("ort", "openvino")):
        import torch

        tokens, mask = torch.from_numpy(tokens), torch.from_numpy(mask)
    for _ in range(2):
        run(tokens, mask)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < FEWEST:
        began = time.perf_counter()
        run(tokens, mask)
        times.append((time.perf_counter() - began) * 1e3)
    times.sort()
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))]  # noqa: E731
    return {"batch": batch, "length": length, "p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("make", *MODES))
    parser.add_argument("folder", nargs="?", help="of make")
    for name, default in (("layers", 6), ("width", 384), ("heads", 12), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--lengths", default="32,128,512")
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    if options.mode == "make":
        make(options.folder, options.layers, options.width, options.heads)
        return
    make_files(options.mode, options.model)  # before the clock starts
    version = imported(options.mode)
    held, began = common.memory_mb("VmRSS"), time.perf_counter()
    common.reset_peak()
    run = make_run(options.mode, options.model, options.threads)
    load = time.perf_counter() - began
    rows = [measured(options.mode, run, batch, length, options.seconds)
            for batch in map(int, options.batches.split(",")) for length in map(int, options.lengths.split(","))]
    print(json.dumps({"peer": True, "version": version, "mode": options.mode, "load_seconds": load,
                      "memory_mb": common.memory_mb("VmHWM") - held, "rows": rows}))


if __name__ == "__main__":
    sys.exit(main())
