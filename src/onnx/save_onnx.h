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
#include <string>
#include <vector>
#include "models/nn/parameter_layout.h"
#include "models/nn/trace.h"
#include "onnx/export_precision.h"
#include "onnx/file/builder.h"
#include "onnx/file/model.h"
#include "onnx/lowering/lowering.h"

namespace linnet {

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
  int64_t opset = 17;                    // 14 to 18
  uint64_t most_inside = 1'800'000'000;  // bytes of weights; more go to a file beside the model
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
