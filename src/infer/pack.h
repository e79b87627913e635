// `linnet pack`: a run or a model folder as one file (io/packed_model.h).
#pragma once
#include <string>

namespace linnet {

struct PackReport {
  size_t files = 0, tensors = 0;
  uint64_t bytes = 0;  // of the packed file
};
// User error for a folder that holds no model. What has been written is read back and checked.
PackReport pack_model(const std::string& folder, const std::string& path);

}  // namespace linnet
