// Named tensors in a mapped file: safetensors.h, PyTorch's (pickled_file.h) or llama.cpp's (gguf_file.h).
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
  TensorType type;        // the type converted to, if the engine does not compute in dtype
  const std::byte* data;  // may be unaligned in files of other programs: copy it out
  FileDType dtype;        // of the elements at `data`
  // A format that TensorFile::elements() converts: its name ("Q8_0") and its bytes.
  const char* form = nullptr;
  size_t form_bytes = 0;

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
  // An entry's elements, as `dtype`. `room` holds them if the file has another form.
  virtual const std::byte* elements(const TensorEntry& entry, std::vector<std::byte>& /*room*/) const {
    return entry.data;
  }
  // An entry's floating-point elements as floats.
  virtual void read(const TensorEntry& entry, float* out) const {
    read_floats(entry.dtype, entry.data, entry.type.shape.elements(), out);
  }
  // A row of a matrix in blocks that products read (kernels/quantized/packed_weight.h), as in the file: a row of the
  // entry or, with `in_file`, of the file. Null: rows are not such.
  virtual const std::byte* block_row(const TensorEntry& /*entry*/, int64_t /*row*/, bool /*in_file*/) const {
    return nullptr;
  }
  // As MappedFile: a copied tensor's pages need not count as this process's memory.
  void drop_pages() const { mapped_.drop_pages(); }

 protected:
  explicit TensorFile(std::string path, MappedFile mapped = {}) : path_(std::move(path)), mapped_(std::move(mapped)) {}
  // User error for an empty file, and for a pointer of git-lfs.
  void check_is_there(std::span<const std::byte> bytes) const;
  void index();  // makes find() know the entries

  std::string path_;
  MappedFile mapped_;
  std::vector<TensorEntry> entries_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

// PyTorch's if its name ends in .bin, .pt or .pth, else safetensors.
std::unique_ptr<const TensorFile> open_tensor_file(const std::string& path);

// For messages of one line: escapes control characters and cuts long names.
std::string quoted_name(std::string_view text);
// A tensor's bytes. User error for too many axes, a negative size and more than any memory; `who` names the tensor.
uint64_t tensor_bytes(const std::string& path, const std::string& who, std::span<const int64_t> sizes, FileDType dtype);
// The engine's type for elements that it does not compute in.
DType converted_dtype(FileDType dtype);
}  // namespace linnet
