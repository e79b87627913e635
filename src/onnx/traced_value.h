// A value of an ONNX graph while it becomes a graph of ours.
//
// Floats of 32 bits and fewer are computed as f32, doubles as f64, truth values as 0 and 1 in f32, whole numbers as
// f64: exact up to 2^53. Whole numbers that are inputs of the graph (token ids) are i32.
#pragma once
#include <memory>

#include "engine/exec/host_tensor.h"
#include "onnx/file/model.h"
#include "engine/ir/graph.h"

namespace linnet {

struct TracedQuantization;

struct TracedValue {
  OnnxElement element = OnnxElement::kFloat;
  // At least one of the two. `known`: the elements are known while tracing, so what depends on them alone is computed
  // then and there.
  Tensor tensor = {};
  std::shared_ptr<const HostTensor> known = {};
  const OnnxTensor* initial = nullptr;                          // of a parameter: its values in the file
  std::shared_ptr<const TracedQuantization> quantization = {};  // null: none that is known

  Shape shape() const { return tensor.defined() ? tensor.shape() : known->type().shape; }
};

// How a value came from whole numbers of 8 bits, or became them: value = (code - zero) * scale. Of QuantizeLinear's
// result and of DequantizeLinear's.
struct TracedQuantization {
  OnnxElement element = OnnxElement::kInt8;     // of the codes
  std::vector<double> scales = {}, zeros = {};  // one, or one for each index of `axis`
  int axis = 0;
  // The floats that were rounded. Undefined: they are not known to be what the codes came from.
  Tensor before = {};
  std::shared_ptr<const HostTensor> codes = {};  // where they are known
};

DType traced_dtype(OnnxElement element);
bool is_whole(OnnxElement element);  // an integer, not a truth value
bool is_signed(OnnxElement element);  // an integer with a sign
bool is_float(OnnxElement element);

// A tensor of a file as numbers in traced_dtype(). User error for strings and types there is no arithmetic of.
HostTensor read_host_tensor(const OnnxTensor& tensor);
std::vector<int64_t> whole_numbers(const HostTensor& tensor);  // limited to 64 bits

// Known values.
TracedValue known_numbers(OnnxElement element, const Shape& shape, const std::vector<double>& values);
TracedValue known_vector(const std::vector<int64_t>& values);  // int64 [n]

}  // namespace linnet
