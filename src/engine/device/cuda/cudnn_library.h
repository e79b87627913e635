// The functions of libcudnn that Linnet calls, looked up when first asked for.
#pragma once
#include <cudnn_graph.h>
#include <string>
#include "engine/device/cuda/libraries.h"

namespace linnet {

struct CudnnFunctions {
  OpenLibrary library{kCudnn};
  decltype(&::cudnnGetVersion) get_version = library("cudnnGetVersion");
  decltype(&::cudnnGetErrorString) error_string = library("cudnnGetErrorString");
  decltype(&::cudnnGetLastErrorString) last_error_string = library("cudnnGetLastErrorString");
  decltype(&::cudnnCreate) create = library("cudnnCreate");
  decltype(&::cudnnDestroy) destroy = library("cudnnDestroy");
  decltype(&::cudnnSetStream) set_stream = library("cudnnSetStream");
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor = library("cudnnBackendCreateDescriptor");
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor = library("cudnnBackendDestroyDescriptor");
  decltype(&::cudnnBackendFinalize) finalize = library("cudnnBackendFinalize");
  decltype(&::cudnnBackendSetAttribute) set_attribute = library("cudnnBackendSetAttribute");
  decltype(&::cudnnBackendGetAttribute) get_attribute = library("cudnnBackendGetAttribute");
  decltype(&::cudnnBackendExecute) execute = library("cudnnBackendExecute");
};
// Error(kSystem) when the library is not to be found.
const CudnnFunctions& cudnn();
// The status and what cuDNN says of it.
std::string cudnn_error(cudnnStatus_t status);
void cudnn_check(cudnnStatus_t status, const char* doing);

}  // namespace linnet
