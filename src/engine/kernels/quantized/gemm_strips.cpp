#include <algorithm>
#include "base/numbers.h"
#include "base/thread_pool.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/gemm_blocking.h"
#include "engine/kernels/gemm/panels.h"
#include "engine/kernels/quantized/gemm_blocks.h"

namespace linnet {
namespace {
constexpr int64_t kStripFloats = int64_t{1} << 20;
constexpr int64_t kFewStripFloats = int64_t{1} << 15;  // 128 KB, which stay in the second cache of a core

int64_t strip_rows(const PackedShape& shape, int64_t floats = kStripFloats) {
  const int64_t rows =
      std::max<int64_t>(PackedShape::kPanel, floats / shape.columns / PackedShape::kPanel * PackedShape::kPanel);
  return std::min(rows, shape.rows);
}

size_t strip_bytes(const PackedShape& shape, int64_t floats = kStripFloats) {
  return round_up(static_cast<size_t>(strip_rows(shape, floats) * shape.columns) * sizeof(float), size_t{64});
}

size_t few_workspace(const PackedShape& shape, int64_t m) {  // of one worker of multiply_few()
  const size_t product = gemm_workspace(1, m, strip_rows(shape, kFewStripFloats), shape.columns, 1);
  return strip_bytes(shape, kFewStripFloats) + round_up(product, size_t{64});
}

template <class Pointer> void advance(Pointer& pointer, int64_t by) {
  if (pointer) pointer = pointer + by;
}

// Adds the weight's rows [begin, begin + part.k) to C; epilogues follow the last of them.
void multiply_plain(GemmArgs part, int64_t begin, bool is_last, std::byte* workspace, ThreadPool& pool) {
  part.a = part.a + begin;
  if (begin > 0) part.accumulate = true, part.residual = nullptr;
  if (!is_last) {
    part.bias = nullptr, part.pre_activation = nullptr, part.aux = nullptr;
    part.activation = part.derivative = GemmActivation::kNone;
  }
  gemm(part, workspace, pool);
}

// Products of so few rows that a weight is read once for all. bf16 is read as it is; otherwise each thread converts its
// own strips to fp32 and multiplies by them in cache. The bits are those of large strips, as B's rows are independent.
void multiply_few(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  const PackedShape& shape = weight.shape;
  if (shape.format == WeightFormat::kBf16) {
    GemmArgs product = args;
    product.b = reinterpret_cast<const Bfloat16*>(weight.data), product.ldb = shape.columns;
    product.n = shape.rows, product.k = shape.columns;
    return gemm_few_rows(product, pool);
  }
  static ThreadPool alone(1);  // runs its tasks in the thread that asks
  const int64_t step = strip_rows(shape, kFewStripFloats);
  pool.run(ceil_div(shape.rows, step), [&](int64_t task, int worker) {
    const int64_t begin = task * step, end = std::min(shape.rows, begin + step);
    std::byte* own = workspace + static_cast<size_t>(worker) * few_workspace(shape, args.m);
    auto* values = reinterpret_cast<float*>(own);
    dequantize_rows(weight, begin, end, values);
    GemmArgs part = args;
    part.b = values, part.ldb = shape.columns, part.n = end - begin, part.k = shape.columns;
    gemm(from_column(part, begin), own + strip_bytes(shape, kFewStripFloats), alone);
  });
}

bool reads_bf16(const GemmArgs& product, const PackedShape& shape) {
  return shape.format == WeightFormat::kBf16 && product.precision == Precision::kBf16 && gemm_has_bf16() &&
         product.k > 0;
}

bool reads_codes(const GemmArgs& product) {
  const PackedShape& shape = product.b_codes->shape;
  const bool in_bf16 = product.precision == Precision::kBf16 && gemm_has_bf16();
  return !in_bf16 && !product.trans_a && shape.format != WeightFormat::kBf16 && shape.tail_rows == 0 &&
         reads_panels(product.m, product.n, product.k);
}
}  // namespace

GemmArgs from_column(GemmArgs part, int64_t begin) {
  part.c = part.c + begin;
  advance(part.bias, begin), advance(part.residual, begin), advance(part.pre_activation, begin);
  advance(part.aux, begin);
  return part;
}

size_t gemm_strips_workspace(const PackedShape& shape, int64_t m, int threads) {
  if (shape.rows == 0) return 0;
  const auto product_workspace = [&](int64_t rows, int64_t columns) {
    const bool in_bf16 = shape.format == WeightFormat::kBf16;
    return std::max(
        gemm_workspace(1, m, rows, columns, threads, in_bf16), gemm_workspace(1, m, columns, rows, threads, in_bf16));
  };
  size_t most = 0;  // of a whole strip and of the last
  for (const int64_t rows : {strip_rows(shape), shape.rows % strip_rows(shape)})
    most = std::max(most, product_workspace(rows, shape.columns));
  return std::max({strip_bytes(shape) + most, static_cast<size_t>(threads) * few_workspace(shape, m),
      product_workspace(shape.rows, shape.columns)});
}

void gemm_strips(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  const PackedShape& shape = weight.shape;
  if (args.trans_b && (args.m <= gemm_blocking::kFewRows || args.independent_rows))
    return multiply_few(args, weight, workspace, pool);
  GemmArgs product = args;
  product.n = args.trans_b ? shape.rows : shape.columns, product.k = args.trans_b ? shape.columns : shape.rows;
  if (reads_bf16(product, shape)) {
    product.b = reinterpret_cast<const Bfloat16*>(weight.data), product.ldb = shape.columns;
    return gemm(product, workspace, pool);
  }
  product.b_codes = &weight;
  if (reads_codes(product)) return gemm(product, workspace, pool);
  auto* values = reinterpret_cast<float*>(workspace);
  workspace += strip_bytes(shape);
  for (int64_t begin = 0; begin < shape.rows; begin += strip_rows(shape)) {
    const int64_t end = std::min(shape.rows, begin + strip_rows(shape));
    dequantize_rows(weight, begin, end, values, pool);
    GemmArgs part = args;
    part.b = values, part.ldb = shape.columns;
    part.n = args.trans_b ? end - begin : shape.columns, part.k = args.trans_b ? shape.columns : end - begin;
    if (args.trans_b) gemm(from_column(part, begin), workspace, pool);
    else multiply_plain(part, begin, end == shape.rows, workspace, pool);
  }
}
}  // namespace linnet
