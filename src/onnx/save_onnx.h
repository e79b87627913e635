// Writes a model as an ONNX file whose batch and lengths stay open.
//
//   OnnxSource source{.symbols = {"batch_size", "sequence_length"}, .trace = [&](Trace& trace, auto sizes) {
//     const Tensor tokens = trace.input("input_ids", {DType::kI32, {sizes[0], sizes[1]}});
//     trace.graph().output("logits", model(tokens));
//   }};
//   save_onnx(model, layout, parameters, source, "model.onnx");
//
// The model is traced at several sets of sizes; traces must be alike but for sizes, and each size must follow from the
// symbols (onnx/file/builder.h). Ops become ONNX nodes by onnx/lowering, or by their decomposition.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "models/nn/parameter_layout.h"
#include "models/nn/trace.h"
#include "onnx/file/builder.h"
#include "onnx/file/model.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
enum class OnnxPrecision {
  kF32,
  kF16,          // weights and computation; inputs and outputs of the model stay float32
  kInt8Dynamic,  // 8-bit products: activations are quantized at run time, each tensor by its range
  kInt8Qdq,      // 8-bit weights, each with a DequantizeLinear: the form for TensorRT and ONNX Runtime
};

// By parameter: the scale of its product's input, from calibration or training for static int8.
using InputScales = std::map<std::string, float>;

// "fp32", "fp16", "int8-dynamic" or "int8-qdq"; user error for another.
OnnxPrecision onnx_precision(const std::string& name);

// Changes a model of make_onnx(). 8-bit weights are those of matrix products (with int8-qdq also convolutions) without
// other readers, with a scale per output channel and zero point 0, from -127 to 127; with int8-dynamic from -63 to 63,
// as pairs of larger products overflow the 16-bit sums of processors without VNNI. Scales are found now, values are
// written piece by piece. With int8-qdq and input scales, only weights with one get 8 bits, and their products' inputs
// go through QuantizeLinear and DequantizeLinear with zero point 0, so that a runtime can multiply 8-bit numbers.
void set_precision(OnnxModel& model, OnnxPrecision precision, const InputScales& input_scales = {});

// The traced input "lengths" i32 [B] is in ONNX a mask int64 [B, keys], 1 for valid keys.
struct OnnxMask {
  std::string lengths, name;
  SymbolicShape shape;
};

struct OnnxSource {
  std::vector<std::string> symbols;  // names of sizes known at run time
  // Declares inputs and names outputs, with the file's names and order; sizes[i] is that of symbols[i].
  std::function<void(Trace& trace, std::span<const int64_t> sizes)> trace;
  std::vector<OnnxMask> masks = {};
  SizeSets sizes = {};                          // sizes to trace at; empty: default_sizes(symbols.size())
  std::vector<std::string> first_outputs = {};  // outputs that come before the others
  OnnxForm form = {};
};

SizeSets default_sizes(size_t symbols);

struct OnnxOptions {
  int64_t opset = 17;                      // 14 to 18
  uint64_t most_inside = kMostInsideOnnx;  // bytes of weights; more go to a second file
  OnnxPrecision precision = OnnxPrecision::kF32;
  InputScales input_scales = {};  // of kInt8Qdq
};

constexpr int64_t kLeastOnnxOpset = 14, kMostOnnxOpset = 18;

// In fp32. The sources of its tensors must outlive it.
OnnxModel make_onnx(
    const ParameterLayout& layout, const float* parameters, const OnnxSource& source, const OnnxOptions& options = {});

// `parameters` in the order of `layout`. User error naming op and line if ONNX cannot express the computation.
void save_onnx(const ParameterLayout& layout, const float* parameters, const OnnxSource& source,
    const std::string& path, const OnnxOptions& options = {});
}  // namespace linnet
