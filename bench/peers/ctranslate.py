"""Translation with CTranslate2, of a model folder in Marian's layout.

    ctranslate.py make --model FOLDER --out CONVERTED
    ctranslate.py translate --model FOLDER --converted CONVERTED --source FILE --type float32|int8 --beam 4 [--isa avx2]

`make` converts the folder as its own converter does. `translate` prints one line of JSON: seconds of translating all
lines, and apart from them those of loading and of tokenization. --translations FILE gets the best translations.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

# Holds CTranslate2's own kernels and those of the libraries that multiply for it to an instruction set of Linnet's.
HELD_TO = {"auto": {}, "avx2": {"CT2_FORCE_CPU_ISA": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                                "MKL_ENABLE_INSTRUCTIONS": "AVX2"}}


def make(options) -> None:
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(options.model).convert(options.out, force=True)


def translate(options) -> dict:
    os.environ.update(HELD_TO[options.isa])  # read when the library is loaded
    import ctranslate2
    import sentencepiece

    limit = json.loads((Path(options.model) / "config.json").read_text())["max_position_embeddings"] - 1
    lines = Path(options.source).read_text().splitlines()
    began = time.perf_counter()
    translator = ctranslate2.Translator(options.converted, device="cpu", compute_type=options.type, inter_threads=1,
                                        intra_threads=options.threads)
    loaded = time.perf_counter()
    source, target = (sentencepiece.SentencePieceProcessor(str(Path(options.model) / f"{side}.spm"))
                      for side in ("source", "target"))
    tokens = [source.encode(line, out_type=str)[:limit - 1] + ["</s>"] for line in lines]
    tokenized = time.perf_counter()
    results = translator.translate_batch(tokens, beam_size=options.beam, max_batch_size=options.batch,
                                         max_decoding_length=limit)
    translated = time.perf_counter()
    texts = [target.decode(result.hypotheses[0]) for result in results]
    done = time.perf_counter()
    if options.translations:
        Path(options.translations).write_text("".join(text + "\n" for text in texts))
    return {"peer": True, "version": f"CTranslate2 {ctranslate2.__version__}", "seconds": translated - tokenized,
            "token_seconds": tokenized - loaded + done - translated, "load_seconds": loaded - began}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("make", "translate"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", help="of make: the converted folder")
    parser.add_argument("--converted", help="what make wrote")
    parser.add_argument("--source")
    parser.add_argument("--translations")
    parser.add_argument("--type", default="float32", choices=("float32", "int8"))
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", default="auto", choices=HELD_TO)
    options = parser.parse_args()
    if options.mode == "make":
        make(options)
        return
    print(json.dumps(translate(options)))


if __name__ == "__main__":
    sys.exit(main())
