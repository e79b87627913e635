#include "formats/packed_model.h"
#include <algorithm>
#include "base/fail.h"
#include "base/functions.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "formats/safetensors.h"

namespace linnet {
namespace {
uint64_t add_text(uint64_t state, std::string_view text) { return data_checksum(state, text.data(), text.size()); }

// The index's checksum: the metadata's, continued by each tensor's name, type and shape, in order of names.
uint64_t add_head(uint64_t state, const std::string& name, FileDType dtype, const Shape& shape) {
  return add_text(state, name + " " + file_dtype_name(dtype) + shape.text());
}

uint64_t metadata_checksum(const SafetensorsMetadata& metadata, int version) {
  auto state = static_cast<uint64_t>(version);
  for (const auto& [key, value] : metadata)
    if (key != kPackedChecksumKey) state = add_text(add_text(state, key), value);
  return state;
}

constexpr size_t kChecksumPiece = 1 << 22;  // bytes whose checksums are computed at once

// A tensor's checksum is made of its pieces', so that threads share the work.
std::vector<uint64_t> data_sums(const std::vector<std::span<const std::byte>>& tensors) {
  std::vector<std::span<const std::byte>> pieces;
  for (const auto& data : tensors)
    for (size_t first = 0; first < data.size(); first += kChecksumPiece)
      pieces.push_back(data.subspan(first, std::min(kChecksumPiece, data.size() - first)));
  std::vector<uint64_t> found(pieces.size());
  ThreadPool pool(pieces.size() > tensors.size() ? available_threads() : 1);  // small tensors are not worth a thread
  pool.run(std::ssize(pieces), [&](int64_t i, int) {
    const auto& piece = pieces[i];
    found[i] = data_checksum(0, piece.data(), piece.size());
  });
  const uint64_t* next = found.data();
  return mapped(tensors, [&](const auto& data) {
    const size_t count = ceil_div(data.size(), kChecksumPiece);
    return data_checksum(0, std::exchange(next, next + count), count * sizeof(uint64_t));
  });
}

std::string text_of(const SafetensorsMetadata& metadata, const char* key) { return find_or(metadata, key, ""); }

constexpr size_t kDigits = 16;  // of a checksum's text

class PackedChecks {
 public:
  PackedChecks(const SafetensorsFile& file, int version) : file_(file), version_(version) {
    for (const TensorEntry& entry : file.entries()) entries_.push_back(&entry);
    std::ranges::sort(entries_, {}, &TensorEntry::name);
  }

  // The header; for version 2 the data too.
  void check_index() const {
    uint64_t state = metadata_checksum(file_.metadata(), version_);
    const auto data = mapped(entries_, [](const TensorEntry* entry) { return std::span(entry->data, entry->bytes()); });
    const std::vector<uint64_t> sums = version_ == 2 ? data_sums(data) : std::vector<uint64_t>();
    for (size_t i = 0; i < entries_.size(); ++i) {
      state = add_head(state, entries_[i]->name, entries_[i]->dtype, entries_[i]->type.shape);
      if (version_ == 2) state = data_checksum(state, &sums[i], sizeof sums[i]);
    }
    if (text_of(file_.metadata(), kPackedChecksumKey) != checksum_text(state)) fail();
    if (version_ > 2 && text_of(file_.metadata(), kPackedSumsKey).size() != kDigits * entries_.size()) fail();
  }
  // The data of files or of weights.
  void check_data(bool files) const {
    if (version_ == 2) return;
    const std::string known = text_of(file_.metadata(), kPackedSumsKey);
    std::vector<std::span<const std::byte>> data;
    std::string wanted, found;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i]->name.starts_with(kPackedFilePrefix) != files) continue;
      data.emplace_back(entries_[i]->data, entries_[i]->bytes());
      wanted += known.substr(kDigits * i, kDigits);
    }
    for (const uint64_t sum : data_sums(data)) found += checksum_text(sum);
    if (found != wanted) fail();
  }

 private:
  [[noreturn]] void fail() const {
    fail_user("'", file_.path(), "' is damaged: it does not have the checksum it was packed with");
  }

  const SafetensorsFile& file_;
  const int version_;
  std::vector<const TensorEntry*> entries_;  // by name
};

// Whether no part is empty, "." or "..".
bool is_inside(const std::string& path) {
  return path.find('\0') == path.npos && std::ranges::none_of(split(path, '/'), [](std::string_view part) {
    return part.empty() || part == "." || part == "..";
  });
}

int check_version(const SafetensorsFile& file) {
  const auto found = file.metadata().find(kPackedVersionKey);
  if (found == file.metadata().end())
    fail_user("'", file.path(), "' is no packed model; `linnet pack MODEL -o FILE.linnet` makes one");
  const int version = parse_number<int>(found->second).value_or(0);
  if (version < 1) fail_user("'", file.path(), "' is damaged: its version is not a number");
  if (version > kPackedVersion)
    fail_user("'", file.path(), "' was packed by a newer Linnet: its format is ", version, ", this program reads ",
        kPackedVersion);
  if (version < kOldestPackedVersion)
    fail_user("'", file.path(), "' was packed by an older Linnet: its format is ", version, ", this program reads ",
        kPackedVersion, "; pack the model again");
  return version;
}

// `whole`: checks weights too.
PackedFiles files_of(const SafetensorsFile& file, bool whole) {
  const int version = check_version(file);
#ifndef LINNET_FUZZED  // a fuzzer finds no checksum
  const PackedChecks checks(file, version);
  checks.check_index();
  checks.check_data(true);
  if (whole) checks.check_data(false);
#else
  static_cast<void>(version), static_cast<void>(whole);
#endif
  PackedFiles packed;
  for (const TensorEntry& entry : file.entries()) {
    if (!entry.name.starts_with(kPackedFilePrefix)) {
      packed.has_weights = true;
      continue;
    }
    const std::string path = entry.name.substr(std::string_view(kPackedFilePrefix).size());
    if (entry.dtype != FileDType::kU8 || entry.type.shape.rank() != 1 || !is_inside(path))
      fail_user("'", file.path(), "' is damaged: a file inside has no proper name or is not bytes");
    packed.files[path] = {reinterpret_cast<const char*>(entry.data), entry.bytes()};
  }
  return packed;
}
}  // namespace

PackedFiles read_packed_model(const std::string& path) {
  const auto opened = std::make_shared<const OpenedPackedModel>(path);
  PackedFiles packed = files_of(opened->tensors, false);
  packed.check_weights = [model = opened.get()] { model->check_weights(); };
  packed.owner = opened;
  opened->file.drop_pages();
  return packed;
}

void OpenedPackedModel::check_weights() const {
  file.check();
  if (checked_) return;
  const std::lock_guard lock(mutex_);
  if (checked_) return;
  PackedChecks(tensors, check_version(tensors)).check_data(false);
  file.check();
  file.drop_pages();
  checked_ = true;
}

std::shared_ptr<const OpenedPackedModel> open_packed_model(const std::string& path) {
  return std::static_pointer_cast<const OpenedPackedModel>(open_packed(path)->owner);
}

PackedFiles read_packed_model(std::span<const std::byte> bytes, const std::string& name) {
  return files_of(SafetensorsFile(bytes, name, SafetensorsTypes::kAll), true);
}

void use_packed_models() {
  set_packed_reader(kPackedEnding, [](const std::string& path) { return read_packed_model(path); });
}

void save_packed_model(const std::string& path, const PackedContents& contents) {
  std::vector<WeightSource> all = contents.weights;
  // Tables need multiples of 16 bytes: weights end a page, and tables' sizes keep it.
  std::vector<std::pair<std::string_view, const std::string*>> files;
  for (const auto& [name, text] : contents.files) files.emplace_back(name, &text);
  std::stable_partition(
      files.begin(), files.end(), [](const auto& file) { return file.first.ends_with(kTokenizerTables); });
  for (const auto& [name, text] : files)
    all.push_back(stored_weight(kPackedFilePrefix + std::string(name), FileDType::kU8,
        Shape{static_cast<int64_t>(text->size())}, reinterpret_cast<const std::byte*>(text->data())));
  SafetensorsMetadata metadata = contents.metadata;
  metadata.erase(kSafetensorsChecksumKey);
  metadata[kPackedVersionKey] = std::to_string(kPackedVersion);
  std::vector<const WeightSource*> by_name = mapped(all, [](const WeightSource& weight) { return &weight; });
  std::ranges::sort(by_name, {}, &WeightSource::name);
  std::string& sums = metadata[kPackedSumsKey];
  sums.clear();
  std::vector<std::byte> bytes;
  for (const WeightSource* weight : by_name) {
    bytes.resize(weight->bytes());
    weight->fill(0, weight->shape.elements(), bytes.data());
    sums += checksum_text(data_sums({bytes})[0]);
  }
  uint64_t state = metadata_checksum(metadata, kPackedVersion);
  for (const WeightSource* weight : by_name) state = add_head(state, weight->name, weight->dtype, weight->shape);
  metadata[kPackedChecksumKey] = checksum_text(state);
  save_weight_file(path, all, metadata, WeightOrder::kGivenInPages);
}
}  // namespace linnet
