#include "formats/packed_checksum.h"
#include <algorithm>
#include "base/thread_pool.h"
#include "formats/data_checksum.h"
#include "formats/safetensors_format.h"

namespace linnet {
namespace {

uint64_t add_text(uint64_t state, std::string_view text) { return data_checksum(state, text.data(), text.size()); }

constexpr size_t kChecksumPiece = 1 << 22;  // bytes whose checksums are computed at once

// The checksum of a tensor's bytes is made of those of its pieces, so that several threads compute it.
uint64_t fold(const std::vector<uint64_t>& pieces) {
  return data_checksum(0, pieces.data(), pieces.size() * sizeof(uint64_t));
}

size_t pieces_of(size_t bytes) { return (bytes + kChecksumPiece - 1) / kChecksumPiece; }

uint64_t piece_checksum(const std::byte* data, size_t bytes, size_t piece) {
  const size_t first = piece * kChecksumPiece;
  return data_checksum(0, data + first, std::min(kChecksumPiece, bytes - first));
}

}  // namespace

uint64_t add_head(uint64_t state, const std::string& name, FileDType dtype, const Shape& shape) {
  return add_text(state, name + " " + file_dtype_name(dtype) + shape.text());
}

uint64_t metadata_checksum(const SafetensorsMetadata& metadata, int version) {
  auto state = static_cast<uint64_t>(version);
  for (const auto& [key, value] : metadata)
    if (key != kPackedChecksumKey) state = add_text(add_text(state, key), value);
  return state;
}

PackedEntries entries_by_name(const SafetensorsFile& file) {
  PackedEntries entries;
  for (const SafetensorsEntry& entry : file.entries()) entries.push_back(&entry);
  std::ranges::sort(entries, {}, &SafetensorsEntry::name);
  return entries;
}

std::vector<uint64_t> data_sums(const PackedEntries& entries) {
  struct Task {
    const SafetensorsEntry* entry;
    size_t piece;
  };
  std::vector<Task> tasks;
  for (const SafetensorsEntry* entry : entries)
    for (size_t piece = 0; piece < pieces_of(entry->bytes()); ++piece) tasks.push_back({entry, piece});
  std::vector<uint64_t> found(tasks.size());
  const auto compute = [&](int64_t i, int) {
    const auto& [entry, piece] = tasks[static_cast<size_t>(i)];
    found[static_cast<size_t>(i)] = piece_checksum(entry->data, entry->bytes(), piece);
  };
  ThreadPool pool(tasks.size() > entries.size() ? available_threads() : 1);  // small tensors are not worth a thread
  pool.run(static_cast<int64_t>(tasks.size()), compute);
  std::vector<uint64_t> sums;
  auto next = found.begin();
  for (const SafetensorsEntry* entry : entries) {
    const auto count = static_cast<std::ptrdiff_t>(pieces_of(entry->bytes()));
    sums.push_back(fold({next, next + count}));
    next += count;
  }
  return sums;
}

uint64_t data_sum(const WeightSource& weight, std::vector<std::byte>& bytes) {
  bytes.resize(static_cast<size_t>(weight.shape.elements()) * file_dtype_size(weight.dtype));
  weight.fill(0, weight.shape.elements(), bytes.data());
  std::vector<uint64_t> pieces(pieces_of(bytes.size()));
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = piece_checksum(bytes.data(), bytes.size(), i);
  return fold(pieces);
}

}  // namespace linnet
