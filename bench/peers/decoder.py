"""GPT-2 writing one text a token at a time: transformers (eager fp32) and llama.cpp (F32, Q8_0, Q4_0).

    decoder.py make FOLDER [--layers 12 --width 768 --heads 12]      a model folder with random weights
    decoder.py MODE --model FOLDER [--tokens 128] [--seconds 5] [--threads 2]

Prints one line of JSON: tokens a second (of the median text), the 50th, 95th and 99th percentile of a token's latency
in ms, the time to load, the file's size, and the memory that the process took beyond what its libraries held.
llama.cpp gets the folder's weights in a GGUF file that is written beside it with the package gguf: matrices in the type
of the mode; in Q4_0 the embedding, which is the head too, in Q8_0, as Linnet's int4-weights has it.
"""

import argparse
import ctypes
import importlib.metadata
import json
import sys
import time
from pathlib import Path

import common

VOCABULARY, POSITIONS, PROMPT, TOKEN = 50257, 1024, 8, 17
TYPES = {"llama-f32": "F32", "llama-q8_0": "Q8_0", "llama-q4_0": "Q4_0"}
MODES = ("transformers", *TYPES)
FEWEST = 3  # texts


def make(folder: str, layers: int, width: int, heads: int) -> None:
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=width, n_layer=layers,
                                     n_head=heads)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)


# What llama.cpp calls the parts of a layer, and which of them Transformers has as [in, out].
LAYER = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm",
         "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
WHOLE = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}


def gguf_name(name: str) -> str:
    name = name.removeprefix("transformer.")
    part, kind = name.rsplit(".", 1)
    if part in WHOLE:
        return f"{WHOLE[part]}.{kind}"
    _, layer, rest = part.split(".", 2)
    return f"blk.{layer}.{LAYER[rest]}.{kind}"


def gguf_file(folder: str, kind: str) -> Path:
    """Written once."""
    path = Path(folder) / f"{kind}.gguf"
    if path.exists():
        return path
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((Path(folder) / "config.json").read_text())
    writer = gguf.GGUFWriter(str(path) + ".new", "gpt2")
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")  # only token ids are given
    wanted = gguf.GGMLQuantizationType[kind]
    for name, values in load_file(Path(folder) / "model.safetensors").items():
        if name.endswith((".attn.bias", ".attn.masked_bias")) or name == "lm_head.weight":  # masks, and the tied head
            continue
        values = values.astype("float32")
        is_layer_matrix = values.ndim == 2 and ".h." in f".{name}"
        type_ = gguf.GGMLQuantizationType.F32
        if is_layer_matrix:
            values, type_ = values.T.copy(), wanted
        elif name.endswith("wte.weight"):
            type_ = gguf.GGMLQuantizationType.Q8_0 if kind == "Q4_0" else wanted
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    Path(str(path) + ".new").rename(path)
    return path


class Opaque(ctypes.Structure):
    """A structure of llama.cpp that is only handed on. Its sizes differ by version; all are passed in memory, and more
    bytes than it has do no harm."""

    _fields_ = [("bytes", ctypes.c_uint64 * 128)]


def llama_library() -> ctypes.CDLL:
    """llama.cpp's C interface, in the module of the package xllamacpp."""
    import xllamacpp

    library = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    pointer, count = ctypes.c_void_p, ctypes.c_int32
    for name, result, arguments in (
            ("llama_print_system_info", ctypes.c_char_p, []),
            ("llama_model_default_params", Opaque, []),
            ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Opaque]),
            ("llama_context_default_params", Opaque, []),
            ("llama_init_from_model", pointer, [pointer, Opaque]),
            ("llama_set_n_threads", None, [pointer, count, count]),
            ("llama_get_memory", pointer, [pointer]),
            ("llama_memory_clear", None, [pointer, ctypes.c_bool]),
            ("llama_batch_get_one", Opaque, [ctypes.POINTER(ctypes.c_int32), count]),
            ("llama_decode", count, [pointer, Opaque])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.llama_backend_init()
    return library


def llama_version() -> str:
    """With the instruction sets that its processor code was compiled for."""
    info = llama_library().llama_print_system_info().decode()
    sets = [part.split("=")[0].split(":")[-1].strip() for part in info.split("|") if part.strip().endswith("= 1")]
    return f"llama.cpp (xllamacpp {importlib.metadata.version('xllamacpp')}; {', '.join(sets)})"


def llama(path: Path, threads: int):
    """-> write(count) -> seconds of each token."""
    library = llama_library()
    model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
    context = model and library.llama_init_from_model(model, library.llama_context_default_params())
    if not context:
        sys.exit(f"llama.cpp does not open {path}")
    library.llama_set_n_threads(context, threads, threads)

    def decode(tokens: list[int]) -> None:
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        if library.llama_decode(context, library.llama_batch_get_one(array, len(tokens))):
            sys.exit("llama.cpp does not decode")

    def write(count: int) -> list[float]:
        library.llama_memory_clear(library.llama_get_memory(context), True)
        decode([TOKEN] * PROMPT)
        times = []
        for _ in range(count - 1):  # the prompt gave the first; which token it is takes no time to speak of
            began = time.perf_counter()
            decode([TOKEN])
            times.append(time.perf_counter() - began)
        return times

    return write


def transformers_writer(folder: str):
    import torch
    import transformers

    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()

    class Clock:
        def __init__(self):
            self.times = []

        def put(self, _):
            self.times.append(time.perf_counter())

        def end(self):
            pass

    def write(count: int) -> list[float]:
        clock = Clock()
        with torch.inference_mode():
            model.generate(torch.full((1, PROMPT), TOKEN), max_new_tokens=count, min_new_tokens=count, do_sample=False,
                           use_cache=True, streamer=clock, pad_token_id=0)
        marks = clock.times[1:]  # the prompt is put first
        return [after - before for before, after in zip(marks, marks[1:])]

    return write


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("make", *MODES))
    parser.add_argument("folder", nargs="?", help="of make")
    for name, default in (("layers", 12), ("width", 768), ("heads", 12), ("threads", 2), ("tokens", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    if options.mode == "make":
        make(options.folder, options.layers, options.width, options.heads)
        return
    if options.mode in TYPES:
        file = gguf_file(options.model, TYPES[options.mode])
        version = llama_version()
        make_writer = lambda: llama(file, options.threads)  # noqa: E731
    else:
        import torch
        import transformers

        torch.set_num_threads(options.threads)
        file = Path(options.model) / "model.safetensors"
        version = f"transformers {transformers.__version__} on PyTorch {importlib.metadata.version('torch')}"
        make_writer = lambda: transformers_writer(options.model)  # noqa: E731
    held, began = common.memory_mb("VmRSS"), time.perf_counter()
    common.reset_peak()
    write = make_writer()
    load = time.perf_counter() - began
    write(4)
    each, texts, end = [], [], time.perf_counter() + options.seconds
    while time.perf_counter() < end or len(texts) < FEWEST:
        times = write(options.tokens)
        each += times
        texts.append(len(times) / sum(times))
    each.sort()
    at = lambda share: 1e3 * each[min(len(each) - 1, int(share * len(each)))]  # noqa: E731
    print(json.dumps({"peer": True, "version": version, "mode": options.mode,
                      "tokens_per_second": sorted(texts)[len(texts) // 2], "p50_ms": at(0.5), "p95_ms": at(0.95),
                      "p99_ms": at(0.99), "load_seconds": load, "file_mb": file.stat().st_size / 1e6,
                      "memory_mb": common.memory_mb("VmHWM") - held}))


if __name__ == "__main__":
    sys.exit(main())
