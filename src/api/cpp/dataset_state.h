// What a Dataset holds.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "linnet/dataset.h"

namespace linnet {

struct DenseField {
  std::string name;
  TensorType type;  // of one sample
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

struct SequenceField {
  std::string name;
  std::shared_ptr<const std::vector<std::vector<int32_t>>> sequences;
};

struct Dataset::State {
  std::vector<DenseField> dense;
  std::vector<SequenceField> sequences;
  Function function;  // if set, instead of fields
  InputTypes function_types;
  int64_t count = 0;                                    // of what the fields hold
  std::shared_ptr<const std::vector<int64_t>> indices;  // if set, which of them are the samples
};

}  // namespace linnet
