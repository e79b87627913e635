#include "device/cuda/cudnn_library.h"

#include "base/error.h"
#include "device/cuda/libraries.h"

namespace linnet {
namespace {

CudnnFunctions load() {
  void* library = open_library({"libcudnn.so.9", "libcudnn.so"});
  CudnnFunctions f{};
  const auto find = [&]<class Function>(Function*& to, const char* name) {
    to = reinterpret_cast<Function*>(find_symbol(library, name));
  };
  find(f.get_version, "cudnnGetVersion");
  find(f.error_string, "cudnnGetErrorString");
  find(f.last_error_string, "cudnnGetLastErrorString");
  find(f.create, "cudnnCreate");
  find(f.destroy, "cudnnDestroy");
  find(f.set_stream, "cudnnSetStream");
  find(f.create_descriptor, "cudnnBackendCreateDescriptor");
  find(f.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(f.finalize, "cudnnBackendFinalize");
  find(f.set_attribute, "cudnnBackendSetAttribute");
  find(f.get_attribute, "cudnnBackendGetAttribute");
  find(f.execute, "cudnnBackendExecute");
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
