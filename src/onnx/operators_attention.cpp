// Attention of opset 23 on: softmax(q k^T scale [capped] + bias) v, where the bias is -infinity for keys that a query
// does not see. Composed of products and elementwise formulas, so that every kind of mask has a gradient.
#include <cmath>
#include <limits>

#include "onnx/compose.h"
#include "onnx/operators.h"
#include "ops/matmul/matmul.h"
#include "ops/movement/movement.h"
#include "ops/pointwise/pointwise.h"

namespace linnet {
namespace {

using compose::E;
using compose::elementwise;
using compose::Ref;

constexpr double kNever = -std::numeric_limits<double>::infinity();

enum Operand : size_t { kQueries, kKeys, kValues, kMask, kPastKeys, kPastValues, kLengths };
enum Result : size_t { kOutput, kPresentKeys, kPresentValues, kScores };

// [B, T, H * D] as [B, H, T, D]; four axes stay.
Tensor by_heads(OnnxCall& call, size_t operand, const char* heads_attribute) {
  const Tensor x = call.tensor(operand);
  if (x.shape().rank() == 4) return x;
  const int64_t heads = call.integer(heads_attribute, 0);
  if (x.shape().rank() != 3 || heads < 1 || x.dim(2) % heads != 0)
    call.fail("operands of shape " + x.shape().text() + " with " + std::to_string(heads) + " heads");
  return permute(reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

// Keys or values for every head of the queries.
Tensor repeated(OnnxCall& call, Tensor x, int64_t heads) {
  const Shape s = x.shape();
  if (s[1] == heads) return x;
  if (heads % s[1] != 0)
    call.fail(std::to_string(heads) + " heads of queries for " + std::to_string(s[1]) + " of keys");
  const Tensor copies =
      compose::expand(reshape(x, {s[0], s[1], 1, s[2], s[3]}), {s[0], s[1], heads / s[1], s[2], s[3]});
  return reshape(copies, {s[0], heads, s[2], s[3]});
}

// 0, 1, 2, ... of a shape.
Tensor numbers(OnnxCall& call, const Shape& shape) {
  std::vector<double> values;
  for (int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<double>(i));
  return call.constant(known_numbers(OnnxElement::kFloat, shape, values));
}

// The mask as a summand of the scores; one for fewer keys than there are hides the others.
Tensor mask_bias(OnnxCall& call, int64_t keys) {
  const bool truths = call.element(kMask) == OnnxElement::kBool;
  Tensor mask = call.tensor(kMask, DType::kF32);
  const int last = mask.shape().rank() - 1;
  if (mask.dim(last) < keys) mask = compose::pad(mask, last, 0, keys - mask.dim(last), truths ? 0 : kNever);
  if (!truths) return mask;
  return elementwise(call, {mask}, [](E& e, const std::vector<Ref>& x) {
    return e.apply(Scalar::kSelect, x[0], e.constant(0), e.constant(kNever));
  });
}

struct Window {
  bool causal;
  int64_t left, right;  // -1: no limit
  bool any() const { return causal || left >= 0 || right >= 0; }
};

// Hides the keys of `scores` [B, H, Tq, Tk] that are outside of the window, or behind a row's length. A query's own
// location is its index and `past`, or where there are lengths, the queries are the last of them.
Tensor windowed(OnnxCall& call, Tensor scores, const Window& window, int64_t past) {
  const bool has_lengths = call.has(kLengths);
  if (!window.any() && !has_lengths) return scores;
  const int64_t batch = scores.dim(0), queries = scores.dim(2), keys = scores.dim(3);
  const Tensor rows = numbers(call, {queries, 1}), columns = numbers(call, {keys});
  const Tensor lengths =
      has_lengths ? reshape(call.tensor(kLengths, DType::kF32), {batch, 1, 1, 1}) : call.number(0, DType::kF32);
  return elementwise(call, {scores, rows, columns, lengths}, [&](E& e, const std::vector<Ref>& x) {
    const Ref zero = e.constant(0), never = e.constant(kNever);
    const Ref offset = has_lengths ? e.apply(Scalar::kSub, x[3], e.constant(static_cast<double>(queries)))
                                   : e.constant(static_cast<double>(past));
    // How far the key is behind the query's location.
    const Ref behind = e.apply(Scalar::kSub, e.apply(Scalar::kAdd, x[1], offset), x[2]);
    Ref y = x[0];
    const auto hide = [&](Ref where) { y = e.apply(Scalar::kSelect, where, never, y); };
    if (window.causal) hide(e.apply(Scalar::kGreater, zero, behind));
    if (window.left >= 0) hide(e.apply(Scalar::kGreater, behind, e.constant(static_cast<double>(window.left))));
    if (window.right >= 0) hide(e.apply(Scalar::kGreater, e.constant(-static_cast<double>(window.right)), behind));
    if (has_lengths) hide(e.apply(Scalar::kGreater, e.apply(Scalar::kAdd, x[2], e.constant(1)), x[3]));
    return y;
  });
}

// Of rows; a row of -infinity alone becomes 0.
Tensor masked_softmax(OnnxCall& call, Tensor scores) {
  const Tensor most = compose::fold_last(scores, compose::maximum);
  const Tensor weights = elementwise(call, {scores, most}, [](E& e, const std::vector<Ref>& x) {
    const Ref hidden = e.apply(Scalar::kEqual, x[1], e.constant(kNever));
    const Ref safe = e.apply(Scalar::kSelect, hidden, e.constant(0), x[1]);
    return e.apply(Scalar::kExp, e.apply(Scalar::kSub, x[0], safe));
  });
  return elementwise(call, {weights, compose::sum_last(weights)}, [](E& e, const std::vector<Ref>& x) {
    const Ref none = e.apply(Scalar::kEqual, x[1], e.constant(0));
    return e.apply(Scalar::kDiv, x[0], e.apply(Scalar::kSelect, none, e.constant(1), x[1]));
  });
}

void attention_operator(OnnxCall& call) {
  const Tensor q = by_heads(call, kQueries, "q_num_heads");
  Tensor k = by_heads(call, kKeys, "kv_num_heads"), v = by_heads(call, kValues, "kv_num_heads");
  call.integer("q_num_heads", 0), call.integer("kv_num_heads", 0), call.integer("softmax_precision", 0);
  const int64_t past = call.has(kPastKeys) ? call.shape(kPastKeys)[2] : 0;
  if (call.has(kPastKeys)) k = compose::join({call.tensor(kPastKeys), k}, 2);
  if (call.has(kPastValues)) v = compose::join({call.tensor(kPastValues), v}, 2);
  if (call.is_wanted(kPresentKeys)) call.set(kPresentKeys, k, call.element(kKeys));
  if (call.is_wanted(kPresentValues)) call.set(kPresentValues, v, call.element(kValues));

  const double scale = call.real("scale", 1 / std::sqrt(static_cast<double>(q.dim(3))));
  const double cap = call.real("softcap", 0);
  const Window window{call.integer("is_causal", 0) != 0, call.integer("left_window_size", -1),
                      call.integer("right_window_size", -1)};
  Tensor scores = matmul(q * scale, repeated(call, k, q.dim(1)), false, true);
  const int64_t given = call.integer("qk_matmul_output_mode", 0);
  std::vector<Tensor> stages{scores};  // by qk_matmul_output_mode
  if (cap > 0)
    scores = elementwise(call, {scores}, [=](E& e, const std::vector<Ref>& x) {
      const Ref share = e.apply(Scalar::kTanh, e.apply(Scalar::kMul, x[0], e.constant(1 / cap)));
      return e.apply(Scalar::kMul, share, e.constant(cap));
    });
  stages.push_back(scores);
  if (call.has(kMask))
    scores = elementwise(call, {scores, mask_bias(call, k.dim(2))},
                         [](E& e, const std::vector<Ref>& x) { return e.apply(Scalar::kAdd, x[0], x[1]); });
  scores = windowed(call, scores, window, past);
  stages.push_back(scores);
  const Tensor weights = masked_softmax(call, scores);
  stages.push_back(weights);
  const bool unclear = given == 0 && cap > 0;  // releases of ONNX differ in whether the cap comes before
  if (given < 0 || given > 3 || (unclear && call.is_wanted(kScores)))
    call.fail("qk_matmul_output_mode " + std::to_string(given));
  if (call.is_wanted(kScores)) call.set(kScores, stages[static_cast<size_t>(given)], call.element());

  Tensor y = matmul(weights, repeated(call, v, q.dim(1)));
  if (call.shape(kQueries).rank() == 3)
    y = reshape(permute(y, {0, 2, 1, 3}), {y.dim(0), y.dim(2), y.dim(1) * y.dim(3)});
  call.set(y);
}

}  // namespace

void add_attention_operators(std::vector<OnnxOperatorRow>& rows) { rows.push_back({"Attention", attention_operator}); }

}  // namespace linnet
