#include <algorithm>
#include <cstring>
#include "app/bench/bench.h"
#include "base/fail.h"
#include "base/numbers.h"
#include "config/hints.h"
#include "data/examples/batch.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/image_model.h"
#include "models/modules/resnet.h"
#include "models/modules/text_decoder.h"
#include "models/modules/text_encoder.h"
#include "models/modules/transformer.h"

namespace linnet {
namespace {
// A pseudorandom integer in [low, high), the same on every machine.
int32_t next_number(uint64_t& state, int64_t low, int64_t high) {
  return static_cast<int32_t>(low + static_cast<int64_t>(next_splitmix64(state) % static_cast<uint64_t>(high - low)));
}

template <class T>
WorkloadInput workload_input(std::string name, DType dtype, Shape shape, const std::vector<T>& values) {
  WorkloadInput input{std::move(name), {dtype, shape}, std::vector<std::byte>(values.size() * sizeof(T))};
  std::memcpy(input.data.data(), values.data(), input.data.size());
  return input;
}

// Convolutional networks on images in bytes: ten generated patterns under noise, so that there is something to learn.

// `count` images, rounded down to whole batches, at least one.
Workload image_workload(const std::shared_ptr<ImageModel>& model, int64_t batch, int64_t count) {
  const ImageShape& shape = model->images;
  const int64_t batches = std::max<int64_t>(count / batch, 1), pixels = shape.height * shape.width * shape.channels;
  uint64_t random = 4;
  std::vector<int32_t> patterns;
  for (int64_t i = 0; i < shape.classes * pixels; ++i) patterns.push_back(next_number(random, 0, 3) == 0 ? 160 : 0);
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  for (int64_t image = 0; image < batches * batch; ++image) {
    labels.push_back(next_number(random, 0, static_cast<int32_t>(shape.classes)));
    for (int64_t i = 0; i < pixels; ++i)
      images.push_back(static_cast<uint8_t>(patterns[labels.back() * pixels + i] + next_number(random, 0, 96)));
  }
  return {.unit = "samples/s",
      .units_per_step = static_cast<double>(batch),
      .model = model,
      .loss = [model, batch](Trace& trace) { return image_loss(*model, trace, batch); },
      .batches = batches,
      .inputs = {
          workload_input("images", DType::kU8, {batches, batch, shape.height, shape.width, shape.channels}, images),
          workload_input("labels", DType::kI32, {batches, batch}, labels)}};
}

// Reference shape R: encoder-decoder Transformer, d 256, 8 heads, ff 1024, 2 + 2 layers, post-LN, vocabulary 256, batch
// 16, Adam 1e-4, on 1,024 samples of half to full length.

constexpr int64_t kBatch = 16, kBatches = 64, kVocabulary = 256;
constexpr int32_t kPad = 0, kBegin = 2, kEnd = 3, kFirstWord = 4;

struct Sentences {
  std::vector<int32_t> words, lengths;  // [rows, length], [rows]
};

Sentences make_sentences(uint64_t& random, int64_t length) {
  Sentences s;
  for (int64_t row = 0; row < kBatch * kBatches; ++row) {
    s.lengths.push_back(next_number(random, length / 2, length + 1));
    for (int64_t t = 0; t < length; ++t)
      s.words.push_back(t < s.lengths.back() ? next_number(random, kFirstWord, kVocabulary) : kPad);
  }
  return s;
}

// BERT-base, masked language modeling: 4 x 512 tokens (for a GPU 32 x 512) with half to full lengths, 77 masked
// positions a row of which 15% of its tokens are used, AdamW 1e-4, dropout 0.1.

Workload bert_workload(const WorkloadOptions& options) {
  constexpr int64_t kBatches = 8, kLength = 512, kMasked = 77;
  constexpr int32_t kPad = 0, kMask = 103, kFirstWord = 1000;
  const int64_t batch = options.batch;
  EncoderConfig config;
  if (options.dropout >= 0) config.dropout = options.dropout;
  auto model = std::make_shared<MaskedLanguageModel>(config);
  uint64_t random = 3;
  std::vector<int32_t> tokens, lengths, positions, targets;
  for (int64_t row = 0; row < kBatches * batch; ++row) {
    const size_t first = tokens.size();
    lengths.push_back(next_number(random, kLength / 2, kLength + 1));
    for (int64_t t = 0; t < kLength; ++t)
      tokens.push_back(t < lengths.back() ? next_number(random, kFirstWord, config.vocab_size) : kPad);
    // Evenly spaced from a random start: distinct, and within the row's length.
    const int32_t used = lengths.back() * 15 / 100, start = next_number(random, 0, lengths.back());
    for (int32_t i = 0; i < kMasked; ++i) {
      const int64_t t = (start + static_cast<int64_t>(i) * lengths.back() / used) % lengths.back();
      int32_t& token = tokens[first + static_cast<size_t>(t)];
      positions.push_back(i < used ? static_cast<int32_t>(row % batch * kLength + t) : 0);
      targets.push_back(i < used ? token : -1);
      if (i < used) token = kMask;
    }
  }
  return {.unit = "samples/s",
      .units_per_step = static_cast<double>(batch),
      .model = model,
      .loss = [model, batch](
                  Trace& trace) { return masked_language_loss(*model, trace, batch, kLength, batch * kMasked); },
      .optimizer = {.weight_decay = 0.01, .decoupled = true, .clip_norm = 1},
      .learning_rate = 1e-4,
      .batches = kBatches,
      .inputs = {workload_input("tokens", DType::kI32, {kBatches, batch, kLength}, tokens),
          workload_input("lengths", DType::kI32, {kBatches, batch}, lengths),
          workload_input("positions", DType::kI32, {kBatches, batch * kMasked}, positions),
          workload_input("targets", DType::kI32, {kBatches, batch * kMasked}, targets)}};
}

// Decoders: "gpt-6l" (d 384, 6 heads, 8 x 256 tokens, vocabulary 65) and GPT-2's 124M (2 x 1024, for a GPU 8 x 1024,
// vocabulary 50257), with AdamW and clipping, without dropout, on random tokens.

Workload decoder_workload(const WorkloadOptions& options, DecoderConfig config) {
  constexpr int64_t kBatches = 8;
  if (options.dropout >= 0) config.dropout = options.dropout;
  const int64_t batch = options.batch, length = config.max_seq_len;
  auto model = std::make_shared<TextDecoder>(config);
  uint64_t random = 2;
  std::vector<int32_t> tokens, targets;
  for (int64_t row = 0; row < kBatches * batch; ++row)
    for (int64_t t = 0, token = next_number(random, 0, config.vocab_size); t < length; ++t) {
      tokens.push_back(static_cast<int32_t>(token));
      token = next_number(random, 0, config.vocab_size);
      targets.push_back(static_cast<int32_t>(token));
    }
  return {.unit = "tokens/s",
      .units_per_step = static_cast<double>(batch * length),
      .forward_apart = true,
      .model = model,
      .loss = [model, batch, length](Trace& trace) { return causal_loss(*model, trace, batch, length); },
      .optimizer = {.beta2 = 0.95, .weight_decay = 0.1, .decoupled = true, .clip_norm = 1},
      .learning_rate = 3e-4,
      .batches = kBatches,
      .inputs = {workload_input("tokens", DType::kI32, {kBatches, batch, length}, tokens),
          workload_input("targets", DType::kI32, {kBatches, batch, length}, targets)}};
}

Workload gpt2_workload(const WorkloadOptions& options) { return decoder_workload(options, {}); }

// "lora-135m": adapters of all linear layers beside a frozen Llama of SmolLM-135M's sizes, 8 x 1024 tokens.

Workload lora_workload(const WorkloadOptions& options, WeightFormat storage) {
  constexpr int64_t kRank = 16;
  constexpr double kScale = 2;
  DecoderConfig config =
      llama_kind({.vocab_size = 49152, .max_seq_len = 1024, .width = 576, .heads = 9, .layers = 30, .hidden = 1536});
  config.kv_heads = 3, config.tied_head = true;
  Workload workload = decoder_workload(options, config);
  workload.model->visit([&](Module& module) {
    auto* linear = dynamic_cast<Linear*>(&module);
    if (!linear) return;
    const int64_t rows = linear->weight.spec().shape[0], in = linear->weight.spec().shape[1];
    std::vector<int64_t> parts{rows};
    if (linear->path().ends_with("in_proj"))  // query, key and value
      parts = {config.width, (rows - config.width) / 2, (rows - config.width) / 2};
    int64_t first = 0;
    for (size_t i = 0; i < parts.size(); first += parts[i++])
      linear->low_rank.add(*linear, std::to_string(i), first, parts[i], in, kRank, kScale);
  });
  workload.groups = {
      {.patterns = {"*.lora_A.*", "*.lora_B.*"}}, {.patterns = {"*"}, .frozen = true, .storage = storage}};
  workload.optimizer.weight_decay = 0, workload.learning_rate = 2e-4;
  return workload;
}

Workload cnn_workload(const WorkloadOptions& options) {
  constexpr int64_t kImages = 8192;
  Workload workload = image_workload(std::make_shared<Cnn>(CnnConfig{}), options.batch, kImages);
  workload.learning_rate = 1e-3;
  return workload;
}

Workload resnet_workload(const WorkloadOptions& options, int64_t depth, int64_t size) {
  ResNetConfig config{.depth = depth, .images = {size, size, 3, 10}};
  Workload workload = image_workload(std::make_shared<ResNet>(config), options.batch, 8 * options.batch);
  workload.optimizer = {.kind = OptimizerAttrs::Kind::kSgd, .momentum = 0.9, .weight_decay = 1e-4};
  workload.learning_rate = 0.02;
  return workload;
}

Workload transformer_workload(const WorkloadOptions& options, int64_t length) {
  TransformerConfig config;  // its defaults are R's
  config.max_seq_len = length;
  config.final_norm = true;  // as PyTorch's nn.Transformer has
  if (options.dropout >= 0) config.dropout = options.dropout;
  auto model = std::make_shared<Transformer>(config);
  uint64_t random = 1;
  const Sentences source = make_sentences(random, length), target = make_sentences(random, length);
  // Inputs: begin and the words; targets: the words, the last one replaced by the end.
  std::vector<int32_t> in(target.words.size(), kPad), out = target.words;
  for (size_t row = 0; row < target.lengths.size(); ++row) {
    const auto first = static_cast<std::ptrdiff_t>(row) * length,
               size = static_cast<std::ptrdiff_t>(target.lengths[row]);
    in[first] = kBegin;
    std::copy_n(out.begin() + first, size - 1, in.begin() + first + 1);
    out[first + size - 1] = kEnd;
  }
  const Shape rows{kBatches, kBatch, length}, counts{kBatches, kBatch};
  return {.unit = "samples/s",
      .units_per_step = kBatch,
      .model = model,
      .loss =
          [model, length](Trace& trace) {
            return translation_loss(*model, trace, {kBatch, length, length}, 0);
          },
      .learning_rate = 1e-4,
      .batches = kBatches,
      .inputs = {workload_input("source", DType::kI32, rows, source.words),
          workload_input("source_lengths", DType::kI32, counts, source.lengths),
          workload_input("target_in", DType::kI32, rows, in), workload_input("target_out", DType::kI32, rows, out),
          workload_input("target_lengths", DType::kI32, counts, target.lengths)}};
}

struct Row {
  const char *name, *description;
  int64_t batch;  // by default; 0: cannot be chosen
  std::function<Workload(const WorkloadOptions&)> make;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> rows = {
      {"r-64", "Transformer d 256, 2+2 layers, batch 16, length 64", 0,
          [](auto& o) { return transformer_workload(o, 64); }},
      {"r-128", "the same, length 128", 0, [](auto& o) { return transformer_workload(o, 128); }},
      {"r-256", "the same, length 256", 0, [](auto& o) { return transformer_workload(o, 256); }},
      {"r-384", "the same, length 384", 0, [](auto& o) { return transformer_workload(o, 384); }},
      {"cnn-128", "conv 3x3 + relu + pool + dense on 28x28, batch 128", 128, cnn_workload},
      {"cnn-1024", "the same, batch 1024", 1024, cnn_workload},
      {"resnet20", "ResNet-20 on 32x32, batch 128", 128, [](auto& o) { return resnet_workload(o, 20, 32); }},
      {"resnet18", "ResNet-18 on 224x224, batch 8", 8, [](auto& o) { return resnet_workload(o, 18, 224); }},
      {"gpt-6l", "GPT, 6 layers, d 384, 8 x 256 tokens, vocabulary 65", 8,
          [](auto& o) {
            return decoder_workload(o, {.vocab_size = 65, .max_seq_len = 256, .width = 384, .heads = 6, .layers = 6});
          }},
      {"gpt2-124m", "GPT-2 124M, 2 x 1024 tokens", 2, gpt2_workload},
      {"gpt2-124m-8", "the same, 8 x 1024 tokens, for a GPU", 8, gpt2_workload},
      {"lora-135m", "adapters of rank 16 beside a frozen Llama of 135M in bf16, 8 x 1024 tokens, for a GPU", 8,
          [](auto& o) { return lora_workload(o, WeightFormat::kBf16); }},
      {"lora-135m-int4", "the same, frozen weights of 4 bits", 8,
          [](auto& o) { return lora_workload(o, WeightFormat::kInt4Blocks); }},
      {"bert-base", "BERT-base, masked language model, 4 x 512 tokens", 4, bert_workload},
      {"bert-base-32", "the same, 32 x 512 tokens, for a GPU", 32, bert_workload},
  };
  return rows;
}
}  // namespace

std::vector<WorkloadRow> workload_rows() {
  return mapped(rows(), [](const Row& row) { return WorkloadRow{row.name, row.description}; });
}

Workload make_workload(const std::string& name, WorkloadOptions options) {
  const auto row = std::ranges::find(rows(), name, [](const Row& each) { return std::string_view(each.name); });
  if (row == rows().end())
    fail_user("there is no workload \"", name, "\"", did_you_mean(name, mapped<std::string>(rows(), &Row::name)));
  if (options.batch > 0 && row->batch == 0) fail_user("the batch of ", name, " is 16 and cannot be chosen");
  if (options.batch <= 0) options.batch = row->batch;
  Workload workload = row->make(options);
  workload.name = row->name, workload.description = row->description;
  return workload;
}
}  // namespace linnet
