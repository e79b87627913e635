#include <algorithm>
#include <cmath>
#include <vector>
#include "engine/kernels/quantized/packed_weight.h"
#include "engine/ops/fake_quantize/fake_quantize.h"

namespace linnet {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements of a task; gradients of the step are added chunk by chunk

int64_t chunks(int64_t count) { return (count + kChunk - 1) / kChunk; }

// To the nearest whole number of a float within +-2^22, ties to even; the compiler makes vector instructions of it.
float nearest(float z) { return (z + 12582912.0F) - 12582912.0F; }
double nearest(double z) { return std::nearbyint(z); }

// A NaN stays one.
template <class T>
T limited(T z) {
  return z < T(-127) ? T(-127) : z > T(127) ? T(127) : z;
}

template <class T>
T step_of(const KernelArgs& args) {
  return std::max(args.in[1].as<T>()[0], static_cast<T>(kLeastStep));
}

template <class T>
void quantize(const T* x, int64_t count, T step, T* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = nearest(limited(x[i] / step)) * step;
}

// Returns the sum of ds over the elements, before it is scaled.
template <class T>
double differentiate(const T* x, const T* dy, int64_t count, T step, T* dx) {
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
  const auto* x = args.in[0].as<float>();
  auto* y = args.out[0].as<float>();
  const int64_t count = args.in[0].elements();
  const float step = step_of<float>(args);
  args.pool.run(chunks(count), [&](int64_t chunk, int) {
    const int64_t first = chunk * kChunk;
    quantize(x + first, std::min(kChunk, count - first), step, y + first);
  });
}

void run_fake_quantize_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() {
    quantize(args.in[0].as<T>(), args.in[0].elements(), step_of<T>(args), args.out[0].as<T>());
  });
}

size_t gradient_workspace(const KernelQuery& query) {
  return static_cast<size_t>(chunks(query.in[0].shape.elements())) * sizeof(double);
}

void run_fake_quantize_gradient(const KernelArgs& args) {
  const auto *x = args.in[0].as<float>(), *dy = args.in[2].as<float>();
  auto *dx = args.out[0].as<float>(), *ds = args.out[1].as<float>();
  auto* sums = reinterpret_cast<double*>(args.workspace);
  const int64_t count = args.in[0].elements();
  const float step = step_of<float>(args);
  args.pool.run(chunks(count), [&](int64_t chunk, int) {
    const int64_t first = chunk * kChunk;
    sums[chunk] = differentiate(x + first, dy + first, std::min(kChunk, count - first), step, dx + first);
  });
  double sum = 0;
  for (int64_t chunk = 0; chunk < chunks(count); ++chunk) sum += sums[chunk];
  ds[0] = static_cast<float>(sum * step_gradient_scale(args.in[0].shape()));
}

void run_gradient_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const double sum = differentiate(args.in[0].as<T>(), args.in[2].as<T>(), args.in[0].elements(), step_of<T>(args),
                                     args.out[0].as<T>());
    args.out[1].as<T>()[0] = static_cast<T>(sum * step_gradient_scale(args.in[0].shape()));
  });
}

// The same rows as pack_weight() makes: a float row goes through codes and scale and comes back.
template <class T>
void round_rows(const KernelArgs& args) {
  const Shape& shape = args.in[0].shape();
  const PackedShape packed{WeightFormat::kInt8, shape[0], shape[1]};
  constexpr int64_t kRows = 16;
  const int64_t columns = shape[1];
  args.pool.run((shape[0] + kRows - 1) / kRows, [&](int64_t task, int) {
    std::vector<float> row(static_cast<size_t>(columns));
    std::vector<int8_t> codes(static_cast<size_t>(columns));
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

LINNET_KERNELS(fake_quantize, {"chunks", all_f32, nullptr, run_fake_quantize},
               {"reference", nullptr, nullptr, run_fake_quantize_reference})
LINNET_KERNELS(fake_quantize_grad, {"chunks", all_f32, gradient_workspace, run_fake_quantize_gradient},
               {"reference", nullptr, nullptr, run_gradient_reference})
LINNET_KERNELS(round_weight, {"rows", all_f32, nullptr, run_weight}, {"reference", nullptr, nullptr, run_weight})

}  // namespace linnet
