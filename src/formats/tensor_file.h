// Named tensors in a mapped file: safetensors.h, what PyTorch pickled (pickled_file.h), or llama.cpp's (gguf_file.h).
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "base/files.h"
#include "formats/file_dtype.h"

namespace linnet {

struct TensorEntry {
  std::string name;
  TensorType type;        // for a type the engine does not compute in: the type it is converted to, with more bytes
  const std::byte* data;  // copy it out: files of other programs may leave it unaligned
  FileDType dtype;        // of the elements at `data`
  // Of elements in a form of the file's own, which TensorFile::elements() converts: its name ("Q8_0") and its bytes.
  const char* form = nullptr;
  size_t form_bytes = 0;

  // What the file holds, in bytes and as text ("F16[8, 16]").
  size_t bytes() const {
    return form ? form_bytes : static_cast<size_t>(type.shape.elements()) * file_dtype_size(dtype);
  }
  const char* form_name() const { return form ? form : file_dtype_name(dtype); }
  std::string text() const { return form_name() + type.shape.text(); }
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;

  const std::vector<TensorEntry>& entries() const { return entries_; }
  const TensorEntry& at(const std::string& name) const;    // a missing one is a user error naming tensor and file
  const TensorEntry* find(const std::string& name) const;  // null when missing
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }
  // The elements of one of entries(), of the type `dtype`. `room` holds them where the file has another form of them.
  virtual const std::byte* elements(const TensorEntry& entry, std::vector<std::byte>& /*room*/) const {
    return entry.data;
  }
  // All elements of one of entries(), of a floating-point type, as floats.
  virtual void read(const TensorEntry& entry, float* out) const {
    read_floats(entry.dtype, entry.data, entry.type.shape.elements(), out);
  }
  // A row of a matrix in blocks that products read (file_blocks.h), as it lies in the file: the row of that number of
  // the entry or, with `in_file`, of the file. Null where the entry's rows are no such rows.
  virtual const std::byte* block_row(const TensorEntry& /*entry*/, int64_t /*row*/, bool /*in_file*/) const {
    return nullptr;
  }
  // See MappedFile: after a large tensor was copied out, its pages need not count as this process's memory.
  void drop_pages() const { mapped_.drop_pages(); }

 protected:
  explicit TensorFile(std::string path, MappedFile mapped = {}) : path_(std::move(path)), mapped_(std::move(mapped)) {}
  // User error for a file that is empty, or that git-lfs has put in the place of the weights.
  void check_is_there(std::span<const std::byte> bytes) const;
  void index();  // makes find() know the entries

  std::string path_;
  MappedFile mapped_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

// A file of any element types: PyTorch's if its name ends in .bin, .pt or .pth, else safetensors.
std::unique_ptr<const TensorFile> open_tensor_file(const std::string& path);

// A name for a message of one line: control characters are escaped, and what is very long is cut.
std::string quoted_name(std::string_view text);
// The bytes of a tensor. User error for more axes than Linnet reads, a size below 0 and what is beyond any memory;
// `who` is the tensor of the file in messages.
uint64_t tensor_bytes(const std::string& path, const std::string& who, std::span<const int64_t> sizes, FileDType dtype);
// The type that elements are converted to where the engine does not compute in theirs.
DType converted_dtype(FileDType dtype);

}  // namespace linnet
