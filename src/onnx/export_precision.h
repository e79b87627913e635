// Exported models in fewer bits.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "onnx/file/model.h"

namespace linnet {

enum class OnnxPrecision {
  kF32,
  kF16,  // weights and computation in 16 bits, but for sums of squares, powers and roots; inputs and outputs stay
  kInt8Dynamic,  // products of 8-bit numbers: activations are quantized when the model runs, each tensor by its range
  kInt8Qdq,      // weights of 8 bits and a DequantizeLinear behind each: the form TensorRT and ONNX Runtime know
};

// By parameter: the scale of what its product reads, as calibration or training for static int8 found it.
using InputScales = std::map<std::string, float>;

// "fp32", "fp16", "int8-dynamic" or "int8-qdq"; user error naming them for another.
OnnxPrecision onnx_precision(const std::string& name);

// Changes a model that make_onnx() made. Weights of 8 bits are those of matrix products (and of convolutions with
// int8-qdq) that nothing else reads, with a scale for each output channel and zero point 0. They go from -127 to 127;
// with int8-dynamic from -63 to 63, as pairs of products of more overflow the 16-bit sums of processors without VNNI.
// Their scales are found now, their values are written piece by piece like all weights.
// With int8-qdq and input scales, only weights that have one get 8 bits, and what their products read goes through
// QuantizeLinear and DequantizeLinear with zero point 0: a runtime can multiply 8-bit numbers.
void set_precision(OnnxModel& model, OnnxPrecision precision, const InputScales& input_scales = {});

// Exported models that compute in 16 bits.

// Weights and results become float16, inputs and outputs of the model stay float32. Powers, sums, roots and softmax,
// whose results may be beyond 65504 or need more digits, are computed in 32 bits.
void set_half(OnnxModel& model);

constexpr int64_t kOnnxPiece = 1 << 16;  // elements of a weight that are rewritten at once

// Elements [first, first + count) of an exported float tensor.
void read_piece(const OnnxTensor& tensor, int64_t first, int64_t count, std::vector<float>& values);

}  // namespace linnet
