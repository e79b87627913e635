#include <cstring>
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/gemm_blocking.h"

#define HWY_TARGET_INCLUDE "engine/kernels/gemm/gemm_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/gemm/gemm_driver-inl.h"
#include "engine/kernels/gemm/gemm_epilogue-inl.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace tile {
// Activation functions that epilogues call instead of inlining them.
namespace {
// As in ops/pointwise: NaN if x is.
HWY_INLINE Floats Least(Floats x, Floats y) { return hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y); }
HWY_INLINE Floats Largest(Floats x, Floats y) { return hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y); }

struct Silu {
  static HWY_INLINE Floats Value(Floats x) { return hn::Mul(x, Sigmoid(x)); }
};
struct HardSwish {
  static HWY_INLINE Floats Value(Floats x) {
    const Floats line = hn::Add(hn::Mul(x, SetAll(static_cast<float>(1.0 / 6))), SetAll(0.5f));
    return hn::Mul(x, Largest(SetAll(0), Least(SetAll(1), line)));
  }
};
struct Relu6 {
  static HWY_INLINE Floats Value(Floats x) { return Least(Largest(x, SetAll(0)), SetAll(6)); }
};

template <class Visit> HWY_INLINE void VisitActivation(GemmActivation activation, const Visit& visit) {
  switch (activation) {
    case GemmActivation::kGelu: return visit(Gelu());
    case GemmActivation::kGeluTanh: return visit(GeluTanh());
    case GemmActivation::kSilu: return visit(Silu());
    case GemmActivation::kHardSwish: return visit(HardSwish());
    default: return visit(Relu6());
  }
}
}  // namespace

HWY_NOINLINE void ActivateRows(
    GemmActivation activation, int64_t rows, int64_t columns, MutableStoredFloats first, int64_t stride) {
  const int64_t whole = first.is_bf16 ? 0 : columns / kFloatLanes * kFloatLanes;
  for (int64_t r = 0; r < rows; ++r, first = first + stride) {
    if (whole > 0)
      VisitActivation(activation, [&]<class F>(F) LINNET_LAMBDA {
        float* const row = first.f32();
        for (int64_t i = 0; i < whole; i += kFloatLanes) StoreFloats(F::Value(LoadFloats(row + i)), row + i);
      });
    for (int64_t i = whole; i < columns; i += kFloatLanes) {
      const PartLanes at{i, std::min<int64_t>(kFloatLanes, columns - i)};
      Floats x = at.load(StoredFloats(first));
      VisitActivation(activation, [&]<class F>(F) LINNET_LAMBDA { x = F::Value(x); });
      at.store(x, first);
    }
  }
}

namespace {
// Products with few rows (decoding) or few columns (small classifiers): the large operand is read in place, once.

// Where dot products of a few rows x[i] with many rows y[j] go: element (i, j) to c[i * x_stride + j * y_stride], with
// bias[i * x_bias + j * y_bias].
struct DotOutput {
  float* c;
  int64_t x_stride, y_stride;
  const float* bias;
  int64_t x_bias, y_bias;
  const float* added;  // where C is, or a residual; or nullptr
  bool relu;

  HWY_INLINE void write(int64_t i, int64_t j, float sum) const {
    const int64_t location = i * x_stride + j * y_stride;
    if (added) sum += added[location];
    if (bias) sum += bias[i * x_bias + j * y_bias];
    c[location] = relu && sum < 0 ? 0.0f : sum;
  }
};

constexpr int kDotColumns = kLanes >= 16 ? 4 : 2;

// M rows of x by N rows of y, lanes along k; i and j are the first of them.
template <int M, int N, class T> HWY_INLINE void DotTile(int64_t depth, const float* HWY_RESTRICT x, int64_t ldx,
    const T* HWY_RESTRICT y, int64_t ldy, int64_t i, int64_t j, const DotOutput& output) {
  x += i * ldx;
  y += j * ldy;
  V r[M][N];
#pragma GCC unroll 4
  for (int p = 0; p < M; ++p)
#pragma GCC unroll 4
    for (int q = 0; q < N; ++q) r[p][q] = hn::Zero(d);
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    V b[N];
#pragma GCC unroll 4
    for (int q = 0; q < N; ++q) b[q] = LoadFloats(y + q * ldy + k);
#pragma GCC unroll 4
    for (int p = 0; p < M; ++p) {
      const V a = hn::LoadU(d, x + p * ldx + k);
#pragma GCC unroll 4
      for (int q = 0; q < N; ++q) r[p][q] = hn::MulAdd(a, b[q], r[p][q]);
    }
  }
  HWY_ALIGN float lanes[M][N][kLanes];  // added up in loops, for a short program
#pragma GCC unroll 4
  for (int p = 0; p < M; ++p)
#pragma GCC unroll 4
    for (int q = 0; q < N; ++q) hn::Store(r[p][q], d, lanes[p][q]);
#pragma GCC unroll 1
  for (int p = 0; p < M; ++p)
#pragma GCC unroll 1
    for (int q = 0; q < N; ++q) {
      float sum = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, lanes[p][q])));
      for (int64_t t = k; t < depth; ++t) sum += x[p * ldx + t] * static_cast<float>(y[q * ldy + t]);
      output.write(i + p, j + q, sum);
    }
}

template <int M, class T> HWY_INLINE void DotRows(int64_t depth, const float* x, int64_t ldx, const T* y, int64_t ldy,
    int64_t i, int64_t begin, int64_t end, const DotOutput& output) {
  int64_t j = begin;
  for (; j + kDotColumns <= end; j += kDotColumns) DotTile<M, kDotColumns>(depth, x, ldx, y, ldy, i, j, output);
  for (; j < end; ++j) DotTile<M, 1>(depth, x, ldx, y, ldy, i, j, output);
}

// All `few` rows of x by the rows [begin, end) of y, whose strips stay in cache for all rows of x.
template <class T> HWY_INLINE void SmallDots(int64_t few, int64_t depth, const float* x, int64_t ldx, const T* y,
    int64_t ldy, int64_t begin, int64_t end, const DotOutput& output) {
  for (constexpr int64_t kStrip = 16; begin < end; begin += kStrip) {
    const int64_t strip = std::min(end, begin + kStrip);
    for (int64_t i = 0; i < few; i += 4)
      WithConstant<4>(std::min<int64_t>(few - i, 4),
          [&]<int N>() LINNET_LAMBDA { DotRows<N>(depth, x, ldx, y, ldy, i, begin, strip, output); });
  }
}

// Columns [begin, end) of c[M, n] <- a[M, depth] b[depth, n], two vectors of columns at a time.
template <int M> HWY_INLINE void WideColumns(int64_t depth, const float* HWY_RESTRICT a, int64_t lda,
    const float* HWY_RESTRICT b, int64_t ldb, float* c, int64_t ldc, int64_t begin, int64_t end, const Finish& finish) {
  const float* added = finish.accumulate ? c : finish.residual;
  int64_t j = begin;
  for (; j + kWidth <= end; j += kWidth) {
    V r[M][2];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) r[i][0] = r[i][1] = hn::Zero(d);
    for (int64_t k = 0; k < depth; ++k) {
      const V b0 = hn::LoadU(d, b + k * ldb + j), b1 = hn::LoadU(d, b + k * ldb + j + kLanes);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) {
        const V x = hn::Set(d, a[i * lda + k]);
        r[i][0] = hn::MulAdd(x, b0, r[i][0]);
        r[i][1] = hn::MulAdd(x, b1, r[i][1]);
      }
    }
    for (int i = 0; i < M; ++i)
      for (int h = 0; h < 2; ++h) {
        float* out = c + i * ldc + j + h * kLanes;
        V x = r[i][h];
        if (added) x = hn::Add(x, hn::LoadU(d, added + (out - c)));
        if (finish.bias) x = hn::Add(x, hn::LoadU(d, finish.bias + j + h * kLanes));
        hn::StoreU(finish.relu ? Relu(x) : x, d, out);
      }
  }
  for (; j < end; j += kLanes) {  // the rest, a vector or a part of one at a time
    const int64_t count = std::min<int64_t>(kLanes, end - j);
    const auto load = [count](const float* p)
                          HWY_ATTR { return count == kLanes ? hn::LoadU(d, p) : LoadPart(p, count); };
    V r[M];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) r[i] = hn::Zero(d);
    for (int64_t k = 0; k < depth; ++k) {
      const V y = load(b + k * ldb + j);
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) r[i] = hn::MulAdd(hn::Set(d, a[i * lda + k]), y, r[i]);
    }
    for (int i = 0; i < M; ++i) {
      V x = r[i];
      if (added) x = hn::Add(x, load(added + i * ldc + j));
      if (finish.bias) x = hn::Add(x, load(finish.bias + j));
      if (finish.relu) x = Relu(x);
      if (count == kLanes) hn::StoreU(x, d, c + i * ldc + j);
      else StorePart(x, c + i * ldc + j, count);
    }
  }
}

HWY_INLINE void SmallPlain(int64_t m, int64_t depth, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
    int64_t ldc, int64_t begin, int64_t end, Finish finish) {
  for (; m > 0; m -= 4, a += 4 * lda, c += 4 * ldc, finish.residual += finish.residual ? 4 * ldc : 0)
    WithConstant<4>(std::min<int64_t>(m, 4),
        [&]<int M>() LINNET_LAMBDA { WideColumns<M>(depth, a, lda, b, ldb, c, ldc, begin, end, finish); });
}
}  // namespace
}  // namespace tile

namespace {
using namespace gemm_blocking;
using tile::Finish;
using tile::kWidth;

// out[column, row] = in[row, column]
void transpose(const float* in, int64_t stride, int64_t rows, int64_t columns, float* out) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) out[column * rows + row] = in[row * stride + column];
}

constexpr int64_t kSharedWork = 1 << 17;  // elements of the large operand: 256 KB or 512 KB, some 10 microseconds

bool relu(const GemmArgs& g) { return g.activation == GemmActivation::kRelu; }
const float* added(const GemmArgs& g) { return g.accumulate ? g.c.f32() : g.residual.f32(); }

void few_rows(const GemmArgs& g, int64_t begin, int64_t end, float* scratch) {
  if (g.trans_a) transpose(g.a.f32(), g.lda, g.k, g.m, scratch);
  const float* a = g.trans_a ? scratch : g.a.f32();
  float* c = g.c.f32();
  const int64_t lda = g.trans_a ? g.k : g.lda;
  if (g.trans_b) {
    const tile::DotOutput output{c, g.ldc, 1, g.bias, 0, 1, added(g), relu(g)};
    if (g.b.is_bf16) tile::SmallDots(g.m, g.k, a, lda, g.b.bf16(), g.ldb, begin, end, output);
    else tile::SmallDots(g.m, g.k, a, lda, g.b.f32(), g.ldb, begin, end, output);
  } else {
    const Finish finish{g.accumulate, g.residual.f32(), g.bias, relu(g)};
    tile::SmallPlain(g.m, g.k, a, lda, g.b.f32(), g.ldb, c, g.ldc, begin, end, finish);
  }
  if (tile::has_epilogue(g)) tile::Epilogue<tile::TargetAlone>(g, c + begin, g.m, end - begin);
}

void few_columns(const GemmArgs& g, int64_t begin, int64_t end, float* scratch) {
  if (!g.trans_b) transpose(g.b.f32(), g.ldb, g.k, g.n, scratch);
  const float *a = g.a.f32(), *b = g.trans_b ? g.b.f32() : scratch;
  float* c = g.c.f32();
  const int64_t ldb = g.trans_b ? g.ldb : g.k;
  tile::SmallDots(g.n, g.k, b, ldb, a, g.lda, begin, end, {c, 1, g.ldc, g.bias, 1, 0, added(g), relu(g)});
  if (tile::has_epilogue(g)) tile::Epilogue<tile::TargetAlone>(g, c + begin * g.ldc, end - begin, g.n);
}

void few_product(const GemmArgs& g, Method how, float* workspace, ThreadPool& pool) {
  const bool rows = how == Method::kFewRows;
  const int64_t length = rows ? g.n : g.m, few = rows ? g.m : g.n;
  // Of a task: some 10 microseconds.
  int64_t step = std::max<int64_t>(kWidth, round_up(ceil_div(int64_t{1} << (few < 4 ? 18 : 17), g.k), 32));
  // Splits a single task among threads if a part still takes longer than handing it over.
  if (g.batch * length <= step && length * g.k >= kSharedWork) step = round_up(ceil_div(length, pool.size()), kWidth);
  const int64_t tasks = ceil_div(length, step);
  const int64_t scratch_floats = gemm_blocking::workspace(how, g.m, g.n, g.k, 1);
  pool.run(g.batch * tasks, [&](int64_t task, int worker) {
    const int64_t begin = task % tasks * step, end = std::min(length, begin + step);
    (rows ? few_rows : few_columns)(product_of_batch(g, task / tasks), begin, end, workspace + worker * scratch_floats);
  });
}

void gemm_few_rows(const GemmArgs& g, ThreadPool& pool) { few_product(g, Method::kFewRows, nullptr, pool); }

void gemm_panels(const GemmArgs& g, const float* panels, float* workspace, ThreadPool& pool) {
  tile::packed_product<tile::F32Pack>(g, workspace, pool, panels);
}
void pack_panels(const GemmArgs& g, float* panels, ThreadPool& pool) {
  tile::Product<tile::F32Pack>(g, nullptr, 1).pack_weight(panels, pool);
}

void gemm(const GemmArgs& g, float* workspace, ThreadPool& pool) {
  if (tile::packed_product<tile::F32Pack>(g, workspace, pool)) return;
  few_product(g, method(g.batch, g.m, g.n, g.k, g.trans_a, g.trans_b, g.independent_rows), workspace, pool);
}

void empty_sums(const GemmArgs& all) {  // for k = 0
  for (int64_t i = 0; i < all.batch; ++i) {
    const GemmArgs g = product_of_batch(all, i);
    for (int64_t row = 0; row < g.m; ++row)
      for (int64_t j = 0; j < g.n; ++j) {
        const int64_t location = row * g.ldc + j;
        const float x = (added(g) ? added(g)[location] : 0.0f) + (g.bias ? g.bias[j] : 0.0f);
        g.c.f32()[location] = relu(g) && x < 0 ? 0.0f : x;
      }
    if (tile::has_epilogue(g)) tile::Epilogue<tile::TargetAlone>(g, g.c.f32(), g.m, g.n);
  }
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(gemm);
HWY_EXPORT(gemm_few_rows);
HWY_EXPORT(gemm_panels);
HWY_EXPORT(pack_panels);
HWY_EXPORT(empty_sums);

// Joins products that share B and whose rows are consecutive into one.
GemmArgs merge_batch(GemmArgs g) {
  if (g.batch > 1 && g.b_batch == 0 && !g.trans_a && g.a_batch == g.m * g.lda && g.c_batch == g.m * g.ldc) {
    g.m *= g.batch;
    g.batch = 1;
  }
  return g;
}
}  // namespace

bool is_stored_in_bf16(const GemmArgs& g) { return g.a.is_bf16 || g.b.is_bf16 || has_bf16_results(g); }

bool has_bf16_results(const GemmArgs& g) {
  return g.c.is_bf16 || g.residual.is_bf16 || g.pre_activation.is_bf16 || g.aux.is_bf16;
}

size_t gemm_workspace(int64_t batch, int64_t m, int64_t n, int64_t k, int threads, bool in_bf16) {
  using namespace gemm_blocking;
  if (batch == 0 || m == 0 || n == 0 || k == 0) return 0;
  int64_t floats = 0;
  for (const bool merged : {false, true}) {  // see merge_batch
    const int64_t items = merged ? 1 : batch, rows = merged ? batch * m : m;
    for (const bool apart : {false, true})
      if (in_bf16)
        floats = std::max(floats, workspace(packed_method(items, rows, n, k), rows, n, ceil_div(k, 2), threads, apart));
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true})
        for (const int64_t packed : {k, ceil_div(k, 2)})  // fp32, bf16
          floats = std::max(floats, workspace(method(items, rows, n, k, trans_a, trans_b), rows, n, packed, threads));
  }
  return bytes_for<float>(floats);
}

void gemm(const GemmArgs& args, std::byte* workspace, ThreadPool& pool) {
  if (args.batch == 0 || args.m == 0 || args.n == 0) return;
  if (args.k == 0 && is_stored_in_bf16(args)) fail_internal("an empty sum was given bf16");
  if (args.k == 0) return HWY_DYNAMIC_DISPATCH(empty_sums)(args);
  const GemmArgs merged = merge_batch(args);
  auto* scratch = reinterpret_cast<float*>(workspace);
  if (merged.precision == Precision::kBf16 && gemm_bf16(merged, nullptr, scratch, pool)) return;
  if (is_stored_in_bf16(args)) fail_internal("a product of fp32 was given bf16");
  HWY_DYNAMIC_DISPATCH(gemm)(merged, scratch, pool);
}

void gemm_few_rows(const GemmArgs& args, ThreadPool& pool) {
  if (args.batch != 1 || args.trans_a || !args.trans_b || args.a.is_bf16 || args.c.is_bf16 || args.k == 0)
    fail_internal("a product that is not one of few rows by a weight");
  if (args.m > 0 && args.n > 0) HWY_DYNAMIC_DISPATCH(gemm_few_rows)(args, pool);
}

bool has_panels(int64_t m, int64_t n, int64_t k) {
  return n % gemm_blocking::kMaxPanel == 0 && k % 2 == 0 && reads_panels(m, n, k);
}

bool reads_panels(int64_t m, int64_t n, int64_t k) {
  using namespace gemm_blocking;
  return n > 0 && k > 0 && method(1, m, n, k, /*trans_a=*/false, /*trans_b=*/true) == Method::kShared &&
         method(1, m, n, k, /*trans_a=*/false, /*trans_b=*/false) == Method::kShared;
}

int64_t panel_floats(int64_t n, int64_t k) { return round_up(n, gemm_blocking::kMaxPanel) * k; }

void pack_panels_apart(const PanelsOf& weight, const float* values, float* panels, ThreadPool& pool) {
  const auto& [n, k, trans_b, precision, in_bf16] = weight;
  HWY_DYNAMIC_DISPATCH(pack_panels)
  ({.m = 1, .n = n, .k = k, .b = values, .ldb = trans_b ? k : n, .trans_b = trans_b}, panels, pool);
}

void pack_panels(const PanelsOf& weight, void* values, ThreadPool& pool) {
  const auto& [n, k, trans_b, precision, in_bf16] = weight;
  std::vector<float> memory(static_cast<size_t>(n * k) + 16);  // from which 64-byte aligned panels are taken
  float* const panels = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
  GemmArgs args{.m = 1, .n = n, .k = k, .ldb = trans_b ? k : n, .trans_b = trans_b};
  args.b = in_bf16 ? StoredFloats(static_cast<const Bfloat16*>(values)) : static_cast<const float*>(values);
  const bool as_bf16 = precision == Precision::kBf16 && pack_bf16_panels(args, panels, pool);
  if (in_bf16 && !as_bf16) fail_internal("a weight in bf16 has no panels here");
  if (!as_bf16) HWY_DYNAMIC_DISPATCH(pack_panels)(args, panels, pool);
  std::memcpy(values, panels, static_cast<size_t>(n * k) * (as_bf16 ? sizeof(Bfloat16) : sizeof(float)));
}

void gemm_panels(const GemmArgs& args, std::byte* workspace, ThreadPool& pool) {
  if (args.batch != 1 || args.trans_a || args.independent_rows || args.b.is_bf16 ||
      !reads_panels(args.m, args.n, args.k))
    fail_internal("a product that cannot read panels");
  auto* scratch = reinterpret_cast<float*>(workspace);
  const float* panels = args.b.f32();
  if (args.precision == Precision::kBf16 && gemm_bf16(args, panels, scratch, pool)) return;
  if (is_stored_in_bf16(args)) fail_internal("a product of fp32 was given bf16");
  HWY_DYNAMIC_DISPATCH(gemm_panels)(args, panels, scratch, pool);
}
}  // namespace linnet
#endif
