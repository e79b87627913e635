// Operators of ONNX Runtime's own domain, com.microsoft, that its optimizer writes in place of several: an optimized
// BERT or GPT-2 is read as it is.
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/compose.h"
#include "onnx/operators.h"

namespace linnet {
namespace {

using compose::elementwise;
using compose::Number;

Tensor with_bias(OnnxCall& call) {
  return call.has(1) ? compose::add(call, call.tensor(0), call.tensor(1)) : call.tensor(0);
}

void gelu_of_sum(OnnxCall& call) { call.set(gelu(with_bias(call))); }
Number quick_gelu(Number x, const OnnxCall& call) { return x / (1 + exp(x * -call.real("alpha", 1.702))); }

// Rows of the last axis; without `bias` there is none.
Tensor normalized(Tensor x, Tensor weight, Tensor bias, double epsilon) {
  const Shape s = x.shape();
  const Tensor rows = reshape(x, {s.elements(0, s.rank() - 1), s[-1]});
  return reshape(layer_norm(rows, weight, bias, epsilon), s);
}

Tensor rms_normalized(const OnnxCall& call, Tensor x, Tensor weight, double epsilon) {
  const Tensor mean = compose::mean_last(square(x));
  return elementwise(call, {x, mean, weight},
                     [=](Number x, Number mean, Number weight) { return x * rsqrt(mean + epsilon) * weight; });
}

// input, skip, weight, bias of the norm unless it is a root-mean-square one, bias of the sum; the sum is result 3
template <bool centered>
void skip_normalization(OnnxCall& call) {
  constexpr size_t kSumBias = centered ? 4 : 3;
  Tensor sum = compose::add(call, call.tensor(0), call.tensor(1));
  if (call.has(kSumBias)) sum = compose::add(call, sum, call.tensor(kSumBias));
  const Tensor weight = call.tensor(2);
  const double epsilon = call.real("epsilon", 1e-12);
  if (centered) {
    const Tensor bias = call.has(3) ? call.tensor(3) : call.uniform(0, weight.shape(), weight.type().dtype);
    call.set(normalized(sum, weight, bias, epsilon));
  } else {
    call.set(rms_normalized(call, sum, weight, epsilon));
  }
  if (call.is_wanted(1) || call.is_wanted(2)) call.fail("its mean and variance are read");
  if (call.is_wanted(3)) call.set(3, sum, call.element());
}

void rms_normalization(OnnxCall& call) {
  const Shape s = call.shape();
  if (call.axis(call.integer("axis", -1), s.rank()) != s.rank() - 1) call.fail("of another axis than the last");
  call.set(rms_normalized(call, call.tensor(0), call.tensor(1), call.real("epsilon", 1e-5)));
}

// Embeddings of tokens, positions and types, and a norm. Result 1 are the lengths that the mask says, result 2 the sum.
void embed_layer_normalization(OnnxCall& call) {
  enum : size_t { kIds, kTypes, kWords, kPositions, kTypeTable, kWeight, kBias, kMask, kPositionIds };
  const auto rows = [&](size_t table, size_t ids) {
    return embedding(call.tensor(table, DType::kF32), cast(call.tensor(ids), DType::kI32));
  };
  const Shape ids = call.shape(kIds);
  if (ids.rank() != 2) call.fail("ids of shape " + ids.text());
  Tensor sum = rows(kWords, kIds);
  sum = compose::add(call, sum,
                     call.has(kPositionIds) ? rows(kPositions, kPositionIds)
                                            : slice(call.tensor(kPositions, DType::kF32), 0, 0, ids[1]));
  if (call.has(kTypes) && call.has(kTypeTable)) sum = compose::add(call, sum, rows(kTypeTable, kTypes));
  call.integer("mask_index_type", 0);
  call.set(0, normalized(sum, call.tensor(kWeight), call.tensor(kBias), call.real("epsilon", 1e-12)),
           OnnxElement::kFloat);
  if (call.is_wanted(1)) {
    const Tensor lengths = call.has(kMask) ? reshape(compose::sum_last(call.tensor(kMask, DType::kF32)), {ids[0]})
                                           : call.uniform(0, {ids[0]}, DType::kF32);
    call.set(1, lengths, OnnxElement::kInt32);
  }
  if (call.is_wanted(2)) call.set(2, sum, OnnxElement::kFloat);
}

void fused_matmul(OnnxCall& call) {
  if (call.integer("transBatchA", 0) != 0 || call.integer("transBatchB", 0) != 0) call.fail("moved batch axes");
  const Tensor a = call.tensor(0), b = call.tensor(1);
  if (a.shape().rank() < 2 || (b.shape().rank() != 2 && b.shape().rank() != a.shape().rank()))
    call.fail("operands of shapes " + a.shape().text() + " and " + b.shape().text());
  const double alpha = call.real("alpha", 1);
  bool trans_a = call.integer("transA", 0) != 0;
  Tensor left = a;
  if (trans_a && b.shape().rank() == 2 && a.shape().rank() > 2) {  // one product of all rows
    std::vector<int> order = compose::named_axes_last(std::vector<bool>(static_cast<size_t>(a.shape().rank())));
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    left = compose::move_axes(a, order), trans_a = false;
  }
  const Tensor y = matmul(left, b, trans_a, call.integer("transB", 0) != 0);
  call.set(alpha == 1 ? y : y * alpha);
}

}  // namespace

OnnxOperatorRows fused_operators() {
  return {
      {"SimplifiedLayerNormalization", rms_normalization, "over the last axis"},
      {"com.microsoft.BiasGelu", gelu_of_sum},
      {"com.microsoft.EmbedLayerNormalization", embed_layer_normalization},
      {"com.microsoft.FastGelu", [](OnnxCall& call) { call.set(gelu_tanh(with_bias(call))); }},
      {"com.microsoft.FusedMatMul", fused_matmul, "without moved batch axes"},
      {"com.microsoft.Gelu", gelu_of_sum},
      {"com.microsoft.QuickGelu", compose::unary(quick_gelu)},
      {"com.microsoft.SkipLayerNormalization", skip_normalization<true>},
      {"com.microsoft.SkipSimplifiedLayerNormalization", skip_normalization<false>},
  };
}

}  // namespace linnet
