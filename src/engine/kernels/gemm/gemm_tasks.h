// How the work of a product is dealt out, how its two phases join without a second fork, and what tiles fetch ahead.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include "engine/kernels/gemm/gemm.h"

namespace linnet {
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
    columns_ = (length + kLine - 1) / kLine;
    along_ = columns_ >= groups_;
    if (along_) {  // a call takes `lines_` rows, of each the part that its groups can cover
      parts_ = columns_ / groups_;
      lines_ = (rows * parts_ + calls - 1) / calls;
    } else {          // a call takes a column of lines, or a part of one
      columns_ += 1;  // rows need not begin at a line
      parts_ = std::max<int64_t>(1, calls / columns_);
      const int64_t part_rows = (rows + parts_ - 1) / parts_;
      lines_ = (part_rows + groups_ - 1) / groups_;
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
