// Table lookup, and its gradient without float atomics. Of a small table each id has a block, which finds its positions
// and adds their rows. Else positions are sorted by id, then each id's rows are added in pieces of kPiece rows, from
// its first position on, and pieces in order. The order of arrival decides only where an id's positions are in memory,
// not the sums.
#include <algorithm>
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/kernels/parallel.h"
#include "engine/ops/embedding/embedding.h"

namespace linnet {
namespace {
constexpr int kThreads = 256;
constexpr int32_t kPiece = 32;
// One block sorts up to this many positions while others clear the table: one launch instead of four.
constexpr int kSortThreads = 1024;
constexpr int64_t kFewPositions = 8 * kSortThreads;
// A small table has at most this many blocks, each of which reads all of the few positions.
constexpr int64_t kFewBlocks = 1024;
constexpr int kColumns = 4 * kWarp;  // of a block

// kStep neighbors of a row, 4 or 1. An id outside the table gives NaN, which the loss will show.
template <int kStep, class From, class To>
LINNET_DEVICE void gather(int64_t i, int64_t vocab, int64_t width, const From* table, const int32_t* ids, To* y) {
  const auto [row, column] = divided(i * kStep, width);
  const int64_t id = ids[row];
  float values[kStep];
  if (id >= 0 && id < vocab) load_vector(table + id * width + column, values);
  else
#pragma unroll
    for (float& value : values) value = NAN;
  store_vector(y + i * kStep, values);
}

void run(const KernelArgs& args) {
  const int64_t vocab = args.in[0].shape()[0], width = args.in[0].shape()[1], count = args.out[0].elements();
  for_storage(args.in[0].type.dtype, [&]<class From>() {
    for_storage(args.out[0].type.dtype, [&]<class To>() {
      const From* table = args.in[0].as<From>();
      const int32_t* ids = args.in[1].as<int32_t>();
      To* y = args.out[0].as<To>();
      if (width % 4 == 0 && aligned4(table) && aligned4(y))
        launch_elements<gather<4, From, To>>(args.device, count / 4, vocab, width, table, ids, y);
      else launch_elements<gather<1, From, To>>(args.device, count, vocab, width, table, ids, y);
    });
  });
}

struct Piece {
  int32_t id, part;  // part 0 is the first
  int32_t begin, rows;
  int32_t parts;       // of this id
  int32_t first_slot;  // of the partial sums, when there are several
};

// The workspace. All but `partial` is ints.
struct Sorting {
  int32_t* totals;   // [4]: positions placed, pieces, partial sums
  int32_t* counts;   // [vocab]: positions of each id
  int32_t* starts;   // [vocab]: where its positions begin; of ids that occur
  int32_t* arrival;  // [positions]: the how many'th of its id, in the order of arrival; -1: not counted
  int32_t* arrived;  // [positions]: positions by id, in the order of arrival
  int32_t* sorted;   // [positions]: positions by id, ascending
  Piece* pieces;
  float* partial;  // [partial sums, width]
};

struct GradSizes {
  int64_t positions, vocab, width;
  // An id of c > kPiece positions has at most 2 c / kPiece pieces.
  int64_t most_partial() const { return 2 * positions / kPiece + 1; }
  int64_t most_pieces() const { return positions / kPiece + std::min(positions, vocab); }
  bool is_small() const { return positions <= kFewPositions && vocab * blocks_for(width, kColumns) <= kFewBlocks; }
};

GradSizes sizes_of(const TensorType& ids, const TensorType& table) {
  return {ids.shape.elements(), table.shape[0], table.shape[1]};
}

Sorting lay_out(Regions memory, const GradSizes& sizes, size_t* used = nullptr) {
  Sorting sorting{};
  sorting.totals = memory.take<int32_t>(4);
  for (int32_t** of_ids : {&sorting.counts, &sorting.starts}) *of_ids = memory.take<int32_t>(sizes.vocab);
  for (int32_t** of_positions : {&sorting.arrival, &sorting.arrived, &sorting.sorted})
    *of_positions = memory.take<int32_t>(sizes.positions);
  sorting.pieces = memory.take<Piece>(sizes.most_pieces());
  sorting.partial = memory.take<float>(sizes.most_partial() * sizes.width);
  if (used) *used = memory.size();
  return sorting;
}

struct Positions {
  int64_t count, vocab;
  int32_t padding;
  const int32_t* ids;
};

// Writes kColumns columns of the row of id blockIdx.x. A warp takes 32 positions at a time and adds the rows of those
// that have the id; warps are added in order.
template <class T> __global__ void __launch_bounds__(kWarp* kWarp) small_table_kernel(Positions positions,
    int64_t width, bool aligned, const T* __restrict__ dy, float scale, bool accumulate, float* __restrict__ table) {
  begin_kernel();
  __shared__ float sums[kWarp][kColumns];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int32_t id = static_cast<int32_t>(blockIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kColumns, own = first + lane * 4;
  float sum[4] = {0, 0, 0, 0};
  for (int64_t from = warp * kWarp; from < positions.count; from += kWarp * kWarp) {
    const bool is_there = from + lane < positions.count && id != positions.padding && positions.ids[from + lane] == id;
    for (unsigned found = __ballot_sync(kAllLanes, is_there); found != 0 && own < width; found &= found - 1) {
      float values[4];
      load_up_to_4(dy + (from + __ffs(static_cast<int>(found)) - 1) * width + own, width - own, aligned, values);
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[c] += values[c];
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) sums[warp][lane * 4 + c] = sum[c];
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x);
  if (column >= kColumns || first + column >= width) return;
  float total = 0;
  for (int i = 0; i < kWarp; ++i) total += sums[i][column];
  float& to = table[id * width + first + column];
  to = scale * total + (accumulate ? to : 0);
}

LINNET_DEVICE void clear_count(int64_t i, int64_t vocab, const Sorting& sorting) {
  if (i < vocab) sorting.counts[i] = 0;
  if (i < 4) sorting.totals[i] = 0;
}

LINNET_DEVICE void count_position(int64_t i, Positions positions, Sorting sorting) {
  const int32_t id = positions.ids[i];
  const bool counted = id >= 0 && id < positions.vocab && id != positions.padding;
  sorting.arrival[i] = counted ? atomicAdd(&sorting.counts[id], 1) : -1;
}

// The first to arrive makes room for all of its id.
LINNET_DEVICE void make_room(int64_t i, Positions positions, Sorting sorting) {
  if (sorting.arrival[i] != 0) return;
  const int32_t id = positions.ids[i], count = sorting.counts[id], parts = (count + kPiece - 1) / kPiece;
  const int32_t start = atomicAdd(&sorting.totals[0], count), location = atomicAdd(&sorting.totals[1], parts);
  const int32_t slot = parts > 1 ? atomicAdd(&sorting.totals[2], parts) : 0;
  sorting.starts[id] = start;
  for (int32_t part = 0; part < parts; ++part)
    sorting.pieces[location + part] = {
        id, part, start + part * kPiece, min(kPiece, count - part * kPiece), parts, slot};
}

LINNET_DEVICE void place(int64_t i, Positions positions, Sorting sorting) {
  if (sorting.arrival[i] < 0) return;
  sorting.arrived[sorting.starts[positions.ids[i]] + sorting.arrival[i]] = static_cast<int32_t>(i);
}

// `cleared`: elements of the table to clear, 0 if it accumulates.
LINNET_DEVICE void clear(int64_t i, int64_t cleared, bool aligned, float* table, int64_t vocab, Sorting sorting) {
  fill_four(i, cleared, 0.0f, aligned, table);
  clear_count(i, vocab, sorting);
}

// All steps for few positions, by the first block; the others clear the table.
__global__ void __launch_bounds__(kSortThreads)
    sort_few_kernel(int64_t cleared, bool aligned, float* __restrict__ table, Positions positions, Sorting sorting) {
  begin_kernel();
  if (blockIdx.x > 0)
    return fill_four(static_cast<int64_t>(blockIdx.x - 1) * kSortThreads + threadIdx.x, cleared, 0.0f, aligned, table);
  const int64_t most = max(positions.vocab, int64_t{4});
  for (int64_t i = threadIdx.x; i < most; i += kSortThreads) clear_count(i, positions.vocab, sorting);
  __syncthreads();
  for (int64_t i = threadIdx.x; i < positions.count; i += kSortThreads) count_position(i, positions, sorting);
  __syncthreads();
  for (int64_t i = threadIdx.x; i < positions.count; i += kSortThreads) make_room(i, positions, sorting);
  __syncthreads();
  for (int64_t i = threadIdx.x; i < positions.count; i += kSortThreads) place(i, positions, sorting);
}

// Sorts each id's positions: a warp counts those before one, since an id such as padding's may have most positions.
__global__ void __launch_bounds__(kThreads) order_kernel(const int32_t* __restrict__ ids, Sorting sorting) {
  begin_kernel();
  const int64_t slot = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (slot >= sorting.totals[0]) return;
  const int32_t own = sorting.arrived[slot], id = ids[own];
  const int32_t start = sorting.starts[id], count = sorting.counts[id];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int32_t before = 0;
#pragma unroll 4
  for (int32_t k = lane; k < count; k += kWarp) before += sorting.arrived[start + k] < own;
  before = warp_reduce(before, Add());
  if (lane == 0) sorting.sorted[start + before] = own;
}

// to = scale * sum of `count` rows (+ to); row k is row_of(k). blockDim.x threads along the columns, kStep each.
template <int kStep, class T, class RowOf> LINNET_DEVICE void add_rows(int64_t width, int32_t count,
    const T* __restrict__ from, const RowOf& row_of, float scale, bool accumulate, float* __restrict__ to) {
  for (int64_t j = threadIdx.x * kStep; j < width; j += blockDim.x * kStep) {
    float sum[kStep] = {};
#pragma unroll 8
    for (int32_t k = 0; k < count; ++k) {
      float values[kStep];
      load_vector(from + row_of(k) * width + j, values);
#pragma unroll
      for (int c = 0; c < kStep; ++c) sum[c] += values[c];
    }
    float old[kStep] = {};
    if (accumulate) load_vector(to + j, old);
#pragma unroll
    for (int c = 0; c < kStep; ++c) sum[c] = scale * sum[c] + old[c];
    store_vector(to + j, sum);
  }
}

template <int kStep, class T> __global__ void __launch_bounds__(kThreads) piece_kernel(
    int64_t width, const T* __restrict__ dy, Sorting sorting, float scale, bool accumulate, float* __restrict__ table) {
  begin_kernel();
  if (static_cast<int32_t>(blockIdx.x) >= sorting.totals[1]) return;
  const Piece piece = sorting.pieces[blockIdx.x];
  const int32_t* positions = sorting.sorted + piece.begin;
  float* to = piece.parts == 1 ? table + piece.id * width : sorting.partial + (piece.first_slot + piece.part) * width;
  add_rows<kStep>(
      width, piece.rows, dy, [&](int32_t k) { return static_cast<int64_t>(positions[k]); },
      piece.parts == 1 ? scale : 1.0f, accumulate && piece.parts == 1, to);
}

template <int kStep> __global__ void __launch_bounds__(kThreads)
    join_kernel(int64_t width, Sorting sorting, float scale, bool accumulate, float* __restrict__ table) {
  begin_kernel();
  if (static_cast<int32_t>(blockIdx.x) >= sorting.totals[1]) return;
  const Piece piece = sorting.pieces[blockIdx.x];
  if (piece.parts == 1 || piece.part > 0) return;
  add_rows<kStep>(
      width, piece.parts, sorting.partial + piece.first_slot * width, [](int32_t k) { return static_cast<int64_t>(k); },
      scale, accumulate, table + piece.id * width);
}

size_t grad_workspace(const KernelQuery& query) {
  const GradSizes sizes = sizes_of(query.in[1], query.out[0]);
  size_t bytes = 0;
  if (!sizes.is_small()) lay_out(Regions(nullptr, 256), sizes, &bytes);
  return bytes;
}

template <int kStep, class T> void add_pieces(const KernelArgs& args, const GradSizes& sizes, const Sorting& sorting) {
  const auto& attrs = args.attrs<EmbeddingGradAttrs>();
  const auto scale = static_cast<float>(attrs.scale);
  const auto pieces = static_cast<unsigned>(sizes.most_pieces());
  const unsigned threads = std::clamp<unsigned>(blocks_for(sizes.width, kStep * kWarp) * kWarp, kWarp, kThreads);
  launch(args.device, piece_kernel<kStep, T>, pieces, threads, 0, sizes.width, args.in[0].as<T>(), sorting, scale,
      attrs.accumulate, args.out[0].as<float>());
  if (sizes.positions > kPiece)
    launch(args.device, join_kernel<kStep>, pieces, threads, 0, sizes.width, sorting, scale, attrs.accumulate,
        args.out[0].as<float>());
}

void run_grad(const KernelArgs& args) {
  const auto& attrs = args.attrs<EmbeddingGradAttrs>();
  const TensorView &dy = args.in[0], &table = args.out[0];
  const GradSizes sizes = sizes_of(args.in[1].type, table.type);
  const int32_t* ids = args.in[1].as<int32_t>();
  if (attrs.accumulate) copy_operand_on_device(args, args.in[2], table);
  const Positions positions{sizes.positions, sizes.vocab, static_cast<int32_t>(attrs.padding), ids};
  if (sizes.is_small())
    return for_storage(dy.type.dtype, [&]<class T>() {
      launch(args.device, small_table_kernel<T>,
          dim3(static_cast<unsigned>(sizes.vocab), blocks_for(sizes.width, kColumns)), kWarp * kWarp, 0, positions,
          sizes.width, sizes.width % 4 == 0 && aligned4(dy.as<T>()), dy.as<T>(), static_cast<float>(attrs.scale),
          attrs.accumulate, table.as<float>());
    });
  const Sorting sorting = lay_out(Regions(args.workspace, 256), sizes);
  const int64_t cleared = attrs.accumulate ? 0 : table.elements();
  if (sizes.positions <= kFewPositions) {
    launch(args.device, sort_few_kernel, 1 + blocks_for((cleared + 3) / 4, kSortThreads), kSortThreads, 0, cleared,
        aligned4(table.as<float>()), table.as<float>(), positions, sorting);
  } else {
    launch_elements<clear>(args.device, std::max({(cleared + 3) / 4, sizes.vocab, int64_t{4}}), cleared,
        aligned4(table.as<float>()), table.as<float>(), sizes.vocab, sorting);
    launch_elements<count_position>(args.device, sizes.positions, positions, sorting);
    launch_elements<make_room>(args.device, sizes.positions, positions, sorting);
    launch_elements<place>(args.device, sizes.positions, positions, sorting);
  }
  if (sizes.positions == 0 || table.elements() == 0) return;
  launch(args.device, order_kernel, blocks_for(sizes.positions * kWarp, kThreads), kThreads, 0, ids, sorting);
  for_storage(dy.type.dtype, [&]<class T>() {
    if (sizes.width % 4 == 0 && aligned4(dy.as<T>()) && aligned4(table.as<float>()))
      add_pieces<4, T>(args, sizes, sorting);
    else add_pieces<1, T>(args, sizes, sorting);
  });
}
}  // namespace

LINNET_KERNELS(embedding_cuda, {"gather", run})
LINNET_KERNELS(embedding_grad_cuda, {"rows", run_grad, nullptr, grad_workspace, /*may_run_aside=*/true})
}  // namespace linnet
