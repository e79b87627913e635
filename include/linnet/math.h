// Operations on tensors beside those of linnet/ops.h, which says what holds for all of them.
#pragma once
#include <string>
#include <utility>
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
// The larger of two, elementwise; NaN if either is. Where they are equal the gradient goes to the first.
Tensor maximum(At a, Tensor b);
// The smaller of two, elementwise; NaN if either is. Where they are equal the gradient goes to the first.
Tensor minimum(At a, Tensor b);
// 1 where a > b, else 0. No gradient flows through it.
Tensor greater(At a, Tensor b);
// 1 where a == b, else 0. No gradient flows through it.
Tensor equal(At a, Tensor b);
// 1 where a < b, else 0. No gradient flows through it; nor through those below.
Tensor less(At a, Tensor b);
// 1 where a >= b, else 0; 0 where either is NaN.
Tensor greater_equal(At a, Tensor b);
// 1 where a <= b, else 0; 0 where either is NaN.
Tensor less_equal(At a, Tensor b);
// 1 where a != b, else 0.
Tensor not_equal(At a, Tensor b);
// 1 where both are not 0, else 0.
Tensor logical_and(At a, Tensor b);
// 1 where one is not 0, else 0.
Tensor logical_or(At a, Tensor b);
// 1 where x is 0, else 0.
Tensor logical_not(At x);
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
// x where x > 0, else slope * x.
Tensor leaky_relu(At x, double slope = 0.01);
// x where x > 0, else alpha (e^x - 1) (Clevert, Unterthiner & Hochreiter 2016).
Tensor elu(At x, double alpha = 1);
// 1.0507 elu(x, 1.6733): it keeps the activations' mean at 0 and their variance at 1 (Klambauer et al. 2017).
Tensor selu(At x);
// (a - b)^2 / 2 where |a - b| <= delta, else delta (|a - b| - delta / 2) (Huber 1964), elementwise.
Tensor huber(At a, Tensor b, double delta = 1);
// Softmax along an axis; softmax(x) is that of the last one.
Tensor softmax(At x, int axis);
// log(softmax(x)) over the last axis.
Tensor log_softmax(At x);
// log(softmax(x)) along an axis.
Tensor log_softmax(At x, int axis);

// The derivative of a scalar by x, an input, a parameter or anything that y was computed from: of x's shape, zeros
// where y does not depend on it. It is a part of the graph and may be differentiated again, also by a learner whose
// loss has it, where the ops between have second derivatives: all of one element, sums and products, but not norms,
// softmax, convolutions and attention. Throws Error(kShape) when y is no scalar and naming the op that has no
// derivative.
Tensor gradient(At y, Tensor x);
// The same by several tensors, in one pass.
std::vector<Tensor> gradients(At y, const std::vector<Tensor>& x);

// The sum of all elements, a scalar.
Tensor sum(At x);
// The sum along one axis, which is left out of the result: [..., n, ...] -> [..., ...].
Tensor sum(At x, int axis);
// The sum along several axes, which are left out of the result or, with `keep`, have the size 1.
Tensor sum(At x, const std::vector<int>& axes, bool keep = false);
// The mean of all elements, a scalar.
Tensor mean(At x);
// The mean along one axis, which is left out of the result.
Tensor mean(At x, int axis);
// The mean along several axes, which are left out of the result or, with `keep`, have the size 1.
Tensor mean(At x, const std::vector<int>& axes, bool keep = false);
// The mean of (x - mean)^2 along several axes, which are left out of the result or, with `keep`, have the size 1.
Tensor variance(At x, const std::vector<int>& axes, bool keep = false);
// The largest element along one axis, which is left out of the result. Equal ones share the gradient.
Tensor max(At x, int axis);
// Not this way: the larger of two is maximum(), and a bound for each element clamp().
Tensor max(At x, double bound) = delete;
// The smallest element along one axis, which is left out of the result. Equal ones share the gradient.
Tensor min(At x, int axis);
// Not this way: minimum() and clamp().
Tensor min(At x, double bound) = delete;
// The largest element along several axes, which are left out of the result or, with `keep`, have the size 1.
Tensor max(At x, const std::vector<int>& axes, bool keep = false);
// The smallest element along several axes, which are left out of the result or, with `keep`, have the size 1.
Tensor min(At x, const std::vector<int>& axes, bool keep = false);
// The index along an axis of the largest element, i32: the first of several; NaN counts as largest. No gradient.
Tensor argmax(At x, int axis = -1);
// log(sum(exp(x))) along an axis, which is left out of the result.
Tensor log_sum_exp(At x, int axis = -1);

// 0, 1, ..., count - 1 in the graph that is recorded, f32 or i32.
Tensor arange(int64_t count, DType dtype = DType::kF32, SourceLine where = SourceLine::current());
// x [..., rows, columns] with zeros above a diagonal: the main one, or `diagonal` columns to the right of it.
Tensor tril(At x, int64_t diagonal = 0);
// lengths i32 [...] -> f32 [..., size]: 1 at positions below the length, 0 behind.
Tensor sequence_mask(At lengths, int64_t size);
// x with `before` and `after` elements of `value` around it along an axis.
Tensor pad(At x, int axis, int64_t before, int64_t after, double value = 0);
// Images x [N, H, W, C] with each pixel repeated factor x factor times: [N, factor H, factor W, C].
Tensor upsample(At x, int64_t factor = 2);
// Convolution along a sequence: x [N, L, C], weight [O, K, C / groups] -> [N, L', O], L' = (L + 2 padding - dilation (K
// - 1) - 1) / stride + 1.
Tensor conv1d(At x, Tensor weight, int64_t stride = 1, int64_t padding = 0, int64_t dilation = 1, int64_t groups = 1);
// The transposed convolution: x [N, H, W, C], weight [C, R, S, O / groups] -> [N, H', W', O], H' = (H - 1) stride - 2
// padding + dilation (R - 1) + output_padding + 1. It is the gradient of conv2d() by its images.
Tensor conv_transpose2d(At x, Tensor weight, int64_t stride = 1, int64_t padding = 0, int64_t output_padding = 0,
    int64_t dilation = 1, int64_t groups = 1);

// How resize() finds a value between pixels.
enum class Interpolation { kNearest, kBilinear };
// Images x [N, H, W, C] -> [N, height, width, C], as PyTorch's interpolate. Bilinear: pixels are squares whose centers
// are sampled (align_corners=False), edges are repeated. Nearest: row i takes row floor(i H / height), columns alike.
Tensor resize(At x, int64_t height, int64_t width, Interpolation how = Interpolation::kBilinear);

// Products of tensors, summed over letters, as NumPy's: "bij,bjk->bik" is a batch of matrix products. One letter for
// each axis, each at most once in an operand; those that the result lacks are summed over. "..." stands for all other
// axes of an operand, which agree from the last one on. Without "->" the result has those and the letters that occur
// once, in the order of the alphabet. Three or more operands are multiplied from left to right.
Tensor einsum(
    const std::string& equation, const std::vector<Tensor>& operands, SourceLine where = SourceLine::current());

// The order of the elements along the last axis, i32 of x's shape: place k has the index of the element that comes
// k-th. Equal elements keep their order; NaN counts as largest. No gradient.
Tensor argsort(At x, bool descending = false);
// The elements along the last axis in order.
Tensor sort(At x, bool descending = false);
// The `count` largest elements along the last axis, the largest first, and their indices, i32: both [..., count].
std::pair<Tensor, Tensor> top_k(At x, int64_t count);
// Rows added up by number: values [..., D], ids i32 [...] in [0, rows) -> [rows, D], zeros where no id points. An
// id outside is an Error(kUser) when the graph runs on the CPU, and left out on a GPU.
Tensor scatter_add(At values, Tensor ids, int64_t rows);

// Rows of x [V, ...] by their numbers: ids i32 [...] in [0, V) -> [ids' axes, x's axes behind the first]. An id outside
// is an Error(kUser) when the graph runs on the CPU, and gives NaN on a GPU.
Tensor gather(At x, Tensor ids);
// Tensors one behind another along an axis; at least one.
Tensor concat(const std::vector<Tensor>& parts, int axis, SourceLine where = SourceLine::current());
// Bytes of images u8 [..., C] as floats (x / 255 - mean[c]) / deviation[c]; empty lists are a mean of 0 and a deviation
// of 1. Throws Error(kUser) when a list has another length than there are channels or a deviation is not positive.
Tensor scale_images(At x, const std::vector<double>& mean = {}, const std::vector<double>& deviation = {});

// The mean of each size x size window of x [N, H, W, C], windows side by side; a last row or column that does not fill
// a window is dropped.
Tensor avg_pool(At x, int64_t size = 2);
// The mean of all positions of x [N, H, W, C] -> [N, C].
Tensor global_avg_pool(At x);

// The same as f32: the count of a loss.
Tensor count_targets(At targets);
// The cross-entropy of each row: logits [..., V], targets i32 [...] -> [...], 0 where the target is negative. With
// label smoothing s the loss of a row is lse(x) - (1 - s) x[target] - s mean(x). cross_entropy_sum() is faster where
// the sum is all that is wanted.
Tensor cross_entropy(At logits, Tensor targets, double label_smoothing = 0);
// The sum of the cross-entropies of rows, each times the weight of its target's class: class_weights [V].
Tensor weighted_cross_entropy_sum(At logits, Tensor targets, Tensor class_weights);
// The sum of binary cross-entropies of logits and targets in [0, 1] of the same shape: softplus(x) - x * target.
Tensor binary_cross_entropy_sum(At logits, Tensor targets);
}  // namespace linnet
