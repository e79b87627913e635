#include "engine/device/cuda/cudnn_library.h"

#include "base/error.h"
#include "engine/device/cuda/libraries.h"

namespace linnet {
namespace {

CudnnFunctions load() {
  void* library = open_library({"libcudnn.so.9", "libcudnn.so"});
  CudnnFunctions f{};
  find_symbol(library, "cudnnGetVersion", f.get_version);
  find_symbol(library, "cudnnGetErrorString", f.error_string);
  find_symbol(library, "cudnnGetLastErrorString", f.last_error_string);
  find_symbol(library, "cudnnCreate", f.create);
  find_symbol(library, "cudnnDestroy", f.destroy);
  find_symbol(library, "cudnnSetStream", f.set_stream);
  find_symbol(library, "cudnnBackendCreateDescriptor", f.create_descriptor);
  find_symbol(library, "cudnnBackendDestroyDescriptor", f.destroy_descriptor);
  find_symbol(library, "cudnnBackendFinalize", f.finalize);
  find_symbol(library, "cudnnBackendSetAttribute", f.set_attribute);
  find_symbol(library, "cudnnBackendGetAttribute", f.get_attribute);
  find_symbol(library, "cudnnBackendExecute", f.execute);
  return f;
}

}  // namespace

const CudnnFunctions& cudnn() {
  static const CudnnFunctions functions = load();
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
  errno = 0;  // fail_system would add it
  fail_system(std::string("cuDNN: ") + doing + ": " + cudnn_error(status));
}

}  // namespace linnet
