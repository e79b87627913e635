// The operations on tensors: each records a node of the graph that is being traced and returns the handle of its
// result. Types and shapes are checked at once; an Error(kShape) names the line, the op, what was given and the module.
//
// Tensors are f32 where nothing else is said. Operands of elementwise operations are broadcast as NumPy does it: axes
// are matched from the last one on, and where sizes differ, the one that is 1 is repeated; missing axes count as 1. A
// tensor may also have the first axes of the other one, followed by ones. Axes are counted from the end when negative.
#pragma once
#include <optional>
#include <span>
#include <vector>
#include "linnet/math.h"
#include "linnet/tensor.h"

namespace linnet {
// a + b, elementwise. Shapes broadcast as described above; so in all operations of two tensors.
Tensor operator+(At a, Tensor b);
// a - b, elementwise.
Tensor operator-(At a, Tensor b);
// a * b, elementwise; `matmul` is the product of matrices.
Tensor operator*(At a, Tensor b);
// a / b, elementwise.
Tensor operator/(At a, Tensor b);
// a + b with a number.
Tensor operator+(At a, double b);
// a * b with a number.
Tensor operator*(At a, double b);

// e^x
Tensor exp(At x);
// 1 / sqrt(x)
Tensor rsqrt(At x);
// x * x
Tensor square(At x);
// max(x, 0)
Tensor relu(At x);
// The hyperbolic tangent.
Tensor tanh(At x);
// x * sigmoid(x), also called swish (Hendrycks & Gimpel 2016; Ramachandran et al. 2017).
Tensor silu(At x);
// x * Phi(x) with the exact error function (Hendrycks & Gimpel 2016).
Tensor gelu(At x);
// The approximation of gelu by a tanh, which GPT-2 uses.
Tensor gelu_tanh(At x);
// Softmax over the last axis. A row of only -inf gives zeros.
Tensor softmax(At x);

// Matrix product: a [..., M, K] with b [K, N], whose product has all leading axes of a, or with b [..., K, N] of equal
// leading axes. trans_a: a is [..., K, M]; trans_b: b is [..., N, K].
Tensor matmul(At a, Tensor b, bool trans_a = false, bool trans_b = false);

// The sum to a smaller shape: a scalar ({}), the last axes of x's shape (leading axes are summed) or its first axes
// followed by ones. x itself where the shape is the same.
Tensor sum_to(At x, Shape shape);
// Running sums along an axis: element i is the sum of elements 0 ... i, or with `reverse` of i ... n - 1.
Tensor cumsum(At x, int axis, bool reverse = false);

// The same elements, row-major, in another shape.
Tensor reshape(At x, Shape shape);
// x, through which no gradient flows back.
Tensor stop_gradient(At x);
// Parts along an axis, of the sizes given, which add up to the size of the axis.
std::vector<Tensor> split(At x, int axis, std::vector<int64_t> sizes);
// Parts of equal size along an axis.
std::vector<Tensor> split_evenly(At x, int axis, int parts);
// Elements start ... start + size - 1 along an axis.
Tensor slice(At x, int axis, int64_t start, int64_t size);
// Tensors one behind another along an axis: `first`, then `rest`.
Tensor concat(At first, std::span<const Tensor> rest, int axis);
// Axes in another order: axis i of the result is axis order[i] of x.
Tensor permute(At x, std::vector<int> order);
// x repeated to `shape`, as operands of elementwise operations are.
Tensor broadcast_to(At x, Shape shape);
// Elements as another type. From floats to integers they are cut towards zero. Between floats the gradient is cast
// back.
Tensor cast(At x, DType dtype);
// targets i32 [...] -> [..., classes] of type `dtype`: 1 at the target, 0 elsewhere; zeros for a negative target.
Tensor one_hot(At targets, int64_t classes, DType dtype);
// Rows of a table: table [V, D], ids i32 [...] in [0, V) -> [..., D]. An id outside is an Error(kUser) when the graph
// runs on the CPU, and gives NaN on a GPU. Lookups of the id `padding` (-1: none) give the table no gradient.
Tensor embedding(At table, Tensor ids, int64_t padding = -1);

// Normalization over the last axis, y = (x - mean) / sqrt(variance + epsilon) * weight + bias (Ba, Kiros & Hinton
// 2016). weight and bias [D] may be undefined.
Tensor layer_norm(At x, Tensor weight, Tensor bias, double epsilon = 1e-5);
// y = x / sqrt(mean(x^2) + epsilon) * weight over the last axis (Zhang & Sennrich 2019). weight [D] may be undefined.
Tensor rms_norm(At x, Tensor weight, double epsilon = 1e-6);

// Convolution of images with filters: x [N, H, W, C], weight [O, R, S, C / groups] -> [N, H', W', O] with
// H' = (H + 2 padding - dilation (R - 1) - 1) / stride + 1, zeros around the image. Channels are last, as in PyTorch's
// channels_last. A bias is added by `+`.
Tensor conv2d(At x, Tensor weight, int64_t stride = 1, int64_t padding = 0, int64_t dilation = 1, int64_t groups = 1);
// The largest element of each size x size window of x [N, H, W, C]; stride 0 is the size. A last row or column that
// does not fill a window is dropped.
Tensor max_pool(At x, int64_t size = 2, int64_t stride = 0);

// The sum of the cross-entropies of rows: logits [..., V], targets i32 [...] -> scalar. A row whose target is negative
// is left out; count_targets() counts the others. With label smoothing s (Szegedy et al. 2016) the loss of a row is
// lse(x) - (1 - s) x[target] - s mean(x).
Tensor cross_entropy_sum(At logits, Tensor targets, double label_smoothing = 0);
// The same of logits = hidden weight^T [+ bias], which are never whole in memory: hidden [..., D], weight [V, D], bias
// [V], targets i32 [...] -> scalar.
Tensor linear_cross_entropy_sum(
    At hidden, Tensor weight, std::optional<Tensor> bias, Tensor targets, double label_smoothing = 0);
// targets i32 [B, T], lengths i32 [B] -> targets that are -1 at and past each length.
Tensor mask_targets(At targets, Tensor lengths);
// How many targets are not negative, a scalar of type `dtype`.
Tensor count_targets(At targets, DType dtype);
}  // namespace linnet
