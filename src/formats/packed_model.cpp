#include "formats/packed_model.h"
#include <algorithm>
#include <charconv>
#include "base/error.h"
#include "formats/data_checksum.h"
#include "formats/packed_checksum.h"
#include "formats/safetensors_format.h"

namespace linnet {
namespace {

std::string text_of(const SafetensorsMetadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

constexpr size_t kDigits = 16;  // of a checksum's text

// What a file says of itself, and whether it is so.
class PackedChecks {
 public:
  // `version`: check_version().
  PackedChecks(const SafetensorsFile& file, int version)
      : file_(file), version_(version), entries_(entries_by_name(file)) {}

  // The header; of version 2 the data, too.
  void check_index() const {
    uint64_t state = metadata_checksum(file_.metadata(), version_);
    const std::vector<uint64_t> sums = version_ == 2 ? data_sums(entries_) : std::vector<uint64_t>();
    for (size_t i = 0; i < entries_.size(); ++i) {
      state = add_head(state, entries_[i]->name, entries_[i]->dtype, entries_[i]->type.shape);
      if (version_ == 2) state = data_checksum(state, &sums[i], sizeof sums[i]);
    }
    if (text_of(file_.metadata(), kPackedChecksumKey) != checksum_text(state)) fail();
    if (version_ > 2 && text_of(file_.metadata(), kPackedSumsKey).size() != kDigits * entries_.size()) fail();
  }
  void check_files() const { check_data(true); }
  void check_weights() const { check_data(false); }

 private:
  void check_data(bool files) const {
    if (version_ == 2) return;
    const std::string known = text_of(file_.metadata(), kPackedSumsKey);
    PackedEntries entries;
    std::string wanted;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i]->name.starts_with(kPackedFilePrefix) != files) continue;
      entries.push_back(entries_[i]);
      wanted += known.substr(kDigits * i, kDigits);
    }
    std::string found;
    for (const uint64_t sum : data_sums(entries)) found += checksum_text(sum);
    if (found != wanted) fail();
  }
  [[noreturn]] void fail() const {
    fail_user("'" + file_.path() + "' is damaged: it does not have the checksum it was packed with");
  }

  const SafetensorsFile& file_;
  const int version_;
  const PackedEntries entries_;
};

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

int check_version(const SafetensorsFile& file) {
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
  if (version < kOldestPackedVersion)
    fail_user("'" + file.path() + "' was packed by an older Linnet: its format is " + std::to_string(version) +
              ", this program reads " + std::to_string(kPackedVersion) + "; pack the model again");
  return version;
}

// `whole`: weights are checked, too.
PackedFiles files_of(const SafetensorsFile& file, bool whole) {
  const int version = check_version(file);
#ifndef LINNET_FUZZED  // a fuzzer finds no checksum
  const PackedChecks checks(file, version);
  checks.check_index();
  checks.check_files();
  if (whole) checks.check_weights();
#else
  static_cast<void>(version), static_cast<void>(whole);
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
  PackedChecks(tensors, check_version(tensors)).check_weights();
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

}  // namespace linnet
