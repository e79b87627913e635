#include "formats/tensor_file.h"
#include "base/fail.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace linnet {
const TensorEntry* TensorFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

const TensorEntry& TensorFile::at(const std::string& name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  fail_user("'", path_, "' has no tensor ", quoted_name(name));
}

void TensorFile::check_is_there(std::span<const std::byte> bytes) const {
  if (bytes.empty()) fail_user("'", path_, "' is empty");
  if (std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
          .starts_with("version https://git-lfs"))
    fail_user("'", path_, "' is only git-lfs's note of the file; fetch the weights with git lfs pull");
}

void TensorFile::index() {
  by_name_.clear();
  for (size_t i = 0; i < entries_.size(); ++i) by_name_[entries_[i].name] = i;
}

std::unique_ptr<const TensorFile> open_tensor_file(const std::string& path) {
  for (const char* ending : {".bin", ".pt", ".pth"})
    if (path.ends_with(ending)) return std::make_unique<PickledFile>(path);
  return std::make_unique<SafetensorsFile>(path, SafetensorsTypes::kAll);
}

std::string quoted_name(std::string_view text) {
  constexpr size_t kLongest = 200;
  const std::string escaped = Json(std::string(text)).dump();
  const std::string body = escaped.substr(1, escaped.size() - 2);
  return "'" + (body.size() > kLongest ? body.substr(0, kLongest) + "..." : body) + "'";
}

uint64_t tensor_bytes(
    const std::string& path, const std::string& who, std::span<const int64_t> sizes, FileDType dtype) {
  const std::string begin = "'" + path + "': " + who + " has ";
  if (sizes.size() > size_t{kMaxRank}) fail_user(begin, sizes.size(), " axes; Linnet reads up to ", kMaxRank);
  int64_t product = static_cast<int64_t>(file_dtype_size(dtype));
  bool empty = false;
  for (const int64_t size : sizes) {
    empty |= size == 0;
    if (size < 0 || (size > 0 && __builtin_mul_overflow(product, size, &product)))
      fail_user(begin, "a shape beyond any memory");
  }
  return empty ? 0 : static_cast<uint64_t>(product);
}

DType converted_dtype(FileDType dtype) {
  if (const std::optional<DType> same = engine_dtype(dtype)) return *same;
  return is_float(dtype) ? DType::kF32 : dtype == FileDType::kBool ? DType::kU8 : DType::kI32;
}
}  // namespace linnet
