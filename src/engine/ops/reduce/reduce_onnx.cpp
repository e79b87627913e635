#include "formats/onnx/lowering.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

const char* operator_of(Reduction kind) {
  switch (kind) {
    case Reduction::kSum:
      return "ReduceSum";
    case Reduction::kMax:
      return "ReduceMax";
    case Reduction::kLogSumExp:
      return "ReduceLogSumExp";
  }
  return "";
}

// The axes of `full` that are summed over to get `small`.
std::vector<int64_t> reduced_axes(const Shape& small, const Shape& full) {
  std::vector<int64_t> axes;
  const Broadcast kind = *find_broadcast(small, full);
  int kept = 0;  // trailing axes of a suffix
  if (kind == Broadcast::kSuffix)
    for (int64_t elements = 1; elements < small.elements(); ++kept) elements *= full[-1 - kept];
  for (int axis = 0; axis < full.rank(); ++axis) {
    const bool stays = kind == Broadcast::kPrefix ? small[axis] == full[axis]
                                                  : kind == Broadcast::kSuffix && axis >= full.rank() - kept;
    if (!stays) axes.push_back(axis);
  }
  return axes;
}

}  // namespace

void reduce_to_onnx(OnnxLowering& to) {
  const std::vector<int64_t> axes = reduced_axes(to.out_type(0).shape, to.in_type(0).shape);
  SymbolicShape kept = to.in_shape(0);
  for (const int64_t axis : axes) kept[static_cast<size_t>(axis)] = {1};
  const std::string y = to.builder.reduce(operator_of(to.node().attrs.as<ReduceAttrs>().kind), to.in(0), axes);
  to.set(0, to.builder.reshape(y, kept, to.out_shape(0)));
}

}  // namespace linnet
