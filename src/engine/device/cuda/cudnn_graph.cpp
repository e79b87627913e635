#include "engine/device/cuda/cudnn_graph.h"
#include <cstring>
#include "base/switched_off.h"
#include "engine/device/cuda/cudnn_library.h"
#include "engine/device/cuda/libraries.h"

namespace linnet {
namespace {

std::array<std::byte, 8> bytes_of(const auto& value) {
  std::array<std::byte, 8> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

}  // namespace

size_t cudnn_version() {
  if (switched_off("LINNET_CUDNN")) return 0;
  return has_cudnn() ? cudnn().get_version() : 0;
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnn_check(cudnn().create_descriptor(type, &raw_), "making a descriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_) cudnn().destroy_descriptor(raw_);
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                      const void* values) {
  const cudnnStatus_t status = cudnn().set_attribute(raw_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) cudnn_check(status, ("setting attribute " + std::to_string(name)).c_str());
  return *this;
}

void CudnnDescriptor::finalize() { cudnn_check(cudnn().finalize(raw_), "describing an operation"); }

bool CudnnDescriptor::try_finalize(std::string* why) {
  const cudnnStatus_t status = cudnn().finalize(raw_);
  if (status == CUDNN_STATUS_SUCCESS) return true;
  if (why) *why = cudnn_error(status);
  return false;
}

CudnnGraph::Sizes CudnnGraph::dense_strides(const Sizes& sizes) {
  Sizes strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0; step *= sizes[i]) strides[i] = step;
  return strides;
}

CudnnValue CudnnGraph::add_tensor(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides, int64_t alignment,
                                  bool is_virtual, bool by_value) {
  CudnnDescriptor& d = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto id = static_cast<CudnnValue>(tensors_.size());
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value)
      .finalize();
  return id;
}

CudnnValue CudnnGraph::tensor(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides, int64_t alignment) {
  return add_tensor(type, sizes, strides, alignment, false, false);
}

CudnnValue CudnnGraph::between(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides) {
  return add_tensor(type, sizes, strides.empty() ? dense_strides(sizes) : strides, 16, true, false);
}

CudnnValue CudnnGraph::number(float value, int rank) {
  const Sizes ones(static_cast<size_t>(rank), 1);
  numbers_.emplace_back(add_tensor(CUDNN_DATA_FLOAT, ones, ones, 16, false, true), bytes_of(value));
  return numbers_.back().first;
}

CudnnValue CudnnGraph::number(int32_t value, int rank) {
  const Sizes ones(static_cast<size_t>(rank), 1);
  numbers_.emplace_back(add_tensor(CUDNN_DATA_INT32, ones, ones, 16, false, true), bytes_of(value));
  return numbers_.back().first;
}

CudnnDescriptor& CudnnGraph::part(cudnnBackendDescriptorType_t type) { return parts_.emplace_back(type); }
CudnnDescriptor& CudnnGraph::operation(cudnnBackendDescriptorType_t type) { return operations_.emplace_back(type); }

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnValue x, CudnnValue y, const Pointwise& options) {
  const bool backward = mode == CUDNN_POINTWISE_RELU_BWD || mode == CUDNN_POINTWISE_GELU_APPROX_TANH_BWD ||
                        mode == CUDNN_POINTWISE_GELU_BWD;
  CudnnDescriptor& what = part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, options.compute);
  if (options.axis >= 0) what.set(CUDNN_ATTR_POINTWISE_AXIS, options.axis);
  if (mode == CUDNN_POINTWISE_RELU_FWD || mode == CUDNN_POINTWISE_RELU_BWD)
    what.set(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 1, &options.relu_lower);
  what.finalize();
  CudnnDescriptor& node = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  node.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
  if (backward) {  // x is dy, b what the function was taken of, y is dx
    node.set(CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, of(x))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, of(options.b))
        .set(CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, of(y));
  } else {
    node.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, of(x)).set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, of(y));
    if (options.b) node.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, of(options.b));
    if (options.t) node.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, of(options.t));
  }
  node.finalize();
}

CudnnValue CudnnGraph::pointwise(cudnnPointwiseMode_t mode, CudnnValue x, const Sizes& sizes, const Pointwise& options,
                                 cudnnDataType_t type) {
  const CudnnValue y = between(type, sizes);
  pointwise(mode, x, y, options);
  return y;
}

void CudnnGraph::matmul(CudnnValue a, CudnnValue b, CudnnValue c, const Overrides& overrides) {
  CudnnDescriptor& what = part(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  what.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  const double zero = 0;
  if (overrides.pad) what.set(CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 1, &zero);
  what.finalize();
  CudnnDescriptor& node = operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  node.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, what)
      .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, of(a))
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, of(b))
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, of(c));
  if (overrides.m) node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, of(overrides.m));
  if (overrides.n) node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, of(overrides.n));
  if (overrides.k) node.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, of(overrides.k));
  node.finalize();
}

void CudnnGraph::reduction(cudnnReduceTensorOp_t op, CudnnValue x, CudnnValue y) {
  CudnnDescriptor& what = part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  what.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .finalize();
  operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, what)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, of(x))
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, of(y))
      .finalize();
}

void CudnnGraph::random(double probability, CudnnValue seed, CudnnValue offset, CudnnValue y) {
  CudnnDescriptor& what = part(CUDNN_BACKEND_RNG_DESCRIPTOR);
  const cudnnRngDistribution_t distribution = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
  what.set(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, 1, &distribution)
      .set(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1, &probability)
      .finalize();
  operation(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RNG_DESC, what)
      .set(CUDNN_ATTR_OPERATION_RNG_YDESC, of(y))
      .set(CUDNN_ATTR_OPERATION_RNG_SEED, of(seed))
      .set(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, of(offset))
      .finalize();
}

void CudnnGraph::reshape(CudnnValue x, CudnnValue y) {
  operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, of(x))
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, of(y))
      .finalize();
}

CudnnDescriptor& CudnnGraph::convolution_part(const Convolution& c) {
  CudnnDescriptor& what = part(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  what.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, c.compute)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(c.strides.size()))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.before)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.after)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.strides)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilations)
      .finalize();
  return what;
}

// cuDNN's names for what the three operations of a convolution have alike. x, w, y: image, filters, result or, of a
// gradient, what has their shapes.
struct CudnnGraph::ConvolutionNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t settings, x, w, y, alpha, beta;
};

void CudnnGraph::add_convolution(const ConvolutionNames& names, const Convolution& c, CudnnValue x, CudnnValue w,
                                 CudnnValue y) {
  constexpr float one = 1, zero = 0;  // floats: of a double cuDNN's kernels read the lower half, which is 0
  CudnnDescriptor& what = convolution_part(c);
  operation(names.operation)
      .set(names.settings, what)
      .set(names.x, of(x))
      .set(names.w, of(w))
      .set(names.y, of(y))
      .set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one)
      .set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero)
      .finalize();
}

void CudnnGraph::convolution(const Convolution& c, CudnnValue x, CudnnValue w, CudnnValue y) {
  add_convolution({CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
                  c, x, w, y);
}

void CudnnGraph::convolution_input_gradient(const Convolution& c, CudnnValue dy, CudnnValue w, CudnnValue dx) {
  add_convolution({CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
                  c, dx, w, dy);
}

void CudnnGraph::convolution_weight_gradient(const Convolution& c, CudnnValue x, CudnnValue dy, CudnnValue dw) {
  add_convolution({CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
                  c, x, dw, dy);
}

}  // namespace linnet
