// Attention from opset 23 on: softmax(q k^T scale [capped] + bias) v, with bias -infinity for hidden keys. Composed of
// products and elementwise formulas, so every mask has a gradient.
#include <cmath>
#include <limits>
#include "engine/ops/embedding/embedding.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
constexpr double kNever = -std::numeric_limits<double>::infinity();

enum Operand : size_t { kQueries, kKeys, kValues, kMask, kPastKeys, kPastValues, kLengths };
enum Result : size_t { kOutput, kPresentKeys, kPresentValues, kScores };

Tensor split_heads(OnnxCall& call, Tensor x, int64_t heads) {
  if (x.shape().rank() != 3 || heads < 1 || x.dim(2) % heads != 0)
    call.fail("an operand of shape ", x.shape().text(), " with ", heads, " heads");
  return permute(reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

Tensor merge_heads(Tensor y) { return reshape(permute(y, {0, 2, 1, 3}), {y.dim(0), y.dim(2), y.dim(1) * y.dim(3)}); }

// Puts the past before keys and values, which are the present then. Returns the number of past keys.
int64_t join_past(OnnxCall& call, size_t past_keys, Tensor& k, Tensor& v) {
  if (call.has(past_keys)) k = compose::join({call.tensor(past_keys), k}, 2);
  if (call.has(past_keys + 1)) v = compose::join({call.tensor(past_keys + 1), v}, 2);
  if (call.is_wanted(kPresentKeys)) call.set(kPresentKeys, k, call.element(kKeys));
  if (call.is_wanted(kPresentValues)) call.set(kPresentValues, v, call.element(kValues));
  return call.has(past_keys) ? call.shape(past_keys)[2] : 0;
}

// [B, T, H * D] as [B, H, T, D]; four axes stay.
Tensor by_heads(OnnxCall& call, size_t operand, const char* heads_attribute) {
  const Tensor x = call.tensor(operand);
  if (x.shape().rank() == 4) return x;
  return split_heads(call, x, call.integer(heads_attribute, 0));
}

Tensor repeated(OnnxCall& call, Tensor x, int64_t heads) {  // for every head of the queries
  const Shape s = x.shape();
  if (s[1] == heads) return x;
  if (s[1] == 0 || heads % s[1] != 0) call.fail(heads, " heads of queries for ", s[1], " of keys");
  const Tensor copies = broadcast_to(reshape(x, {s[0], s[1], 1, s[2], s[3]}), {s[0], s[1], heads / s[1], s[2], s[3]});
  return reshape(copies, {s[0], heads, s[2], s[3]});
}

Tensor column(OnnxCall& call, int64_t count) { return reshape(call.locations(count, DType::kF32), {count, 1}); }

// The mask as a summand of the scores; a mask for fewer keys hides the rest.
Tensor mask_bias(OnnxCall& call, int64_t keys) {
  const bool truths = call.element(kMask) == OnnxElement::kBool;
  Tensor mask = call.tensor(kMask, DType::kF32);
  const int last = mask.shape().rank() - 1;
  if (mask.dim(last) < keys) mask = compose::pad(mask, last, 0, keys - mask.dim(last), truths ? 0 : kNever);
  if (!truths) return mask;
  return elementwise(call, {mask}, [](Number seen) { return select(seen, 0, kNever); });
}

struct Window {
  bool causal;
  int64_t left, right;  // -1: no limit
  bool any() const { return causal || left >= 0 || right >= 0; }
};

// Hides keys of `scores` [B, H, Tq, Tk] outside of the window or beyond a row's length. A query's location is its index
// plus `past`, or with lengths, queries are a row's last ones.
Tensor windowed(OnnxCall& call, Tensor scores, const Window& window, int64_t past) {
  const bool has_lengths = call.has(kLengths);
  if (!window.any() && !has_lengths) return scores;
  const int64_t batch = scores.dim(0), queries = scores.dim(2), keys = scores.dim(3);
  const Tensor rows = column(call, queries), columns = call.locations(keys, DType::kF32);
  const Tensor lengths =
      has_lengths ? reshape(call.tensor(kLengths, DType::kF32), {batch, 1, 1, 1}) : call.uniform(0, {}, DType::kF32);
  return elementwise(call, {scores, rows, columns, lengths}, [&](Number y, Number query, Number key, Number length) {
    const Number offset = has_lengths ? length - static_cast<double>(queries) : Number(static_cast<double>(past));
    const Number behind = query + offset - key;
    const auto hide = [&](Number where) { y = select(where, kNever, y); };
    if (window.causal) hide(0 > behind);
    if (window.left >= 0) hide(behind > static_cast<double>(window.left));
    if (window.right >= 0) hide(-static_cast<double>(window.right) > behind);
    if (has_lengths) hide(key + 1 > length);
    return y;
  });
}

// Rows of -infinity become 0.
Tensor masked_softmax(OnnxCall& call, Tensor scores) {
  const Tensor most = max_last(scores);
  const Tensor weights = elementwise(call, {scores, most},
      [](Number score, Number most) { return exp(score - select(equal(most, kNever), 0, most)); });
  return elementwise(call, {weights, sum_last(weights)},
      [](Number weight, Number sum) { return weight / select(equal(sum, 0), 1, sum); });
}

void attention_operator(OnnxCall& call) {
  const Tensor q = by_heads(call, kQueries, "q_num_heads");
  Tensor k = by_heads(call, kKeys, "kv_num_heads"), v = by_heads(call, kValues, "kv_num_heads");
  call.integer("q_num_heads", 0), call.integer("kv_num_heads", 0), call.integer("softmax_precision", 0);
  const int64_t past = join_past(call, kPastKeys, k, v);
  const double scale = call.real("scale", 1 / std::sqrt(static_cast<double>(q.dim(3))));
  const double cap = call.real("softcap", 0);
  const Window window{
      call.flag("is_causal"), call.integer("left_window_size", -1), call.integer("right_window_size", -1)};
  Tensor scores = matmul(q * scale, repeated(call, k, q.dim(1)), false, true);
  const int64_t given = call.integer("qk_matmul_output_mode", 0);
  std::vector<Tensor> stages{scores};  // by qk_matmul_output_mode
  if (cap > 0) scores = elementwise(call, {scores}, [=](Number x) { return tanh(x * (1 / cap)) * cap; });
  stages.push_back(scores);
  if (call.has(kMask)) scores = compose::add(call, scores, mask_bias(call, k.dim(2)));
  scores = windowed(call, scores, window, past);
  stages.push_back(scores);
  const Tensor weights = masked_softmax(call, scores);
  stages.push_back(weights);
  const bool unclear = given == 0 && cap > 0;  // ONNX releases differ in whether the cap comes before
  if (given < 0 || given > 3 || (unclear && call.is_wanted(kScores))) call.fail("qk_matmul_output_mode ", given);
  if (call.is_wanted(kScores)) call.set(kScores, stages[given], call.element());
  const Tensor y = matmul(weights, repeated(call, v, q.dim(1)));
  call.set(call.shape(kQueries).rank() == 3 ? merge_heads(y) : y);
}

// --- ONNX Runtime's own, as its optimizer writes them ---

// A summand of the scores [B, H, T, keys] that hides keys: lengths [B], or ones and zeros [B, keys] or [B, T, keys].
Tensor key_bias(OnnxCall& call, size_t operand, int64_t batch, int64_t keys) {
  const double hidden = call.real("mask_filter_value", -10000);
  const Tensor mask = call.tensor(operand, DType::kF32);
  const Shape s = mask.shape();
  if (s.rank() == 1 && s[0] == batch)
    return elementwise(call, {reshape(mask, {batch, 1, 1, 1}), call.locations(keys, DType::kF32)},
        [=](Number length, Number key) { return select(length > key, 0, hidden); });
  if ((s.rank() != 2 && s.rank() != 3) || s[0] != batch || s[-1] != keys)
    call.fail("a mask of shape ", s.text(), " for ", keys, " keys");
  return elementwise(call, {reshape(mask, {batch, 1, s.rank() == 3 ? s[1] : 1, keys})},
      [=](Number seen) { return (1 - seen) * hidden; });
}

struct FusedMasks {
  size_t keys, bias;  // operands
  int64_t past;
};
// q, k, v [B, H, T, D] -> [B, T, H * D]
Tensor fused_attention(OnnxCall& call, Tensor q, Tensor k, Tensor v, const FusedMasks& masks) {
  double scale = call.real("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  Tensor scores = matmul(q * scale, k, false, true);
  call.real("mask_filter_value", -10000);
  if (call.has(masks.keys)) scores = compose::add(call, scores, key_bias(call, masks.keys, q.dim(0), k.dim(2)));
  if (call.has(masks.bias)) scores = compose::add(call, scores, call.tensor(masks.bias, DType::kF32));
  if (call.flag("unidirectional"))
    scores = elementwise(call, {scores, column(call, q.dim(2)), call.locations(k.dim(2), DType::kF32)},
        [&](Number score, Number query, Number key) {
          return select(key > query + static_cast<double>(masks.past), kNever, score);
        });
  return merge_heads(matmul(masked_softmax(call, scores), v));
}

// x [B, T, D], joined weights of queries, keys and values, biases, mask, past [2, B, H, P, D / H], bias.
void packed_attention(OnnxCall& call) {
  enum : size_t { kInput, kWeights, kBias, kKeyMask, kPast, kScoreBias };
  if (call.has(6)) call.fail("a past that shares its memory with the present");
  const int64_t heads = call.integer("num_heads", 0);
  Tensor all = matmul(call.tensor(kInput), call.tensor(kWeights));
  if (call.has(kBias)) all = compose::add(call, all, call.tensor(kBias));
  const int64_t width = all.dim(-1);
  const std::vector<int64_t> sizes = call.list("qkv_hidden_sizes", {width / 3, width / 3, width - width / 3 * 2});
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != width) call.fail("qkv_hidden_sizes do not fit");
  const auto part = [&](int64_t begin, int64_t size) { return split_heads(call, slice(all, 2, begin, size), heads); };
  const Tensor q = part(0, sizes[0]);
  Tensor k = part(sizes[0], sizes[1]), v = part(sizes[0] + sizes[1], sizes[2]);
  int64_t past = 0;
  const auto fifth = [](Tensor x) { return reshape(x, {1, x.dim(0), x.dim(1), x.dim(2), x.dim(3)}); };
  if (call.has(kPast)) {
    const Tensor both = call.tensor(kPast);
    if (both.shape().rank() != 5 || both.dim(0) != 2) call.fail("a past of shape ", both.shape().text());
    const Shape one{both.dim(1), both.dim(2), both.dim(3), both.dim(4)};
    past = both.dim(3);
    if (past > 0) {
      k = compose::join({reshape(slice(both, 0, 0, 1), one), k}, 2);
      v = compose::join({reshape(slice(both, 0, 1, 1), one), v}, 2);
    }
  }
  if (call.is_wanted(1)) call.set(1, compose::join({fifth(k), fifth(v)}, 0), call.element());
  call.set(fused_attention(call, q, k, v, {kKeyMask, kScoreBias, past}));
}

void multi_head_attention(OnnxCall& call) {
  enum : size_t { kBias = 3, kKeyMask, kScoreBias, kPast };
  if (!call.has(kKeys) || !call.has(kValues)) call.fail("queries, keys and values in one tensor");
  const int64_t heads = call.integer("num_heads", 0);
  int64_t begin = 0;
  const auto operand = [&](size_t i) {
    Tensor x = call.tensor(i);
    if (x.shape().rank() == 4) return x;  // [B, H, T, D] already
    if (x.shape().rank() != 3) call.fail("an operand of shape ", x.shape().text());
    if (call.has(kBias)) x = compose::add(call, x, slice(call.tensor(kBias), 0, begin, x.dim(2)));
    begin += x.dim(2);
    return split_heads(call, x, heads);
  };
  const Tensor q = operand(kQueries);
  Tensor k = operand(kKeys), v = operand(kValues);
  const int64_t past = join_past(call, kPast, k, v);
  call.set(fused_attention(call, q, k, v, {kKeyMask, kScoreBias, past}));
}

// x [B, H, T, D] or [B, T, H * D]; cosines and sines [positions, R / 2], or [B, T, R / 2] without positions. Turns the
// first R features of each head, in pairs of neighbors (interleaved) or of elements half of R apart.
void rotary_embedding(OnnxCall& call) {
  const Tensor x = call.tensor(0);
  const bool is_apart = x.shape().rank() == 4;
  const int64_t heads = call.integer("num_heads", 0);
  const Tensor rows = permute(is_apart ? x : split_heads(call, x, heads), {0, 2, 1, 3});  // [B, T, H, D]
  const Shape s = rows.shape();
  int64_t turned = call.integer("rotary_embedding_dim", 0);
  if (turned == 0) turned = s[3];
  const bool interleaved = call.flag("interleaved");
  if (turned < 2 || turned > s[3] || turned % 2 != 0) call.fail("rotary_embedding_dim ", turned);
  const int64_t half = turned / 2;
  const auto table = [&](size_t i) {
    Tensor values = call.tensor(i);
    if (call.has(3)) values = embedding(values, cast(call.tensor(3), DType::kI32));
    if (values.shape().rank() != 3 || values.dim(2) != half || values.dim(1) != s[1])
      call.fail("tables of shape ", values.shape().text());
    return reshape(values, {values.dim(0), values.dim(1), 1, half});
  };
  const Tensor cosines = table(1), sines = table(2);
  const Shape part{s[0], s[1], s[2], half};
  const Tensor first = slice(rows, 3, 0, turned);
  const Tensor real = interleaved ? compose::every(first, 3, 0, 2, half) : slice(first, 3, 0, half);
  const Tensor imaginary = interleaved ? compose::every(first, 3, 1, 2, half) : slice(first, 3, half, half);
  const auto turn = [&](Tensor a, Tensor b, Scalar join) {  // a cos +- b sin
    return elementwise(call, {a, b, cosines, sines}, [=](Number a, Number b, Number cosine, Number sine) {
      return formula::apply(join, {a * cosine, b * sine});
    });
  };
  const Tensor new_real = turn(real, imaginary, Scalar::kSub), new_imaginary = turn(imaginary, real, Scalar::kAdd);
  Tensor y;
  if (interleaved) {
    const Shape pairs{s[0], s[1], s[2], half, 1};
    y = reshape(compose::join({reshape(new_real, pairs), reshape(new_imaginary, pairs)}, 4), first.shape());
  } else {
    y = compose::join({new_real, new_imaginary}, 3);
  }
  if (turned < s[3]) y = compose::join({y, slice(rows, 3, turned, s[3] - turned)}, 3);
  call.set(is_apart ? permute(y, {0, 2, 1, 3}) : reshape(y, x.shape()));
}
}  // namespace

OnnxOperatorRows attention_operators() {
  return {
      {"Attention", attention_operator},
      {"RotaryEmbedding", rotary_embedding},
      {"com.microsoft.Attention", packed_attention, "masks of lengths, [B, keys] or [B, T, keys]"},
      {"com.microsoft.MultiHeadAttention", multi_head_attention, "of queries, keys and values apart"},
  };
}
}  // namespace linnet
