#include <algorithm>
#include <cmath>
#include <numeric>
#include "engine/ops/quantized/quantized.h"

namespace linnet {
namespace {
void fake_quantize_expect_operands(const TensorType& x, const TensorType& step) {
  expect(is_float(x.dtype) && x.shape.rank() >= 1, "got ", x);
  const TensorType wanted{x.dtype, {1}};
  expect(step == wanted, "got a step ", step, ", expected ", wanted);
}

std::vector<TensorType> infer_fake_quantize(const InferArgs& args) {
  fake_quantize_expect_operands(args.in[0], args.in[1]);
  return {args.in[0]};
}

std::vector<TensorType> infer_gradient(const InferArgs& args) {  // x, step, dy -> dx, ds
  fake_quantize_expect_operands(args.in[0], args.in[1]);
  expect(args.in[2] == args.in[0], "got a gradient ", args.in[2], ", expected ", args.in[0]);
  return {args.in[0], args.in[1]};
}

std::vector<Tensor> fake_quantize_gradient(const GradientArgs& args) {
  return args.add(kFakeQuantizeGrad, {args.in[0], args.in[1], args.out_grad[0]});
}

std::vector<TensorType> infer_weight(const InferArgs& args) {
  const TensorType& w = args.in[0];
  expect(is_float(w.dtype) && w.shape.rank() == 2, "got ", w, ", expected a matrix");
  expect(w.shape[1] <= PackedShape::kMostColumns, "got ", w);
  return {w};
}

constexpr int64_t kChunk = 1 << 14;  // elements of a task; gradients of the step are added chunk by chunk

int64_t chunks(int64_t count) { return (count + kChunk - 1) / kChunk; }

// The nearest whole number of a float within +-2^22, ties to even; it vectorizes.
float nearest(float z) { return (z + 12582912.0F) - 12582912.0F; }
double nearest(double z) { return std::nearbyint(z); }

template <class T>  // NaN stays NaN
T limited(T z) {
  return z < T(-127) ? T(-127) : z > T(127) ? T(127) : z;
}

template <class T> T step_of(const KernelArgs& args) {
  return std::max(args.in[1].as<T>()[0], static_cast<T>(kLeastStep));
}

template <class T> void quantize(const T* x, int64_t count, T step, T* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = nearest(limited(x[i] / step)) * step;
}

// Returns the sum of ds over the elements, before scaling.
template <class T> double differentiate(const T* x, const T* dy, int64_t count, T step, T* dx) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const T z = x[i] / step, within = limited(z), g = dy[i];
    const bool inside = within == z;
    sum += static_cast<double>(g * (nearest(within) - (inside ? z : T(0))));
    dx[i] = inside ? g : T(0);
  }
  return sum;
}

double step_gradient_scale(const Shape& x) { return 1 / std::sqrt(127.0 * static_cast<double>(x[-1])); }

void run_fake_quantize(const KernelArgs& args) {
  const int64_t count = args.in[0].elements();
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T step = step_of<T>(args);
    args.pool.run(chunks(count), [&](int64_t chunk, int) {
      const int64_t first = chunk * kChunk;
      quantize(args.in[0].as<T>() + first, std::min(kChunk, count - first), step, args.out[0].as<T>() + first);
    });
  });
}

size_t gradient_workspace(const KernelQuery& query) {
  return static_cast<size_t>(chunks(query.in[0].shape.elements())) * sizeof(double);
}

void run_fake_quantize_gradient(const KernelArgs& args) {
  auto* sums = reinterpret_cast<double*>(args.workspace);
  const int64_t count = args.in[0].elements();
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T *x = args.in[0].as<T>(), *dy = args.in[2].as<T>(), step = step_of<T>(args);
    T* dx = args.out[0].as<T>();
    args.pool.run(chunks(count), [&](int64_t chunk, int) {
      const int64_t first = chunk * kChunk;
      sums[chunk] = differentiate(x + first, dy + first, std::min(kChunk, count - first), step, dx + first);
    });
    const double sum = std::accumulate(sums, sums + chunks(count), 0.0);
    args.out[1].as<T>()[0] = static_cast<T>(sum * step_gradient_scale(args.in[0].shape()));
  });
}

// The same rows as pack_weight() makes: floats go through codes and scale and back.
template <class T> void round_rows(const KernelArgs& args) {
  const Shape& shape = args.in[0].shape();
  const PackedShape packed{WeightFormat::kInt8, shape[0], shape[1]};
  constexpr int64_t kRows = 16;
  const int64_t columns = shape[1];
  args.pool.run((shape[0] + kRows - 1) / kRows, [&](int64_t task, int) {
    std::vector<float> row(columns);
    std::vector<int8_t> codes(columns);
    for (int64_t r = task * kRows; r < std::min(shape[0], (task + 1) * kRows); ++r) {
      const T* from = args.in[0].as<T>() + r * columns;
      T* to = args.out[0].as<T>() + r * columns;
      std::transform(from, from + columns, row.begin(), [](T x) { return static_cast<float>(x); });
      float scale = 0;
      quantize_row(packed, row.data(), codes.data(), &scale);
      std::ranges::transform(codes, to, [&](int8_t code) { return static_cast<T>(static_cast<float>(code) * scale); });
    }
  });
}

void run_weight(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() { round_rows<T>(args); });
}
}  // namespace

// Only dx is elementwise in an operand.
const OpDef kFakeQuantize{.name = "fake_quantize",
    .infer = takes<2, infer_fake_quantize>,
    .gradient = fake_quantize_gradient,
    .may_overwrite = overwrites_first,
    .cheap = true};

const OpDef kFakeQuantizeGrad{.name = "fake_quantize_grad",
    .infer = takes<3, infer_gradient>,
    .may_overwrite = [](const Node&, int output, int input) { return output == 0 && input != 1; }};

const OpDef kRoundWeight{.name = "round_weight",
    .infer = takes<1, infer_weight>,
    .gradient = first_gradient,
    .may_overwrite = overwrites_any};

Tensor fake_quantize(At x, Tensor step) { return op_result(kFakeQuantize, x, {step}); }

Tensor round_weight(At w) { return op_result(kRoundWeight, w); }

LINNET_KERNELS(fake_quantize, {"chunks", run_fake_quantize, all_f32}, {"reference", run_fake_quantize})
LINNET_KERNELS(fake_quantize_grad, {"chunks", run_fake_quantize_gradient, all_f32, gradient_workspace},
    {"reference", run_fake_quantize_gradient, nullptr, gradient_workspace})
LINNET_KERNELS(round_weight, {"rows", run_weight, all_f32}, {"reference", run_weight})
}  // namespace linnet
