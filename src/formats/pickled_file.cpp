#include "formats/pickled_file.h"
#include <algorithm>
#include <cstring>
#include "base/error.h"

namespace linnet {
namespace {

// Little-endian numbers at an offset. What lies outside of the bytes is a failure.
class Bytes {
 public:
  Bytes(std::string_view bytes, const FailFile& fail) : bytes_(bytes), fail_(fail) {}
  template <class T>
  uint64_t number(uint64_t offset) const {
    T value;
    std::memcpy(&value, part(offset, sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view part(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) fail_("it is cut short");
    return bytes_.substr(offset, size);
  }

 private:
  std::string_view bytes_;
  const FailFile& fail_;
};

constexpr uint32_t kNot32 = 0xffffffff;  // a number of 64 bits stands elsewhere

struct Directory {
  uint64_t entries, offset;
};

// The end of the archive, behind which stands only a comment.
Directory find_directory(std::string_view bytes, const FailFile& fail) {
  const Bytes file(bytes, fail);
  const size_t end = bytes.rfind(std::string_view("PK\5\6", 4));
  if (end == bytes.npos) fail("it has no end: it is cut short");
  Directory directory{file.number<uint16_t>(end + 10), file.number<uint32_t>(end + 16)};
  if (directory.offset == kNot32 || directory.entries == 0xffff) {
    if (end < 20 || file.part(end - 20, 4) != std::string_view("PK\6\7", 4)) fail("its directory has no end");
    const uint64_t large = file.number<uint64_t>(end - 20 + 8);
    if (file.part(large, 4) != std::string_view("PK\6\6", 4)) fail("its directory has no end");
    directory = {file.number<uint64_t>(large + 32), file.number<uint64_t>(large + 48)};
  }
  return directory;
}

}  // namespace

// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
std::map<std::string, std::string_view> read_zip(std::string_view bytes, const FailFile& fail) {
  const Bytes file(bytes, fail);
  const Directory directory = find_directory(bytes, fail);
  std::map<std::string, std::string_view> files;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (file.part(at, 4) != std::string_view("PK\1\2", 4)) fail("its directory is damaged");
    const uint64_t flags = file.number<uint16_t>(at + 8), method = file.number<uint16_t>(at + 10);
    const uint64_t name_size = file.number<uint16_t>(at + 28), extra_size = file.number<uint16_t>(at + 30);
    uint64_t size = file.number<uint32_t>(at + 24), offset = file.number<uint32_t>(at + 42);
    const std::string name(file.part(at + 46, name_size));
    if (method != 0 || flags % 2 != 0) fail(quoted_name(name) + " in it is compressed or encrypted");
    // Extra fields; that of numbers of 64 bits has those which did not fit, in this order.
    for (uint64_t extra = at + 46 + name_size, end = extra + extra_size; extra + 4 <= end;) {
      uint64_t field = extra + 4;
      const bool large = file.number<uint16_t>(extra) == 1;
      extra = field + file.number<uint16_t>(extra + 2);
      if (!large) continue;
      if (size == kNot32) size = file.number<uint64_t>(field), field += 8;
      if (file.number<uint32_t>(at + 20) == kNot32) field += 8;  // compressed: the same
      if (offset == kNot32) offset = file.number<uint64_t>(field);
    }
    if (file.part(offset, 4) != std::string_view("PK\3\4", 4)) fail(quoted_name(name) + " is not where it should be");
    const uint64_t before = 30 + file.number<uint16_t>(offset + 26) + file.number<uint16_t>(offset + 28);
    if (!files.emplace(name, file.part(offset + before, size)).second) fail(quoted_name(name) + " is in it twice");
    at += 46 + name_size + extra_size + file.number<uint16_t>(at + 32);
  }
  return files;
}

PickledFile::PickledFile(const std::string& path) : TensorFile(path) {
  mapped_ = MappedFile(path);
  parse({mapped_.data(), mapped_.size()});
}

PickledFile::PickledFile(std::span<const std::byte> bytes, const std::string& name) : TensorFile(name) { parse(bytes); }

void PickledFile::parse(std::span<const std::byte> bytes) {
  check_is_there(bytes);
  const FailFile fail = [this](const std::string& problem) {
    fail_user("'" + path_ + "' is no file of PyTorch weights: " + problem);
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x80\x02\x8a\x0a"))
    fail_user("'" + path_ + "' has the form of PyTorch before 1.6, which Linnet does not read; in Python " +
              "torch.save(torch.load(FILE), FILE) writes it anew");
  const std::map<std::string, std::string_view> files = read_zip(text, fail);
  const auto pickle = std::ranges::find_if(files, [](const auto& file) { return file.first.ends_with("/data.pkl"); });
  if (pickle == files.end()) fail("it has no data.pkl");
  const std::string folder = pickle->first.substr(0, pickle->first.size() - std::strlen("data.pkl"));
  if (const auto order = files.find(folder + "byteorder"); order != files.end() && order->second != "little")
    fail("its numbers are " + quoted_name(order->second) + "-endian");
  for (const PickledTensor& tensor : read_pickle(pickle->second, fail)) {
    const auto storage = files.find(folder + "data/" + tensor.storage);
    if (storage == files.end()) fail("the data of tensor " + quoted_name(tensor.name) + " are not in it");
    entries_.push_back(entry_of(tensor, storage->second));
  }
  index();
}

TensorEntry PickledFile::entry_of(const PickledTensor& tensor, std::string_view storage) {
  const std::string who = "'" + path_ + "': tensor " + quoted_name(tensor.name);
  const size_t axes = tensor.sizes.size(), size = file_dtype_size(tensor.dtype);
  if (axes > size_t{kMaxRank})
    fail_user(who + " has " + std::to_string(axes) + " axes; Linnet reads up to " + std::to_string(kMaxRank));
  if (tensor.strides.size() != axes) fail_user(who + " has not a stride for each axis");
  TensorEntry entry{tensor.name, {converted_dtype(tensor.dtype), Shape(tensor.sizes)}, nullptr, tensor.dtype};
  uint64_t bytes = 0;
  if (!tensor_bytes(tensor.sizes, tensor.dtype, bytes)) fail_user(who + " has a shape beyond any memory");
  // The last element of the storage that the tensor reads, and whether its elements lie one after another.
  int64_t last = tensor.offset, dense = 1;
  bool is_dense = true, fits = tensor.offset >= 0;
  for (size_t axis = axes; axis-- > 0 && bytes > 0; dense *= tensor.sizes[axis]) {
    int64_t reach = 0;
    fits &= tensor.strides[axis] >= 0 &&
            !__builtin_mul_overflow(tensor.sizes[axis] - 1, tensor.strides[axis], &reach) &&
            !__builtin_add_overflow(last, reach, &last);
    is_dense &= tensor.sizes[axis] == 1 || tensor.strides[axis] == dense;
  }
  if (!fits || (bytes > 0 && static_cast<uint64_t>(last) >= storage.size() / size))
    fail_user(who + " reaches beyond its data");
  // An axis that repeats its elements would make a small file take any memory.
  if (bytes > storage.size())
    fail_user(who + " is " + entry.text() + ", but its data have " + std::to_string(storage.size()) + " bytes");
  const char* const from = bytes > 0 ? storage.data() + static_cast<size_t>(tensor.offset) * size : storage.data();
  entry.data = reinterpret_cast<const std::byte*>(from);
  if (is_dense) return entry;
  std::string& copy = copies_.emplace_back();
  copy.reserve(bytes);
  std::vector<int64_t> at(axes);
  for (uint64_t i = 0; i < bytes; i += size) {
    int64_t element = 0;
    for (size_t axis = 0; axis < axes; ++axis) element += at[axis] * tensor.strides[axis];
    copy.append(from + static_cast<size_t>(element) * size, size);
    for (size_t axis = axes; axis-- > 0 && ++at[axis] == tensor.sizes[axis];) at[axis] = 0;
  }
  entry.data = reinterpret_cast<const std::byte*>(copy.data());
  return entry;
}

}  // namespace linnet
