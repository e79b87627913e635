// Processes that train one model together: ranks 0 to size - 1. A communicator only moves bytes; this folder decides
// the order of sums, because Open MPI and NCCL choose theirs by size, by the number of ranks and from call to call.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace linnet {
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  struct Outgoing {
    int to;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int from;
    std::span<std::byte> bytes;
  };
  // kSoon keeps the processor, for ranks about to send; kPatiently leaves it to threads that compute.
  enum class Wait : uint8_t { kSoon, kPatiently };
  // Sends and receives all of these messages and waits for them. Messages between two ranks keep their order; both
  // state the same sizes; empty ones are skipped. Allocates only for more messages than before. Not thread-safe.
  virtual void exchange(
      std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait wait = Wait::kSoon) = 0;

  // Empty lists for exchange(), valid until the next call. They keep their memory.
  struct Lists {
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    std::vector<const float*> parts;
  };
  Lists& empty_lists() {
    lists_.outgoing.clear(), lists_.incoming.clear(), lists_.parts.clear();
    return lists_;
  }

  // The exit code of a process that ends because another rank stopped responding.
  static constexpr int kLostRank = 75;

  // The last call, after every rank has done its work; waits for all. A rank that fails does not call it.
  virtual void leave() {}

 private:
  Lists lists_;
};

Communicator& single_process();  // of a process that trains alone

void send(Communicator& world, int to, std::span<const std::byte> bytes);
void receive(Communicator& world, int from, std::span<std::byte> bytes);

// Collective, in the same order on all ranks. `root` is the rank that has the value.
void barrier(Communicator& world);
void broadcast(Communicator& world, int root, std::span<std::byte> bytes);
void broadcast(Communicator& world, int root, std::span<float> values);
template <class T>
requires std::is_trivially_copyable_v<T> T broadcast_value(Communicator& world, int root, T value) {
  broadcast(world, root, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}
// `all` has world.size() blocks of mine.size() bytes, by rank. Allocates only for more ranks than before.
void all_gather(Communicator& world, std::span<const std::byte> mine, std::span<std::byte> all);
// One value of each rank.
template <class T> std::vector<T> all_gather(Communicator& world, const T& mine) {
  std::vector<T> all(world.size());
  all_gather(world, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

std::string broadcast_text(Communicator& world, int root, std::string text);
std::vector<std::string> gather_texts(Communicator& world, std::string_view mine);

// The values that a rank owns: consecutive ones from a multiple of kSliceUnit on, so that a partial sum over a block of
// that size (kSumBlock in engine/kernels/reduce/reduce.h) belongs to one rank.
constexpr size_t kSliceUnit = 4096;
struct Slice {
  size_t first, count;
};
Slice slice(size_t count, int rank, int size);
Slice overlap(Slice a, Slice b);  // the intersection; its count may be 0

// Rank r owns values [bounds[r], bounds[r + 1]).
using SliceBounds = std::vector<size_t>;
SliceBounds slice_bounds(size_t count, int size);  // that of slice()
inline Slice slice(const SliceBounds& bounds, int rank) {
  const auto r = static_cast<size_t>(rank);
  return {bounds[r], bounds[r + 1] - bounds[r]};
}
// The blocks of kSliceUnit values that begin in a rank's slice; the last one may end in later ranks' slices.
Slice block_slice(const SliceBounds& bounds, int rank);

// Each rank contributes its slice; afterwards all ranks have all values.
void all_gather_slices(Communicator& world, std::span<float> all, const SliceBounds& bounds);
// The same for one number per block of block_slice().
void all_gather_slice_blocks(Communicator& world, std::span<double> blocks, const SliceBounds& bounds);

// Ranks with a GPU each, which exchange values between device memories, past the host. The CUDA module implements them
// with NCCL (engine/exec/backend.h), which only moves bytes.
class DeviceRanks {
 public:
  virtual ~DeviceRanks() = default;

  // Addresses are device memory. Nothing waits: messages are queued behind earlier work of the device. All ranks of the
  // original world queue the same messages in the same order.
  virtual Communicator& messages() = 0;
  virtual void all_gather_slices(std::span<float> all, const SliceBounds& bounds) = 0;
  // into[i] += from[i], rounded as on CPUs
  virtual void add(float* into, const float* from, size_t count) = 0;
  virtual void copy(float* into, const float* from, size_t count) = 0;
  virtual void clear(float* values, size_t count) = 0;

  virtual std::string text() const = 0;  // the transport, as in "NCCL 2.27.3"; empty for one rank
};

struct JoinedDevices {
  std::unique_ptr<DeviceRanks> ranks;  // null: messages go through the host's memory,
  std::string reason;                  // because of this; the same on every rank
};
}  // namespace linnet
