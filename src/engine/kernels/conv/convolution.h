// Convolution of images with filters, and its two gradients. Images are [N, H, W, C], filters [O, R, S, C / groups],
// results [N, H', W', O]; all are dense, and fp32 except for bf16 products (below).
//
//   y[n, i, j, o] = sum over r, s, c of x[n, i * stride + r * dilation - padding, j * stride + s * dilation - padding,
//                   g * C / groups + c] * weight[o, r, s, c],   g = o / (O / groups)
//
// The bits of a result depend on the sizes and the instruction set, never on the number of threads. NaN and infinity
// come out as arithmetic says, but padding is multiplied too: an infinite weight makes NaN at the border; kWinograd
// spreads NaN or infinity as NaN by two pixels, kWinograd4x4 by four. Rounding errors of kWinograd4x4 are about 5e-7 of
// the results' root mean square, at most 1e-5 (winograd_test.cpp, images and weights as in a ResNet), a few times those
// of a direct sum. Nothing is allocated.
#pragma once
#include <cstddef>
#include <cstdint>
#include "base/enum_names.h"
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
class ThreadPool;

struct ConvolutionSizes {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  int64_t filters = 0, rows = 0, columns = 0;  // rows, columns: of a filter
  int64_t out_height = 0, out_width = 0;
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;

  int64_t group_channels() const { return channels / groups; }
  int64_t group_filters() const { return filters / groups; }
  int64_t taps() const { return rows * columns; }
};

enum class ConvolutionPass : uint8_t { kForward, kInputGradient, kWeightGradient };

enum class ConvolutionMethod : uint8_t {
  kProduct,    // a filter of one pixel that visits every pixel: a matrix product
  kDepthwise,  // one filter for each channel: elementwise products of shifted images
  kImplicit,   // a matrix product whose left operand is read from the images in place
  // 3 x 3 filters of stride 1 with multiples of 16 channels, by Winograd's minimal filtering:
  kWinograd,     // tiles of 2 x 2 results, 16 products where the sum has 36
  kWinograd4x4,  // tiles of 4 x 4 results, 36 products where the sum has 144
};
template <> inline constexpr std::array kEnumNames<ConvolutionMethod>{
    "product", "depthwise", "implicit", "winograd", "winograd 4x4"};
ConvolutionMethod convolution_method(const ConvolutionSizes& sizes);

// Applied to a sum before it is stored: y = activation(y * scale + bias + residual). Each part is optional. Results are
// rounded after each operation, as if the operations were separate.
struct ConvolutionEpilogue {
  const float* scale = nullptr;                       // [filters], as folded batch normalization has it
  const float* bias = nullptr;                        // [filters]
  const float* residual = nullptr;                    // of y's shape; it must not overlap y
  GemmActivation activation = GemmActivation::kNone;  // NaN stays NaN

  bool any() const { return scale || bias || residual || activation != GemmActivation::kNone; }
};

// bf16 products: x or dy are bf16 in memory, filters are rounded as they are packed, and pairs are multiplied and added
// to fp32 sums (gemm/gemm_bf16-inl.h). y and dx are fp32, or bf16 if no sum is cut into blocks; filter gradients are
// fp32. In a row with an odd number of results the weight gradient multiplies one pixel by zero, which makes NaN of
// infinity. Filters that suit Winograd, except from 16 to 16 channels, use tiles of 2 x 2: sources, filters and dy are
// transformed in fp32 and then rounded, with about twice the rounding error of a direct sum of rounded filters.

// Filters may be packed once for all runs of the forward pass or the input gradient, in an order of the instruction
// set's that is never stored; bf16 products require it. The number of floats depends on the method and the filters
// alone; 0: not packed.
int64_t packed_filter_floats(
    const ConvolutionSizes& sizes, ConvolutionPass pass = ConvolutionPass::kForward, bool bf16 = false);
// `packed` is 64-byte aligned; the workspace is that of the pass with packed filters.
void pack_convolution_filters(const ConvolutionSizes& sizes, ConvolutionPass pass, const float* weight, float* packed,
    std::byte* workspace, ThreadPool& pool, bool bf16 = false);

// A convolution whose images or results may be bf16 in memory, and whose products may be bf16. If types in memory and
// products differ, parts of the images, small enough for the caches, are converted in the workspace. Parts depend on
// sizes and instruction set alone, and so do the bits.
struct Convolution {
  ConvolutionSizes sizes = {};
  bool x_bf16 = false, y_bf16 = false, residual_bf16 = false;  // the operands, or their gradients
  bool packed = false;         // the filters of a forward pass, by pack_convolution_filters(): then products are fp32
  bool bf16_products = false;  // where the processor and the sizes allow them
};
// Bytes of workspace, the same for every instruction set; 64-byte aligned.
size_t convolution_workspace(const Convolution& convolution, ConvolutionPass pass, int threads);

// `residual`: in place of the epilogue's where x, y or the residual is bf16 in memory. `packed`: from
// pack_convolution_filters(), replaces the weight, which is not read then. y and dx must not overlap an operand.
void convolution_forward(const Convolution& convolution, StoredFloats x, const float* weight, MutableStoredFloats y,
    std::byte* workspace, ThreadPool& pool, ConvolutionEpilogue epilogue = {}, StoredFloats residual = {},
    const float* packed = nullptr);
void convolution_input_gradient(const Convolution& convolution, StoredFloats dy, const float* weight,
    MutableStoredFloats dx, std::byte* workspace, ThreadPool& pool);
void convolution_weight_gradient(const Convolution& convolution, StoredFloats x, StoredFloats dy, float* dweight,
    std::byte* workspace, ThreadPool& pool);
}  // namespace linnet
