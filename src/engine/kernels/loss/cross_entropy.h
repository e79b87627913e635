// Cross-entropy of logits against class numbers, with label smoothing (Szegedy et al. 2016). Logits and their gradient
// may each be fp32 or bf16 in memory; the arithmetic is fp32.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include "base/functions.h"
#include "base/thread_pool.h"
#include "engine/kernels/precision.h"
#include "engine/kernels/quantized/packed_weight.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {
// For every row of logits x [rows, classes] with target t:
//   lse = log(sum exp(x)),   loss = lse - (1 - smoothing) * x[t] - smoothing * mean(x)
// A negative target ignores the row: its loss and lse are 0. losses and lse are [rows]. The caller checks that targets
// are below `classes`.
void cross_entropy_forward(int64_t rows, int64_t classes, StoredFloats logits, const int32_t* targets, float smoothing,
    float* losses, float* lse, ThreadPool& pool);

// dlogits[i, j] = dloss * (exp(x[i, j] - lse[i]) - (1 - smoothing) * [j == t] - smoothing / classes), zeros in ignored
// rows; dloss is the gradient of every row's loss. dlogits may be logits if both have one type.
void cross_entropy_backward(int64_t rows, int64_t classes, StoredFloats logits, const int32_t* targets, float smoothing,
    const float* lse, float dloss, MutableStoredFloats dlogits, ThreadPool& pool);

// A linear classifier and its cross-entropy in chunks of rows, so that the logits [rows, classes] are never whole in
// memory. With the gradient, a chunk's logits are computed once: they are overwritten by the gradient, which the two
// products of the backward pass read. That is three products where keeping nothing would take four. Hidden states and
// their gradient may each be bf16 in memory; a chunk of them is fp32. The logits are fp32, but bf16 where hidden states
// are and products multiply in bf16; then losses and gradients are those of the rounded logits.
//
// Classes divided between ranks, consecutive ones each: what a row's loss needs of all classes is exchanged chunk by
// chunk, a few numbers per row. Logits are then fp32.
struct ClassDivision {
  int64_t all = 0;  // classes of all ranks together; 0: they are not divided
  int64_t first = 0;
  int ranks = 1;
  bool is_divided() const { return all > 0; }
};
// Gathers `mine` of every rank in `all`, in rank order.
using GatherNumbers = FunctionRef<void(std::span<const float> mine, std::span<float> all)>;

struct LinearCrossEntropyArgs {
  int64_t rows = 0, width = 0, classes = 0;
  StoredFloats hidden;            // [rows, width]
  const float* weight = nullptr;  // [classes, width], or null and
  std::optional<PackedWeight> packed = {};
  const float* bias = nullptr;       // [classes]; may be null
  const int32_t* targets = nullptr;  // [rows], below classes; rows with a negative one are left out of all products
  float smoothing = 0;
  Precision precision = Precision::kF32;  // of the products

  // loss = sum over rows of lse(x) - (1 - smoothing) * x[target] - smoothing * mean(x), x = hidden weight^T + bias
  float* loss = nullptr;  // may be null

  // Gradients of dloss * loss; all are written, or none if dhidden is null.
  float dloss = 1;
  MutableStoredFloats dhidden;  // [rows, width], zeros in rows left out; may be hidden if both have one type
  float* dweight = nullptr;     // [classes, width]; null, as for a packed weight: not computed
  float* dbias = nullptr;       // [classes]; may be null
  bool accumulate = false;      // dweight += instead of dweight =

  // With divided classes, `classes`, weight, bias and their gradients are this rank's, targets count through all
  // classes, the loss is that of all classes, and dhidden is this rank's summand.
  ClassDivision division = {};
  const GatherNumbers* gather = nullptr;
};

// Bytes of scratch memory, mostly the logits of a chunk: of at most 768 rows, or 1 MB.
size_t linear_cross_entropy_workspace(int64_t rows, int64_t width, int64_t classes,
    const std::optional<PackedShape>& packed, Precision precision, bool bf16_hidden, int threads,
    const ClassDivision& division = {});

// `workspace` is 64-byte aligned. Chunks depend on shapes and targets alone.
void linear_cross_entropy(const LinearCrossEntropyArgs& args, std::byte* workspace, ThreadPool& pool);
}  // namespace linnet
