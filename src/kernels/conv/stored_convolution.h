// Convolutions whose images or results may lie in memory as bf16. The arithmetic is that of kernels/conv/convolution.h:
// where something is bf16, a part of the images at a time is widened into the workspace, small enough for the caches,
// and what comes out is rounded. Parts depend on the sizes alone, and so do the bits.
#pragma once
#include "kernels/conv/convolution.h"
#include "kernels/stored_floats.h"

namespace linnet {

struct StoredConvolution {
  ConvolutionSizes sizes;
  bool x_bf16 = false, y_bf16 = false, residual_bf16 = false;  // the operands, or their gradients
  bool packed = false;                                         // the filters of a forward pass

  bool any_bf16() const { return x_bf16 || y_bf16 || residual_bf16; }
};

// Bytes, as convolution_workspace().
size_t stored_convolution_workspace(const StoredConvolution& convolution, ConvolutionPass pass, int threads);

// As the functions of the same passes in convolution.h; the epilogue's residual is given apart. y and dx may not lie
// where an operand does.
void stored_convolution_forward(const StoredConvolution& convolution, StoredFloats x, const float* weight,
                                MutableStoredFloats y, std::byte* workspace, ThreadPool& pool,
                                ConvolutionEpilogue epilogue, StoredFloats residual, const float* packed);
void stored_convolution_input_gradient(const StoredConvolution& convolution, StoredFloats dy, const float* weight,
                                       MutableStoredFloats dx, std::byte* workspace, ThreadPool& pool);
void stored_convolution_weight_gradient(const StoredConvolution& convolution, StoredFloats x, StoredFloats dy,
                                        float* dweight, std::byte* workspace, ThreadPool& pool);

}  // namespace linnet
