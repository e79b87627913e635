#include "onnx/sources.h"

#include "base/error.h"
#include "models/bert.h"
#include "models/cnn.h"
#include "models/gpt.h"
#include "models/llama.h"
#include "ops/movement/movement.h"

namespace linnet {
namespace {

SymbolicSize symbol(int index) { return {0, {{1, {index}}}}; }

enum : int { kBatch, kLength, kPast };
const std::vector<std::string> kSymbols{"batch_size", "sequence_length", "past_sequence_length"};

std::vector<std::string> first_symbols(size_t count) {
  return {kSymbols.begin(), kSymbols.begin() + static_cast<int>(count)};
}

struct BertTensors {
  Tensor tokens, lengths, types;
};

using BertOutputs = std::function<void(Graph&, const BertTensors&)>;

std::vector<OnnxFile> bert_file(const BertOutputs& outputs) {
  OnnxSource source{.symbols = first_symbols(2)};
  source.trace = [outputs](Trace& trace, std::span<const int64_t> sizes) {
    const TensorType ids{DType::kI32, {sizes[kBatch], sizes[kLength]}};
    const Tensor tokens = trace.input("input_ids", ids);
    const Tensor lengths = trace.input("lengths", {DType::kI32, {sizes[kBatch]}});
    outputs(trace.graph(), {tokens, lengths, trace.input("token_type_ids", ids)});
  };
  source.masks = {{"lengths", "attention_mask", {symbol(kBatch), symbol(kLength)}}};
  return {{"model.onnx", source}};
}

// Keys and values of earlier positions come in as past_key_values.<i>.key and .value [B, heads, past, size] and go out,
// with those of the new ones, as present.<i>.key and .value.
ExtendKeys extend_with_past(Trace& trace, std::span<const int64_t> sizes, const AttentionConfig& config,
                            const std::shared_ptr<int>& layers) {
  return [&trace, batch = sizes[kBatch], past = sizes[kPast], config, layers](const Module&, Tensor keys,
                                                                              Tensor values) {
    const std::string layer = std::to_string((*layers)++);
    const int64_t heads = config.key_heads(), size = config.size();
    const auto extend = [&](Tensor rows, const std::string& what) {
      const Tensor earlier = trace.input("past_key_values." + layer + what, {DType::kF32, {batch, heads, past, size}});
      const Tensor first = reshape(permute(earlier, {0, 2, 1, 3}), {batch, past, heads * size});
      const Tensor all = concat(first, std::array{rows}, 1);
      trace.graph().output("present." + layer + what,
                           permute(reshape(all, {batch, all.dim(1), heads, size}), {0, 2, 1, 3}));
      return all;
    };
    const Tensor all_keys = extend(keys, ".key");
    return std::pair(all_keys, extend(values, ".value"));
  };
}

std::vector<OnnxFile> decoder_files(CausalModel& model, const AttentionConfig& attention, bool cache) {
  OnnxSource source{.symbols = first_symbols(cache ? 3 : 2)};
  source.trace = [&model, attention, cache](Trace& trace, std::span<const int64_t> sizes) {
    const TensorType ids{DType::kI32, {sizes[kBatch], sizes[kLength]}};
    TokenRows rows{.tokens = trace.input("input_ids", ids)};
    rows.lengths = trace.input("lengths", {DType::kI32, {sizes[kBatch]}});
    rows.positions = trace.input("position_ids", ids);
    if (cache) rows.extend = extend_with_past(trace, sizes, attention, std::make_shared<int>(0));
    const Tensor hidden = model.hidden(rows);
    trace.graph().output("logits", model.logits(hidden));
  };
  const SymbolicSize keys = cache ? symbol(kPast) + symbol(kLength) : symbol(kLength);
  source.masks = {{"lengths", "attention_mask", {symbol(kBatch), keys}}};
  return {{"model.onnx", source}};
}

std::vector<OnnxFile> image_file(Cnn& model) {
  OnnxSource source{.symbols = first_symbols(1)};
  source.trace = [&model](Trace& trace, std::span<const int64_t> sizes) {
    const CnnConfig& c = model.config;
    const Tensor images = trace.input("images", {DType::kU8, {sizes[0], c.height, c.width, c.channels}});
    trace.graph().output("logits", model(images));
  };
  return {{"model.onnx", source}};
}

}  // namespace

std::vector<OnnxFile> onnx_files(Module& module, const OnnxFileOptions& options) {
  if (auto* model = dynamic_cast<SequenceClassifier*>(&module))
    return bert_file([model](Graph& graph, const BertTensors& in) {
      graph.output("logits", model->logits(in.tokens, in.lengths, in.types));
    });
  if (auto* model = dynamic_cast<MaskedLanguageModel*>(&module))
    return bert_file([model](Graph& graph, const BertTensors& in) {
      graph.output("logits", model->logits(in.tokens, in.lengths, in.types));
    });
  if (auto* model = dynamic_cast<SentenceEncoder*>(&module))
    return bert_file([model](Graph& graph, const BertTensors& in) {
      graph.output("last_hidden_state", model->bert(in.tokens, in.lengths, in.types));
    });
  if (auto* model = dynamic_cast<Gpt*>(&module))
    return decoder_files(*model, model->layers[0].self_attn.config, options.cache);
  if (auto* model = dynamic_cast<Llama*>(&module))
    return decoder_files(*model, model->layers[0].self_attn.config, options.cache);
  if (auto* model = dynamic_cast<Cnn*>(&module)) return image_file(*model);
  fail_user("there is no form of this kind of model in ONNX");
}

}  // namespace linnet
