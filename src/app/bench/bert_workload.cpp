// BERT-base, masked language modelling: 4 x 512 tokens (for a GPU 32 x 512) with lengths between half and all of it, 77
// masked places a row of which 15% of its tokens are used, AdamW 1e-4, dropout 0.1.
#include "app/bench/made_data.h"
#include "models/modules/text_encoder.h"

namespace linnet {

Workload bert_workload(const WorkloadOptions& options, int64_t batch) {
  if (options.batch > 0) batch = options.batch;
  constexpr int64_t kBatches = 8, kLength = 512, kMasked = 77;
  constexpr int32_t kPad = 0, kMask = 103, kFirstWord = 1000;
  EncoderConfig config;
  if (options.dropout >= 0) config.dropout = options.dropout;
  auto model = std::make_shared<MaskedLanguageModel>(config);

  MadeNumbers numbers(3);
  std::vector<int32_t> tokens, lengths, positions, targets;
  for (int64_t row = 0; row < kBatches * batch; ++row) {
    const size_t first = tokens.size();
    lengths.push_back(numbers.next(kLength / 2, kLength + 1));
    for (int64_t t = 0; t < kLength; ++t)
      tokens.push_back(t < lengths.back() ? numbers.next(kFirstWord, config.vocab_size) : kPad);
    // Evenly spread, from a random start: distinct, and within the row's length.
    const int32_t used = lengths.back() * 15 / 100, start = numbers.next(0, lengths.back());
    for (int32_t i = 0; i < kMasked; ++i) {
      const int64_t t = (start + static_cast<int64_t>(i) * lengths.back() / used) % lengths.back();
      int32_t& token = tokens[first + static_cast<size_t>(t)];
      positions.push_back(i < used ? static_cast<int32_t>(row % batch * kLength + t) : 0);
      targets.push_back(i < used ? token : -1);
      if (i < used) token = kMask;
    }
  }

  Workload workload;
  workload.unit = "samples/s", workload.units_per_step = static_cast<double>(batch);
  workload.model = model;
  workload.loss = [model, batch](Trace& trace) {
    return masked_language_loss(*model, trace, batch, kLength, batch * kMasked);
  };
  workload.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  workload.optimizer.decoupled = true, workload.optimizer.weight_decay = 0.01;
  workload.optimizer.beta2 = 0.999, workload.optimizer.epsilon = 1e-8, workload.optimizer.clip_norm = 1;
  workload.learning_rate = 1e-4;
  workload.batches = kBatches;
  workload.inputs = {workload_input("tokens", DType::kI32, {kBatches, batch, kLength}, tokens),
                     workload_input("lengths", DType::kI32, {kBatches, batch}, lengths),
                     workload_input("positions", DType::kI32, {kBatches, batch * kMasked}, positions),
                     workload_input("targets", DType::kI32, {kBatches, batch * kMasked}, targets)};
  return workload;
}

}  // namespace linnet
