#include "models/modules/encoder_decoder.h"
#include "base/error.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
Tensor log_probabilities(Tensor logits) { return logits - log_sum_exp_last(logits); }

// Logarithms of mean probabilities, up to a constant per row. With d_i = log p_i - log p_0, m about the largest: the
// first logits + m + log(mean of exp(d_i - m)). Nothing overflows; equal members keep the first one's logits.
Tensor mean_of(const std::vector<Tensor>& logits) {
  const Tensor first = log_probabilities(logits[0]);
  std::vector<Tensor> differences;
  Tensor most;
  for (size_t i = 1; i < logits.size(); ++i) {
    differences.push_back(log_probabilities(logits[i]) - first);
    most = most.defined() ? most + relu(differences.back() - most) : relu(differences.back());
  }
  if (differences.empty()) return logits[0];
  Tensor sum = exp(most * -1.0);
  for (const Tensor& difference : differences) sum = sum + exp(difference - most);
  return logits[0] + most + apply_scalar(Scalar::kLog, sum * (1.0 / static_cast<double>(logits.size())));
}
}  // namespace

TargetRows step_targets(Tensor tokens, const DecodeStep& step) {
  return {.tokens = reshape(tokens, {tokens.dim(0), 1}),
      .source_lengths = step.memory_lengths,
      .split = step_cache(step),
      .memory = kept_memory(*tokens.graph, step),
      .positions = step.positions(),
      .lengths = step.lengths,
      .keys = step.max_length};
}

void EncoderDecoder::prefill(Tensor source, Tensor source_lengths, const CacheSlots& memory) {
  const Tensor encoded = encode(source, source_lengths);
  for (DecoderLayer& layer : decoder_layers()) keep_memory(layer.cross_attn, encoded, memory);
}

Loss translation_loss(EncoderDecoder& model, Trace& trace, const TranslationSizes& sizes, double label_smoothing) {
  const auto [batch, source_length, target_length] = sizes;
  const auto ids = [&](const char* name, Shape shape) { return trace.graph().input(name, {DType::kI32, shape}); };
  const Tensor source = ids("source", {batch, source_length}), source_lengths = ids("source_lengths", {batch});
  const Tensor target_in = ids("target_in", {batch, target_length}), target_lengths = ids("target_lengths", {batch});
  const Tensor targets = mask_targets(ids("target_out", {batch, target_length}), target_lengths);
  const Tensor sum = model.loss(source, source_lengths, target_in, target_lengths, targets, label_smoothing);
  return {sum, count_targets(targets, sum.type().dtype)};
}

Ensemble::Ensemble(std::vector<std::shared_ptr<EncoderDecoder>> members) : members_(std::move(members)) {
  for (size_t i = 0; i < members_.size(); ++i) adopt(*members_[i], std::to_string(i));
}

int64_t Ensemble::max_length() const {
  return std::ranges::min(mapped(members_, [](const auto& member) { return member->max_length(); }));
}

Tensor Ensemble::encode(Tensor, Tensor) { fail_internal("an ensemble has no encoder of its own"); }

Tensor Ensemble::decode(const TargetRows& rows) {
  const std::vector<Tensor> logits = mapped(members_, [&](const auto& member) { return member->decode(rows); });
  return mean_of(logits);
}

Tensor Ensemble::target_logits(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths) {
  const std::vector<Tensor> logits = mapped(members_,
      [&](const auto& member) { return member->target_logits(source, source_lengths, target_in, target_lengths); });
  return mean_of(logits);
}

Tensor Ensemble::loss(Tensor source, Tensor source_lengths, Tensor target_in, Tensor target_lengths, Tensor targets,
    double label_smoothing) {
  return cross_entropy_sum(target_logits(source, source_lengths, target_in, target_lengths), targets, label_smoothing);
}

void Ensemble::prefill(Tensor source, Tensor source_lengths, const CacheSlots& memory) {
  for (const auto& member : members_) member->prefill(source, source_lengths, memory);
}
}  // namespace linnet
