// Convolutions of images in bf16 whose products are bf16, too: pairs are multiplied and added to fp32 sums, as
// engine/kernels/gemm/gemm_bf16-inl.h says. For processors with AVX-512-BF16.
//
// Filters are fp32 and are rounded when they are packed; gradients of filters are fp32. In a row with an odd number of
// results the weight gradient multiplies one pixel by zero, which makes NaN of infinity.
//
// Filters of 3 x 3 that visit every pixel, with multiples of 16 channels and more than 16 to 16, are computed by
// Winograd's minimal filtering in tiles of 2 x 2 results. Sources and filters are transformed in fp32 and rounded after
// that; so is dy for the weight gradient. The rounding errors of results are about twice those of a direct sum of
// rounded filters.
#pragma once
#include "engine/kernels/conv/convolution.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

// Whether the processor multiplies in bf16 and the pass is a sum of pairs: of a convolution without groups, with more
// than one channel (forward) or an even number of filters (input gradient), which convolution_method() does not compute
// as a product.
bool has_bf16_convolution(const ConvolutionSizes& sizes, ConvolutionPass pass);

// As those of convolution.h, but the filters of the forward pass and of the input gradient are always packed first.
int64_t bf16_packed_filter_floats(const ConvolutionSizes& sizes, ConvolutionPass pass);
// The workspace is that of the pass.
void pack_bf16_convolution_filters(const ConvolutionSizes& sizes, ConvolutionPass pass, const float* weight,
                                   float* packed, std::byte* workspace, ThreadPool& pool);
size_t bf16_convolution_workspace(const ConvolutionSizes& sizes, ConvolutionPass pass, int threads);

// Whether y or dx may be bf16, which are then rounded as they are stored. Otherwise they are fp32.
bool bf16_convolution_stores_bf16(const ConvolutionSizes& sizes, ConvolutionPass pass);
void bf16_convolution_forward(const ConvolutionSizes& sizes, const Bfloat16* x, const float* packed,
                              MutableStoredFloats y, std::byte* workspace, ThreadPool& pool,
                              const ConvolutionEpilogue& epilogue);
void bf16_convolution_input_gradient(const ConvolutionSizes& sizes, const Bfloat16* dy, const float* packed,
                                     MutableStoredFloats dx, std::byte* workspace, ThreadPool& pool);
void bf16_convolution_weight_gradient(const ConvolutionSizes& sizes, const Bfloat16* x, const Bfloat16* dy,
                                      float* dweight, std::byte* workspace, ThreadPool& pool);

}  // namespace linnet
