// Reference shape R: the encoder-decoder Transformer with d 256, 8 heads, ff 1024, 2 + 2 layers, post-LN, vocabulary
// 256, batch 16, Adam 1e-4, on 1,024 samples whose lengths lie between half and all of the sequence.
#include "data/examples/batch.h"
#include "models/modules/transformer.h"
#include "models/modules/translation_loss.h"
#include "app/bench/made_data.h"

namespace linnet {
namespace {

constexpr int64_t kBatch = 16, kBatches = 64, kVocabulary = 256;
constexpr int32_t kPad = 0, kBegin = 2, kEnd = 3, kFirstWord = 4;

struct Sentences {
  std::vector<int32_t> words, lengths;  // [rows, length], [rows]
};

Sentences make_sentences(MadeNumbers& numbers, int64_t length) {
  Sentences s;
  for (int64_t row = 0; row < kBatch * kBatches; ++row) {
    s.lengths.push_back(numbers.next(length / 2, length + 1));
    for (int64_t t = 0; t < length; ++t)
      s.words.push_back(t < s.lengths.back() ? numbers.next(kFirstWord, kVocabulary) : kPad);
  }
  return s;
}

}  // namespace

Workload transformer_workload(const WorkloadOptions& options, int64_t length) {
  TransformerConfig config;  // its defaults are R's
  config.max_seq_len = length;
  config.final_norm = true;  // as PyTorch's nn.Transformer has
  if (options.dropout >= 0) config.dropout = options.dropout;
  auto model = std::make_shared<Transformer>(config);

  MadeNumbers numbers(1);
  const Sentences source = make_sentences(numbers, length), target = make_sentences(numbers, length);
  // Fed: begin and the words; wanted: the words, the last one replaced by the end.
  std::vector<int32_t> in(target.words.size(), kPad), out = target.words;
  for (size_t row = 0; row < target.lengths.size(); ++row) {
    const auto first = static_cast<std::ptrdiff_t>(row) * length,
               size = static_cast<std::ptrdiff_t>(target.lengths[row]);
    in[static_cast<size_t>(first)] = kBegin;
    std::copy_n(out.begin() + first, size - 1, in.begin() + first + 1);
    out[static_cast<size_t>(first + size - 1)] = kEnd;
  }

  Workload workload;
  workload.unit = "samples/s", workload.units_per_step = kBatch;
  workload.model = model;
  workload.loss = [model, length](Trace& trace) {
    return translation_loss(*model, trace, {kBatch, length, length}, 0);
  };
  workload.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  workload.optimizer.beta2 = 0.999, workload.optimizer.epsilon = 1e-8;
  workload.learning_rate = 1e-4;
  workload.batches = kBatches;
  const Shape rows{kBatches, kBatch, length}, counts{kBatches, kBatch};
  workload.inputs = {workload_input("source", DType::kI32, rows, source.words),
                     workload_input("source_lengths", DType::kI32, counts, source.lengths),
                     workload_input("target_in", DType::kI32, rows, in),
                     workload_input("target_out", DType::kI32, rows, out),
                     workload_input("target_lengths", DType::kI32, counts, target.lengths)};
  return workload;
}

}  // namespace linnet
