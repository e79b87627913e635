// Reductions to a smaller shape, the mirror of broadcasting; running sums.
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
enum class Reduction { kSum, kMax, kLogSumExp };
template <> inline constexpr std::array kEnumNames<Reduction>{"sum", "max", "log_sum_exp"};

struct ReduceAttrs {
  Reduction kind = Reduction::kSum;
  Shape shape;  // find_broadcast(shape, the operand's) has a value
  void fields(FieldVisitor& visit) { visit("kind", kind), visit("shape", shape); }
};

struct CumsumAttrs {
  int axis = 0;  // from the start
  bool reverse = false;
  void fields(FieldVisitor& visit) { visit("axis", axis), visit("reverse", reverse); }
};

extern const OpDef kReduce, kCumsum;

// To a shape that broadcast_to() can repeat to x's: the gradient of a broadcast. x itself if it has the shape already.
Tensor sum_to(At x, const Shape& shape);
Tensor max_to(At x, const Shape& shape);  // equal elements share the gradient
Tensor sum_last(At x);                    // [..., N] -> [..., 1]
Tensor max_last(At x);                    // [..., N] -> [..., 1]
Tensor log_sum_exp_last(At x);            // [..., N] -> [..., 1]

// Running sums along an axis, which may be negative: element i sums 0 ... i, or with `reverse` i ... n - 1.
Tensor cumsum(At x, int axis, bool reverse = false);

// On a GPU, for other kernels: queues sums[j] = sum over i of x[i, j]; x [rows, width], fp32 or bf16.
size_t column_sums_workspace(int64_t rows, int64_t width, DType dtype);  // bytes
void column_sums(Device* device, int64_t rows, int64_t width, const TensorView& x, float* sums, std::byte* workspace);

// The largest element of each row, and the order of all. NaN counts as largest. No gradient.
struct ArgsortAttrs {
  bool descending = false, flat = false;
  int64_t count = 0;  // of the first ones; 0: all
  int64_t count_of(const Shape& x) const { return count > 0 ? count : x[-1]; }
  void fields(FieldVisitor& visit) { visit("descending", descending), visit("flat", flat), visit("count", count); }
};

extern const OpDef kArgmax, kArgsort;

// x [..., D] -> i32 [...]: the index of each row's first largest element, a classifier's prediction.
Tensor argmax_last(At x);

// x [..., D], at most 2^31 - 1 elements -> i32 [..., D]: y[..., k] is the index in the row of the k-th element. Equal
// elements keep their order. With `flat` indices count from the first element of x, to pick from x as one row. With
// `count` > 0 the first ones alone: i32 [..., count].
Tensor argsort_last(At x, bool descending = false, bool flat = false, int64_t count = 0);

extern const OpDef kSoftmax, kSoftmaxGrad;

// Softmax over the last axis: y = exp(x - max) / sum(exp(x - max)). A row of only -inf gives zeros.
Tensor softmax(At x);
}  // namespace linnet
