#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/gemm.h"
#include "kernels/gemm_blocking.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/gemm_pack-inl.h"
#include "kernels/gemm_small-inl.h"
#include "kernels/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using namespace gemm_blocking;
using tile::Finish;
using tile::kRows;
using tile::kWidth;

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

// Columns [column, column + width) of op(B), k in [k0, k0 + depth), as one panel.
void pack_b(const GemmArgs& g, int64_t k0, int64_t depth, int64_t column, float* out) {
  const int64_t width = std::min<int64_t>(kWidth, g.n - column);
  if (g.trans_b) {
    tile::PackPanelTransposed(g.b + column * g.ldb + k0, g.ldb, depth, width, out);
  } else {
    tile::PackPanel(g.b + k0 * g.ldb + column, g.ldb, depth, width, out);
  }
}

// Rows of op(A) of the tiles [first, last), k in [k0, k0 + depth).
void pack_a(const GemmArgs& g, const Grid& grid, int64_t first, int64_t last, int64_t k0, int64_t depth, float* out) {
  if (!g.trans_a) {
    const int64_t row = grid.row(first);
    tile::PackRows(g.a + row * g.lda + k0, g.lda, depth, grid.row(last) - row, out);
    return;
  }
  constexpr int64_t kStrip = 16;  // a strip of A is read once for all tiles: their rows share cache lines
  for (int64_t k = 0; k < depth; k += kStrip) {
    const int64_t strip = std::min(kStrip, depth - k);
    float* o = out;
    for (int64_t t = first; t < last; ++t) {
      const int64_t row = grid.row(t), rows = grid.row(t + 1) - row;
      tile::PackColumns(g.a + (k0 + k) * g.lda + row, g.lda, strip, rows, g.m - row, o + k * rows);
      o += tile::PackedTile(true, rows, depth);
    }
  }
}

// One rectangle of C for one block of k: packed tiles of A against packed panels of B.
void multiply(const GemmArgs& g, const Grid& grid, int64_t first, int64_t last, int64_t depth, const float* a,
              int64_t column, int64_t column_end, const float* panels, Finish finish) {
  const auto& functions = g.trans_a ? tile::kColumnTiles : tile::kStridedTiles<kRowStride, 1>;
  for (; column < column_end; column += kWidth, panels += depth * kWidth) {
    const int64_t width = std::min<int64_t>(kWidth, g.n - column);
    const float* rows_of_a = a;
    if (finish.bias) finish.bias = g.bias + column;
    for (int64_t t = first; t < last; ++t) {
      const int64_t row = grid.row(t);
      const int rows = static_cast<int>(grid.row(t + 1) - row);
      float* c = g.c + row * g.ldc + column;
      if (width == kWidth) {
        functions[rows](depth, rows_of_a, panels, c, g.ldc, finish);
      } else {
        tile::EdgeTile(functions[rows], rows, width, depth, rows_of_a, panels, c, g.ldc, finish);
      }
      rows_of_a += tile::PackedTile(g.trans_a, rows, depth);
    }
  }
}

// One product. `run(tasks, body)` runs body(task, scratch for A) for all tasks and waits.
template <class Run>
void product(const GemmArgs& g, float* b, const Run& run) {
  const Grid grid(g);
  const int64_t kc = depth(g.k), k_block = block_depth(g.n, g.k), n_block = block_columns(g.n, g.k);
  for (int64_t n0 = 0; n0 < g.n; n0 += n_block) {
    const int64_t columns = std::min(n_block, g.n - n0), panels = ceil_div(columns, kWidth);
    for (int64_t k0 = 0; k0 < g.k; k0 += k_block) {
      const int64_t k1 = std::min(g.k, k0 + k_block);
      // Packed B: for every block of k, its panels one after the other.
      const auto panel = [&](int64_t k, int64_t depth, int64_t p) {
        return b + (k - k0) * panels * kWidth + p * depth * kWidth;
      };
      const auto pack_panels = [&](int64_t p0, int64_t p1) {
        for (int64_t p = p0; p < p1; ++p)
          for (int64_t k = k0; k < k1; k += kc) {
            const int64_t depth = std::min(kc, k1 - k);
            pack_b(g, k, depth, n0 + p * kWidth, panel(k, depth, p));
          }
      };
      const bool packed_before = grid.row_groups > 1;
      const int64_t pack_tasks = std::clamp<int64_t>(panels * (k1 - k0) * kWidth >> 15, 1, panels);
      if (packed_before)
        run(pack_tasks,
            [&](int64_t task, float*) { pack_panels(task * panels / pack_tasks, (task + 1) * panels / pack_tasks); });
      run(grid.row_groups * grid.column_groups, [&](int64_t task, float* a) {
        const int64_t row_group = task / grid.column_groups, column_group = task % grid.column_groups;
        const int64_t first = grid.tile_begin(row_group), last = grid.tile_begin(row_group + 1);
        const int64_t p0 = column_group * panels / grid.column_groups;
        const int64_t p1 = (column_group + 1) * panels / grid.column_groups;
        if (p0 == p1) return;
        if (!packed_before) pack_panels(p0, p1);
        for (int64_t k = k0; k < k1; k += kc) {
          const int64_t depth = std::min(kc, k1 - k);
          const bool done = k + depth == g.k;
          pack_a(g, grid, first, last, k, depth, a);
          multiply(g, grid, first, last, depth, a, n0 + p0 * kWidth, std::min(g.n, n0 + p1 * kWidth),
                   panel(k, depth, p0), Finish{g.accumulate || k > 0, done ? g.bias : nullptr, done && g.relu});
        }
      });
    }
  }
}

// out[column, row] = in[row, column]
void transpose(const float* in, int64_t stride, int64_t rows, int64_t columns, float* out) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) out[column * rows + row] = in[row * stride + column];
}

// How many columns (or rows) of a product with few rows (or columns) make a task: some 10 microseconds.
int64_t few_step(int64_t few, int64_t k) {
  return std::max<int64_t>(kWidth, round_up(ceil_div(int64_t{1} << (few < 4 ? 18 : 17), k), 32));
}

void few_rows(const GemmArgs& g, int64_t begin, int64_t end, float* scratch) {
  if (g.trans_a) transpose(g.a, g.lda, g.k, g.m, scratch);
  const float* a = g.trans_a ? scratch : g.a;
  const int64_t lda = g.trans_a ? g.k : g.lda;
  if (g.trans_b) {
    tile::SmallDots(g.m, g.k, a, lda, g.b, g.ldb, begin, end, {g.c, g.ldc, 1, g.bias, 0, 1, g.accumulate, g.relu});
  } else {
    tile::SmallPlain(g.m, g.k, a, lda, g.b, g.ldb, g.c, g.ldc, begin, end, Finish{g.accumulate, g.bias, g.relu});
  }
}

void few_columns(const GemmArgs& g, int64_t begin, int64_t end, float* scratch) {
  if (!g.trans_b) transpose(g.b, g.ldb, g.k, g.n, scratch);
  const float* b = g.trans_b ? g.b : scratch;
  const int64_t ldb = g.trans_b ? g.ldb : g.k;
  tile::SmallDots(g.n, g.k, b, ldb, g.a, g.lda, begin, end, {g.c, 1, g.ldc, g.bias, 1, 0, g.accumulate, g.relu});
}

GemmArgs item(GemmArgs g, int64_t index) {
  g.a += index * g.a_batch;
  g.b += index * g.b_batch;
  g.c += index * g.c_batch;
  return g;
}

void gemm(const GemmArgs& g, float* workspace, ThreadPool& pool) {
  const int64_t a_floats = scratch_a_floats(g.m), b_floats = block_b_floats(g.n, g.k);
  const Method how = method(g.batch, g.m, g.n, g.k, g.trans_a, g.trans_b);
  switch (how) {
    case Method::kFewRows:
    case Method::kFewColumns: {
      const bool rows = how == Method::kFewRows;
      const int64_t length = rows ? g.n : g.m, step = few_step(rows ? g.m : g.n, g.k), tasks = ceil_div(length, step);
      const int64_t scratch_floats = gemm_blocking::workspace(how, g.m, g.n, g.k, 1);
      pool.run(g.batch * tasks, [&](int64_t task, int worker) {
        const int64_t begin = task % tasks * step, end = std::min(length, begin + step);
        (rows ? few_rows : few_columns)(item(g, task / tasks), begin, end, workspace + worker * scratch_floats);
      });
      break;
    }
    case Method::kOneTaskEach:
      pool.run(g.batch, [&](int64_t i, int worker) {
        float* scratch = workspace + worker * (a_floats + b_floats);
        product(item(g, i), scratch + a_floats, [&](int64_t tasks, const auto& body) {
          for (int64_t task = 0; task < tasks; ++task) body(task, scratch);
        });
      });
      break;
    case Method::kShared:
      for (int64_t i = 0; i < g.batch; ++i)
        product(item(g, i), workspace, [&](int64_t tasks, const auto& body) {
          pool.run(tasks, [&](int64_t task, int worker) { body(task, workspace + b_floats + worker * a_floats); });
        });
      break;
  }
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(gemm);

// k = 0: an empty sum.
void write_empty_sums(const GemmArgs& g) {
  for (int64_t i = 0; i < g.batch; ++i)
    for (int64_t row = 0; row < g.m; ++row)
      for (int64_t j = 0; j < g.n; ++j) {
        float& c = g.c[i * g.c_batch + row * g.ldc + j];
        const float x = (g.accumulate ? c : 0.0f) + (g.bias ? g.bias[j] : 0.0f);
        c = g.relu && x < 0 ? 0.0f : x;
      }
}

// Products that share B and whose rows follow each other are one product with more rows.
GemmArgs merge_batch(GemmArgs g) {
  if (g.batch > 1 && g.b_batch == 0 && !g.trans_a && g.a_batch == g.m * g.lda && g.c_batch == g.m * g.ldc) {
    g.m *= g.batch;
    g.batch = 1;
  }
  return g;
}

}  // namespace

size_t gemm_workspace(int64_t batch, int64_t m, int64_t n, int64_t k, int threads) {
  using namespace gemm_blocking;
  if (batch == 0 || m == 0 || n == 0 || k == 0) return 0;
  int64_t floats = 0;
  for (const bool merged : {false, true})  // see merge_batch
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        const int64_t items = merged ? 1 : batch, rows = merged ? batch * m : m;
        floats = std::max(floats, workspace(method(items, rows, n, k, trans_a, trans_b), rows, n, k, threads));
      }
  return static_cast<size_t>(floats) * sizeof(float);
}

void gemm(const GemmArgs& args, std::byte* workspace, ThreadPool& pool) {
  if (args.batch == 0 || args.m == 0 || args.n == 0) return;
  if (args.k == 0) return write_empty_sums(args);
  HWY_DYNAMIC_DISPATCH(gemm)(merge_batch(args), reinterpret_cast<float*>(workspace), pool);
}

}  // namespace linnet
#endif
