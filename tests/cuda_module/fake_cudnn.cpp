// A cuDNN that cannot open any GPU.
#include <cudnn_graph.h>

extern "C" {

size_t cudnnGetVersion() { return 91901; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error of the fake cuDNN"; }
void cudnnGetLastErrorString(char* message, size_t) { *message = 0; }
cudnnStatus_t cudnnCreate(cudnnHandle_t*) { return CUDNN_STATUS_NOT_INITIALIZED; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_NOT_INITIALIZED; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_NOT_INITIALIZED; }
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t*) {
  return CUDNN_STATUS_NOT_INITIALIZED;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t) { return CUDNN_STATUS_NOT_INITIALIZED; }
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) { return CUDNN_STATUS_NOT_INITIALIZED; }
cudnnStatus_t cudnnBackendSetAttribute(
    cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t, const void*) {
  return CUDNN_STATUS_NOT_INITIALIZED;
}
cudnnStatus_t cudnnBackendGetAttribute(
    cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, int64_t, int64_t*, void*) {
  return CUDNN_STATUS_NOT_INITIALIZED;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_NOT_INITIALIZED;
}
}
