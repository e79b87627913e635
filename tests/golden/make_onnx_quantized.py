#!/usr/bin/env python3
"""A small convolutional network with random weights as ONNX Runtime's tools quantize it, and what ONNX Runtime computes.

    tests/golden/make_onnx_quantized.py        needs onnx, onnxruntime, torch

Writes onnx_quantized/: qdq.onnx (QDQ around each operator, a scale for each output channel), qoperator.onnx
(QLinearConv), integer.onnx (DynamicQuantizeLinear and ConvInteger), and numbers.safetensors with the input x and the
output of each, by its name.
"""

import os
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime import quantization
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional as F

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_quantized")


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 12, 1)
        self.dilated = nn.Conv2d(12, 12, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1))
        self.line = nn.Conv1d(12, 6, 3, padding=1)
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = x + self.depthwise(x)
        x = F.relu(self.dilated(F.relu(self.point(x))))
        x = self.line(x.mean(3))
        return self.head(x.mean(2))


class Samples(quantization.CalibrationDataReader):
    def __init__(self, x):
        self.left = [{"x": x}]

    def get_next(self):
        return self.left.pop() if self.left else None


def main():
    torch.manual_seed(3)
    x = torch.rand(2, 3, 16, 12) * 2 - 1
    os.makedirs(OUT, exist_ok=True)
    numbers = {"x": x.numpy()}
    paths = {name: os.path.join(OUT, name + ".onnx") for name in ("qdq", "qoperator", "integer")}
    with tempfile.TemporaryDirectory() as folder:
        exported = os.path.join(folder, "model.onnx")
        torch.onnx.export(Network().eval(), (x,), exported, dynamo=False, opset_version=17, input_names=["x"],
                          output_names=["y"], verbose=False)
        kinds = dict(qdq=(quantization.QuantFormat.QDQ, quantization.QuantType.QInt8, True),
                     qoperator=(quantization.QuantFormat.QOperator, quantization.QuantType.QUInt8, False))
        for name, (form, activations, per_channel) in kinds.items():
            quantization.quantize_static(exported, paths[name], Samples(x.numpy()), quant_format=form,
                                         per_channel=per_channel, activation_type=activations,
                                         weight_type=quantization.QuantType.QInt8)
        quantization.quantize_dynamic(exported, paths["integer"], op_types_to_quantize=["Conv", "MatMul"],
                                      weight_type=quantization.QuantType.QUInt8)
    for name, path in paths.items():
        model = onnx.load(path)
        del model.graph.value_info[:]  # shapes that nobody needs
        onnx.save(model, path)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        session = onnxruntime.InferenceSession(path, options)
        numbers[name] = session.run(None, {"x": x.numpy()})[0]
        print(name, os.path.getsize(path), sorted({node.op_type for node in model.graph.node}))
    save_file({name: np.ascontiguousarray(value) for name, value in numbers.items()},
              os.path.join(OUT, "numbers.safetensors"))


if __name__ == "__main__":
    main()
