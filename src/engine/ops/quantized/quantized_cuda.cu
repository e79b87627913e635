// Weights of 16, 8 or 4 bits on a GPU, in the CPU's layout (engine/kernels/quantized/packed_weight.h). Reading them
// bounds products of few rows, as in decoding: those compute from the codes. For others the pass fuse_quantized leaves
// a dequantize node, whose result a product on the matrix units reads. Products that round activations too, with
// WeightFormat::kInt8, are in byte_product_cuda.cu.
#include "engine/kernels/cuda/activation.cuh"
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/ops/quantized/quantized.h"

namespace linnet {
// engine/ops/quantized/byte_product_cuda.cu
bool has_byte_product(const KernelQuery& query);
size_t byte_product_workspace(const KernelQuery& query);
void run_byte_product(const KernelArgs& args);

namespace {
constexpr int kThreads = 256, kWarps = kThreads / kWarp, kEach = 8;
constexpr int kPanel = static_cast<int>(PackedShape::kPanel), kBlock = static_cast<int>(PackedShape::kBlock);
constexpr int64_t kMostRows = 8;

LINNET_DEVICE float half_value(uint16_t half) {  // finite fp16
  const float magnitude = __uint_as_float((half & 0x7fffu) << 13) * 0x1p112f;
  return half & 0x8000u ? -magnitude : magnitude;
}

struct Part {  // without a tail
  const unsigned char* data;
  WeightFormat format;
  BlockFormat blocks;
  int64_t rows, columns, panel_bytes, block_bytes, scales, panel_scale_bytes;

  // The scale of a row in a block, or (part = blocks.parts) its minimum.
  LINNET_DEVICE float number(int64_t row, int64_t block, int part) const {
    if (format == WeightFormat::kInt8) return reinterpret_cast<const float*>(data + scales)[row];
    const unsigned char* unit =
        data + scales + row / kPanel * panel_scale_bytes + block / blocks.unit * blocks.scale_bytes();
    const uint16_t bits = reinterpret_cast<const uint16_t*>(unit)[(part == blocks.parts ? kPanel : 0) + row % kPanel];
    const float number = blocks.bf16 ? to_float(bf16{bits}) : half_value(bits);
    if (blocks.unit == 1) return number;
    const int64_t at = block % blocks.unit * (blocks.parts + blocks.minimum) + part;
    return number *
           static_cast<float>(static_cast<signed char>(unit[blocks.integers_offset() + at * kPanel + row % kPanel]));
  }

  LINNET_DEVICE int code(unsigned word, unsigned high, int i) const {
    if (blocks.bits == 8) return static_cast<signed char>(word >> 8 * i);
    if (blocks.is_signed) return static_cast<int>(word << (28 - 4 * i)) >> 28;
    return static_cast<int>(
        (word >> 4 * i & 15) | (high >> (4 * (i - i % 2) + i % 2 * blocks.high_bits) & ((1u << blocks.high_bits) - 1))
                                   << 4);
  }

  // Eight neighbors of a row from `column` on, a multiple of 8. Zeros follow the last column.
  LINNET_DEVICE void load(int64_t row, int64_t column, float (&values)[kEach]) const {
    if (format == WeightFormat::kBf16) {
      const bf16* numbers = reinterpret_cast<const bf16*>(data) + row * columns + column;
      if (columns % kEach == 0) return load_vector(numbers, values);
      for (int i = 0; i < kEach; ++i) values[i] = column + i < columns ? to_float(numbers[i]) : 0;
      return;
    }
    const int64_t block = column / kBlock;
    const int group = static_cast<int>(column % kBlock) / kEach, lane = static_cast<int>(row % kPanel);
    const unsigned* words =
        reinterpret_cast<const unsigned*>(data + row / kPanel * panel_bytes + block * block_bytes) + lane;
    const unsigned first = words[group * blocks.bits / 4 * kPanel];
    const unsigned second = blocks.bits == 8 ? words[(2 * group + 1) * kPanel] : first;
    unsigned high = 0;
    if (blocks.high_bits) {
      const int bit = 2 * group * blocks.high_bits;
      high = words[(4 + bit / 8) * kPanel] >> bit % 8;
    }
    const float scale = number(row, block, group * blocks.parts / 4);
    const float minimum = blocks.minimum ? number(row, block, blocks.parts) : 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = blocks.bits == 8 ? i % 4 : i;
      values[i] = static_cast<float>(code(i < 4 ? first : second, high, at) - blocks.zero) * scale - minimum;
    }
  }
};

struct Weight {
  Part head, tail;
  LINNET_DEVICE void load(int64_t row, int64_t column, float (&values)[kEach]) const {
    if (row < head.rows) head.load(row, column, values);
    else tail.load(row - head.rows, column, values);
  }
};

Weight weight_of(const TensorView& packed, const QuantizedAttrs& attrs) {
  const PackedShape whole = attrs.packed();
  const auto part = [](const unsigned char* data, const PackedShape& shape) {
    return Part{data, shape.format, block_format(shape.format), shape.rows, shape.columns, shape.panel_bytes(),
        shape.block_bytes(), static_cast<int64_t>(shape.scales_offset()), shape.panel_scale_bytes()};
  };
  const auto* data = packed.as<const unsigned char>();
  if (whole.tail_rows == 0) return {part(data, whole), {}};
  return {part(data, whole.head()), part(data + whole.head().bytes(), whole.tail())};
}

// y[i] = row ids[i], or row i without ids. A thread for eight neighbors. An id outside the table gives NaN.
template <class To> __global__ void __launch_bounds__(kThreads)
    rows_kernel(int64_t count, int64_t rows, int64_t columns, Weight weight, const int32_t* __restrict__ ids, To* y) {
  begin_kernel();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const auto [line, piece] = divided(i, (columns + kEach - 1) / kEach);
  const int64_t row = ids ? ids[line] : line, column = piece * kEach;
  float values[kEach];
  if (row >= 0 && row < rows) weight.load(row, column, values);
  else
    for (float& value : values) value = NAN;
  To* to = y + line * columns + column;
  if (columns % kEach == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0) return store_vector(to, values);
  for (int j = 0; j < kEach && column + j < columns; ++j) to[j] = from_float<To>(values[j]);
}

void copy_rows(const KernelArgs& args, const int32_t* ids) {
  const auto& attrs = args.node.attrs.as<QuantizedAttrs>();
  const int64_t rows = attrs.weight.shape[0], columns = attrs.weight.shape[1];
  const int64_t count = args.out[0].elements() / columns * ((columns + kEach - 1) / kEach);
  for_storage(args.out[0].type.dtype, [&]<class To>() {
    launch(args.device, rows_kernel<To>, blocks_for(count, kThreads), kThreads, 0, count, rows, columns,
        weight_of(args.in[0], attrs), ids, args.out[0].as<To>());
  });
}

template <class From, class To>  // x [rows, columns] by W^T
struct FewRows {
  Weight weight;
  int64_t rows, width, columns;
  const From* x;
  bool is_aligned;  // pieces of x are vectors
  Numbers bias;
  const To* residual;
  GemmActivation activation;
  To* y;
};

// A block for a panel of 16 of the weight's rows. A warp reads codes sequentially, the same columns of all 16 rows;
// bf16 numbers, which are in row order, of one row.
template <class From, class To, int kRows> __global__ void __launch_bounds__(kThreads, kRows > 4 ? 1 : 2)
    few_rows_kernel(FewRows<From, To> p) {
  begin_kernel();
  __shared__ float sums_of[kWarps][kPanel][kRows];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kPanel;
  const auto add_up = [&](int64_t row, int64_t piece, int step, float(&sums)[kRows]) {
#pragma unroll 1
    for (; piece * kEach < p.columns && row < p.width; piece += step) {
      float w[kEach], x[kEach];
      p.weight.load(row, piece * kEach, w);
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const From* from = p.x + min(static_cast<int64_t>(j), p.rows - 1) * p.columns + piece * kEach;
        if (p.is_aligned) load_vector(from, x);
        else
          for (int i = 0; i < kEach; ++i) x[i] = piece * kEach + i < p.columns ? to_float(from[i]) : 0;
#pragma unroll
        for (int i = 0; i < kEach; ++i) sums[j] += w[i] * x[i];
      }
    }
  };
  const bool by_rows = p.weight.head.format == WeightFormat::kBf16;
  for (int pass = 0; pass < (by_rows ? kPanel / kWarps : 1); ++pass) {
    float sums[kRows] = {};
    const int row = by_rows ? pass * kWarps + warp : lane % kPanel;
    if (by_rows) add_up(first_row + row, lane, kWarp, sums);
    else add_up(first_row + row, 2 * warp + lane / kPanel, 2 * kWarps, sums);
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      if (by_rows) sums[j] = warp_reduce(sums[j], Add());
      else sums[j] += __shfl_xor_sync(kAllLanes, sums[j], kPanel);
      if (lane < (by_rows ? 1 : kPanel)) sums_of[by_rows ? 0 : warp][row][j] = sums[j];
    }
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) % kPanel, j = static_cast<int>(threadIdx.x) / kPanel;
  const int64_t column = first_row + row;
  if (j >= kRows || j >= p.rows || column >= p.width) return;
  float sum = 0;
  for (int i = 0; i < (by_rows ? 1 : kWarps); ++i) sum += sums_of[i][row][j];
  if (p.bias) sum += p.bias[column];
  const int64_t at = j * p.width + column;
  if (p.residual) sum += to_float(p.residual[at]);
  p.y[at] = from_float<To>(activated(p.activation, sum));
}

bool few_rows_supports(const KernelQuery& query) {
  const auto& [weight, product, rounding, result_rounding] = query.node.attrs.as<QuantizedMatmulAttrs>();
  const int64_t rows = query.in[0].shape.elements(0, query.in[0].shape.rank() - 1);
  return is_plain_product(product) && weight.format != WeightFormat::kInt8 && rows > 0 && rows <= kMostRows;
}

void run_few_rows(const KernelArgs& args) {
  const auto& [weight, product, rounding, result_rounding] = args.node.attrs.as<QuantizedMatmulAttrs>();
  for_storage(args.in[0].type.dtype, [&]<class From>() {
    for_storage(args.out[0].type.dtype, [&]<class To>() {
      const From* x = args.in[0].as<From>();
      const int64_t columns = weight.weight.shape[1], rows = args.in[0].elements() / columns;
      const FewRows<From, To> p{weight_of(args.in[1], weight), rows, weight.weight.shape[0], columns, x,
          columns % kEach == 0 && aligned16(x), product.bias ? numbers_of(args.in[2]) : Numbers{},
          product.accumulate ? args.in.back().as<To>() : nullptr, product.activation, args.out[0].as<To>()};
      const auto start = [&](auto kernel) { launch(args.device, kernel, blocks_for(p.width, kPanel), kThreads, 0, p); };
      if (rows == 1) start(few_rows_kernel<From, To, 1>);
      else if (rows == 2) start(few_rows_kernel<From, To, 2>);
      else if (rows <= 4) start(few_rows_kernel<From, To, 4>);
      else start(few_rows_kernel<From, To, kMostRows>);
    });
  });
}
}  // namespace

LINNET_KERNELS(dequantize_cuda, {"rows", [](const KernelArgs& args) { copy_rows(args, nullptr); }})
LINNET_KERNELS(
    quantized_embedding_cuda, {"rows", [](const KernelArgs& args) { copy_rows(args, args.in[1].as<int32_t>()); }})
LINNET_KERNELS(quantized_matmul_cuda, {"few_rows", run_few_rows, few_rows_supports},
    {"bytes", run_byte_product, has_byte_product, byte_product_workspace})
}  // namespace linnet
