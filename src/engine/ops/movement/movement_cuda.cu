// Movement on the device: strided copies (engine/kernels/cuda/copy.cuh), repetition, filling, casts, rounding.
#include <algorithm>
#include <limits>
#include "engine/kernels/cuda/copy.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/broadcast.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
const std::byte* at(const TensorView& view, int64_t element) {
  return view.as<const std::byte>() + element * view.element_size();
}

void run_reshape(const KernelArgs& args) { copy_operand_on_device(args, args.in[0], args.out[0]); }

// As much as kernel parameters hold.
struct LiteralBytes {
  unsigned char at[3840];
};

__global__ void __launch_bounds__(256) literal_kernel(int count, LiteralBytes bytes, unsigned char* out) {
  begin_kernel();
  const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
  if (i < count) out[i] = bytes.at[i];
}

// Elements are kernel parameters: a recorded run must not copy from unpinned memory.
void run_literal(const KernelArgs& args) {
  const auto& attrs = args.attrs<LiteralAttrs>();
  const auto* from = reinterpret_cast<const unsigned char*>(attrs.words.data());
  LiteralBytes bytes;
  for (size_t begin = 0; begin < attrs.type.bytes(); begin += sizeof bytes) {
    const size_t count = std::min(sizeof bytes, attrs.type.bytes() - begin);
    std::copy_n(from + begin, count, bytes.at);
    launch(args.device, literal_kernel, blocks_for(static_cast<int64_t>(count), 256), 256, 0, static_cast<int>(count),
        bytes, args.out[0].as<unsigned char>() + begin);
  }
}

void run_split(const KernelArgs& args) {
  const TensorView& in = args.in[0];
  for_slices(in, args.out, args.attrs<SplitAttrs>().axis, [&](const TensorView& out, int64_t offset) {
    copy_strided(args.device, out.shape(), in.element_size(), at(in, offset), in.strides, out.data, out.strides);
  });
}

void run_concat(const KernelArgs& args) {
  const TensorView& out = args.out[0];
  for_slices(out, args.in, args.attrs<ConcatAttrs>().axis, [&](const TensorView& in, int64_t offset) {
    copy_strided(args.device, in.shape(), in.element_size(), in.data, in.strides,
        const_cast<std::byte*>(at(out, offset)), out.strides);
  });
}

void run_permute(const KernelArgs& args) {
  Shape strides;
  for (int axis : args.attrs<PermuteAttrs>().order) strides.push_back(args.in[0].strides[axis]);
  copy_strided(args.device, args.out[0].shape(), args.in[0].element_size(), args.in[0].data, strides, args.out[0].data,
      args.out[0].strides);
}

void run_broadcast(const KernelArgs& args) {
  const TensorView &in = args.in[0], &out = args.out[0];
  copy_strided(args.device, out.shape(), in.element_size(), in.data,
      repeated_strides(in.shape(), in.strides, out.shape()), out.data, out.strides);
}

template <class Word> void fill_words(const KernelArgs& args, Word value) {
  const int64_t count = args.out[0].elements();
  Word* to = args.out[0].as<Word>();
  launch_elements<fill_four<Word>>(args.device, (count + 3) / 4, count, value, aligned4(to), to);
}

uint16_t bf16_bits(double value) {
  const auto x = static_cast<float>(value);
  if (x != x) return 0x7fc0;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

void run_fill(const KernelArgs& args) {
  const double value = args.attrs<FillAttrs>().value;
  switch (args.out[0].type.dtype) {
    case DType::kI32: return fill_words(args, static_cast<int32_t>(value));
    case DType::kU8: return fill_words(args, static_cast<uint8_t>(value));
    case DType::kBF16: return fill_words(args, bf16_bits(value));
    default: return fill_words(args, static_cast<float>(value));
  }
}

constexpr int kCastStep = 8;  // 16 bytes of bf16

template <class T> struct alignas(16) Eight { T at[kCastStep]; };

template <class From, class To>
LINNET_DEVICE void cast_eight(int64_t i, int64_t count, bool aligned, const From* from, To* to) {
  const int64_t begin = i * kCastStep;
  if (aligned && begin + kCastStep <= count) {
    const Eight<From> values = *reinterpret_cast<const Eight<From>*>(from + begin);
    Eight<To> rounded;
#pragma unroll
    for (int k = 0; k < kCastStep; ++k) rounded.at[k] = from_float<To>(to_float(values.at[k]));
    *reinterpret_cast<Eight<To>*>(to + begin) = rounded;
  } else {
    for (int64_t k = begin; k < min(begin + kCastStep, count); ++k) to[k] = from_float<To>(to_float(from[k]));
  }
}

void run_cast(const KernelArgs& args) {
  const TensorView &in = args.in[0], &out = args.out[0];
  for_storage(in.type.dtype, [&]<class From>() {
    for_storage(out.type.dtype, [&]<class To>() {
      const From* from = in.as<From>();
      To* to = out.as<To>();
      launch_elements<cast_eight<From, To>>(
          args.device, (out.elements() + kCastStep - 1) / kCastStep, out.elements(), aligned16(from, to), from, to);
    });
  });
}

// To whole numbers towards zero, clamped; NaN becomes 0.
template <class From, class To> LINNET_DEVICE void convert(int64_t i, const From* from, To* to) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr double kLeast = std::numeric_limits<To>::lowest(), kMost = std::numeric_limits<To>::max();
    to[i] = from[i] == from[i] ? static_cast<To>(fmin(fmax(static_cast<double>(from[i]), kLeast), kMost)) : To{0};
  } else {
    to[i] = static_cast<To>(from[i]);
  }
}

template <class Body> void for_number(DType dtype, Body&& body) {
  if (dtype == DType::kF32) body.template operator()<float>();
  else if (dtype == DType::kI32) body.template operator()<int32_t>();
  else body.template operator()<uint8_t>();
}

void run_convert(const KernelArgs& args) {
  for_number(args.in[0].type.dtype, [&]<class From>() {
    for_number(args.out[0].type.dtype, [&]<class To>() {
      launch_elements<convert<From, To>>(
          args.device, args.out[0].elements(), args.in[0].as<From>(), args.out[0].as<To>());
    });
  });
}

bool converts(const KernelQuery& query) {
  return all_types(query, [](DType type) { return type == DType::kF32 || type == DType::kI32 || type == DType::kU8; });
}

LINNET_DEVICE void round_to_half(int64_t i, const float* from, float* to) {
  constexpr float kLeastNormal = 0x1p-14f, kMost = 65504;
  const float x = from[i], magnitude = fabsf(x);
  float rounded = magnitude;
  if (magnitude < kLeastNormal) {
    rounded = __fadd_rn(__fadd_rn(magnitude, 0.5f), -0.5f);  // of a float in [0.5, 1) the last bit is 2^-24
  } else if (magnitude < INFINITY) {
    const unsigned bits = __float_as_uint(magnitude);
    rounded = __uint_as_float((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
    if (rounded > kMost) rounded = INFINITY;
  }
  to[i] = copysignf(rounded, x);
}

void run_round_half(const KernelArgs& args) {
  launch_elements<round_to_half>(args.device, args.in[0].elements(), args.in[0].as<float>(), args.out[0].as<float>());
}

bool casts_storage(const KernelQuery& query) {
  const auto stored = [](const TensorType& type) { return type.dtype == DType::kF32 || type.dtype == DType::kBF16; };
  return stored(query.in[0]) && stored(query.out[0]);
}
}  // namespace

LINNET_KERNELS(stop_gradient_cuda, {"copy", run_reshape})
LINNET_KERNELS(reshape_cuda, {"copy", run_reshape})
LINNET_KERNELS(split_cuda, {"copy", run_split})
LINNET_KERNELS(concat_cuda, {"copy", run_concat})
LINNET_KERNELS(permute_cuda, {"copy", run_permute})
LINNET_KERNELS(broadcast_cuda, {"repeat", run_broadcast})
LINNET_KERNELS(fill_cuda, {"fill", run_fill})
LINNET_KERNELS(literal_cuda, {"parameters", run_literal})
LINNET_KERNELS(cast_cuda, {"cast", run_cast, casts_storage}, {"convert", run_convert, converts})
LINNET_KERNELS(round_half_cuda, {"elements", run_round_half})
}  // namespace linnet
