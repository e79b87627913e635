// Products with packed weights:  x = A W^T [+ residual] [+ bias],  C = activation(x).
//
// With a weight of kInt8, each row of A is rounded to 8 bits, with a scale of its own (its largest magnitude / 127),
// and the products are added up as integers, exactly. So an element of C has the same bits whatever the number of
// threads, of rows and the instruction set are, as long as the activation function is none or ReLU (GELU differs in its
// last bits between instruction sets with and without a fused multiply-add). A row of A with a NaN or an infinity gives
// NaN.
//
// With the block formats, rows of A are rounded to 16 bits, 32 neighbors with a scale of their own, where there are few
// rows (at most 8, or any number with independent_rows): integers are added within a block, and
// the sums of blocks in fp32 in their order, so that what is said above of bits holds here too. The rounding is 1 in
// 65278 of the largest of 32 neighbors, far below that of the weights. More rows are a product of gemm() with the
// weight in fp32, unpacked part by part (gemm_blocks.h), or with one in bf16 as it is; these have the other form A W,
// too, and whatever else may follow a product of gemm().
#pragma once
#include "engine/kernels/gemm/gemm.h"
#include "engine/kernels/quantized/packed_weight.h"

namespace linnet {

// Products of at most so many rows are those of few rows.
constexpr int64_t kFewRows = 8;

// How activations become bytes where a model says it, in place of a scale for each row:
//   code = clamp(round(x / scale) + zero, least, most),  ties to even,  and stands for scale * (code - zero).
// The weight's sums() are then `zero` times the sum of a row's codes.
struct StaticRounding {
  float scale = 0;  // 0: there is none, each row of A has a scale of its own
  int32_t zero = 128, least = 0, most = 255;
  // Codes of weights that are no quantizer's of ours: neighbors may add up to more than 128.
  bool any_weight = false;
  // Without a scale: in a row whose rounding errors add up to more than this part of its magnitudes, as an outlier
  // brings about, what rounding left over is rounded to 8 bits once more and multiplied, too. 0: in none.
  float largest_error = 0;
  bool operator==(const StaticRounding&) const = default;
};

// Of kInt8: operands that are bytes in memory, in place of args.a and args.c.
struct ByteOperands {
  const uint8_t* a = nullptr;           // [m, k], dense: codes by the product's StaticRounding
  uint8_t* c = nullptr;                 // [m, n], rows args.ldc apart: C as round_to_codes() rounds it
  StaticRounding result_rounding = {};  // of c
};

// Bytes of workspace for m rows. `few`: of a product that is computed as those of few rows are. `codes`: of one with
// ByteOperands::a. `remainders`: with a StaticRounding::largest_error.
size_t quantized_gemm_workspace(const PackedShape& shape, int64_t m, bool few, int threads, bool codes = false,
                                bool remainders = false);

// The sizes n and k of `args` and the operand b are not read: they are the weight's. `trans_b` must be set for kInt8,
// whose A, C and what lies as C does may be bf16 in memory, without `rounding.scale` and with gemm_has_bf16(). With
// `independent_rows` any number of rows is computed as few rows are. `workspace` is 64-byte aligned.
// `rounding` and `bytes` are of kInt8 alone; codes as `bytes.a` need a rounding that has a scale.
void quantized_gemm(const GemmArgs& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool,
                    const StaticRounding& rounding = {}, const ByteOperands& bytes = {});

// Does the current instruction set multiply bytes and add to 32 bits in one instruction (AVX-512 VNNI)?
bool has_vnni();

// The numbers of a row are about scale * (code - 128) + rest_scale * (rest - 128).
struct RowScales {
  float scale, rest_scale = 0;
};
// A row rounded to 8 bits with 128 added, codes[round up(k, 32)], the padding 128. With `largest_error` as of
// StaticRounding, `rest` of the same size is written where the result's rest_scale is not 0.
RowScales quantize_activations(StoredFloats x, int64_t k, uint8_t* codes, float largest_error = 0,
                               uint8_t* rest = nullptr);

// The same by a rounding that is given. A NaN becomes `least`. The padding is `zero`.
void quantize_activations(const float* x, int64_t k, const StaticRounding& rounding, uint8_t* codes);
// The same without padding: k codes are written.
void round_to_codes(const float* x, int64_t k, const StaticRounding& rounding, uint8_t* codes);

// For tests of processors without VNNI on one that has it: while true, kernels do not use it.
void disable_vnni_for_test(bool disabled);

}  // namespace linnet
