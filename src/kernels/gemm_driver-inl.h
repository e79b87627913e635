// Products whose operands are packed: how they are cut into tasks and blocks. One source for every precision.
// Included by *_simd.cpp after "hwy/foreach_target.h" (once per instruction set).
#if defined(LINNET_KERNELS_GEMM_DRIVER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_GEMM_DRIVER_INL_H_
#undef LINNET_KERNELS_GEMM_DRIVER_INL_H_
#else
#define LINNET_KERNELS_GEMM_DRIVER_INL_H_
#endif

#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/gemm.h"
#include "kernels/gemm_blocking.h"
#include "kernels/gemm_pack-inl.h"
#include "kernels/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::tile {

using namespace gemm_blocking;

// The tasks of one product: row_groups x column_groups rectangles of C. Rows are dealt evenly to the register tiles.
struct Grid {
  explicit Grid(const GemmArgs& g) : m(g.m), tiles(ceil_div(g.m, kRows)) {
    const int64_t panels = ceil_div(g.n, kWidth);
    constexpr double kTaskWork = 1 << 22;  // multiply-adds of a task: some 30 microseconds
    const double work = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
    const auto wanted = static_cast<int64_t>(std::clamp(work / kTaskWork, 1.0, 32.0));
    const int64_t least = ceil_div(tiles, kMaxRows / kRows);
    row_groups = std::clamp(wanted, least, std::max(least, tiles / 4));
    // Every column group packs its rows of A again, so there are several only where rows alone make too few tasks.
    column_groups =
        std::clamp<int64_t>(ceil_div(std::min<int64_t>(wanted, 16), row_groups), 1, std::max<int64_t>(1, panels / 4));
    if (row_groups == 1) {  // then each column group packs its own panels of B, which is most of the work for small m
      const double with_packing = work * static_cast<double>(m + 16) / static_cast<double>(m);
      column_groups = std::clamp<int64_t>(static_cast<int64_t>(std::min(with_packing / (1 << 20), 32.0)), 1, panels);
    }
  }
  int64_t row(int64_t t) const { return t * (m / tiles) + std::min(t, m % tiles); }
  int64_t tile_begin(int64_t group) const { return group * tiles / row_groups; }

  int64_t m, tiles, row_groups, column_groups;
};

// A range of k: `depth` values from k0 on.
struct Range {
  int64_t k0, depth;
};

// One product. Positions along k count packed elements (P::kPair values each).
template <class P>
class Product {
 public:
  // `b` is scratch for a packed block of B.
  Product(const GemmArgs& args, float* b) : g_(args), grid_(args), k_(ceil_div(args.k, P::kPair)), b_(b) {}

  // run(tasks, body) runs body(task, scratch for A) for all tasks and waits.
  template <class Run>
  void run(const Run& run) {
    const int64_t kc = depth(k_), k_block = block_depth(g_.n, k_), n_block = block_columns(g_.n, k_);
    for (int64_t n0 = 0; n0 < g_.n; n0 += n_block) {
      const int64_t columns = std::min(n_block, g_.n - n0), panels = ceil_div(columns, kWidth);
      for (int64_t k0 = 0; k0 < k_; k0 += k_block) {
        const int64_t k1 = std::min(k_, k0 + k_block);
        // Packed B: for every block of k, its panels one after the other.
        const auto panel = [&](int64_t k, int64_t depth, int64_t p) {
          return b_ + (k - k0) * panels * kWidth + p * depth * kWidth;
        };
        const auto pack_panels = [&](int64_t p0, int64_t p1) {
          for (int64_t p = p0; p < p1; ++p)
            for (int64_t k = k0; k < k1; k += kc) {
              const int64_t depth = std::min(kc, k1 - k);
              pack_b(values(k, depth), n0 + p * kWidth, panel(k, depth, p));
            }
        };
        const bool packed_before = grid_.row_groups > 1;
        const int64_t pack_tasks = std::clamp<int64_t>(panels * (k1 - k0) * kWidth >> 15, 1, panels);
        if (packed_before)
          run(pack_tasks,
              [&](int64_t task, float*) { pack_panels(task * panels / pack_tasks, (task + 1) * panels / pack_tasks); });
        run(grid_.row_groups * grid_.column_groups, [&](int64_t task, float* a) {
          const int64_t row_group = task / grid_.column_groups, column_group = task % grid_.column_groups;
          const int64_t first = grid_.tile_begin(row_group), last = grid_.tile_begin(row_group + 1);
          const int64_t p0 = column_group * panels / grid_.column_groups;
          const int64_t p1 = (column_group + 1) * panels / grid_.column_groups;
          if (p0 == p1) return;
          if (!packed_before) pack_panels(p0, p1);
          for (int64_t k = k0; k < k1; k += kc) {
            const int64_t depth = std::min(kc, k1 - k);
            const bool done = k + depth == k_;
            pack_a(first, last, values(k, depth), a);
            multiply(first, last, depth, a, n0 + p0 * kWidth, std::min(g_.n, n0 + p1 * kWidth), panel(k, depth, p0),
                     Finish{g_.accumulate || k > 0, done ? g_.bias : nullptr, done && g_.relu});
          }
        });
      }
    }
  }

 private:
  Range values(int64_t k, int64_t depth) const {
    return {k * P::kPair, std::min(depth * P::kPair, g_.k - k * P::kPair)};
  }

  // Columns [column, column + width) of op(B) as one panel.
  void pack_b(Range k, int64_t column, float* out) const {
    const int64_t width = std::min<int64_t>(kWidth, g_.n - column);
    if (g_.trans_b) {
      PackPanelTransposed<P>(g_.b + column * g_.ldb + k.k0, g_.ldb, k.depth, width, out);
    } else {
      PackPanel<P>(g_.b + k.k0 * g_.ldb + column, g_.ldb, k.depth, width, out);
    }
  }

  // Rows of op(A) of the tiles [first, last).
  void pack_a(int64_t first, int64_t last, Range k, float* out) const {
    if (!g_.trans_a) {
      const int64_t row = grid_.row(first);
      PackRows<P>(g_.a + row * g_.lda + k.k0, g_.lda, k.depth, grid_.row(last) - row, out);
      return;
    }
    constexpr int64_t kStrip = 16;  // a strip of A is read once for all tiles: their rows share cache lines
    for (int64_t i = 0; i < k.depth; i += kStrip) {
      const int64_t strip = std::min(kStrip, k.depth - i);
      float* o = out;
      for (int64_t t = first; t < last; ++t) {
        const int64_t row = grid_.row(t), rows = grid_.row(t + 1) - row;
        PackColumns<P>(g_.a + (k.k0 + i) * g_.lda + row, g_.lda, strip, rows, g_.m - row, o + i / P::kPair * rows);
        o += PackedTile(true, rows, ceil_div(k.depth, P::kPair));
      }
    }
  }

  // One rectangle of C for one block of k: packed tiles of A against packed panels of B.
  void multiply(int64_t first, int64_t last, int64_t depth, const float* a, int64_t column, int64_t column_end,
                const float* panels, Finish finish) const {
    const auto& functions = g_.trans_a ? kColumnTiles<P> : kStridedTiles<kRowStride, 1, 2, P>;
    for (; column < column_end; column += kWidth, panels += depth * kWidth) {
      const int64_t width = std::min<int64_t>(kWidth, g_.n - column);
      const float* rows_of_a = a;
      if (finish.bias) finish.bias = g_.bias + column;
      for (int64_t t = first; t < last; ++t) {
        const int64_t row = grid_.row(t);
        const int rows = static_cast<int>(grid_.row(t + 1) - row);
        float* c = g_.c + row * g_.ldc + column;
        if (width == kWidth) {
          functions[rows](depth, rows_of_a, panels, c, g_.ldc, finish);
        } else {
          EdgeTile(functions[rows], rows, width, depth, rows_of_a, panels, c, g_.ldc, finish);
        }
        rows_of_a += PackedTile(g_.trans_a, rows, depth);
      }
    }
  }

  const GemmArgs& g_;
  const Grid grid_;
  const int64_t k_;
  float* const b_;
};

inline GemmArgs item(GemmArgs g, int64_t index) {
  g.a += index * g.a_batch;
  g.b += index * g.b_batch;
  g.c += index * g.c_batch;
  return g;
}

// All products of a batch. False, and nothing done, for the methods that do not pack.
template <class P>
bool packed_product(const GemmArgs& g, float* workspace, ThreadPool& pool) {
  const int64_t k = ceil_div(g.k, P::kPair), a_floats = scratch_a_floats(g.m), b_floats = block_b_floats(g.n, k);
  switch (method(g.batch, g.m, g.n, g.k, g.trans_a, g.trans_b)) {
    case Method::kOneTaskEach:
      pool.run(g.batch, [&](int64_t i, int worker) {
        float* scratch = workspace + worker * (a_floats + b_floats);
        const GemmArgs one = item(g, i);
        Product<P>(one, scratch + a_floats).run([&](int64_t tasks, const auto& body) {
          for (int64_t task = 0; task < tasks; ++task) body(task, scratch);
        });
      });
      return true;
    case Method::kShared:
      for (int64_t i = 0; i < g.batch; ++i) {
        const GemmArgs one = item(g, i);
        Product<P>(one, workspace).run([&](int64_t tasks, const auto& body) {
          pool.run(tasks, [&](int64_t task, int worker) { body(task, workspace + b_floats + worker * a_floats); });
        });
      }
      return true;
    default:
      return false;
  }
}

}  // namespace linnet::HWY_NAMESPACE::tile
HWY_AFTER_NAMESPACE();

#endif
