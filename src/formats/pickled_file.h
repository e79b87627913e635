// The weights that torch.save() writes (pytorch_model.bin): an archive of zip, not compressed, that holds a pickle of
// names and shapes (data.pkl) and the bytes of each storage (data/KEY).
//
// A pickle is a program. Linnet knows what a dictionary of tensors needs, refuses the rest by name, and runs nothing.
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

// A tensor as a pickle describes it, unchecked.
struct PickledTensor {
  std::string name;
  FileDType dtype;
  std::string storage;  // its key
  int64_t offset;       // in elements of the storage, as are strides
  std::vector<int64_t> sizes, strides;
};
// Called with what is wrong with a file; must throw.
using FailFile = std::function<void(const std::string& problem)>;
std::vector<PickledTensor> read_pickle(std::string_view bytes, const FailFile& fail);

// A file opened for reading. What breaks the format, or is no dictionary of tensors, is a user error of one line that
// names the file. So are files of PyTorch before 1.6, which are no archives.
class PickledFile : public TensorFile {
 public:
  explicit PickledFile(const std::string& path) : TensorFile(path, MappedFile(path)) { parse(mapped_.bytes()); }
  // Reads `bytes`, which must outlive this object; `name` stands for the path in messages.
  PickledFile(std::span<const std::byte> bytes, const std::string& name) : TensorFile(name) { parse(bytes); }

 private:
  void parse(std::span<const std::byte> bytes);
  TensorEntry entry_of(const PickledTensor& tensor, std::string_view storage);

  std::deque<std::string> copies_;  // of tensors whose elements do not lie one after another
};

}  // namespace linnet
