// What it costs to add the gradients of all ranks in an order that does not depend on their number: the sum of training
// (distributed/comm/shard_sum.h) on every rank, or MPI's own of the same floats, whose order MPI chooses.
//
//   mpirun -n 2 rank_sum FLOATS [--mpi]
//
// Rank 0 prints the median in milliseconds of the slowest rank of each sum. The two are measured by runs of their own,
// because MPI allows calls from one thread at a time and training's ranks have a thread that listens to the others.
#include <mpi.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>
#include "base/timeline.h"
#include "distributed/comm/shard_sum.h"
#include "distributed/comm/world.h"

using linnet::now;

namespace {
constexpr int kRuns = 11;

double median(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

// The median of the slowest rank. `together` begins a sum on all ranks, `slowest` is the most that a rank measured.
template <class Together, class Sum, class Slowest>
double measure(const Together& together, const Sum& sum, const Slowest& slowest) {
  std::vector<double> times;
  for (int run = 0; run <= kRuns; ++run) {
    together();
    const double begin = now();
    sum();
    const double spent = slowest(now() - begin);
    if (run > 0) times.push_back(spent);  // the first one maps memory
  }
  return median(times);
}

double in_fixed_order(linnet::Communicator& world, size_t count) {
  using namespace linnet;
  const ShardShare share{.shards = world.size(), .rank = world.rank(), .ranks = world.size()};
  std::vector<float> values(count, 1), workspace(ShardSum::workspace_size(share, count));
  std::vector<double> of_all(static_cast<size_t>(world.size()));
  ShardSum sum(world, share, workspace);
  ThreadPool pool(1);
  const SliceBounds bounds = slice_bounds(count, world.size());
  const std::span<float> node = values;
  return measure([&] { barrier(world); },
      [&] {
        sum.reduce_scatter({&node, 1}, bounds, pool);
        all_gather_slices(world, values, bounds);
      },
      [&](double own) {
        all_gather(world, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(of_all)));
        return *std::ranges::max_element(of_all);
      });
}

double by_mpi(size_t count) {
  std::vector<float> values(count, 1);
  return measure([] { MPI_Barrier(MPI_COMM_WORLD); },
      [&] { MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
      [](double own) {
        double most = 0;
        MPI_Allreduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        return most;
      });
}

int run(size_t count, bool mpi) {
  double seconds = 0;
  int rank = 0;
  if (mpi) {
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    seconds = by_mpi(count);
    MPI_Finalize();
  } else {
    linnet::Communicator& world = linnet::join_world();
    rank = world.rank();
    seconds = in_fixed_order(world, count);
    world.leave();
  }
  if (rank == 0) std::printf("%.3f\n", 1e3 * seconds);
  return 0;
}
}  // namespace

int main(int argc, char** argv) {
  const long long count = argc > 1 ? std::atoll(argv[1]) : 0;
  const bool mpi = argc == 3 && std::string_view(argv[2]) == "--mpi";
  if (count <= 0 || count > 2'000'000'000 || argc > 3 || (argc == 3 && !mpi)) {
    std::fprintf(stderr, "usage: mpirun -n 2 rank_sum FLOATS [--mpi], at most 2,000,000,000 floats\n");
    return 2;
  }
  try {
    return run(static_cast<size_t>(count), mpi);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank_sum: %s\n", error.what());
    return 1;
  }
}
