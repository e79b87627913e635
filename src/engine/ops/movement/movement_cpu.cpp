// Movement kernels: one strided copy serves split, concat and permute on every element type.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include "engine/kernels/parallel.h"
#include "engine/ops/broadcast.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
// Copies `count` elements. Short runs use a loop, faster than a call of memmove.
template <class Word> void copy_run(const Word* from, int64_t from_stride, Word* to, int64_t to_stride, int64_t count) {
  if (from_stride != 1 || to_stride != 1) {
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  } else if (count < 32) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  } else {
    std::copy_n(from, count, to);
  }
}

// Rows that are contiguous in `from` and apart in `to`, a few at a time, so that lines of `to` stay in cache.
template <class Word> void copy_turned(
    const Word* from, int64_t from_step, Word* to, int64_t to_step, int64_t to_stride, int64_t rows, int64_t size) {
  constexpr int64_t kRows = 16;
  for (int64_t first = 0; first < rows; first += kRows, from += kRows, to += kRows * to_step) {
    const int64_t count = std::min(kRows, rows - first);
    for (int64_t j = 0; j < size; ++j)
      for (int64_t i = 0; i < count; ++i) to[i * to_step + j * to_stride] = from[i + j * from_step];
  }
}

struct Block {
  Shape shape, from, to;  // strides

  // Drops axes of one element, and joins neighbors that are contiguous at both locations.
  Block(const Shape& all, const Shape& from_strides, const Shape& to_strides) {
    for (int axis = 0; axis < all.rank(); ++axis) {
      const int64_t size = all[axis], last = shape.rank() - 1;
      if (size == 1) continue;
      const auto in_a_row = [&](const Shape& merged, const Shape& strides) {
        return merged[static_cast<int>(last)] == strides[axis] * size;
      };
      const int64_t before =
          last >= 0 && in_a_row(from, from_strides) && in_a_row(to, to_strides) ? shape[static_cast<int>(last)] : 0;
      if (before > 0) {
        shape.set(static_cast<int>(last), before * size);
        from.set(static_cast<int>(last), from_strides[axis]), to.set(static_cast<int>(last), to_strides[axis]);
      } else {
        shape.push_back(size), from.push_back(from_strides[axis]), to.push_back(to_strides[axis]);
      }
    }
  }

  template <class Word> void copy(const Word* source, Word* target) const {
    const int last = shape.rank() - 1;
    if (last < 0) return void(*target = *source);
    if (last == 0) return copy_run(source, from[0], target, to[0], shape[0]);
    std::array<int64_t, kMaxRank> index{};
    for (;;) {
      copy_plane(source, target);
      int axis = last - 2;
      for (; axis >= 0; --axis) {
        source += from[axis], target += to[axis];
        if (++index[axis] < shape[axis]) break;
        source -= shape[axis] * from[axis], target -= shape[axis] * to[axis];
        index[axis] = 0;
      }
      if (axis < 0) return;
    }
  }

  template <class Word>  // the two last axes
  void copy_plane(const Word* source, Word* target) const {
    const int last = shape.rank() - 1;
    const int64_t count = shape[last - 1], from_step = from[last - 1], to_step = to[last - 1];
    const int64_t from_stride = from[last], to_stride = to[last], run = shape[last];
    if (sizeof(Word) == sizeof(float) && from_step == 1)  // of other sizes it would be code that few need
      return copy_turned(source, from_stride, target, to_step, to_stride, count, run);
    for (int64_t i = 0; i < count; ++i)
      copy_run(source + i * from_step, from_stride, target + i * to_step, to_stride, run);
  }
};

// Splits the copy into tasks along its longest axis but the last.
void copy_view(const Shape& shape, const TensorView& from, int64_t from_offset, const Shape& from_strides,
    const TensorView& to, int64_t to_offset, const Shape& to_strides, ThreadPool& pool) {
  const auto copy = [&]<class Word>(const Word* source, Word* target) {
    if (shape.elements() == 0) return;
    source += from_offset, target += to_offset;
    if (source == target && from_strides == to_strides) return;  // the views pass made them one
    const Block block(shape, from_strides, to_strides);
    if (block.shape.rank() < 2) return block.copy(source, target);
    int longest = 0;
    for (int axis = 1; axis + 1 < block.shape.rank(); ++axis)
      if (block.shape[axis] > block.shape[longest]) longest = axis;
    for_ranges(pool, block.shape[longest], shape.elements() / block.shape[longest], [&](int64_t begin, int64_t end) {
      Block part = block;
      part.shape.set(longest, end - begin);
      part.copy(source + begin * block.from[longest], target + begin * block.to[longest]);
    });
  };
  switch (dtype_size(from.type.dtype)) {
    case 8: return copy(from.as<const uint64_t>(), to.as<uint64_t>());
    case 4: return copy(from.as<const uint32_t>(), to.as<uint32_t>());
    case 2: return copy(from.as<const uint16_t>(), to.as<uint16_t>());
    default: return copy(from.as<const uint8_t>(), to.as<uint8_t>());
  }
}

void run_reshape(const KernelArgs& args) { copy_operand(args.in[0], args.out[0]); }

void run_split(const KernelArgs& args) {
  const int axis = args.attrs<SplitAttrs>().axis;
  const TensorView& in = args.in[0];
  int64_t start = 0;
  for (const TensorView& out : args.out) {
    copy_view(out.shape(), in, start * in.strides[axis], in.strides, out, 0, out.strides, args.pool);
    start += out.shape()[axis];
  }
}

void run_concat(const KernelArgs& args) {
  const int axis = args.attrs<ConcatAttrs>().axis;
  const TensorView& out = args.out[0];
  int64_t start = 0;
  for (const TensorView& in : args.in) {
    copy_view(in.shape(), in, 0, in.strides, out, start * out.strides[axis], out.strides, args.pool);
    start += in.shape()[axis];
  }
}

void run_permute(const KernelArgs& args) {
  const auto& order = args.attrs<PermuteAttrs>().order;
  Shape strides;
  for (int axis : order) strides.push_back(args.in[0].strides[axis]);
  copy_view(args.out[0].shape(), args.in[0], 0, strides, args.out[0], 0, args.out[0].strides, args.pool);
}

void run_broadcast(const KernelArgs& args) {
  const TensorView &in = args.in[0], &out = args.out[0];
  const int64_t n = out.elements(), size = in.elements();
  const Broadcast kind = *find_broadcast(in.shape(), out.shape());
  const auto spread = [&]<class T>() {
    const T* x = in.as<T>();
    T* y = out.as<T>();
    if (n == 0) return;
    if (kind == Broadcast::kPrefix || size == 1) {
      for (int64_t i = 0; i < size; ++i) std::fill_n(y + i * (n / size), n / size, x[i]);
    } else {
      for (int64_t i = 0; i < n; i += size) copy_run(x, 1, y + i, 1, size);
    }
  };
  in.type.dtype == DType::kBF16 ? spread.operator()<Bfloat16>() : for_float(in.type.dtype, spread);
}

void run_movement_fill(const KernelArgs& args) {
  const double value = args.attrs<FillAttrs>().value;
  const TensorView& out = args.out[0];
  if (out.type.dtype == DType::kI32)
    return void(std::fill_n(out.as<int32_t>(), out.elements(), static_cast<int32_t>(value)));
  if (out.type.dtype == DType::kU8)
    return void(std::fill_n(out.as<uint8_t>(), out.elements(), static_cast<uint8_t>(value)));
  if (out.type.dtype == DType::kBF16)
    return void(std::fill_n(out.as<Bfloat16>(), out.elements(), Bfloat16(static_cast<float>(value))));
  for_float(out.type.dtype, [&]<class T>() { std::fill_n(out.as<T>(), out.elements(), static_cast<T>(value)); });
}

void run_literal(const KernelArgs& args) {
  const auto& attrs = args.attrs<LiteralAttrs>();
  if (attrs.type.bytes() > 0) std::memcpy(args.out[0].data, attrs.words.data(), attrs.type.bytes());
}

// Rounds like a GPU: unlike round_to_bf16 of the products, denormals stay.
uint16_t bf16_bits(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

template <class Body> void with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32: return body.template operator()<float>();
    case DType::kF64: return body.template operator()<double>();
    case DType::kI32: return body.template operator()<int32_t>();
    case DType::kU8: return body.template operator()<uint8_t>();
    case DType::kBF16: break;
  }
  fail_internal("a cast of bf16 to or from another type than f32");
}

// Towards zero, clamped; NaN becomes 0.
template <class To, class From> To converted(From x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (x != x) return 0;
    const auto limited = std::clamp(static_cast<double>(x), static_cast<double>(std::numeric_limits<To>::lowest()),
        static_cast<double>(std::numeric_limits<To>::max()));
    return static_cast<To>(limited);
  } else {
    return static_cast<To>(x);
  }
}

void cast_numbers(const TensorView& in, const TensorView& out) {
  with_type(in.type.dtype, [&]<class From>() {
    with_type(out.type.dtype, [&]<class To>() {
      for (int64_t i = 0; i < out.elements(); ++i) out.as<To>()[i] = converted<To>(in.as<const From>()[i]);
    });
  });
}

void run_cast(const KernelArgs& args) {
  const TensorView &in = args.in[0], &out = args.out[0];
  if (in.type.dtype != DType::kBF16 && out.type.dtype != DType::kBF16) return cast_numbers(in, out);
  for (int64_t i = 0; i < out.elements(); ++i) {
    const float x = in.type.dtype == DType::kBF16
                        ? std::bit_cast<float>(static_cast<uint32_t>(in.as<uint16_t>()[i]) << 16)
                        : in.as<float>()[i];
    if (out.type.dtype == DType::kBF16) out.as<uint16_t>()[i] = bf16_bits(x);
    else out.as<float>()[i] = x;
  }
}

bool casts_storage(const KernelQuery& query) {
  const DType from = query.in[0].dtype, to = query.out[0].dtype;
  return (from == DType::kBF16 && to == DType::kF32) || (from == DType::kF32 && to == DType::kBF16);
}

void run_storage_cast(const KernelArgs& args) {
  convert_floats(args.out[0].elements(), stored(args.in[0]), mutable_stored(args.out[0]), args.pool);
}
}  // namespace

LINNET_KERNELS(stop_gradient, {"reference", nullptr, nullptr, run_reshape})
LINNET_KERNELS(reshape, {"reference", nullptr, nullptr, run_reshape})
LINNET_KERNELS(split, {"reference", nullptr, nullptr, run_split})
LINNET_KERNELS(concat, {"reference", nullptr, nullptr, run_concat})
LINNET_KERNELS(permute, {"reference", nullptr, nullptr, run_permute})
LINNET_KERNELS(broadcast, {"reference", nullptr, nullptr, run_broadcast})
LINNET_KERNELS(fill, {"reference", nullptr, nullptr, run_movement_fill})
LINNET_KERNELS(literal, {"reference", nullptr, nullptr, run_literal})
LINNET_KERNELS(cast, {"convert", casts_storage, nullptr, run_storage_cast}, {"reference", nullptr, nullptr, run_cast})
}  // namespace linnet
