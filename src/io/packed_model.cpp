#include "io/packed_model.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/thread_pool.h"
#include "io/data_checksum.h"
#include "io/safetensors_format.h"

namespace linnet {
namespace {

uint64_t add_text(uint64_t state, std::string_view text) { return data_checksum(state, text.data(), text.size()); }

uint64_t add_head(uint64_t state, const std::string& name, FileDType dtype, const Shape& shape) {
  return add_text(state, name + " " + file_dtype_name(dtype) + shape.text());
}

uint64_t metadata_checksum(const SafetensorsMetadata& metadata) {
  uint64_t state = kPackedVersion;
  for (const auto& [key, value] : metadata)
    if (key != kPackedChecksumKey) state = add_text(add_text(state, key), value);
  return state;
}

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

// Tensors in the order of their names.
uint64_t checksum_of(const SafetensorsFile& file) {
  struct Task {
    const SafetensorsEntry* entry;
    size_t piece;
  };
  std::map<std::string_view, const SafetensorsEntry*> by_name;
  for (const SafetensorsEntry& entry : file.entries()) by_name[entry.name] = &entry;
  std::vector<Task> tasks;
  for (const auto& [name, entry] : by_name)
    for (size_t piece = 0; piece < pieces_of(entry->bytes()); ++piece) tasks.push_back({entry, piece});
  std::vector<uint64_t> found(tasks.size());
  ThreadPool pool(available_threads());
  pool.run(static_cast<int64_t>(tasks.size()), [&](int64_t i, int) {
    const auto& [entry, piece] = tasks[static_cast<size_t>(i)];
    found[static_cast<size_t>(i)] = piece_checksum(entry->data, entry->bytes(), piece);
  });
  uint64_t state = metadata_checksum(file.metadata());
  auto next = found.begin();
  for (const auto& [name, entry] : by_name) {
    const auto count = static_cast<std::ptrdiff_t>(pieces_of(entry->bytes()));
    const uint64_t data = fold({next, next + count});
    next += count;
    state = data_checksum(add_head(state, entry->name, entry->dtype, entry->type.shape), &data, sizeof data);
  }
  return state;
}

// The same of tensors that are made as they are needed: one at a time is in memory.
uint64_t checksum_of(const std::vector<WeightSource>& weights, const SafetensorsMetadata& metadata) {
  std::map<std::string_view, const WeightSource*> by_name;
  for (const WeightSource& weight : weights) by_name[weight.name] = &weight;
  uint64_t state = metadata_checksum(metadata);
  std::vector<std::byte> bytes;
  for (const auto& [name, weight] : by_name) {
    bytes.resize(static_cast<size_t>(weight->shape.elements()) * file_dtype_size(weight->dtype));
    weight->fill(0, weight->shape.elements(), bytes.data());
    std::vector<uint64_t> pieces(pieces_of(bytes.size()));
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = piece_checksum(bytes.data(), bytes.size(), i);
    const uint64_t data = fold(pieces);
    state = data_checksum(add_head(state, weight->name, weight->dtype, weight->shape), &data, sizeof data);
  }
  return state;
}

// A path that stays inside: no part is empty, "." or "..".
bool is_inside(const std::string& path) {
  if (path.empty() || path.find('\0') != path.npos) return false;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string part = path.substr(start, end - start);
    if (part.empty() || part == "." || part == "..") return false;
    start = end + 1;
  }
  return true;
}

void check_version(const SafetensorsFile& file) {
  const auto found = file.metadata().find(kPackedVersionKey);
  if (found == file.metadata().end())
    fail_user("'" + file.path() + "' is no packed model; `linnet pack MODEL -o FILE.linnet` makes one");
  const std::string& text = found->second;
  int version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1)
    fail_user("'" + file.path() + "' is damaged: its version is not a number");
  if (version > kPackedVersion)
    fail_user("'" + file.path() + "' was packed by a newer Linnet: its format is " + std::to_string(version) +
              ", this program reads " + std::to_string(kPackedVersion));
  if (version < kPackedVersion)
    fail_user("'" + file.path() + "' was packed by an older Linnet: its format is " + std::to_string(version) +
              ", this program reads " + std::to_string(kPackedVersion) + "; pack the model again");
}

PackedFiles files_of(const SafetensorsFile& file) {
  check_version(file);
  const auto checksum = file.metadata().find(kPackedChecksumKey);
#ifndef LINNET_FUZZED  // a fuzzer finds no checksum
  if (checksum == file.metadata().end() || checksum->second != checksum_text(checksum_of(file)))
    fail_user("'" + file.path() + "' is damaged: it does not have the checksum it was packed with");
#endif
  PackedFiles packed;
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!entry.name.starts_with(kPackedFilePrefix)) {
      packed.has_weights = true;
      continue;
    }
    const std::string path = entry.name.substr(std::string_view(kPackedFilePrefix).size());
    if (entry.dtype != FileDType::kU8 || entry.type.shape.rank() != 1 || !is_inside(path))
      fail_user("'" + file.path() + "' is damaged: a file inside has no proper name or is not bytes");
    packed.files[path] = {reinterpret_cast<const char*>(entry.data), entry.bytes()};
  }
  return packed;
}

}  // namespace

void save_packed_model(const std::string& path, const PackedContents& contents) {
  std::vector<WeightSource> all = contents.weights;
  for (const auto& [name, text] : contents.files)
    all.push_back({kPackedFilePrefix + name, FileDType::kU8, Shape{static_cast<int64_t>(text.size())},
                   [&text = text](int64_t first, int64_t count, std::byte* out) {
                     std::copy_n(reinterpret_cast<const std::byte*>(text.data()) + first, count, out);
                   }});
  SafetensorsMetadata metadata = contents.metadata;
  metadata.erase(kSafetensorsChecksumKey);
  metadata[kPackedVersionKey] = std::to_string(kPackedVersion);
  metadata[kPackedChecksumKey] = checksum_text(checksum_of(all, metadata));
  save_weight_file(path, all, metadata, WeightOrder::kGivenInPages);
}

PackedFiles read_packed_model(const std::string& path) {
  const auto opened = std::make_shared<const OpenedPackedModel>(path);
  PackedFiles packed = files_of(opened->tensors);
  opened->file.drop_pages();
  packed.owner = opened;
  return packed;
}

std::shared_ptr<const OpenedPackedModel> open_packed_model(const std::string& path) {
  return std::static_pointer_cast<const OpenedPackedModel>(open_packed(path)->owner);
}

PackedFiles read_packed_model(std::span<const std::byte> bytes, const std::string& name) {
  return files_of(SafetensorsFile(bytes, name, SafetensorsTypes::kAll));
}

void use_packed_models() {
  set_packed_reader([](const std::string& path) { return read_packed_model(path); });
}

}  // namespace linnet
