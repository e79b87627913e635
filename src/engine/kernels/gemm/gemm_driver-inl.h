// Divides packed products into tasks and blocks, for every precision.
#include <algorithm>
#include <type_traits>
#include "base/thread_pool.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/gemm/gemm_blocking.h"
#include "engine/kernels/gemm/gemm_epilogue-inl.h"
#include "engine/kernels/gemm/gemm_tile-inl.h"
#include "engine/kernels/quantized/packed_weight.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {
using namespace gemm_blocking;

// Functions of x, the finished sum. kRounds: GELU of a bf16 C is that of x rounded to bf16.
struct Identity {
  static constexpr bool kRounds = false, kReadsAux = false;
  static HWY_INLINE Floats Result(Floats x, Floats, Floats) { return x; }
};
struct ReluOf {
  static constexpr bool kRounds = false, kReadsAux = false;
  static HWY_INLINE Floats Result(Floats x, Floats, Floats) { return Relu(x); }
};
template <class F> struct ActivationOf {
  static constexpr bool kRounds = true, kReadsAux = false;
  static HWY_INLINE Floats Result(Floats x, Floats, Floats) { return F::Value(x); }
};
template <class F> struct DerivativeOf {
  static constexpr bool kRounds = false, kReadsAux = true;
  static HWY_INLINE Floats Result(Floats x, Floats aux, Floats scale) { return F::Gradient(aux, hn::Mul(x, scale)); }
};

// `rows` rows of a whole panel with C and all that is beside it in bf16: a row is one store, and its functions are
// compile-time constants. `location`: of the first element in C.
template <class P, class F, bool kAdds>
HWY_NOINLINE void FinishPanelOf(const GemmArgs& g, const float* sums, int64_t location, int64_t column, int64_t rows) {
  const Floats scale = SetAll(g.derivative_scale);
  const bool has_bias = g.bias != nullptr;
  const Bfloat16* added = (g.accumulate ? StoredFloats(g.c) : g.residual).bf16();
  const Bfloat16* aux = g.aux.bf16();
  Bfloat16 *pre = g.pre_activation.bf16(), *c = g.c.bf16();
  V bias[2] = {hn::Zero(d), hn::Zero(d)};
  if (has_bias) bias[0] = hn::LoadU(d, g.bias + column), bias[1] = hn::LoadU(d, g.bias + column + kLanes);
  for (int64_t i = 0; i < rows; ++i, sums += kWidth, location += g.ldc) {
    V x[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      x[h] = hn::Load(d, sums + h * kLanes);
      if constexpr (kAdds) x[h] = hn::Add(x[h], LoadFloats(added + location + h * kLanes));
      if (has_bias) x[h] = hn::Add(x[h], bias[h]);
    }
    if (F::kRounds || pre != nullptr) {
      const V rounded = P::Round(x[0], x[1]);
      if (pre != nullptr) P::StoreRounded(rounded, pre + location);
      if constexpr (F::kRounds) P::SplitRounded(rounded, x[0], x[1]);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const Floats beside = F::kReadsAux ? LoadFloats(aux + location + h * kLanes) : scale;
      x[h] = F::Result(x[h], beside, scale);
    }
    P::StoreRounded(P::Round(x[0], x[1]), c + location);
  }
}

using FinishPanelFunction = void (*)(const GemmArgs&, const float*, int64_t, int64_t, int64_t);
template <class P, class F> FinishPanelFunction finish_panel_of(const GemmArgs& g) {
  return g.accumulate || g.residual ? FinishPanelOf<P, F, true> : FinishPanelOf<P, F, false>;
}

// Null for a matrix that is fp32 in memory, and for functions beyond GELU.
template <class P> FinishPanelFunction finish_panel(const GemmArgs& g) {
  const auto in_f32 = [](StoredFloats x) { return x && !x.is_bf16; };
  if (in_f32(g.c) || in_f32(g.residual) || in_f32(g.pre_activation) || in_f32(g.aux)) return nullptr;
  FinishPanelFunction of_derivative = nullptr;
  VisitDerivative(g.derivative, [&]<class F>(F) { of_derivative = finish_panel_of<P, DerivativeOf<F>>(g); });
  if (of_derivative) return of_derivative;
  if (g.activation == GemmActivation::kRelu) return finish_panel_of<P, ReluOf>(g);
  if (g.activation == GemmActivation::kGelu) return finish_panel_of<P, ActivationOf<Gelu>>(g);
  if (g.activation == GemmActivation::kGeluTanh) return finish_panel_of<P, ActivationOf<GeluTanh>>(g);
  return g.activation == GemmActivation::kNone ? finish_panel_of<P, Identity>(g) : nullptr;
}

struct Depth {  // a range of k, in packed elements
  int64_t begin, size;
};

// Rows of C divided into register tiles, of which [first, last) are meant.
struct Tiles {
  static Tiles of(int64_t row, int64_t rows) {
    return {row, Deal(rows, ceil_div(rows, kRows)), 0, ceil_div(rows, kRows)};
  }
  int64_t row(int64_t t) const { return row0 + deal.begin(t); }
  int64_t rows() const { return row(last) - row(first); }
  Tiles part(int64_t begin, int64_t end) const { return {row0, deal, begin, end}; }

  int64_t row0;
  Deal deal;
  int64_t first, last;
};

// One product. run(tasks, body) must call body(task, scratch for a piece) for all tasks, in order, and wait.
template <class P> class Product {
 public:
  // panels: all of B, packed by pack_weight(); null: B is packed as it is multiplied.
  Product(const GemmArgs& args, float* shared, int threads, const float* panels = nullptr)
      : g_(args), panels_(panels), apart_(has_bf16_results(args)), k_(ceil_div(args.k, P::kPair)), depth_(depth(k_)),
        order_(order(args.m, args.n, k_, apart_)), shared_(shared), threads_(threads), tasks_(wanted_tasks()) {}

  // Packs B for any number of rows: for every block of k its panels, one after another.
  void pack_weight(float* out, ThreadPool& pool) const {
    const int64_t panels = ceil_div(g_.n, kWidth);
    pool.run(ceil_div(k_, depth_) * panels, [&](int64_t task, int) {
      const Depth k = part({0, k_}, task / panels * depth_);
      const int64_t p = task % panels;
      pack_b(k, p * kWidth, std::min<int64_t>(kWidth, g_.n - p * kWidth), 0,
          out + panel_place(k.begin, k.size, panels, p));
    });
  }

  template <class Run> void run(const Run& run) {
    const int64_t deep = block_depth(order_, g_.m, g_.n, k_, apart_);
    const int64_t wide = order_ == Order::kRows ? block_columns(g_.n, deep) : g_.n;
    for (int64_t column = 0; column < g_.n; column += wide)
      for (int64_t k = 0; k < k_; k += deep) {
        const Depth block{k, std::min(deep, k_ - k)};
        if (order_ == Order::kRows) by_rows(block, column, std::min(wide, g_.n - column), run);
        else by_columns(block, run);
      }
  }

 private:
  // Enough tasks for threads of unequal speed, equally many for each, and none too small.
  int64_t wanted_tasks() const {
    constexpr double kTaskWork = 1 << 20, kMoved = 16;  // multiply-adds: some 8 microseconds; while a float is moved
    constexpr double kTileSteps = 8;                    // steps of k in which a tile's sums are begun and stored
    const auto m = static_cast<double>(g_.m), n = static_cast<double>(round_up(g_.n, kWidth));
    const auto k = static_cast<double>(g_.k);
    const double tasks = (m * n * (k + kTileSteps) + kMoved * (m * k + k * n + m * n)) / kTaskWork;
    const auto most = static_cast<int64_t>(std::clamp(tasks, 1.0, 4.0 * static_cast<double>(threads_)));
    return most < threads_ ? most : most / threads_ * threads_;
  }

  Depth part(Depth block, int64_t k) const { return {k, std::min(depth_, block.begin + block.size - k)}; }
  int64_t value(int64_t k) const { return k * P::kPair; }
  int64_t values(Depth k) const { return std::min(k.size * P::kPair, g_.k - value(k.begin)); }

  // Shares B and divides rows of C.
  template <class Run> void by_rows(Depth block, int64_t column, int64_t columns, const Run& run) {
    const int64_t panels = ceil_div(columns, kWidth);
    const auto panel = [&](Depth k, int64_t p) -> const float* {
      if (panels_) return packed_panel(k, column / kWidth + p);
      return shared_ + panel_place(k.begin - block.begin, k.size, panels, p);
    };
    // A transposed panel is read along k, others across, so that tasks take a few steps of k of many panels.
    const int64_t group = g_.trans_b ? 2 : 8, groups = ceil_div(panels, group);
    const int64_t steps = g_.trans_b ? depth_ : std::max<int64_t>(16, 1024 / std::min(group, panels) / 16 * 16);
    const int64_t cuts = ceil_div(depth_, steps), blocks = ceil_div(block.size, depth_);
    const int64_t pack_tasks = panels_ ? 0 : groups * cuts * blocks;
    const auto pack = [&](int64_t task) {
      const Depth k = part(block, block.begin + task / (groups * cuts) * depth_);
      const int64_t p = task / cuts % groups * group, skip = task % cuts * steps;
      if (skip >= k.size) return;
      pack_b({k.begin + skip, std::min(steps, k.size - skip)}, column + p * kWidth,
          std::min(columns - p * kWidth, group * kWidth), k.size * kWidth,
          shared_ + panel_place(k.begin - block.begin, k.size, panels, p) + skip * kWidth);
    };
    const int64_t lowest = g_.trans_a ? kPieceRows : 4 * kRows;  // a task packs wide strips of a transposed A
    const int64_t even = std::max<int64_t>(1, g_.m / lowest / threads_) * threads_;
    const int64_t row_groups = std::min({tasks_, even, ceil_div(g_.m, kRows)});
    // Each column group packs its rows of A again.
    const int64_t column_groups = std::min(ceil_div(std::min(tasks_, threads_), row_groups), panels);
    const Deal rows{g_.m, row_groups}, columns_of{panels, column_groups};
    Latch packed(pack_tasks);
    run(pack_tasks + row_groups * column_groups, [&](int64_t task, float* scratch) {
      if (task < pack_tasks) {
        pack(task);
        return packed.arrive();
      }
      packed.wait();
      const int64_t row_group = (task - pack_tasks) % row_groups, column_group = (task - pack_tasks) / row_groups;
      const Tiles tiles = Tiles::of(rows.begin(row_group), rows.size(row_group));
      const int64_t p0 = columns_of.begin(column_group), p1 = columns_of.begin(column_group + 1);
      // A single tile of a small product is still in L1 when it meets the last panel.
      const bool small = !g_.trans_a && (p1 - p0) * kWidth * depth_ <= 1 << 16;
      const int64_t piece_tiles = std::max<int64_t>(1, (apart_ ? whole_piece_rows(k_) : kPieceRows) / kRows);
      const Deal pieces{tiles.last, small ? tiles.last : ceil_div(tiles.last, piece_tiles)};
      const auto piece_at = [&](int64_t i) { return tiles.part(pieces.begin(i), pieces.begin(i + 1)); };
      if (apart_) {
        float* sums = scratch + piece_floats(Order::kRows, g_.m, k_, true);
        for (int64_t i = 0; i < pieces.parts(); ++i) {
          const Tiles piece = piece_at(i);
          const int64_t rows_size = packed_rows(piece.rows(), depth_), calls = (piece.last - piece.first) * (p1 - p0);
          for_depths(block, [&](Depth now, int64_t index) { pack_a(piece, now, scratch + index * rows_size); });
          AheadRegion ahead;
          if (i + 1 < pieces.parts()) ahead = ahead_a(piece_at(i + 1), block, calls, block.size);
          for (int64_t p = p0; p < p1; ++p) {
            for_depths(block, [&](Depth now, int64_t index) {
              add_up(
                  piece, now, column + p * kWidth, scratch + index * rows_size, panel(now, p), sums, index > 0, ahead);
            });
            const int64_t first = column + p * kWidth;
            store_sums(piece, first, std::min<int64_t>(kWidth, column + columns - first), sums);
          }
        }
        return;
      }
      for (int64_t k = block.begin; k < block.begin + block.size; k += depth_) {
        const Depth now = part(block, k);
        for (int64_t i = 0; i < pieces.parts(); ++i) {
          const Tiles piece = piece_at(i);
          const float* a = scratch;
          if (in_place()) a = g_.a.f32() + piece.row(piece.first) * g_.lda;
          else pack_a(piece, now, scratch);
          AheadRegion ahead;
          const int64_t calls = (piece.last - piece.first) * (p1 - p0);
          if (i + 1 < pieces.parts()) ahead = ahead_a(piece_at(i + 1), now, calls, now.size);
          else if (k + depth_ < block.begin + block.size)
            ahead = ahead_a(piece_at(0), part(block, k + depth_), calls, now.size);
          multiply(
              piece, now, a, column + p0 * kWidth, std::min(columns, p1 * kWidth) - p0 * kWidth, panel(now, p0), ahead);
        }
      }
    });
  }

  // Shares A and divides panels of B.
  template <class Run> void by_columns(Depth block, const Run& run) {
    const Tiles all = Tiles::of(0, g_.m);
    const int64_t size = packed_rows(g_.m, depth_), blocks = ceil_div(block.size, depth_);
    const auto rows_at = [&](Depth k) { return shared_ + (k.begin - block.begin) / depth_ * size; };
    const int64_t group = g_.trans_a ? all.last : 2, groups = ceil_div(all.last, group);
    const int64_t steps = g_.trans_a ? std::max<int64_t>(16, 2048 / all.last / 16 * 16) : depth_;
    const int64_t cuts = ceil_div(depth_, steps), pack_tasks = groups * cuts * blocks;
    const auto pack = [&](int64_t task) {
      const Depth k = part(block, block.begin + task / (groups * cuts) * depth_);
      const int64_t first = task / cuts % groups * group, skip = task % cuts * steps;
      const Tiles tiles = all.part(first, std::min(all.last, first + group));
      if (skip >= k.size) return;
      if (g_.trans_a)
        pack_columns(tiles, {k.begin + skip, std::min(steps, k.size - skip)}, k.size,
            packed_a(all, tiles.first, k.size, rows_at(k)) + skip * kColumnStride);
      else pack_a(tiles, k, packed_a(all, tiles.first, k.size, rows_at(k)));
    };
    const int64_t panels = ceil_div(g_.n, kWidth);
    const Deal deal{panels, std::min(tasks_, panels)};
    Latch packed(pack_tasks);
    run(pack_tasks + deal.parts(), [&](int64_t task, float* scratch) {
      if (task < pack_tasks) {
        pack(task);
        return packed.arrive();
      }
      packed.wait();
      const int64_t p0 = deal.begin(task - pack_tasks), p1 = deal.begin(task - pack_tasks + 1);
      if (apart_) {
        float* sums = scratch + piece_floats(Order::kColumns, g_.m, k_, true);
        for (int64_t p = p0; p < p1; ++p) {
          const int64_t width = std::min<int64_t>(kWidth, g_.n - p * kWidth);
          for_depths(block, [&](Depth now, int64_t index) {
            const float* panel = panel_of(now, p, width, scratch);
            const bool last = now.begin + now.size == k_;
            AheadRegion ahead;
            if (!last) ahead = ahead_b(p, part(block, now.begin + depth_), all.last, now.size);
            else if (p + 1 < p1) ahead = ahead_b(p + 1, part(block, block.begin), all.last, now.size);
            add_up(all, now, p * kWidth, rows_at(now), panel, sums, index > 0, ahead);
          });
          store_sums(all, p * kWidth, width, sums);
        }
        return;
      }
      for (int64_t k = block.begin; k < block.begin + block.size; k += depth_) {
        const Depth now = part(block, k);
        for (int64_t p = p0; p < p1; ++p) {
          const int64_t width = std::min<int64_t>(kWidth, g_.n - p * kWidth);
          const float* panel = panel_of(now, p, width, scratch);
          AheadRegion ahead;
          if (p + 1 < p1) ahead = ahead_b(p + 1, now, all.last, now.size);
          else if (k + depth_ < block.begin + block.size)
            ahead = ahead_b(p0, part(block, k + depth_), all.last, now.size);
          multiply(all, now, rows_at(now), p * kWidth, width, panel, ahead);
        }
      }
    });
  }

  // body(part, number) for the parts of a block along k, in order.
  template <class Body> void for_depths(Depth block, const Body& body) const {
    int64_t number = 0;
    for (int64_t k = block.begin; k < block.begin + block.size; k += depth_) body(part(block, k), number++);
  }

  // Packed B: for every block of k, its panels one after another.
  static int64_t panel_place(int64_t k, int64_t depth, int64_t panels, int64_t p) {
    return k * panels * kWidth + p * depth * kWidth;
  }

  const float* packed_panel(Depth k, int64_t p) const {
    return panels_ + panel_place(k.begin, k.size, ceil_div(g_.n, kWidth), p);
  }
  // Panel p of B, of `width` columns: already packed, or packed into `scratch`.
  const float* panel_of(Depth k, int64_t p, int64_t width, float* scratch) const {
    if (panels_) return packed_panel(k, p);
    pack_b(k, p * kWidth, width, 0, scratch);
    return scratch;
  }

  // `columns` columns of op(B) from `column` on, as panels `distance` floats apart.
  void pack_b(Depth k, int64_t column, int64_t columns, int64_t distance, float* out) const {
    if (P::kPair == 1 && g_.b_codes) {
      for (; columns > 0; columns -= kWidth, column += kWidth, out += distance)
        unpack_panel(*g_.b_codes, g_.trans_b, k.begin, k.size, column, std::min<int64_t>(columns, kWidth), out);
      return;
    }
    with_type(g_.b, [&](const auto* b) {
      if (!g_.trans_b)
        return PackPanels<P>(b + value(k.begin) * g_.ldb + column, g_.ldb, values(k), columns, distance, out);
      for (; columns > 0; columns -= kWidth, column += kWidth, out += distance)
        PackPanelTransposed<P>(
            b + column * g_.ldb + value(k.begin), g_.ldb, values(k), std::min<int64_t>(columns, kWidth), out);
    });
  }

  // body(pointer to the type in memory); fp32 products read fp32 alone.
  template <class Body> static HWY_INLINE void with_type(StoredFloats x, const Body& body) {
    if constexpr (P::kPair == 2)
      if (x.is_bf16) return body(x.bf16());
    body(x.f32());
  }

  void pack_a(const Tiles& tiles, Depth k, float* out) const {
    if (g_.trans_a) return pack_columns(tiles, k, k.size, out);
    const int64_t row = tiles.row(tiles.first), rows = tiles.rows(), depth = values(k);
    with_type(g_.a, [&](const auto* a) {
      a += row * g_.lda + value(k.begin);
      for (int64_t i = 0; i < rows; ++i) P::PackRow(a + i * g_.lda, depth, out + i * kRowStride);
    });
  }

  // Tiles of a transposed A, `depth` steps deep. Reads rows of A sequentially.
  void pack_columns(const Tiles& tiles, Depth k, int64_t depth, float* out) const {
    with_type(g_.a, [&](const auto* a) { pack_columns(a, tiles, k, depth, out); });
  }
  template <class T> void pack_columns(const T* a, const Tiles& tiles, Depth k, int64_t depth, float* out) const {
    const Tiles all = tiles;  // in registers, whatever the stores below
    const int64_t lda = g_.lda, m = g_.m, steps = values(k), distance = kColumnStride * depth;
    int64_t whole = all.last;  // tiles whose vectors end within the row
    while (whole > all.first && m - all.row(whole - 1) < kColumnStride) --whole;
    const T* from = a + value(k.begin) * lda;
    for (int64_t i = 0; i < steps; i += P::kPair, from += P::kPair * lda, out += kColumnStride) {
      float* to = out;
      for (int64_t t = all.first; t < whole; ++t, to += distance) PackColumn<P>(from + all.row(t), lda, steps - i, to);
      for (int64_t t = whole; t < all.last; ++t, to += distance)
        PackLastColumn<P>(from + all.row(t), lda, steps - i, m - all.row(t), to);
    }
  }

  const float* packed_a(const Tiles& tiles, int64_t t, int64_t depth, const float* out) const {
    if (g_.trans_a) return out + (t - tiles.first) * kColumnStride * depth;
    return out + (tiles.row(t) - tiles.row(tiles.first)) * (in_place() ? g_.lda : kRowStride);
  }
  float* packed_a(const Tiles& tiles, int64_t t, int64_t depth, float* out) const {
    return const_cast<float*>(packed_a(tiles, t, depth, static_cast<const float*>(out)));
  }

  AheadRegion ahead_a(const Tiles& tiles, Depth k, int64_t calls, int64_t steps) const {
    const int64_t row = tiles.row(tiles.first), rows = tiles.rows();
    if (g_.trans_a) return fetched(g_.a, value(k.begin), row, values(k), rows, g_.lda, calls, steps);
    return fetched(g_.a, row, value(k.begin), rows, values(k), g_.lda, calls, steps);
  }
  AheadRegion ahead_b(int64_t p, Depth k, int64_t calls, int64_t steps) const {
    const int64_t column = p * kWidth, width = std::min<int64_t>(kWidth, g_.n - column);
    if (g_.b_codes) return {};
    if (panels_) {  // contiguous: as rows that a tile fetches one of, a line for every step of its own
      const int64_t row = std::max<int64_t>(1, steps / Ahead::kStep) * (64 / static_cast<int64_t>(sizeof(float)));
      return {packed_panel(k, p), ceil_div(k.size * kWidth, row), row, row, calls, steps};
    }
    if (g_.trans_b) return fetched(g_.b, column, value(k.begin), width, values(k), g_.ldb, calls, steps);
    return fetched(g_.b, value(k.begin), column, values(k), width, g_.ldb, calls, steps);
  }
  // `rows` x `length` values from (row, column) on. Counted in floats: an odd bf16 stride may miss a line.
  static AheadRegion fetched(StoredFloats x, int64_t row, int64_t column, int64_t rows, int64_t length, int64_t stride,
      int64_t calls, int64_t steps) {
    const auto* first = static_cast<const float*>((x + row * stride + column).data);
    if (!x.is_bf16) return {first, rows, length, stride, calls, steps};
    return {first, rows, ceil_div(length, 2), stride / 2, calls, steps};
  }

  const auto& tiles_for_a() const {
    return g_.trans_a ? kStridedTiles<P, 1, kColumnStride> : kStridedTiles<P, kRowStride, 1>;
  }

  // Whether tiles read rows of A in place: short ones, which all fit L1.
  bool in_place() const {
    constexpr int64_t kLongest = 256;
    return P::kPair == 1 && order_ == Order::kRows && !g_.trans_a && !apart_ && g_.k <= kLongest && g_.lda <= kLongest;
  }

  // The sums of a panel's columns from `column` on, [rows of the tiles, kWidth], for one part of k.
  void add_up(const Tiles& tiles, Depth k, int64_t column, const float* a, const float* panel, float* sums, bool more,
      AheadRegion& ahead) const {
    const auto& functions = tiles_for_a();
    const bool last = k.begin + k.size == k_;
    Finish finish;
    finish.accumulate = more;
    for (int64_t t = tiles.first; t < tiles.last; ++t) {
      if (last) fetch_results(tiles.row(t), tiles.row(t + 1), column);
      const int64_t row = tiles.row(t) - tiles.row(tiles.first);
      finish.ahead = ahead.take();
      functions[tiles.row(t + 1) - tiles.row(t)](
          k.size, packed_a(tiles, t, k.size, a), panel, sums + row * kWidth, kWidth, finish);
    }
  }

  // Prefetches what store_sums() will write and read.
  void fetch_results(int64_t row, int64_t end, int64_t column) const {
    for (const StoredFloats& x : {StoredFloats(g_.c), g_.residual, StoredFloats(g_.pre_activation), g_.aux}) {
      if (!x) continue;
      const auto* first = static_cast<const char*>((x + row * g_.ldc + column).data);
      const int64_t stride = g_.ldc * static_cast<int64_t>(x.is_bf16 ? sizeof(Bfloat16) : sizeof(float));
      for (int64_t i = row; i < end; ++i, first += stride) hwy::Prefetch(first);
    }
  }

  void store_sums(const Tiles& tiles, int64_t column, int64_t columns, const float* sums) const {
    if constexpr (P::kPair == 2) {
      const int64_t row = tiles.row(tiles.first);
      if (const auto finish = columns == kWidth ? finish_panel<P>(g_) : nullptr)
        finish(g_, sums, row * g_.ldc + column, column, tiles.rows());
      else FinishApart(g_, sums, kWidth, row, column, tiles.rows(), columns);
    }
  }

  // A rectangle of C for one block of k: tiles of A against packed panels of B.
  void multiply(const Tiles& tiles, Depth k, const float* a, int64_t column, int64_t columns, const float* panels,
      AheadRegion& ahead) const {
    const bool done = k.begin + k.size == k_;
    const bool epilogue = done && (has_epilogue(g_) || g_.bias_first);
    const Runs row_of_a{.length = k.size};
    Finish finish;
    finish.accumulate = g_.accumulate || k.begin > 0;
    finish.relu = done && g_.activation == GemmActivation::kRelu && !g_.bias_first;
    for (; columns > 0; columns -= kWidth, column += kWidth, panels += k.size * kWidth) {
      if (done && g_.bias) finish.bias = g_.bias + column;
      for (int64_t t = tiles.first; t < tiles.last; ++t) {
        const int64_t row = tiles.row(t);
        const int rows = static_cast<int>(tiles.row(t + 1) - row);
        const float* rows_of_a = packed_a(tiles, t, k.size, a);
        const int64_t location = row * g_.ldc + column;
        float* c = g_.c.f32() + location;
        finish.ahead = ahead.take();
        if (g_.residual && !g_.bias_first) finish.residual = g_.residual.f32() + location;
        if (epilogue) fetch_beside(location, rows);
        multiply_tile(rows, columns, row_of_a, rows_of_a, panels, c, finish);
        if (epilogue)
          Epilogue<std::conditional_t<P::kPair == 1, TargetAlone, P>>(g_, c, rows, std::min<int64_t>(columns, kWidth));
      }
    }
  }

  HWY_INLINE void multiply_tile(int rows, int64_t columns, const Runs& row, const float* a, const float* panel,
      float* c, const Finish& finish) const {
    const auto which = static_cast<size_t>(rows);
    const int64_t depth = row.length;
    const auto run = [&](float* to, int64_t stride, const Finish& now) HWY_ATTR {
      if constexpr (P::kPair == 1) {
        if (in_place()) {  // what is left of C's columns takes tiles of one vector, half the work, where it fits in one
          const auto& tiles = columns <= kLanes ? kRunTiles<P, 1> : kRunTiles<P, 2>;
          const float* added = now.accumulate ? to : now.residual;
          return tiles[which](row, 0, depth, a, g_.lda, panel, to, stride, {added, now.bias, now.relu});
        }
      }
      tiles_for_a()[which](depth, a, panel, to, stride, now);
    };
    if (columns >= kWidth || (columns == kLanes && in_place())) return run(c, g_.ldc, finish);
    HWY_ALIGN float edge[kRows * kWidth];
    Finish plain;
    plain.ahead = finish.ahead;
    run(edge, kWidth, plain);
    FinishEdge(edge, rows, columns, c, g_.ldc, finish);
  }

  // Prefetches what is read and written beside C into L1 during the tile's work: hardware does not prefetch rows.
  HWY_INLINE void fetch_beside(int64_t location, int rows) const {
    const float* beside = g_.residual ? g_.residual.f32() : g_.aux ? g_.aux.f32() : g_.pre_activation.f32();
    if (!beside) return;
    beside += location;
    for (int i = 0; i < rows; ++i) {
      hwy::Prefetch(beside + i * g_.ldc);
      hwy::Prefetch(beside + i * g_.ldc + kWidth - 1);
    }
  }

  const GemmArgs& g_;
  const float* const panels_;
  // C or a matrix beside it is bf16 in memory: sums are kept apart for all of k, then finished and stored.
  const bool apart_;
  const int64_t k_, depth_;
  const Order order_;
  float* const shared_;
  const int64_t threads_, tasks_;
};

// All products of a batch. False, without effect, for methods that do not pack. panels: see Product.
template <class P>
bool packed_product(const GemmArgs& g, float* workspace, ThreadPool& pool, const float* panels = nullptr) {
  const int64_t k = ceil_div(g.k, P::kPair);
  const bool apart = has_bf16_results(g);
  const Order o = order(g.m, g.n, k, apart);
  const int64_t shared = shared_floats(o, g.m, g.n, k, apart), piece = thread_floats(o, g.m, k, apart);
  const Method how = is_stored_in_bf16(g) ? packed_method(g.batch, g.m, g.n, g.k)
                                          : method(g.batch, g.m, g.n, g.k, g.trans_a, g.trans_b, g.independent_rows);
  switch (how) {
    case Method::kOneTaskEach:
      pool.run(g.batch, [&](int64_t i, int worker) {
        float* scratch = workspace + worker * (shared + piece);
        const GemmArgs one = product_of_batch(g, i);
        Product<P>(one, scratch, 1).run([&](int64_t tasks, const auto& body) {
          for (int64_t task = 0; task < tasks; ++task) body(task, scratch + shared);
        });
      });
      return true;
    case Method::kShared:
      for (int64_t i = 0; i < g.batch; ++i) {
        const GemmArgs one = product_of_batch(g, i);
        Product<P>(one, workspace, pool.size(), panels).run([&](int64_t tasks, const auto& body) {
          pool.run(tasks, [&](int64_t task, int worker) { body(task, workspace + shared + worker * piece); });
        });
      }
      return true;
    default: return false;
  }
}
}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();
