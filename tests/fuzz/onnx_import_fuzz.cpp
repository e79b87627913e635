// Any bytes are either an ONNX network that can be traced at small sizes of its inputs, or a user error of one line.
// Inputs that the file gives no types for, and sizes that it leaves open, are made up.
#include "engine/passes/passes.h"
#include "fuzzing.h"
#include "models/nn/trace.h"
#include "onnx/network.h"

namespace {
constexpr int64_t kOpen = 2, kMostElements = 1 << 16;

// Shapes of inputs are those of the file where they are small: how long a network computes is the user's affair.
linnet::Shape small_shape(const linnet::OnnxValueInfo& info) {
  linnet::Shape shape;
  for (const linnet::OnnxDim& dim : info.dims) {
    if (shape.rank() == linnet::kMaxRank) break;
    const bool is_given = dim.size >= 0 && dim.size <= kMostElements / std::max<int64_t>(1, shape.elements());
    shape.push_back(is_given ? dim.size : kOpen);
  }
  return shape;
}

// Whole numbers are known while tracing, as shapes, axes and indices have to be.
void trace(linnet::OnnxNetwork& network, size_t size) {
  linnet::Trace trace;
  linnet::TracedValues inputs;
  for (const linnet::OnnxValueInfo& info : network.inputs()) {
    const linnet::Shape shape = small_shape(info);
    if (linnet::is_whole(info.element)) {
      std::vector<double> numbers(static_cast<size_t>(shape.elements()));
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>((7 * i + size) % 5) - 1;
      inputs[info.name] = linnet::known_numbers(info.element, shape, numbers);
    } else {
      const linnet::TensorType type{linnet::traced_dtype(info.element), shape};
      inputs[info.name] = {.element = info.element, .tensor = trace.input("in." + info.name, type)};
    }
  }
  for (const auto& [name, value] : network.trace(trace.graph(), inputs))
    if (!value.known) trace.graph().output("out." + name, value.tensor);
  linnet::optimize(trace.finish());
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    linnet::OnnxNetwork network(linnet::read_onnx(std::as_bytes(std::span(data, size)), "fuzz"), "fuzz");
    trace(network, size);
  } catch (const linnet::Error& error) {
    const bool is_of_the_file = error.kind() == linnet::ErrorKind::kUser || error.kind() == linnet::ErrorKind::kShape;
    linnet::fuzzing::require(is_of_the_file && std::strchr(error.what(), '\n') == nullptr);
  }
  return 0;
}
