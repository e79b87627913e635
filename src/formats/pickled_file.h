// Weights by torch.save() (pytorch_model.bin): an uncompressed zip archive of a pickle with names and shapes (data.pkl)
// and each storage's bytes (data/KEY). A pickle is a program: Linnet accepts what a dictionary of tensors needs,
// refuses the rest by name, and runs nothing.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "formats/tensor_file.h"

namespace linnet {
// As a pickle describes it, unchecked.
struct PickledTensor {
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
