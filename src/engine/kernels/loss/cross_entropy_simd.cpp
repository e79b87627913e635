#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/loss/cross_entropy.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/quantized/products.h"
#include "engine/kernels/reduce/reduce.h"

#ifndef LINNET_ROW_FACTS  // this file is compiled once for each instruction set
#define LINNET_ROW_FACTS
namespace linnet {
namespace {
// What a rank knows of a row with divided classes: the largest of its logits, the sums of exp(x - largest) and of x -
// largest, its number of classes, and the target's logit, 0 if another rank has it.
enum RowFacts : int { kLargest, kSum, kOffsets, kClasses, kPicked, kRowFacts };
}  // namespace
}  // namespace linnet
#endif

#define HWY_TARGET_INCLUDE "engine/kernels/loss/cross_entropy_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
template <class T> void LossRows(int64_t begin, int64_t end, int64_t classes, StoredFloats logits,
    const int32_t* targets, double smoothing, float* losses, float* lse) {
  for (int64_t row = begin; row < end; ++row) {
    if (targets[row] < 0) {
      losses[row] = lse[row] = 0;
      continue;
    }
    const T* x = logits.as<T>() + row * classes;
    const float largest = MaxRow(classes, x);
    const double log_sum = std::log(static_cast<double>(SumExp(classes, x, largest)));
    // All terms are relative to the largest logit, so that a small loss is not the difference of large numbers.
    double loss = log_sum - (1 - smoothing) * (static_cast<double>(x[targets[row]]) - largest);
    if (smoothing != 0) {
      const Floats offset = SetAll(largest);
      const float sum =
          SumRow(classes, [=](const auto& at) LINNET_LAMBDA { return hn::Sub(at.load(x, largest), offset); });
      loss -= smoothing * (sum / static_cast<double>(classes));
    }
    losses[row] = static_cast<float>(loss);
    lse[row] = static_cast<float>(largest + log_sum);
  }
}

auto LossRowsOf(bool bf16) { return bf16 ? LossRows<Bfloat16> : LossRows<float>; }

void LossGradientRows(int64_t begin, int64_t end, int64_t classes, StoredFloats logits, const int32_t* targets,
    float smoothing, const float* lse, float dloss, MutableStoredFloats dlogits) {
  const Floats share = SetAll(smoothing / static_cast<float>(classes)), factor = SetAll(dloss);
  for (int64_t row = begin; row < end; ++row) {
    const StoredFloats x = logits + row * classes;
    const MutableStoredFloats dx = dlogits + row * classes;
    if (targets[row] < 0) {
      ForRow(classes, [=](const auto& at) LINNET_LAMBDA { at.store(SetAll(0), dx); });
      continue;
    }
    const Floats offset = SetAll(lse[row]);
    const auto slope = [=](Floats logit)
                           LINNET_LAMBDA { return hn::Mul(factor, hn::Sub(Exp(hn::Sub(logit, offset)), share)); };
    // The target's element is rounded once, after the subtraction.
    const float of_target = hn::GetLane(slope(SetAll(x[targets[row]]))) - dloss * (1 - smoothing);
    ForRow(classes, [=](const auto& at) LINNET_LAMBDA { at.store(slope(at.load(x)), dx); });
    if (dx.is_bf16) dx.bf16()[targets[row]] = Bfloat16(of_target);
    else dx.f32()[targets[row]] = of_target;
  }
}

// *sum becomes the sum of e = exp(x - largest), *offsets that of x - largest (0 without kOffsets). fp32 x becomes e.
template <bool kOffsets, class X>
HWY_INLINE void Exponentials(int64_t classes, X* x, float largest, float* sum, float* offsets) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  const Floats top = SetAll(largest);
  Floats total_offset = SetAll(0);
  *sum = SumRow(classes, [&](const auto& at) LINNET_LAMBDA {
    const Floats e = Exp(hn::Sub(at.load(x, lowest), top));
    if (kOffsets) total_offset = hn::Add(total_offset, hn::Sub(at.load(x, largest), top));
    if constexpr (std::is_same_v<X, float>) at.store(e, x);
    return e;
  });
  *offsets = SumLanes(total_offset);
}

// Logits x become dloss * (softmax(x) - (1 - smoothing) * onehot(target) - smoothing / classes), as T from the start of
// the row's memory, and the row's loss is computed. bf16 logits cannot hold the exponentials, which are computed twice.
// `sums` [classes], if not null, gets the sum of the rows.
template <class X, class T> void LossAndGradientRowsOf(int64_t begin, int64_t end, int64_t classes, X* logits,
    const int32_t* targets, double smoothing, float dloss, float* losses, float* sums) {
  constexpr bool kKept = std::is_same_v<X, float>;
  if (sums != nullptr) std::fill(sums, sums + classes, 0.0f);
  for (int64_t row = begin; row < end; ++row) {
    X* x = logits + row * classes;
    const int32_t target = targets[row];
    const float largest = MaxRow(classes, x), logit = x[target], below = logit - largest;
    const double picked = kKept ? static_cast<double>(logit) - largest : below;
    float sum, offsets;
    if (smoothing != 0) Exponentials<true>(classes, x, largest, &sum, &offsets);
    else Exponentials<false>(classes, x, largest, &sum, &offsets);
    losses[row] = static_cast<float>(std::log(static_cast<double>(sum)) - (1 - smoothing) * picked -
                                     smoothing * (offsets / static_cast<double>(classes)));
    const Floats factor = SetAll(dloss / sum), top = SetAll(largest);
    const Floats share = SetAll(static_cast<float>(dloss * smoothing / static_cast<double>(classes)));
    const auto goal = static_cast<float>(dloss * (1 - smoothing));
    const auto slope = [=](const auto& at) LINNET_LAMBDA {
      const Floats value = at.load(x);
      return hn::MulSub(kKept ? value : Exp(hn::Sub(value, top)), factor, share);
    };
    // A slope is never written behind the exponential or logit it comes from, which has been read.
    T* slopes = reinterpret_cast<T*>(x);
    const T of_target(hn::GetLane(hn::MulSub(Exp(SetAll(below)), factor, share)) - goal);
    if (sums == nullptr) {
      ForRow(classes, [=](const auto& at) LINNET_LAMBDA { at.store(slope(at), slopes); });
    } else {
      ForRow(classes, [=](const auto& at) LINNET_LAMBDA {
        const Floats d = slope(at);
        at.store(d, slopes);
        at.store(hn::Add(at.load(sums), d), sums);
      });
      sums[target] -= goal;
    }
    std::memcpy(slopes + target, &of_target, sizeof(T));
  }
}

void LossAndGradientRows(int64_t begin, int64_t end, int64_t classes, MutableStoredFloats logits,
    const int32_t* targets, double smoothing, float dloss, float* losses, float* sums, bool in_bf16) {
  if (logits.is_bf16)
    return LossAndGradientRowsOf<Bfloat16, Bfloat16>(
        begin, end, classes, logits.bf16(), targets, smoothing, dloss, losses, sums);
  const auto function = in_bf16 ? LossAndGradientRowsOf<float, Bfloat16> : LossAndGradientRowsOf<float, float>;
  function(begin, end, classes, logits.f32(), targets, smoothing, dloss, losses, sums);
}

void DividedRowFacts(int64_t begin, int64_t end, int64_t classes, float* logits, const int32_t* targets,
    int64_t first_class, float* facts) {
  for (int64_t row = begin; row < end; ++row) {
    float *x = logits + row * classes, *of_row = facts + row * kRowFacts;
    const int64_t target = targets[row] - first_class;
    of_row[kPicked] = target >= 0 && target < classes ? x[target] : 0;
    of_row[kLargest] = MaxRow(classes, x);
    of_row[kClasses] = static_cast<float>(classes);
    Exponentials<true>(classes, x, of_row[kLargest], &of_row[kSum], &of_row[kOffsets]);
  }
}

// exp(x - largest) become the gradients of the logits: factors[row] makes them dloss * softmax(x).
void DividedSlopes(int64_t begin, int64_t end, int64_t classes, float* logits, const int32_t* targets,
    int64_t first_class, const float* factors, float share, float goal, float* sums) {
  if (sums != nullptr) std::fill(sums, sums + classes, 0.0f);
  for (int64_t row = begin; row < end; ++row) {
    float* x = logits + row * classes;
    const int64_t target = targets[row] - first_class;
    const Floats factor = SetAll(factors[row]), less = SetAll(share);
    ForRow(classes, [=](const auto& at) LINNET_LAMBDA { at.store(hn::MulSub(at.load(x), factor, less), x); });
    if (target >= 0 && target < classes) x[target] -= goal;
    if (sums != nullptr)
      ForRow(classes, [=](const auto& at) LINNET_LAMBDA { at.store(hn::Add(at.load(sums), at.load(x)), sums); });
  }
}

// Rows [begin, end), numbered by from_row and to_row unless null.
void CopyRows(int64_t begin, int64_t end, int64_t width, StoredFloats from, MutableStoredFloats to,
    const int32_t* from_row, const int32_t* to_row) {
  for (int64_t i = begin; i < end; ++i) {
    const StoredFloats source = from + (from_row ? from_row[i] : i) * width;
    const MutableStoredFloats target = to + (to_row ? to_row[i] : i) * width;
    ForRow(width, [=](const auto& at) LINNET_LAMBDA { at.store(at.load(source), target); });
  }
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(LossRowsOf);
HWY_EXPORT(LossGradientRows);
HWY_EXPORT(CopyRows);
HWY_EXPORT(LossAndGradientRows);
HWY_EXPORT(DividedRowFacts);
HWY_EXPORT(DividedSlopes);

// With fewer rows in a chunk, packing the weight and reading its gradient for every chunk costs too much (8 % at 512
// rows, 50257 classes, width 768; 2 % at 768); more rows only if the chunk stays in L2.
constexpr int64_t kChunkFloats = 1 << 18;
constexpr int64_t kMinRows = 768, kMaxRows = 4096;

// The length of the fewest chunks of at most `most` rows, of nearly equal length.
int64_t even_chunks(int64_t rows, int64_t most) { return ceil_div(rows, std::max<int64_t>(ceil_div(rows, most), 1)); }

// All ranks that divide the classes have chunks of the same rows.
int64_t chunk_rows(int64_t rows, int64_t classes, const ClassDivision& division) {
  if (division.is_divided()) classes = ceil_div(division.all, division.ranks);
  return even_chunks(rows, std::clamp(kChunkFloats / std::max<int64_t>(classes, 1), kMinRows, kMaxRows));
}

// How many groups of a chunk's rows sum the bias's gradient separately.
int64_t row_groups(int64_t rows) { return std::clamp<int64_t>(rows / 32, 1, 32); }

// Then bf16 hidden states have bf16 logits, the largest values that a step keeps at once.
bool has_bf16_slopes(bool packed, Precision precision, const ClassDivision& division) {
  return !packed && !division.is_divided() && precision == Precision::kBf16 && gemm_has_bf16();
}

struct Workspace {
  Workspace(std::byte* base, int64_t rows, int64_t width, int64_t classes, bool bf16_logits, size_t product_bytes,
      const ClassDivision& division) {
    const int64_t chunk = chunk_rows(rows, classes, division);
    Regions regions(base);
    kept = regions.take<int32_t>(rows);
    targets = regions.take<int32_t>(rows);
    losses = regions.take<float>(rows);
    lse = regions.take<float>(chunk);
    hidden = regions.take<float>(chunk * width);
    logits = {bf16_logits ? static_cast<void*>(regions.take<Bfloat16>(chunk * classes))
                          : static_cast<void*>(regions.take<float>(chunk * classes)),
        bf16_logits};
    sums = regions.take<float>(row_groups(chunk) * classes);
    if (division.is_divided()) {
      facts = regions.take<float>(chunk * kRowFacts);
      all_facts = regions.take<float>(chunk * kRowFacts * division.ranks);
    }
    product = regions.take<std::byte>(static_cast<int64_t>(product_bytes));
    size = regions.size();
  }
  int32_t *kept, *targets;  // the rows that are not left out, and their targets
  float *losses, *lse;
  MutableStoredFloats logits;
  float* hidden;  // a chunk's rows and then their gradient, where some between are left out or memory has them as bf16
  float* sums;    // by group of rows
  float *facts = nullptr, *all_facts = nullptr;  // of a chunk's rows, this rank's and those of all ranks
  std::byte* product;
  size_t size;
};

// The largest of a chunk's products. A chunk's rows depend on how many are ignored.
size_t product_workspace(int64_t rows, int64_t width, int64_t classes, const std::optional<PackedShape>& packed,
    Precision precision, int threads, const ClassDivision& division) {
  const bool in_bf16 = precision == Precision::kBf16;
  size_t most = 0;
  for (int64_t m = chunk_rows(rows, classes, division); m > 0; --m)
    most = std::max({most, gemm_workspace(1, m, classes, width, threads, in_bf16),
        gemm_workspace(1, m, width, classes, threads, in_bf16), gemm_workspace(1, classes, width, m, threads, in_bf16),
        packed ? quantized_gemm_workspace(*packed, m, /*few=*/false, threads) : 0,
        packed && m <= kFewRows ? quantized_gemm_workspace(*packed, m, /*few=*/true, threads) : 0});
  return most;
}

void copy_rows(int64_t rows, int64_t width, StoredFloats from, MutableStoredFloats to, const int32_t* from_row,
    const int32_t* to_row, ThreadPool& pool) {
  for_ranges(pool, rows, width, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CopyRows)(begin, end, width, from, to, from_row, to_row);
  });
}

class LinearCrossEntropy {
 public:
  LinearCrossEntropy(const LinearCrossEntropyArgs& args, std::byte* base, ThreadPool& pool)
      : args_(args), bf16_slopes_(has_bf16_slopes(args.packed.has_value(), args.precision, args.division)),
        work_(base, args.rows, args.width, args.classes, args.hidden.is_bf16 && bf16_slopes_, 0, args.division),
        pool_(pool) {}

  void run() {
    int64_t kept = 0;
    for (int64_t row = 0; row < args_.rows; ++row)
      if (args_.targets[row] >= 0) {
        work_.targets[kept] = args_.targets[row];
        work_.kept[kept++] = static_cast<int32_t>(row);
      }
    const int64_t step = even_chunks(kept, std::max<int64_t>(chunk_rows(args_.rows, args_.classes, args_.division), 1));
    for (int64_t first = 0; first < kept; first += step) chunk(first, std::min(step, kept - first));
    if (args_.dhidden) clear_left_out(kept);
    const auto loss_of = [&](int64_t row) { return work_.losses[row]; };
    if (args_.loss != nullptr) *args_.loss = static_cast<float>(sum_of<double>(kept, loss_of));
  }

 private:
  void chunk(int64_t first, int64_t rows) {
    const int32_t* kept = work_.kept + first;
    const bool adjacent = kept[rows - 1] - kept[0] + 1 == rows;
    const float* hidden = work_.hidden;
    if (adjacent && !args_.hidden.is_bf16) hidden = args_.hidden.f32() + kept[0] * args_.width;
    else copy_rows(rows, args_.width, args_.hidden, work_.hidden, kept, nullptr, pool_);
    logits(rows, hidden);
    if (args_.division.is_divided()) exchange_facts(first, rows);
    if (!args_.dhidden) {
      if (args_.division.is_divided()) return;
      cross_entropy_forward(rows, args_.classes, work_.logits, work_.targets + first, args_.smoothing,
          work_.losses + first, work_.lse, pool_);
      return;
    }
    losses_and_slopes(first, rows);
    // The weight's gradient comes first: the other may overwrite the hidden states.
    if (args_.dweight != nullptr) weight_gradient(rows, hidden, first > 0);
    if (args_.dbias != nullptr)
      add_rows(row_groups(rows), args_.classes, args_.classes, work_.sums, first > 0, args_.dbias, 1024, pool_);
    if (adjacent && !args_.dhidden.is_bf16) {
      hidden_gradient(rows, args_.dhidden.f32() + kept[0] * args_.width);
    } else {
      hidden_gradient(rows, work_.hidden);
      copy_rows(rows, args_.width, work_.hidden, args_.dhidden, nullptr, kept, pool_);
    }
  }

  void logits(int64_t rows, const float* hidden) {
    GemmArgs product{.m = rows, .n = args_.classes, .k = args_.width};
    product.a = hidden, product.lda = args_.width;
    product.b = args_.weight, product.ldb = args_.width, product.trans_b = true;
    product.c = work_.logits, product.ldc = args_.classes;
    product.bias = args_.bias;
    multiply(product);
  }

  // Turns logits into gradients: in bf16 if the products that read them would round them anyway.
  void losses_and_slopes(int64_t first, int64_t rows) {
    const bool divided = args_.division.is_divided();
    const auto part = [&](int64_t begin, int64_t end, float* sums) {
      if (!divided)
        return HWY_DYNAMIC_DISPATCH(LossAndGradientRows)(begin, end, args_.classes, work_.logits, work_.targets + first,
            args_.smoothing, args_.dloss, work_.losses + first, sums, bf16_slopes_);
      const double smoothing = args_.smoothing, all = static_cast<double>(args_.division.all);
      HWY_DYNAMIC_DISPATCH(DividedSlopes)
      (begin, end, args_.classes, work_.logits.f32(), work_.targets + first, args_.division.first, work_.lse,
          static_cast<float>(args_.dloss * smoothing / all), static_cast<float>(args_.dloss * (1 - smoothing)), sums);
    };
    if (args_.dbias == nullptr)
      return for_ranges(pool_, rows, 4 * args_.classes, [&](int64_t begin, int64_t end) { part(begin, end, nullptr); });
    const int64_t groups = row_groups(rows);
    for_each_index(pool_, groups, rows * 4 * args_.classes / groups,
        [&](int64_t g) { part(rows * g / groups, rows * (g + 1) / groups, work_.sums + g * args_.classes); });
  }

  // The losses of a chunk with divided classes; its logits become exp(x - largest) of this rank's, and lse[row] the
  // factor that makes those dloss * softmax(x).
  void exchange_facts(int64_t first, int64_t rows) {
    for_ranges(pool_, rows, 4 * args_.classes, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(DividedRowFacts)
      (begin, end, args_.classes, work_.logits.f32(), work_.targets + first, args_.division.first, work_.facts);
    });
    const auto size = static_cast<size_t>(rows * kRowFacts);
    const std::span<float> all(work_.all_facts, size * static_cast<size_t>(args_.division.ranks));
    (*args_.gather)({work_.facts, size}, all);
    for (int64_t row = 0; row < rows; ++row) combine_facts(first, rows, row);
  }

  void combine_facts(int64_t first, int64_t rows, int64_t row) {
    const auto of_rank = [&](int rank) { return work_.all_facts + (rank * rows + row) * kRowFacts; };
    const int ranks = args_.division.ranks;
    float largest = of_rank(0)[kLargest];
    for (int rank = 1; rank < ranks; ++rank) largest = std::max(largest, of_rank(rank)[kLargest]);
    double sum = 0, offsets = 0, picked = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const float* facts = of_rank(rank);
      const double above = static_cast<double>(facts[kLargest]) - largest;
      sum += facts[kSum] * std::exp(above);
      offsets += facts[kOffsets] + facts[kClasses] * above;
      picked += facts[kPicked];
    }
    const double smoothing = args_.smoothing;
    work_.losses[first + row] = static_cast<float>(std::log(sum) - (1 - smoothing) * (picked - largest) -
                                                   smoothing * offsets / static_cast<double>(args_.division.all));
    const double above = static_cast<double>(work_.facts[row * kRowFacts + kLargest]) - largest;
    work_.lse[row] = static_cast<float>(args_.dloss * std::exp(above) / sum);
  }

  void weight_gradient(int64_t rows, const float* hidden, bool later) {
    GemmArgs product{.m = args_.classes, .n = args_.width, .k = rows};
    product.a = slopes(), product.lda = slopes_stride(), product.trans_a = true;
    product.b = hidden, product.ldb = args_.width;
    product.c = args_.dweight, product.ldc = args_.width;
    product.accumulate = later || args_.accumulate;
    product.precision = args_.precision;
    gemm(product, work_.product, pool_);  // it does not read the weight, packed or not
  }

  void hidden_gradient(int64_t rows, float* dhidden) {
    GemmArgs product{.m = rows, .n = args_.width, .k = args_.classes};
    product.a = slopes(), product.lda = slopes_stride();
    product.b = args_.weight, product.ldb = args_.width;
    product.c = dhidden, product.ldc = args_.width;
    multiply(product);
  }

  StoredFloats slopes() const { return {work_.logits.data, bf16_slopes_}; }
  int64_t slopes_stride() const {  // rows stay where they are
    return bf16_slopes_ && !work_.logits.is_bf16 ? 2 * args_.classes : args_.classes;
  }

  void multiply(GemmArgs& product) {
    product.precision = args_.precision;
    if (args_.packed) quantized_gemm(product, *args_.packed, work_.product, pool_);
    else gemm(product, work_.product, pool_);
  }

  void clear_left_out(int64_t kept) {
    for (int64_t row = 0; row < args_.rows; ++row)
      if (args_.targets[row] < 0) clear_floats(args_.width, args_.dhidden + row * args_.width);
    if (kept > 0) return;
    if (args_.dweight != nullptr && !args_.accumulate) std::fill_n(args_.dweight, args_.classes * args_.width, 0.0f);
    if (args_.dbias != nullptr) std::fill_n(args_.dbias, args_.classes, 0.0f);
  }

  const LinearCrossEntropyArgs& args_;
  const bool bf16_slopes_;
  const Workspace work_;
  ThreadPool& pool_;
};
}  // namespace

void cross_entropy_forward(int64_t rows, int64_t classes, StoredFloats logits, const int32_t* targets, float smoothing,
    float* losses, float* lse, ThreadPool& pool) {
  for_ranges(pool, rows, 2 * classes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LossRowsOf)(logits.is_bf16)(begin, end, classes, logits, targets, smoothing, losses, lse);
  });
}

void cross_entropy_backward(int64_t rows, int64_t classes, StoredFloats logits, const int32_t* targets, float smoothing,
    const float* lse, float dloss, MutableStoredFloats dlogits, ThreadPool& pool) {
  for_ranges(pool, rows, classes, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(LossGradientRows)
    (begin, end, classes, logits, targets, smoothing, lse, dloss, dlogits);
  });
}

size_t linear_cross_entropy_workspace(int64_t rows, int64_t width, int64_t classes,
    const std::optional<PackedShape>& packed, Precision precision, bool bf16_hidden, int threads,
    const ClassDivision& division) {
  return Workspace(nullptr, rows, width, classes,
      bf16_hidden && has_bf16_slopes(packed.has_value(), precision, division),
      product_workspace(rows, width, classes, packed, precision, threads, division), division)
      .size;
}

void linear_cross_entropy(const LinearCrossEntropyArgs& args, std::byte* workspace, ThreadPool& pool) {
  LinearCrossEntropy(args, workspace, pool).run();
}
}  // namespace linnet
#endif
