#include "onnx/save_onnx.h"
#include <algorithm>
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "engine/ir/op.h"
#include "engine/ops/movement/movement.h"
#include "engine/passes/passes.h"
#include "engine/passes/rewriter.h"
#include "models/modules/text_encoder.h"

namespace linnet {
namespace {
// In all sets, no size is another one, or a sum or product of others. A sequence and its past have at most twelve
// positions, which the smallest models have.
SizeSets default_sizes(size_t symbols) {
  const SizeSets all{{2, 5, 3, 4}, {3, 7, 2, 5}, {5, 4, 6, 2}, {4, 6, 4, 3}};
  SizeSets sets;
  for (const std::vector<int64_t>& set : all) sets.emplace_back(set.begin(), set.begin() + static_cast<int>(symbols));
  return sets;
}

std::vector<Graph> trace_all(const OnnxSource& source, const SizeSets& sets) {
  return mapped(sets, [&](const std::vector<int64_t>& sizes) {
    Trace trace;
    source.trace(trace, sizes);
    const Graph basic =
        decompose(trace.finish(), [](const OpDef& op) { return find_onnx_lowering(op.name) != nullptr; });
    return remove_dead_code(basic);
  });
}

std::map<std::string, OnnxParameter> parameters_of(
    const ParameterLayout& layout, const float* parameters, const std::shared_ptr<std::vector<float>>& constants) {
  std::map<std::string, OnnxParameter> result;
  for (const ParameterSlot& location : layout.parameters())
    result[location.spec.name] = {location.spec.name, location.spec.shape, parameters + location.offset};
  for (const ParameterSlot& location : layout.constants())
    result[location.spec.name] = {
        location.spec.name, location.spec.shape, constants->data() + location.offset, constants};
  return result;
}

SymbolicSize symbol(int index) { return {0, {{1, {index}}}}; }

enum : int { kBatch, kLength, kPast };
const std::vector<std::string> kSymbols{"batch_size", "sequence_length", "past_sequence_length"};

std::vector<std::string> first_symbols(size_t count) {
  return {kSymbols.begin(), kSymbols.begin() + static_cast<int>(count)};
}

struct EncoderTensors {
  Tensor tokens, lengths, types;
};

using EncoderOutputs = std::function<void(Graph&, const EncoderTensors&)>;

// Models of one token type do not get that input, as their tokenizers do not give it.
std::vector<OnnxFile> encoder_file(const EncoderConfig& config, const EncoderOutputs& outputs) {
  OnnxSource source{.symbols = first_symbols(2)};
  source.trace = [outputs, typed = config.token_types > 1](Trace& trace, std::span<const int64_t> sizes) {
    const TensorType ids{DType::kI32, {sizes[kBatch], sizes[kLength]}};
    const Tensor tokens = trace.input("input_ids", ids);
    const Tensor lengths = trace.input("lengths", {DType::kI32, {sizes[kBatch]}});
    outputs(trace.graph(), {tokens, lengths, typed ? trace.input("token_type_ids", ids) : Tensor{}});
  };
  source.masks = {{"lengths", "attention_mask", {symbol(kBatch), symbol(kLength)}}};
  source.form.separate_projections = true;
  // Longer than windows, as shorter texts are computed without them.
  const int64_t window = max_of<int64_t>(config.layer_kinds, &LayerKind::window);
  if (window > 0 && window < config.max_seq_len) {
    source.sizes = default_sizes(source.symbols.size());
    for (std::vector<int64_t>& sizes : source.sizes)
      sizes[kLength] = std::min(sizes[kLength] + window, config.max_seq_len);
  }
  return {{"model.onnx", source}};
}

std::vector<OnnxFile> encoder_file(const PretrainedModel& model) {
  const auto of_logits = [](auto& with_head) {
    return encoder_file(with_head.encoder.config, [&with_head](Graph& graph, const EncoderTensors& in) {
      graph.output("logits", with_head.logits(in.tokens, in.lengths, in.types));
    });
  };
  if (model.head == ModelHead::kClasses) return of_logits(model.as<SequenceClassifier>());
  if (model.head == ModelHead::kTokens) return of_logits(model.as<MaskedLanguageModel>());
  if (model.head == ModelHead::kTokenClasses) return of_logits(model.as<TokenClassifier>());
  if (model.head == ModelHead::kSpans) {
    auto& answers = model.as<TokenClassifier>();
    return encoder_file(answers.encoder.config, [&answers](Graph& graph, const EncoderTensors& in) {
      const std::vector<Tensor> ends = split(answers.logits(in.tokens, in.lengths, in.types), -1, {1, 1});
      const Shape rows = in.tokens.shape();
      graph.output("start_logits", reshape(ends[0], rows));
      graph.output("end_logits", reshape(ends[1], rows));
    });
  }
  SentenceEncoder& bare = model.as<SentenceEncoder>();
  return encoder_file(bare.encoder.config, [&bare](Graph& graph, const EncoderTensors& in) {
    graph.output("last_hidden_state", bare.encoder(in.tokens, in.lengths, in.types));
  });
}

// Passes earlier keys and values in and out of a decoder. Inside they are rows [B, T, heads * size].
class KeyValues {
 public:
  KeyValues(Trace& trace, int64_t batch, const LayerConfig& config)
      : trace_(trace), batch_(batch), heads_(config.key_heads()), size_(config.size()) {}

  // past_key_values.<layer><kind>.key and .value [B, heads, length, size]; `kind`: "", ".decoder", ".encoder".
  std::pair<Tensor, Tensor> take(int layer, const std::string& kind, int64_t length) {
    const auto take = [&](const char* what) {
      return as_rows(
          trace_.input(name("past_key_values", layer, kind) + what, {DType::kF32, {batch_, heads_, length, size_}}));
    };
    const Tensor keys = take(".key");
    return {keys, take(".value")};
  }
  void give(int layer, const std::string& kind, Tensor keys, Tensor values) {
    trace_.graph().output(name("present", layer, kind) + ".key", by_heads(keys));
    trace_.graph().output(name("present", layer, kind) + ".value", by_heads(values));
  }
  // past_<layer> [2, B, heads, length, size], keys first, and present_<layer>.
  std::pair<Tensor, Tensor> take_joined(int layer, int64_t length) {
    const Tensor both =
        trace_.input("past_" + std::to_string(layer), {DType::kF32, {2, batch_, heads_, length, size_}});
    const std::vector<Tensor> parts = split_evenly(both, 0, 2);
    const auto one = [&](Tensor part) { return as_rows(reshape(part, {batch_, heads_, length, size_})); };
    return {one(parts[0]), one(parts[1])};
  }
  void give_joined(int layer, Tensor keys, Tensor values) {
    const auto one = [&](Tensor rows) { return reshape(by_heads(rows), {1, batch_, heads_, rows.dim(1), size_}); };
    trace_.graph().output("present_" + std::to_string(layer), concat(one(keys), std::array{one(values)}, 0));
  }
  // Takes `past` earlier positions (0: none) and returns all.
  SplitProjection extend(const std::string& kind, int64_t past, bool joined = false) {
    return [*this, kind, past, joined, layer = 0](const SelfAttention& attention, Tensor projected) mutable {
      QueriesKeysValues parts = split_projection(attention.config, projected);
      if (past > 0) {
        const auto [earlier_keys, earlier_values] = joined ? take_joined(layer, past) : take(layer, kind, past);
        parts.keys = concat(earlier_keys, std::array{parts.keys}, 1);
        parts.values = concat(earlier_values, std::array{parts.values}, 1);
      }
      if (joined) give_joined(layer++, parts.keys, parts.values);
      else give(layer++, kind, parts.keys, parts.values);
      return parts;
    };
  }

 private:
  static std::string name(const char* which, int layer, const std::string& kind) {
    return std::string(which) + "." + std::to_string(layer) + kind;
  }
  Tensor as_rows(Tensor apart) const {
    return reshape(permute(apart, {0, 2, 1, 3}), {batch_, apart.dim(2), heads_ * size_});
  }
  Tensor by_heads(Tensor rows) const {
    return permute(reshape(rows, {batch_, rows.dim(1), heads_, size_}), {0, 2, 1, 3});
  }
  Trace& trace_;
  int64_t batch_, heads_, size_;
};

OnnxSource encoder_source(EncoderDecoder& model) {
  OnnxSource source{.symbols = {"batch_size", "encoder_sequence_length"}};
  source.trace = [&model](Trace& trace, std::span<const int64_t> sizes) {
    const Tensor tokens = trace.input("input_ids", {DType::kI32, {sizes[0], sizes[1]}});
    const Tensor lengths = trace.input("lengths", {DType::kI32, {sizes[0]}});
    trace.graph().output("last_hidden_state", model.encode(tokens, lengths));
  };
  source.masks = {{"lengths", "attention_mask", {symbol(0), symbol(1)}}};
  return source;
}

// Without a past it projects the encoder's states to keys and values and returns them too; with one it takes them.
OnnxSource decoder_source(EncoderDecoder& model, bool past, bool cache) {
  enum : int { kTargets = 1, kSources = 2, kEarlier = 3 };
  OnnxSource source{.symbols = {"batch_size", "decoder_sequence_length", "encoder_sequence_length"}};
  if (past) source.symbols.emplace_back("past_decoder_sequence_length");
  source.trace = [&model, past, cache](Trace& trace, std::span<const int64_t> sizes) {
    const int64_t batch = sizes[kBatch], sources = sizes[kSources], earlier = past ? sizes[kEarlier] : 0;
    KeyValues key_values(trace, batch, model.decoder_attention());
    TargetRows rows{.tokens = trace.input("input_ids", {DType::kI32, {batch, sizes[kTargets]}}), .past = earlier};
    rows.source_lengths = trace.input("lengths", {DType::kI32, {batch}});
    if (cache) rows.split = key_values.extend(".decoder", earlier);
    const Tensor memory =
        past ? Tensor{} : trace.input("encoder_hidden_states", {DType::kF32, {batch, sources, model.width()}});
    rows.memory = [=, layer = 0](CrossAttention& attention) mutable {
      if (past) return key_values.take(layer++, ".encoder", sources);
      const auto [keys, values] = split_keys_values(attention.project_memory(memory));
      if (cache) key_values.give(layer++, ".encoder", keys, values);
      return std::pair(keys, values);
    };
    trace.graph().output("logits", model.decode(rows));
  };
  source.masks = {{"lengths", "encoder_attention_mask", {symbol(kBatch), symbol(kSources)}}};
  source.first_outputs = {"logits"};
  return source;
}

void refuse_joined_past(const OnnxFileOptions& options) {
  if (options.joined_past) fail_user("a past that holds keys and values together is for GPT-2 alone");
}

constexpr const char* kChoice = "use_cache_branch";

// A branch's names must differ from those of the outer model and the other branch.
void add_prefix(OnnxGraph& graph, const std::string& prefix) {
  std::set<std::string> shared;
  for (const OnnxValueInfo& input : graph.inputs) shared.insert(input.name);
  for (OnnxTensor& tensor : graph.initializers)
    if (tensor.fill) shared.insert(tensor.name);  // a parameter
  const auto rename = [&](std::string& name) {
    if (!name.empty() && !shared.contains(name)) name.insert(0, prefix);
  };
  for (OnnxTensor& tensor : graph.initializers) rename(tensor.name);
  for (OnnxNode& node : graph.nodes) {
    rename(node.name);
    for (auto* names : {&node.in, &node.out})
      for (std::string& name : *names) rename(name);
  }
  for (OnnxValueInfo& output : graph.outputs) rename(output.name);
}

template <class Item> void add_missing(std::vector<Item>& to, const std::vector<Item>& from) {
  for (const Item& item : from)
    if (!find_item(to, item.name, &Item::name)) to.push_back(item);
}

// Gives a branch all outputs, in order.
void complete_outputs(OnnxGraph& branch, const std::vector<OnnxValueInfo>& outputs) {
  for (const OnnxValueInfo& output : outputs) {
    if (find_item(branch.outputs, output.name, &OnnxValueInfo::name)) continue;
    const std::string past = "past_key_values" + output.name.substr(output.name.find('.'));
    if (!find_item(branch.inputs, past, &OnnxValueInfo::name)) fail_internal("ONNX: no branch computes ", output.name);
    branch.nodes.push_back(named_node(output.name, "Identity", {past}));
  }
  branch.outputs = outputs;
}

OnnxAttribute branch_attribute(const char* name, OnnxGraph graph) {
  graph.name = name;
  graph.inputs.clear();
  return {.name = name, .type = OnnxAttribute::kGraph, .graph = std::make_shared<OnnxGraph>(std::move(graph))};
}

// One decoder file with and without a past: an input "use_cache_branch" bool [1] selects; shared parameters are stored
// once. An output that `with_past` lacks is passed on from its input: past_key_values... to present....
OnnxModel merge_decoders(OnnxModel without_past, OnnxModel with_past, bool any_head_size) {
  OnnxGraph merged{
      .name = without_past.graph.name, .inputs = without_past.graph.inputs, .outputs = without_past.graph.outputs};
  add_missing(merged.inputs, with_past.graph.inputs);
  add_missing(merged.outputs, with_past.graph.outputs);
  if (any_head_size)
    for (OnnxValueInfo& input : merged.inputs)
      if (input.name.starts_with("past_key_values")) input.dims.back() = {-1, "head_size"};
  merged.inputs.push_back({.name = kChoice, .element = OnnxElement::kBool, .has_shape = true, .dims = {{1}}});
  for (const auto& [branch, prefix] :
      {std::pair{&without_past.graph, "without_past/"}, {&with_past.graph, "with_past/"}}) {
    complete_outputs(*branch, merged.outputs);
    add_prefix(*branch, prefix);
    add_missing(merged.initializers, branch->initializers);
    branch->initializers.clear();
  }
  OnnxNode choice{.name = "choice", .op = "If", .in = {kChoice}};
  for (OnnxValueInfo& output : merged.outputs) {
    choice.out.push_back(output.name);
    for (OnnxDim& dim : output.dims)
      if (dim.size < 0) dim.symbol.clear();  // the branches declare it
  }
  choice.attributes = {branch_attribute("then_branch", std::move(with_past.graph)),
      branch_attribute("else_branch", std::move(without_past.graph))};
  merged.nodes = {choice};
  OnnxModel model = std::move(without_past);
  model.graph = std::move(merged);
  return model;
}

// In fp32. The sources of its tensors must outlive it.
OnnxModel make_onnx(
    const ParameterLayout& layout, const float* parameters, const OnnxSource& source, const OnnxOptions& options) {
  if (options.opset < 14 || options.opset > 18) fail_user("opset ", options.opset, " cannot be written; 14 to 18 can");
  const SizeSets sets = source.sizes.empty() ? default_sizes(source.symbols.size()) : source.sizes;
  const std::vector<Graph> traces = trace_all(source, sets);
  const auto constants = std::make_shared<std::vector<float>>(layout.constant_count());
  if (!constants->empty()) {
    ThreadPool pool(1);
    layout.initialize_constants(constants->data(), pool);
  }
  const auto known = parameters_of(layout, parameters, constants);
  OnnxBuilder builder(options.opset, source.symbols);
  OnnxLowering lowering(builder, traces, sets, source.form);
  for (const GraphInput& input : traces[0].inputs()) {
    if (const OnnxParameter* parameter = find_value(known, input.name)) {
      lowering.bind_parameter(input.value, *parameter);
    } else if (const OnnxMask* mask = find_item(source.masks, input.name, &OnnxMask::lengths)) {
      builder.input(mask->name, OnnxElement::kInt64, mask->shape);
      lowering.bind_key_mask(input.value, mask->name);
    } else {
      lowering.bind_input(input.value);
    }
  }
  lowering.run();
  std::vector<GraphOutput> outputs = traces[0].outputs();
  std::stable_partition(outputs.begin(), outputs.end(),
      [&](const GraphOutput& output) { return contains(source.first_outputs, output.name); });
  for (const GraphOutput& output : outputs)
    builder.output(output.name, lowering.name_of(output.value), onnx_element(traces[0].value(output.value).type.dtype),
        lowering.shape_of(output.value));
  OnnxModel model;
  model.ir_version = options.opset >= 17 ? 8 : 7;
  model.opsets[""] = options.opset;
  model.producer = "linnet", model.producer_version = LINNET_VERSION;
  model.graph = builder.finish("linnet");
  return model;
}
}  // namespace

void save_onnx(const ParameterLayout& layout, const float* parameters, const OnnxSource& source,
    const std::string& path, const OnnxOptions& options) {
  save_onnx(layout, parameters, OnnxFile{path, source}, "", options);
}

void save_onnx(const ParameterLayout& layout, const float* parameters, const OnnxFile& file, const std::string& folder,
    const OnnxOptions& options) {
  OnnxModel model = make_onnx(layout, parameters, file.source, options);
  if (file.with_past)
    model =
        merge_decoders(std::move(model), make_onnx(layout, parameters, *file.with_past, options), file.any_head_size);
  set_precision(model, options.precision, options.input_scales);
  write_onnx(model, path_in(folder, file.name));
}

std::vector<OnnxFile> onnx_files(TextDecoder& model, const OnnxFileOptions& options) {
  if (options.joined_past && !options.cache) fail_user("without a cache there is no past to join");
  OnnxSource source{.symbols = first_symbols(options.cache ? 3 : 2)};
  source.trace = [&model, options](Trace& trace, std::span<const int64_t> sizes) {
    const TensorType ids{DType::kI32, {sizes[kBatch], sizes[kLength]}};
    TokenRows rows{.tokens = trace.input("input_ids", ids)};
    rows.lengths = trace.input("lengths", {DType::kI32, {sizes[kBatch]}});
    rows.positions = trace.input("position_ids", ids);
    if (options.cache)
      rows.split = KeyValues(trace, sizes[kBatch], model.layers[0].self_attn.config)
                       .extend("", sizes[kPast], options.joined_past);
    const Tensor hidden = model.hidden(rows);
    trace.graph().output("logits", model.logits(hidden));
  };
  const SymbolicSize keys = options.cache ? symbol(kPast) + symbol(kLength) : symbol(kLength);
  source.masks = {{"lengths", "attention_mask", {symbol(kBatch), keys}}};
  source.first_outputs = {"logits"};
  if (options.joined_past) source.form.causal_mask_size = model.usual_length();
  return {{"model.onnx", source}};
}

std::vector<OnnxFile> onnx_files(EncoderDecoder& model, const OnnxFileOptions& options) {
  refuse_joined_past(options);
  std::vector<OnnxFile> files{{"encoder_model.onnx", encoder_source(model)},
      {"decoder_model.onnx", decoder_source(model, false, options.cache)}};
  if (!options.cache) return files;
  files.push_back({"decoder_with_past_model.onnx", decoder_source(model, true, true)});
  const LayerConfig& attention = model.decoder_attention();
  files.push_back({"decoder_model_merged.onnx", files[1].source, files[2].source,
      attention.size() * attention.heads != attention.width});
  return files;
}

std::vector<OnnxFile> onnx_files(ImageModel& model) {
  OnnxSource source{.symbols = first_symbols(1)};
  source.trace = [&model](Trace& trace, std::span<const int64_t> sizes) {
    const ImageShape& c = model.images;
    const Tensor images = trace.input("images", {DType::kU8, {sizes[0], c.height, c.width, c.channels}});
    trace.graph().output("logits", model(images));
  };
  return {{"model.onnx", source}};
}

std::vector<OnnxFile> onnx_files(const PretrainedModel& model, const OnnxFileOptions& options) {
  if (!model.family) fail_user("there is no form of this kind of model in ONNX");
  if (std::string_view(model.family->model_type) != "gpt2") refuse_joined_past(options);
  switch (model.family->kind) {
    case FamilyKind::kDecoder: return onnx_files(model.as<TextDecoder>(), options);
    case FamilyKind::kEncoderDecoder: return onnx_files(model.as<EncoderDecoder>(), options);
    case FamilyKind::kImages: return onnx_files(model.as<ImageModel>());
    case FamilyKind::kEncoder: break;
  }
  return encoder_file(model);
}

void export_onnx_folder(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
    const std::string& folder, const OnnxFolderOptions& options) {
  const OutputFolder made(folder);
  for (const OnnxFile& file : onnx_files(model, options.files))
    save_onnx(layout, parameters, file, folder, options.onnx);
  save_companions(model, folder);
}
}  // namespace linnet
