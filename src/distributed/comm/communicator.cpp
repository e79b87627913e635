#include "distributed/comm/communicator.h"
#include <algorithm>
#include <cstring>
#include "base/error.h"
#include "base/function_ref.h"

namespace linnet {
namespace {
class SingleProcess : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, Wait) override {
    if (!outgoing.empty() || !incoming.empty()) fail_internal("a message to or from another rank of one");
  }
};

size_t block_count(size_t count) { return (count + kSliceUnit - 1) / kSliceUnit; }

// part(rank): the bytes of `all` that the rank owns.
void all_gather_parts(Communicator& world, std::span<std::byte> all, FunctionRef<Slice(int rank)> part) {
  const auto block = [&](int rank) { return all.subspan(part(rank).first, part(rank).count); };
  auto& [outgoing, incoming, parts] = world.empty_lists();
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank == world.rank()) continue;
    outgoing.push_back({rank, block(world.rank())});
    incoming.push_back({rank, block(rank)});
  }
  world.exchange(outgoing, incoming);
}

Slice equal_blocks(size_t count, int rank, int size) {
  const size_t blocks = block_count(count), ranks = static_cast<size_t>(size);
  const auto first = [&](int r) {
    return blocks / ranks * static_cast<size_t>(r) + blocks % ranks * static_cast<size_t>(r) / ranks;
  };
  return {first(rank), first(rank + 1) - first(rank)};
}

Slice bytes_of_values(Slice values, size_t size) { return {values.first * size, values.count * size}; }
}  // namespace

Communicator& single_process() {
  static SingleProcess instance;
  return instance;
}

void send(Communicator& world, int to, std::span<const std::byte> bytes) {
  const Communicator::Outgoing message{to, bytes};
  world.exchange({&message, 1}, {});
}

void receive(Communicator& world, int from, std::span<std::byte> bytes) {
  const Communicator::Incoming message{from, bytes};
  world.exchange({}, {&message, 1});
}

void barrier(Communicator& world) {
  const std::byte nothing{};
  std::vector<std::byte> all(world.size());
  all_gather(world, {&nothing, 1}, all);
}

void broadcast(Communicator& world, int root, std::span<std::byte> bytes) {
  if (world.rank() != root) return receive(world, root, bytes);
  std::vector<Communicator::Outgoing> messages;
  for (int rank = 0; rank < world.size(); ++rank)
    if (rank != root) messages.push_back({rank, bytes});
  world.exchange(messages, {});
}

void broadcast(Communicator& world, int root, std::span<float> values) {
  broadcast(world, root, std::as_writable_bytes(values));
}

void all_gather(Communicator& world, std::span<const std::byte> mine, std::span<std::byte> all) {
  const size_t size = mine.size();
  if (all.size() != size * static_cast<size_t>(world.size())) fail_internal("all_gather: sizes do not agree");
  const auto block = [&](int rank) { return Slice{static_cast<size_t>(rank) * size, size}; };
  if (size > 0) std::memcpy(all.data() + block(world.rank()).first, mine.data(), size);
  all_gather_parts(world, all, block);
}

Slice slice(size_t count, int rank, int size) {
  const Slice blocks = equal_blocks(count, rank, size);
  const auto value = [&](size_t block) { return std::min(block * kSliceUnit, count); };
  return {value(blocks.first), value(blocks.first + blocks.count) - value(blocks.first)};
}

Slice overlap(Slice a, Slice b) {
  const size_t first = std::max(a.first, b.first), end = std::min(a.first + a.count, b.first + b.count);
  return {first, end > first ? end - first : 0};
}

SliceBounds slice_bounds(size_t count, int size) {
  SliceBounds bounds{0};
  for (int rank = 0; rank < size; ++rank) bounds.push_back(bounds.back() + slice(count, rank, size).count);
  return bounds;
}

Slice block_slice(const SliceBounds& bounds, int rank) {
  const Slice own = slice(bounds, rank);
  const size_t first = block_count(own.first);
  return {first, block_count(own.first + own.count) - first};
}

void all_gather_slices(Communicator& world, std::span<float> all, const SliceBounds& bounds) {
  all_gather_parts(world, std::as_writable_bytes(all),
      [&](int rank) { return bytes_of_values(slice(bounds, rank), sizeof(float)); });
}

void all_gather_slices(Communicator& world, std::span<float> all) {
  all_gather_slices(world, all, slice_bounds(all.size(), world.size()));
}

void all_gather_slice_blocks(Communicator& world, std::span<double> blocks, const SliceBounds& bounds) {
  all_gather_parts(world, std::as_writable_bytes(blocks),
      [&](int rank) { return bytes_of_values(block_slice(bounds, rank), sizeof(double)); });
}

std::string broadcast_text(Communicator& world, int root, std::string text) {
  uint64_t length = text.size();
  broadcast(world, root, std::as_writable_bytes(std::span(&length, 1)));
  text.resize(length);
  if (length > 0) broadcast(world, root, std::as_writable_bytes(std::span(text)));
  return text;
}

std::vector<std::string> gather_texts(Communicator& world, std::string_view mine) {
  std::vector<std::string> texts;
  for (int root = 0; root < world.size(); ++root)
    texts.push_back(broadcast_text(world, root, root == world.rank() ? std::string(mine) : std::string()));
  return texts;
}
}  // namespace linnet
