#!/usr/bin/env python3
"""Writes the node tests of the `onnx` Python package as folders, for `linnet onnx test OUT`.

    tools/make_onnx_tests.py OUT        needs onnx

The package makes the cases when they are asked for; old releases carry them as files (onnx/backend/test/data/node).
"""

import os
import sys

from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases


def write(path, message):
    with open(path, "wb") as file:
        file.write(message.SerializeToString())


def tensors(values, infos):
    for value, info in zip(values, infos):
        kind = info.type.WhichOneof("value")
        if isinstance(value, TensorProto):
            yield value
        elif kind == "sequence_type":
            yield numpy_helper.from_list(value, info.name)
        elif kind == "optional_type":
            yield numpy_helper.from_optional(value, info.name)
        elif kind == "map_type":
            yield numpy_helper.from_dict(value, info.name)
        else:
            yield numpy_helper.from_array(value, info.name)


def main(out):
    cases = collect_testcases()
    for case in cases:
        folder = os.path.join(out, case.name)
        os.makedirs(folder, exist_ok=True)
        write(os.path.join(folder, "model.onnx"), case.model)
        for number, (inputs, outputs) in enumerate(case.data_sets):
            data = os.path.join(folder, f"test_data_set_{number}")
            os.makedirs(data, exist_ok=True)
            for kind, values, infos in (("input", inputs, case.model.graph.input),
                                        ("output", outputs, case.model.graph.output)):
                for i, message in enumerate(tensors(values, infos)):
                    write(os.path.join(data, f"{kind}_{i}.pb"), message)
    print(f"{len(cases)} tests")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
