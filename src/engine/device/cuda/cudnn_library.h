// The functions of libcudnn that Linnet calls, looked up when first asked for.
#pragma once
#include <cudnn_graph.h>

#include <string>

namespace linnet {

struct CudnnFunctions {
  decltype(&::cudnnGetVersion) get_version;
  decltype(&::cudnnGetErrorString) error_string;
  decltype(&::cudnnGetLastErrorString) last_error_string;
  decltype(&::cudnnCreate) create;
  decltype(&::cudnnDestroy) destroy;
  decltype(&::cudnnSetStream) set_stream;
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&::cudnnBackendFinalize) finalize;
  decltype(&::cudnnBackendSetAttribute) set_attribute;
  decltype(&::cudnnBackendGetAttribute) get_attribute;
  decltype(&::cudnnBackendExecute) execute;
};
// Error(kSystem) when the library is not to be found.
const CudnnFunctions& cudnn();
// The status and what cuDNN says of it.
std::string cudnn_error(cudnnStatus_t status);
void cudnn_check(cudnnStatus_t status, const char* doing);

}  // namespace linnet
