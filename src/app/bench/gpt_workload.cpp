// Decoders: "gpt-6l" (d 384, 6 heads, 8 x 256 tokens, vocabulary 65) and GPT-2's 124M (2 x 1024, vocabulary 50257;
// for a GPU 8 x 1024), with AdamW and clipping, without dropout, on random tokens.
#include "app/bench/made_data.h"
#include "models/modules/text_decoder.h"

namespace linnet {

Workload gpt_workload(const WorkloadOptions& options, bool large, int64_t batch) {
  if (options.batch > 0) batch = options.batch;
  constexpr int64_t kBatches = 8;
  DecoderConfig config;  // its defaults are GPT-2's
  if (!large) config = {.vocab_size = 65, .max_seq_len = 256, .width = 384, .heads = 6, .layers = 6};
  if (options.dropout >= 0) config.dropout = options.dropout;
  const int64_t length = config.max_seq_len;
  auto model = std::make_shared<TextDecoder>(config);

  MadeNumbers numbers(2);
  std::vector<int32_t> tokens, targets;
  for (int64_t row = 0; row < kBatches * batch; ++row)
    for (int64_t t = 0, token = numbers.next(0, config.vocab_size); t < length; ++t) {
      tokens.push_back(static_cast<int32_t>(token));
      token = numbers.next(0, config.vocab_size);
      targets.push_back(static_cast<int32_t>(token));
    }

  Workload workload;
  workload.unit = "tokens/s", workload.units_per_step = static_cast<double>(batch * length);
  workload.forward_apart = true;
  workload.model = model;
  workload.loss = [model, batch, length](Trace& trace) { return causal_loss(*model, trace, batch, length); };
  workload.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  workload.optimizer.decoupled = true, workload.optimizer.weight_decay = 0.1;
  workload.optimizer.beta2 = 0.95, workload.optimizer.epsilon = 1e-8, workload.optimizer.clip_norm = 1;
  workload.learning_rate = 3e-4;
  workload.batches = kBatches;
  workload.inputs = {workload_input("tokens", DType::kI32, {kBatches, batch, length}, tokens),
                     workload_input("targets", DType::kI32, {kBatches, batch, length}, targets)};
  return workload;
}

}  // namespace linnet
