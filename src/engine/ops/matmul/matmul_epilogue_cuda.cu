#include "engine/kernels/cuda/activation.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/matmul/matmul.h"

namespace linnet {
namespace {
LINNET_DEVICE float slope(GemmActivation f, float x) {
  constexpr float kRootOfTwoPi = 0.3989422804014327f;  // 1 / sqrt(2 pi)
  if (f == GemmActivation::kGelu) return 0.5f * (1 + erff(x * kRootHalf)) + x * expf(-0.5f * x * x) * kRootOfTwoPi;
  if (f == GemmActivation::kGeluTanh) {
    const float t = tanhf(kGeluRoot * (x + kGeluCube * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kGeluRoot * (1 + 3 * kGeluCube * x * x);
  }
  return 1;
}

struct Epilogue {
  int64_t width;
  Numbers bias;
  GemmActivation activation, derivative;
  float scale;

  // A gradient that a ReLU stops is zero, even for NaN: select, not multiply.
  LINNET_DEVICE float after(float y, float aux) const {
    if (derivative == GemmActivation::kNone) return activated(activation, y);
    if (derivative == GemmActivation::kRelu) return aux > 0 ? scale * y : 0;
    return scale * y * slope(derivative, aux);
  }
};

template <class T, int kEach>  // neighbors of a row, 4 or 1
LINNET_DEVICE void finish(int64_t at, Epilogue e, const T* x, const T* aux, T* pre_activation, T* out) {
  const int64_t i = at * kEach;
  float y[kEach], a[kEach] = {};
  load_vector(x + i, y);
  if (aux) load_vector(aux + i, a);
  const int64_t column = e.bias ? i % e.width : 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j)
    if (e.bias) y[j] += e.bias[column + j];
  if (pre_activation) store_vector(pre_activation + i, y);
#pragma unroll
  for (int j = 0; j < kEach; ++j) y[j] = e.after(y[j], a[j]);
  store_vector(out + i, y);
}

LINNET_DEVICE void round_one(int64_t i, const float* from, bf16* to) { to[i] = from_float<bf16>(from[i]); }
}  // namespace

void matmul_epilogue(Device* device, const MatmulEpilogue& e) {
  const Epilogue what{e.width, {e.bias, e.bias_type == DType::kBF16}, e.activation, e.derivative, e.scale};
  const int64_t count = e.rows * e.width;
  for_storage(e.type, [&]<class T>() {
    uintptr_t bits = static_cast<uintptr_t>(e.width) * sizeof(T);
    for (const void* p : {e.x, e.aux, const_cast<const void*>(e.pre_activation), const_cast<const void*>(e.out)})
      bits |= reinterpret_cast<uintptr_t>(p);
    const auto start = [&]<int kEach>() {
      launch_elements<finish<T, kEach>>(device, count / kEach, what, static_cast<const T*>(e.x),
          static_cast<const T*>(e.aux), static_cast<T*>(e.pre_activation), static_cast<T*>(e.out));
    };
    if (bits % (4 * sizeof(T)) == 0) start.template operator()<4>();
    else start.template operator()<1>();
  });
}

void round_to_bf16_on_device(Device* device, int64_t n, const float* from, void* to) {
  launch_elements<round_one>(device, n, from, static_cast<bf16*>(to));
}
}  // namespace linnet
