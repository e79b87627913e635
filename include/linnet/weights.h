// Files of weights in the safetensors format, which PyTorch, transformers and JAX write, and those of torch.save()
// (.bin, .pt, .pth), to look into and to read in other ways than Learner::load() does.
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "linnet/tensor_type.h"

namespace linnet {
// A tensor of a file.
struct WeightInfo {
  // As the file has it.
  std::string name;
  // The sizes of its axes.
  Shape shape;
  // The type of its elements in the file: "F32", "BF16", "F16", "I64", ...
  std::string type;
};

// A file that is opened: its header is read, its data are mapped. Copies share it.
class WeightFile {
 public:
  // Throws Error(kUser) naming the file when it cannot be read or is neither.
  explicit WeightFile(const std::string& path);

  // All tensors, in the order of their data, or of the dictionary that was saved.
  std::vector<WeightInfo> tensors() const;
  // Whether there is a tensor of that name.
  bool has(const std::string& name) const;
  // The values of a tensor of floats, row-major, converted to f32. Throws Error(kUser) when there is none of that name
  // or its elements are no floats.
  std::vector<float> floats(const std::string& name) const;
  // The values of a tensor of whole numbers. Throws Error(kUser) when there is none of that name or its elements are
  // floats.
  std::vector<int64_t> integers(const std::string& name) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};
}  // namespace linnet
