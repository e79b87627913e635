// Writes a model as an ONNX file whose batch and lengths stay open.
//
//   OnnxSource source{.symbols = {"batch_size", "sequence_length"}, .trace = [&](Trace& trace, auto sizes) {
//     const Tensor tokens = trace.input("input_ids", {DType::kI32, {sizes[0], sizes[1]}});
//     trace.graph().output("logits", model(tokens));
//   }};
//   save_onnx(model, layout, parameters, source, "model.onnx");
//
// Graphs have fixed shapes. The model is traced at several sets of sizes; the traces must be alike but for sizes, and
// each size must follow from the symbols (onnx/file/builder.h) at all of them. Ops become ONNX nodes by
// the lowerings of onnx/lowering, ops without one through their decomposition.
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

// Exported models in fewer bits.

enum class OnnxPrecision {
  kF32,
  kF16,          // weights and computation; inputs and outputs of the model stay float32
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

// An input "lengths" i32 [B] of the traced graph that ONNX has as a mask int64 [B, keys], 1 where a key counts.
struct OnnxMask {
  std::string lengths, name;
  SymbolicShape shape;
};

struct OnnxSource {
  std::vector<std::string> symbols;  // names of the sizes that are known when the model runs
  // Declares inputs and names outputs, under the names and in the order that the file will have; sizes[i] is that of
  // symbols[i].
  std::function<void(Trace& trace, std::span<const int64_t> sizes)> trace;
  std::vector<OnnxMask> masks = {};
  SizeSets sizes = {};                          // what to trace at; empty: default_sizes(symbols.size())
  std::vector<std::string> first_outputs = {};  // outputs that come before the others
  OnnxForm form = {};
};

SizeSets default_sizes(size_t symbols);

struct OnnxOptions {
  int64_t opset = 17;                      // 14 to 18
  uint64_t most_inside = kMostInsideOnnx;  // bytes of weights; more go to a file beside the model
  OnnxPrecision precision = OnnxPrecision::kF32;
  InputScales input_scales = {};  // of kInt8Qdq
};

constexpr int64_t kLeastOnnxOpset = 14, kMostOnnxOpset = 18;

// The model as data, in fp32. What its tensors are filled from must outlive it.
OnnxModel make_onnx(const ParameterLayout& layout, const float* parameters, const OnnxSource& source,
                    const OnnxOptions& options = {});

// `parameters` is a flat buffer in the order of `layout`, which is the module's. User error naming the op and the
// model's line where ONNX cannot have the computation.
void save_onnx(const ParameterLayout& layout, const float* parameters, const OnnxSource& source,
               const std::string& path, const OnnxOptions& options = {});

}  // namespace linnet
