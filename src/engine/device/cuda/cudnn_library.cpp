#include "engine/device/cuda/cudnn_library.h"
#include "base/error.h"

namespace linnet {

const CudnnFunctions& cudnn() {
  static const CudnnFunctions functions;
  return functions;
}

std::string cudnn_error(cudnnStatus_t status) {
  char message[1024] = "";
  cudnn().last_error_string(message, sizeof message);
  std::string text = cudnn().error_string(status);
  if (*message) text += std::string(": ") + message;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

void cudnn_check(cudnnStatus_t status, const char* doing) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail_system(std::string("cuDNN: ") + doing + ": " + cudnn_error(status));
}

}  // namespace linnet
