// Named tensors in a mapped file: safetensors.h, PyTorch's (PickledFile) or llama.cpp's (gguf_file.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "base/files.h"
#include "engine/ir/tensor_type.h"

namespace linnet {
// Element types in files. Those in which the engine does not compute are converted on reading and writing.
enum class FileDType : uint8_t { kF64, kF32, kF16, kBF16, kI64, kU64, kI32, kU32, kI16, kU16, kI8, kU8, kBool };

const char* file_dtype_name(FileDType dtype);  // "F32", "BF16", as safetensors writes them
size_t file_dtype_size(FileDType dtype);       // bytes of one element
std::optional<FileDType> file_dtype(std::string_view name);
bool is_float(FileDType dtype);
FileDType file_dtype(DType dtype);                   // the same bits
std::optional<DType> engine_dtype(FileDType dtype);  // the same bits; empty: the engine does not compute in it

// `data` may be unaligned. F16 and BF16 are exact; F64 is rounded to nearest even.
void read_floats(FileDType dtype, const std::byte* data, int64_t count, float* out);
// For the four float types; rounds to nearest even, NaN stays NaN, values beyond the largest become infinity.
void write_floats(FileDType dtype, const float* values, int64_t count, std::byte* out);
// Filters [O, C, R, S] to and from [O, R, S, C]: transposes a matrix [rows, columns] of each.
inline void transpose_each(int64_t matrices, int64_t rows, int64_t columns, const float* from, float* to) {
  for (int64_t matrix = 0; matrix < matrices; ++matrix, from += rows * columns, to += rows * columns)
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column) to[column * rows + row] = from[row * columns + column];
}
// Integers and truth values. Values beyond 64 signed bits wrap, so user-facing callers check the range.
void read_integers(FileDType dtype, const std::byte* data, int64_t count, int64_t* out);

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
DType converted_dtype(FileDType dtype);  // the engine's, for elements that it does not compute in

// Weights by torch.save() (pytorch_model.bin): an uncompressed zip archive of a pickle with names and shapes (data.pkl)
// and each storage's bytes (data/KEY). A pickle is a program: Linnet accepts what a dictionary of tensors needs,
// refuses the rest by name, and runs nothing.

struct PickledTensor {  // as a pickle describes it, unchecked
  std::string name;
  FileDType dtype;
  std::string storage;  // its key
  int64_t offset;       // in elements of the storage, as are strides
  std::vector<int64_t> sizes, strides;
};
// Called with a file's problem; must throw.
using FailFile = std::function<void(const std::string& problem)>;
std::vector<PickledTensor> read_pickle(std::string_view bytes, const FailFile& fail);

// An open file. User errors of one line name the file: a broken format, other contents, and PyTorch before 1.6.
class PickledFile : public TensorFile {
 public:
  explicit PickledFile(const std::string& path) : TensorFile(path, MappedFile(path)) { parse(mapped_.bytes()); }
  // Reads `bytes`, which must outlive this object; `name` stands for the path in messages.
  PickledFile(std::span<const std::byte> bytes, const std::string& name) : TensorFile(name) { parse(bytes); }

 private:
  void parse(std::span<const std::byte> bytes);
  TensorEntry entry_of(const PickledTensor& tensor, std::string_view storage);

  std::deque<std::string> copies_;  // of tensors that are not contiguous
};
}  // namespace linnet
