// Operators of ONNX Runtime's own domain, com.microsoft, that its optimizer writes in place of several: an optimized
// BERT or GPT-2 is read as it is.
#include "onnx/compose.h"
#include "onnx/operators.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/layer_norm/layer_norm.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

Tensor with_bias(OnnxCall& call) {
  return call.has(1) ? compose::add(call, call.tensor(0), call.tensor(1)) : call.tensor(0);
}

void gelu_of_sum(OnnxCall& call) { call.set(gelu(with_bias(call))); }
void fast_gelu(OnnxCall& call) { call.set(gelu_tanh(with_bias(call))); }

void quick_gelu(OnnxCall& call) {
  const double alpha = call.real("alpha", 1.702);
  call.set(elementwise(call, {call.tensor(0)}, [=](E& e, const std::vector<Ref>& x) {
    const Ref power = e.apply(Scalar::kExp, e.apply(Scalar::kMul, x[0], e.constant(-alpha)));
    return e.apply(Scalar::kDiv, x[0], e.apply(Scalar::kAdd, e.constant(1), power));
  }));
}

// Rows of the last axis; without `bias` there is none.
Tensor normalized(Tensor x, Tensor weight, Tensor bias, double epsilon) {
  const Shape s = x.shape();
  const Tensor rows = reshape(x, {s.elements(0, s.rank() - 1), s[-1]});
  return reshape(layer_norm(rows, weight, bias, epsilon), s);
}

Tensor rms_normalized(const OnnxCall& call, Tensor x, Tensor weight, double epsilon) {
  const Tensor mean = compose::mean_last(square(x));
  return elementwise(call, {x, mean, weight}, [=](E& e, const std::vector<Ref>& v) {
    const Ref factor = e.apply(Scalar::kRsqrt, e.apply(Scalar::kAdd, v[1], e.constant(epsilon)));
    return e.apply(Scalar::kMul, e.apply(Scalar::kMul, v[0], factor), v[2]);
  });
}

Tensor zeros_like(OnnxCall& call, Tensor x) { return call.uniform(0, x.shape(), x.type().dtype); }

// input, skip, weight, bias of the norm, bias of the sum; the sum is result 3
void skip_layer_normalization(OnnxCall& call) {
  Tensor sum = compose::add(call, call.tensor(0), call.tensor(1));
  if (call.has(4)) sum = compose::add(call, sum, call.tensor(4));
  const Tensor weight = call.tensor(2);
  const Tensor bias = call.has(3) ? call.tensor(3) : zeros_like(call, weight);
  call.set(normalized(sum, weight, bias, call.real("epsilon", 1e-12)));
  if (call.is_wanted(1) || call.is_wanted(2)) call.fail("its mean and variance are read");
  if (call.is_wanted(3)) call.set(3, sum, call.element());
}

void skip_rms_normalization(OnnxCall& call) {
  Tensor sum = compose::add(call, call.tensor(0), call.tensor(1));
  if (call.has(3)) sum = compose::add(call, sum, call.tensor(3));
  call.set(rms_normalized(call, sum, call.tensor(2), call.real("epsilon", 1e-12)));
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
  const bool trans_a = call.integer("transA", 0) != 0;
  Tensor y = b.shape().rank() == 2 && trans_a && a.shape().rank() > 2
                 ? matmul(compose::move_axes(a,
                                             [&] {
                                               std::vector<int> order;
                                               for (int i = 0; i < a.shape().rank(); ++i) order.push_back(i);
                                               std::swap(order[order.size() - 1], order[order.size() - 2]);
                                               return order;
                                             }()),
                          b, false, call.integer("transB", 0) != 0)
                 : matmul(a, b, trans_a, call.integer("transB", 0) != 0);
  call.set(alpha == 1 ? y : y * alpha);
}

}  // namespace

void add_fused_operators(std::vector<OnnxOperatorRow>& rows) {
  const OnnxOperatorRow list[] = {
      {"SimplifiedLayerNormalization", rms_normalization, "over the last axis"},
      {"com.microsoft.BiasGelu", gelu_of_sum},
      {"com.microsoft.EmbedLayerNormalization", embed_layer_normalization},
      {"com.microsoft.FastGelu", fast_gelu},
      {"com.microsoft.FusedMatMul", fused_matmul, "without moved batch axes"},
      {"com.microsoft.Gelu", gelu_of_sum},
      {"com.microsoft.QuickGelu", quick_gelu},
      {"com.microsoft.SkipLayerNormalization", skip_layer_normalization},
      {"com.microsoft.SkipSimplifiedLayerNormalization", skip_rms_normalization},
  };
  rows.insert(rows.end(), std::begin(list), std::end(list));
}

}  // namespace linnet
