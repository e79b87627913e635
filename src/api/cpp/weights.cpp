#include "linnet/weights.h"
#include "base/fail.h"
#include "base/functions.h"
#include "formats/tensor_file.h"

namespace linnet {
struct WeightFile::State {
  std::unique_ptr<const TensorFile> file;
};

WeightFile::WeightFile(const std::string& path)
    : state_(std::make_shared<const State>(State{open_tensor_file(path)})) {}

std::vector<WeightInfo> WeightFile::tensors() const {
  return mapped(state_->file->entries(), [&](const TensorEntry& entry) {
    return WeightInfo{entry.name, entry.type.shape, file_dtype_name(entry.dtype)};
  });
}

bool WeightFile::has(const std::string& name) const { return state_->file->find(name) != nullptr; }

std::vector<float> WeightFile::floats(const std::string& name) const {
  const TensorEntry& entry = state_->file->at(name);
  if (!is_float(entry.dtype))
    fail_user(state_->file->path(), ": tensor \"", name, "\" is ", entry.text(), ", which are no floats");
  std::vector<float> values(entry.type.shape.elements());
  read_floats(entry.dtype, entry.data, static_cast<int64_t>(values.size()), values.data());
  return values;
}

std::vector<int64_t> WeightFile::integers(const std::string& name) const {
  const TensorEntry& entry = state_->file->at(name);
  if (is_float(entry.dtype))
    fail_user(state_->file->path(), ": tensor \"", name, "\" is ", entry.text(), ", which are no whole numbers");
  std::vector<int64_t> values(entry.type.shape.elements());
  read_integers(entry.dtype, entry.data, static_cast<int64_t>(values.size()), values.data());
  return values;
}
}  // namespace linnet
