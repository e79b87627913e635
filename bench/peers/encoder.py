"""A BERT encoder at inference: PyTorch (eager, compiled, dynamically quantized) and ONNX Runtime (fp32, dynamic int8).

    encoder.py make FOLDER --layers 12 --width 768 --heads 12      a model folder with random weights
    encoder.py MODE --model FOLDER --batches 1,8 --lengths 32,128 [--seconds 1] [--threads 2]

Prints one line of JSON: for each batch and length the median latency and the 95th and 99th percentile, in milliseconds;
the time to load, and the memory that the process took beyond what it held when its libraries were there. ONNX Runtime
gets the file that its own tools make of PyTorch's export: fused by its transformer optimizer, quantized (weights of each
channel) by quantize_dynamic. They are kept beside the model.
"""

import argparse
import importlib.metadata
import json
import sys
import time
from pathlib import Path

import common

VOCABULARY, POSITIONS = 30522, 512
MODES = ("eager", "compile", "quantized", "ort", "ort-int8")
FEWEST = 5  # runs of a row


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


def onnx_file(folder: str, int8: bool) -> str:
    fused, quantized = Path(folder) / "fused.onnx", Path(folder) / "int8.onnx"
    if not fused.exists():
        import torch
        from onnxruntime.transformers import optimizer

        model, plain = opened(folder), Path(folder) / "plain.onnx"

        class Hidden(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, input_ids, attention_mask):
                return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

        example = torch.ones(2, 16, dtype=torch.long)
        torch.onnx.export(Hidden(), (example, example), str(plain), input_names=["input_ids", "attention_mask"],
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


def make_run(mode: str, folder: str, threads: int):
    """-> run(tokens, mask), both torch tensors for PyTorch and numpy arrays for ONNX Runtime."""
    if mode.startswith("ort"):
        import onnxruntime

        path = onnx_file(folder, mode == "ort-int8")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda tokens, mask: session.run(None, {"input_ids": tokens, "attention_mask": mask})
    import torch

    model = opened(folder)
    if mode == "quantized":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    if mode == "compile":
        model = torch.compile(model, dynamic=False)

    def run(tokens, mask):
        with torch.inference_mode():
            return model(input_ids=tokens, attention_mask=mask).last_hidden_state

    return run


def measured(mode: str, run, batch: int, length: int, seconds: float) -> dict:
    import numpy

    tokens = ((numpy.arange(batch * length) * 7919 + 101) % VOCABULARY).reshape(batch, length).astype(numpy.int64)
    mask = numpy.ones_like(tokens)
    if not mode.startswith("ort"):
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
    import torch  # both sides hold it, so that neither memory counts it

    torch.set_num_threads(options.threads)
    if options.mode.startswith("ort"):
        onnx_file(options.model, options.mode == "ort-int8")  # made before the clock starts
    version = f"{torch.__version__}, ONNX Runtime {importlib.metadata.version('onnxruntime')}"
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
