// Cuts a product into blocks that fit the caches. The blocks along k follow from the shape alone, so that results do
// not depend on the machine (engine/kernels/gemm/gemm.h); dividing C among threads changes no bit and may depend on
// their number. Measured on Zen 5 (48 KB L1, 1 MB L2 per core, 32 MB L3).
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include "base/numbers.h"
#include "engine/kernels/gemm/gemm.h"

namespace linnet::gemm_blocking {
// Lengths along k count packed elements: one value in fp32, two in bf16.
constexpr int64_t kMaxDepth = 768;         // k of one block: a tile of A and a panel of B stay in L1 and L2
constexpr int64_t kRowStride = 784;        // between packed rows of A: >= kMaxDepth, and no power of two (cache sets)
constexpr int64_t kMaxPanel = 32;          // the widest panel of B of any instruction set, in floats
constexpr int64_t kPieceRows = 84;         // rows of A that a thread packs at a time: 300 KB of L2
constexpr int64_t kBlockFloats = 3 << 20;  // packed block of the operand that the threads share: 12 MB of L3
constexpr int64_t kColumnsMaxRows = 1024;  // see Order
constexpr int64_t kFewRows = 8;            // at most so many rows of C: B is read in place
constexpr int64_t kFewColumns = 16;        // few columns: A is read in place
constexpr int64_t kFewFloats = 1 << 18;    // of the small operand, which is transposed into scratch if need be

// Length of the k blocks: k divided evenly, to a multiple of 16.
constexpr int64_t depth(int64_t k) { return std::min(k, round_up(ceil_div(k, ceil_div(k, kMaxDepth)), 16)); }

// One operand is packed first, for all threads; of the other a thread packs pieces. kRows shares B and divides rows;
// kColumns shares A and divides columns: a low, wide C would use a packed B little.
enum class Order { kRows, kColumns };
constexpr Order order(int64_t m, int64_t n) {
  return m <= kColumnsMaxRows && 2 * n >= 3 * m ? Order::kColumns : Order::kRows;
}

// Products whose C is not fp32 in memory (`whole_k`) sum all of k before a tile is rounded and stored: their k block is
// all of it, and a thread also keeps the sums of a panel. Rows of a piece packed for all of k are fewer than kPieceRows
// if k is long, for the same L2.
constexpr int64_t whole_piece_rows(int64_t k) {
  return std::clamp<int64_t>(3 * kPieceRows / ceil_div(k, depth(k)), 14, kPieceRows);
}

// Floats of `rows` packed rows of A: kRowStride each, or in tiles of columns, which are 4/3 of their height at worst.
constexpr int64_t packed_rows(int64_t rows, int64_t depth) {
  return round_up(std::max(rows * kRowStride, (rows + 13) * 4 / 3 * depth), 16);
}

constexpr Order order(int64_t m, int64_t n, int64_t k, bool whole_k) {
  const bool fits = !whole_k || ceil_div(k, depth(k)) * packed_rows(m, depth(k)) <= kBlockFloats;
  return fits ? order(m, n) : Order::kRows;
}

// k of the shared block: all of it unless the operand is large.
constexpr int64_t block_depth(Order order, int64_t m, int64_t n, int64_t k, bool whole_k = false) {
  if (whole_k) return k;
  const int64_t d = depth(k);
  const int64_t floats = order == Order::kRows ? std::min<int64_t>(round_up(n, kMaxPanel), 512) * d : packed_rows(m, d);
  return std::min(k, kBlockFloats / floats * d);
}
constexpr int64_t block_columns(int64_t n, int64_t block_depth) {
  return std::min(round_up(n, kMaxPanel), std::max(kMaxPanel, kBlockFloats / block_depth / kMaxPanel * kMaxPanel));
}

constexpr int64_t shared_floats(Order order, int64_t m, int64_t n, int64_t k, bool whole_k = false) {
  const int64_t deep = block_depth(order, m, n, k, whole_k);
  return order == Order::kRows ? round_up(deep * block_columns(n, deep), 16)
                               : ceil_div(deep, depth(k)) * packed_rows(m, depth(k));
}
// One thread's piece of the other operand; with `whole_k` the sums follow, at multiples of 16 floats.
constexpr int64_t piece_floats(Order order, int64_t m, int64_t k, bool whole_k = false) {
  if (whole_k && order == Order::kRows) return ceil_div(k, depth(k)) * packed_rows(whole_piece_rows(k), depth(k));
  return order == Order::kRows ? packed_rows(std::min(m, kPieceRows), depth(k)) : depth(k) * kMaxPanel;
}

constexpr int64_t sum_floats(Order order, int64_t m, int64_t k, bool whole_k) {
  if (!whole_k) return 0;
  return (order == Order::kRows ? whole_piece_rows(k) : m) * kMaxPanel;
}
constexpr int64_t thread_floats(Order order, int64_t m, int64_t k, bool whole_k) {
  return piece_floats(order, m, k, whole_k) + sum_floats(order, m, k, whole_k);
}

enum class Method {
  kFewRows,      // dot products or broadcasts, tasks are ranges of columns
  kFewColumns,   // dot products, tasks are ranges of rows
  kOneTaskEach,  // many small products: each is a task
  kShared,       // the threads share a packed block
};

// Of the methods that pack the operands.
constexpr Method packed_method(int64_t batch, int64_t m, int64_t n, int64_t k) {
  if (batch > 1 && n * k <= (1 << 16) && m <= (int64_t{1} << 24) / (n * k)) return Method::kOneTaskEach;
  return Method::kShared;
}
constexpr Method method(
    int64_t batch, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, bool independent_rows = false) {
  if (independent_rows && !trans_a) return Method::kFewRows;
  if (m <= kFewRows && (!trans_a || m * k <= kFewFloats)) return Method::kFewRows;
  if (n <= kFewColumns && k >= 256 && !trans_a && (trans_b || n * k <= kFewFloats)) return Method::kFewColumns;
  return packed_method(batch, m, n, k);
}

constexpr int64_t workspace(Method method, int64_t m, int64_t n, int64_t k, int64_t threads, bool whole_k = false) {
  const Order o = order(m, n, k, whole_k);
  switch (method) {
    case Method::kFewRows: return threads * round_up(std::min(m * k, kFewFloats), 16);
    case Method::kFewColumns: return threads * round_up(std::min(n * k, kFewFloats), 16);
    case Method::kOneTaskEach: return threads * (shared_floats(o, m, n, k, whole_k) + thread_floats(o, m, k, whole_k));
    case Method::kShared: return shared_floats(o, m, n, k, whole_k) + threads * thread_floats(o, m, k, whole_k);
  }
  return 0;
}
}  // namespace linnet::gemm_blocking

namespace linnet {
// The bf16 parts of gemm.h and engine/kernels/processor.h, compiled apart for another instruction set.
//
// The product with operands rounded to bf16 while they are packed. False, without effect, if the current instruction
// set has no bf16 multiply-add or the product is not packed (few rows or columns). panels: pack_bf16_panels()' or null.
bool gemm_bf16(const GemmArgs& args, const float* panels, float* workspace, ThreadPool& pool);
// See pack_panels(). False, without effect, without the instructions.
bool pack_bf16_panels(const GemmArgs& args, float* panels, ThreadPool& pool);

// The loop of measured_peak_gflops(), and the operations of a round. Only with gemm_has_bf16().
float bf16_multiply_adds(int64_t rounds);
double bf16_round_operations();

// How the work of a product is dealt out, how its two phases join without a second fork, and what tiles fetch ahead.

// Divides `total` things among `parts` as evenly as possible, in order.
class Deal {
 public:
  Deal(int64_t total, int64_t parts) : parts_(parts), each_(total / parts), more_(total % parts) {}
  int64_t parts() const { return parts_; }
  int64_t begin(int64_t part) const { return part * each_ + std::min(part, more_); }
  int64_t size(int64_t part) const { return each_ + (part < more_); }

 private:
  int64_t parts_, each_, more_;  // the first more_ parts have one more
};

// Tasks start in order, so those that pack come first, and those that multiply wait here for running ones.
class Latch {
 public:
  explicit Latch(int64_t count) : left_(count) {}
  void arrive() { left_.fetch_sub(1, std::memory_order_release); }
  void wait() const {
    for (int spins = 0; left_.load(std::memory_order_acquire) > 0; ++spins)
      if (spins > 2000) std::this_thread::yield();
  }

 private:
  std::atomic<int64_t> left_;
};

inline GemmArgs product_of_batch(GemmArgs g, int64_t index) {
  g.a = g.a + index * g.a_batch;
  g.b = g.b + index * g.b_batch;
  const int64_t skip = index * g.c_batch;
  g.c = g.c + skip;
  if (g.residual) g.residual = g.residual + skip;
  if (g.pre_activation) g.pre_activation = g.pre_activation + skip;
  if (g.aux) g.aux = g.aux + skip;
  return g;
}

// Prefetches what will be packed next into L2 while the register tile works, so that products do not wait for operands
// in L3 or RAM.
//
// The share of one tile: for every kStep steps along k, `lines` cache lines, `stride` floats apart; then everything
// moves by `advance` floats.
struct Ahead {
  static constexpr int64_t kStep = 16;
  const float* next = nullptr;
  int64_t stride = 0, advance = 0;
  int64_t lines = 0;
};

// A rectangle of memory, divided among the tiles computed meanwhile.
class AheadRegion {
 public:
  AheadRegion() = default;
  // `rows` rows of `length` floats, `stride` apart, for `calls` tiles of `depth` steps.
  AheadRegion(const float* first, int64_t rows, int64_t length, int64_t stride, int64_t calls, int64_t depth)
      : first_(first), rows_(rows), stride_(stride), groups_(std::max<int64_t>(1, depth / Ahead::kStep)) {
    columns_ = ceil_div(length, kLine);
    along_ = columns_ >= groups_;
    if (along_) {  // a call takes `lines_` rows, of each the part that its groups can cover
      parts_ = columns_ / groups_;
      lines_ = ceil_div(rows * parts_, calls);
    } else {          // a call takes a column of lines, or a part of one
      columns_ += 1;  // rows need not begin at a line
      parts_ = std::max<int64_t>(1, calls / columns_);
      lines_ = ceil_div(ceil_div(rows, parts_), groups_);
    }
  }

  Ahead take() {
    if (along_) {
      if (part_ >= parts_) return {};
      const Ahead share{
          first_ + row_ * stride_ + part_ * groups_ * kLine, stride_, kLine, std::min(lines_, rows_ - row_)};
      row_ += lines_;
      if (row_ >= rows_) row_ = 0, ++part_;
      return share;
    }
    if (column_ >= columns_) return {};
    const Ahead share{first_ + column_ * kLine + part_ * lines_ * groups_ * stride_, stride_, lines_ * stride_, lines_};
    if (++part_ == parts_) part_ = 0, ++column_;
    return share;
  }

 private:
  static constexpr int64_t kLine = 16;  // floats
  const float* first_ = nullptr;
  int64_t rows_ = 0, stride_ = 0, groups_ = 1, columns_ = 0, parts_ = 0, lines_ = 0;
  bool along_ = true;
  int64_t row_ = 0, column_ = 0, part_ = 0;
};
}  // namespace linnet
