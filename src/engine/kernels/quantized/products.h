// Products with packed weights:  x = A W^T [+ residual] [+ bias],  C = activation(x).
//
// With a kInt8 weight, each row of A is rounded to 8 bits with its own scale (its largest magnitude / 127), and
// integers are summed exactly. So an element of C has the same bits for any number of threads and rows and any
// instruction set, if the activation function is none or ReLU (GELU differs in its last bits with and without fused
// multiply-add). A row of A with a NaN or an infinity gives NaN.
//
// With the block formats, rows of A are rounded to 16 bits, 32 neighbors with a scale of their own, where there are few
// rows (at most 8, or any number with independent_rows): integers are added within a block, and
// the sums of blocks in fp32 in their order, so that what is said above of bits holds here too. The rounding is 1 in
// 65278 of the largest of 32 neighbors, far below that of the weights. More rows are a product of gemm() with the
// weight in fp32, unpacked part by part (gemm_strips()), or with one in bf16 as it is; these have the other form A W,
// too, and whatever else may follow a product of gemm().
#pragma once
#include <algorithm>
#include <cmath>
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/quantized/packed_weight.h"

namespace linnet {
constexpr int64_t kFewRows = 8;  // products of at most so many rows are those of few rows

// How activations become bytes if a model fixes it, instead of a scale per row:
//   code = clamp(round(x / scale) + zero, least, most),  ties to even,  stands for scale * (code - zero).
// The weight's sums() are then `zero` times the sum of a row's codes.
struct StaticRounding {
  float scale = 0;  // 0: there is none, each row of A has a scale of its own
  int32_t zero = 128, least = 0, most = 255;
  // Codes of weights that another quantizer made: neighbors may add up to more than 128.
  bool any_weight = false;
  // Without a scale: in a row whose rounding errors exceed this part of its magnitudes, as with an outlier, the
  // remainder is also rounded to 8 bits and multiplied. 0: in none.
  float largest_error = 0;

  template <class T> uint8_t code(T x) const {
    const double whole = std::nearbyint(static_cast<float>(x) / scale) + zero;
    return static_cast<uint8_t>(whole > least ? std::min<double>(whole, most) : least);
  }
  // Rounds x to its code's number.
  template <class T> T rounded(T x) const { return static_cast<T>(static_cast<float>(code(x) - zero) * scale); }
  void fields(auto& visit) {
    visit("scale", scale), visit("zero", zero), visit("least", least), visit("most", most);
    visit("any_weight", any_weight), visit("largest_error", largest_error);
  }
  bool operator==(const StaticRounding&) const = default;
};

// For kInt8: operands that are bytes in memory, in place of args.a and args.c.
struct ByteOperands {
  const uint8_t* a = nullptr;           // [m, k], dense: codes by the product's StaticRounding
  uint8_t* c = nullptr;                 // [m, n], rows args.ldc apart: C as round_to_codes() rounds it
  StaticRounding result_rounding = {};  // of c
};

// Bytes of workspace for m rows. `few`: for a product computed like few rows. `codes`: with ByteOperands::a.
// `remainders`: with a StaticRounding::largest_error.
size_t quantized_gemm_workspace(
    const PackedShape& shape, int64_t m, bool few, int threads, bool codes = false, bool remainders = false);

// The sizes n and k and the operand b of `args` are not read: they are the weight's. `trans_b` must be set for kInt8,
// whose A, C and C's companions may be bf16 in memory, without `rounding.scale` and with gemm_has_bf16(). With
// `independent_rows` any number of rows is computed like few. `workspace` is 64-byte aligned. `rounding` and `bytes`
// are for kInt8 alone; codes as `bytes.a` need a rounding with a scale.
void quantized_gemm(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool,
    const StaticRounding& rounding = {}, const ByteOperands& bytes = {});

// Whether the current instruction set multiplies bytes and adds to 32 bits in one instruction (AVX-512 VNNI).
bool has_vnni();

// The numbers of a row are about scale * (code - 128) + rest_scale * (rest - 128).
struct RowScales {
  float scale, rest_scale = 0;
};
// Rounds a row to 8 bits with 128 added, codes[round up(k, 32)], the padding 128. With StaticRounding's
// `largest_error`, writes `rest` of the same size if the result's rest_scale is not 0.
RowScales quantize_activations(
    StoredFloats x, int64_t k, uint8_t* codes, float largest_error = 0, uint8_t* rest = nullptr);

// The same by a given rounding. A NaN becomes `least`. The padding is `zero`.
void quantize_activations(const float* x, int64_t k, const StaticRounding& rounding, uint8_t* codes);
// The same without padding.
void round_to_codes(const float* x, int64_t k, const StaticRounding& rounding, uint8_t* codes);

void disable_vnni_for_test(bool disabled);  // for tests: while true, kernels behave as without VNNI

// Products with weights in blocks or in bf16: by integers if there are few rows, otherwise as gemm_strips().
size_t gemm_blocks_workspace(const PackedShape& shape, int64_t m, bool few, int threads);
void gemm_blocks(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool);

// Products with a packed weight W [rows, columns]. In fp32 the product unpacks codes as it packs its panels
// (GemmArgs::b_codes); otherwise W is unpacked strip by strip (some rows, 4 MB of fp32; 128 KB by each thread if A has
// few rows, as in decoding):
//
//   args.trans_b:  C [m, rows] = A [m, columns] W^T         otherwise:  C [m, columns] = A [m, rows] W
//
// with everything that may follow a product (GemmArgs). The second adds up the products of its strips in C. Sizes n and
// k and the operand b of `args` are not read: they are the weight's. One product: args.batch is 1.
size_t gemm_strips_workspace(const PackedShape& shape, int64_t m, int threads);  // bytes, for m rows
void gemm_strips(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool);

GemmArgs from_column(GemmArgs args, int64_t begin);

// Convolutions of images of bytes with filters of WeightFormat::kInt8: sums of products are exact 32-bit integers.
//
//   sum[n, i, j, o] = sum over r, s, c of
//                     round(x[n, i * stride + r * dilation - before, ..., c]) * weight[o, (r, s, c)]
//   y               = relu(sum * scale + bias + residual),  each part of it only where it is given
//
// A task takes a band of rows of an image: it writes their codes, with padding, to a buffer that stays in cache, and
// multiplies windows in place. Windows whose rows are no multiple of 4 bytes (3 channels) are first copied to rows of a
// matrix. Images and summands may be codes on input and output, so that a chain of convolutions never writes floats.
// The bits of y depend neither on threads, nor on other images, nor on the instruction set.

// The filter along one axis of an image.
struct WindowAxis {
  int64_t size = 1, stride = 1, dilation = 1;
  int64_t before = 0, after = 0;  // zeros around the image

  int64_t padded(int64_t length) const { return before + length + after; }
  // How many windows fit on an axis of `length` pixels; 0: the window is larger than the padded axis.
  int64_t count(int64_t length) const {
    const int64_t room = padded(length) - ((size - 1) * dilation + 1);
    return room < 0 ? 0 : room / stride + 1;
  }
  void fields(auto& visit) {
    visit("size", size), visit("stride", stride), visit("dilation", dilation);
    visit("before", before), visit("after", after);
  }
};

struct Int8ConvolutionSizes {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  WindowAxis vertical = {}, horizontal = {};

  int64_t out_height() const { return vertical.count(height); }
  int64_t out_width() const { return horizontal.count(width); }
  int64_t patch() const { return vertical.size * horizontal.size * channels; }
};

struct Int8Convolution {  // all tensors are dense
  Int8ConvolutionSizes sizes;
  const float* x = nullptr;
  const uint8_t* x_codes = nullptr;
  // How x becomes codes, or what its codes stand for. With scale 0 each image has its own scale: its largest magnitude
  // / 127 with zero = 128, or / 255 with zero = 0 for non-negative images. `zero` is that of the weight's sums(), or 0.
  StaticRounding rounding = {};
  const float* scale = nullptr;  // [filters]
  const float* bias = nullptr;   // [filters]
  // Of y's shape, as floats or as codes by residual_rounding; must not overlap y.
  const float* residual = nullptr;
  const uint8_t* residual_codes = nullptr;
  StaticRounding residual_rounding = {};
  bool relu = false;  // NaN stays NaN, as a float
  // y [images, out_height, out_width, filters]: floats, or codes by y_rounding. A NaN becomes `least`.
  float* y = nullptr;
  uint8_t* y_codes = nullptr;
  StaticRounding y_rounding = {};
};

size_t int8_convolution_workspace(const Int8ConvolutionSizes& sizes, int64_t filters, int threads);  // in bytes

// The weight has a row for each filter, with columns [vertical.size][horizontal.size][channels]. `workspace`: 64-byte
// aligned.
void int8_convolution(const Int8Convolution& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool);
}  // namespace linnet
