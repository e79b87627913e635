// Operations on tensors beside those of linnet/ops.h, which says what holds for all of them.
#pragma once
#include <vector>

#include "linnet/tensor.h"

namespace linnet {

// a - b with a number.
Tensor operator-(At a, double b);
// a / b with a number.
Tensor operator/(At a, double b);
// A number plus a tensor.
Tensor operator+(double a, At b);
// A number minus a tensor.
Tensor operator-(double a, At b);
// A number times a tensor.
Tensor operator*(double a, At b);
// A number divided by a tensor.
Tensor operator/(double a, At b);
// -x
Tensor operator-(At x);
// The larger of two, elementwise; NaN if either is. Where they are equal the gradient goes to the second.
Tensor maximum(At a, Tensor b);
// The smaller of two, elementwise; NaN if either is. Where they are equal the gradient goes to the second.
Tensor minimum(At a, Tensor b);
// 1 where a > b, else 0. No gradient flows through it.
Tensor greater(At a, Tensor b);
// 1 where a == b, else 0. No gradient flows through it.
Tensor equal(At a, Tensor b);
// a where `condition` is not 0, else b, elementwise. The gradient goes to the one that was taken.
Tensor where(At condition, Tensor a, Tensor b);

// The natural logarithm.
Tensor log(At x);
// The square root.
Tensor sqrt(At x);
// |x|; its gradient at 0 is 0.
Tensor abs(At x);
// x to the power `exponent`.
Tensor pow(At x, double exponent);
// x where low <= x <= high, else the nearer bound; no gradient flows where it is a bound. Throws Error(kUser) when low
// > high.
Tensor clamp(At x, double low, double high);
// The sine, of radians.
Tensor sin(At x);
// The cosine, of radians.
Tensor cos(At x);
// The error function.
Tensor erf(At x);
// 1 / (1 + e^-x)
Tensor sigmoid(At x);
// log(1 + e^x), computed as max(x, 0) + log(1 + e^-|x|).
Tensor softplus(At x);
// log(softmax(x)) over the last axis.
Tensor log_softmax(At x);

// The sum of all elements, a scalar.
Tensor sum(At x);
// The sum along one axis, which is left out of the result: [..., n, ...] -> [..., ...].
Tensor sum(At x, int axis);
// The mean of all elements, a scalar.
Tensor mean(At x);
// The mean along one axis, which is left out of the result.
Tensor mean(At x, int axis);
// The largest element along one axis, which is left out of the result. Equal ones share the gradient.
Tensor max(At x, int axis);
// Not this way: the larger of two is maximum(), and a bound for each element clamp().
Tensor max(At x, double bound) = delete;
// The smallest element along one axis, which is left out of the result. Equal ones share the gradient.
Tensor min(At x, int axis);
// Not this way: minimum() and clamp().
Tensor min(At x, double bound) = delete;

// Rows of x [V, ...] by their numbers: ids i32 [...] in [0, V) -> [ids' axes, x's axes behind the first]. An id outside
// is an Error(kUser) when the graph runs on the CPU, and gives NaN on a GPU.
Tensor gather(At x, Tensor ids);
// Tensors one behind another along an axis; at least one.
Tensor concat(const std::vector<Tensor>& parts, int axis, SourceLine where = SourceLine::current());
// Bytes of images u8 [..., C] as floats (x / 255 - mean[c]) / deviation[c]; empty lists are a mean of 0 and a deviation
// of
// 1. Throws Error(kUser) when a list has another length than there are channels or a deviation is not positive.
Tensor scale_images(At x, const std::vector<double>& mean = {}, const std::vector<double>& deviation = {});

// The mean of each size x size window of x [N, H, W, C], windows side by side; a last row or column that does not fill
// a window is dropped.
Tensor avg_pool(At x, int64_t size = 2);
// The mean of all positions of x [N, H, W, C] -> [N, C].
Tensor global_avg_pool(At x);

// The same as f32: the count of a loss.
Tensor count_targets(At targets);
// The sum of binary cross-entropies of logits and targets in [0, 1] of the same shape: softplus(x) - x * target.
Tensor binary_cross_entropy_sum(At logits, Tensor targets);

}  // namespace linnet
