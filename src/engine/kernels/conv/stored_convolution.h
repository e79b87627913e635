// Convolutions whose images or results may lie in memory as bf16, and whose products may be bf16;
// otherwise the arithmetic is that of convolution.h. Where what is stored is not what is multiplied, a part of the
// images at a time is widened or rounded into the workspace, small enough for the caches, and so is what comes out.
// Parts depend on the sizes and the instruction set alone, and so do the bits.
#pragma once
#include "engine/kernels/conv/convolution.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

struct StoredConvolution {
  ConvolutionSizes sizes;
  bool x_bf16 = false, y_bf16 = false, residual_bf16 = false;  // the operands, or their gradients
  bool packed = false;         // the filters of a forward pass, by pack_convolution_filters(): then products are fp32
  bool bf16_products = false;  // where the processor and the sizes allow them
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
