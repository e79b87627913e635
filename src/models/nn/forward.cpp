#include "models/nn/forward.h"
#include "base/fail.h"
#include "engine/exec/backend.h"
#include "models/nn/activation_observer.h"
#include "models/nn/model_store.h"
#include "models/nn/parameter_file.h"

namespace linnet {
Forward::Forward(const Module& model, const std::vector<Function>& functions, const ForwardOptions& options)
    : layout_(model, {}, options.quantization), store_(open_backend(options.device)),
      pool_(threads_or_all(options.threads)) {
  std::vector<Graph> graphs;
  for (const Function& function : functions) {
    Trace trace({.layout = &layout_});
    function(trace);
    graphs.push_back(trace.finish());
  }
  const SharedRegions shared = declare_model(store_, layout_);
  std::vector<Graph> once;
  if (options.pack_weights) once = take_computed_once(graphs);
  if (store_.device().is_host())
    for (Graph& graph : graphs) graph = group_images(graph);
  bind_inputs(graphs);
  if (options.pack_weights) filters_ = packable_filters(graphs, store_.backend());
  for (const PackedFilters& filters : filters_)
    store_.declare(filters.input(), MemoryKind::kParameters, float_bytes(filters.floats));
  // Other nodes are rounded no more coarsely than the products of linear layers.
  const auto bf16_if = [](bool is_wanted) { return is_wanted ? Precision::kBf16 : Precision::kF32; };
  const bool in_bf16 = options.quantization.linear == WeightFormat::kBf16;
  const bool in_int8 = options.quantization.linear == WeightFormat::kInt8;
  // A GPU reads and writes activations in bf16 too, as in training.
  const auto storage = in_bf16 && !store_.device().is_host() ? std::optional(DType::kBF16) : std::nullopt;
  for (Graph& graph : graphs) {
    graph = optimize(std::move(graph), {.precision = bf16_if(in_bf16),
                                           .attention_precision = bf16_if(in_bf16 || in_int8),
                                           .storage_type = storage,
                                           .filters = filters_,
                                           .backend = &store_.backend()});
    plans_.push_back(make_plan(std::move(graph), store_, shared, {.threads = pool_.size()}));
  }
  if (options.pack_weights) {
    const std::vector<Plan*> plans = mapped(plans_, [](Plan& plan) { return &plan; });
    weights_ = PackedWeights(plans, store_);
  }
  for (Graph& graph : once)
    once_plans_.push_back(make_plan(optimize(std::move(graph)), store_, shared, {.threads = pool_.size()}));
  store_.allocate();
  store_.touch();
  if (layout_.constant_count() > 0) layout_.initialize_constants(store_.as<float>(state::kConstants), pool_);
  for (const Plan& plan : plans_) executors_.push_back(std::make_unique<Executor>(plan, store_, shared));
  for (const Plan& plan : once_plans_) once_.push_back(std::make_unique<Executor>(plan, store_, shared));
}

void Forward::load(const std::function<void(const ParameterTarget& parameters)>& load) {
  load_into(store_, layout_, pool_, load);
  pack_loaded();
}

bool Forward::load(const ParameterFile& file) {
  if (!file.load(store_, layout_, pool_)) return false;
  pack_loaded();
  return true;
}

void Forward::load(const std::string& folder, const LoadWeights& weights) {
  file_ = ParameterFile::open(folder);
  if (file_ && load(*file_)) return;
  load([&](const ParameterTarget& parameters) { weights(layout_, parameters); });
}

void Forward::check_weights() const {
  if (file_) file_->check_weights();
}

std::vector<Graph> Forward::take_computed_once(std::vector<Graph>& graphs) {
  std::vector<Graph> first;
  for (size_t i = 0; i < graphs.size() && store_.device().is_host(); ++i) {
    auto split = compute_once(graphs[i], {state::kParameters, state::kConstants}, std::to_string(i));
    if (!split) continue;
    for (Graph& graph : split->first) {
      const GraphOutput& output = graph.outputs().front();
      store_.declare(output.name, MemoryKind::kParameters, graph.value(output.value).type.bytes());
      first.push_back(std::move(graph));
    }
    graphs[i] = std::move(split->rest);
  }
  return first;
}

void Forward::pack_loaded() {
  for (size_t i = 0; i < once_.size(); ++i) {
    once_[i]->run(pool_);
    const std::string& name = once_plans_[i].graph.outputs().front().name;
    const TensorView& result = once_[i]->output(name);
    if (result.strides != dense_strides(result.shape())) fail_internal("\"", name, "\" is not dense");
    std::memcpy(store_.data(name), result.data, result.type.bytes());
  }
  weights_.pack(store_, pool_);
  for (const PackedFilters& filters : filters_)
    pack(filters, store_.as<float>(filters.flat), store_.as<float>(filters.input()), pool_);
  store_.push(state::kConstants);
  store_.push(state::kParameters);
}

void Forward::bind_inputs(const std::vector<Graph>& graphs) {
  for (const Graph& graph : graphs)
    for (const GraphInput& input : graph.inputs()) {
      if (store_.has(input.name)) continue;
      size_t& bytes = inputs_[input.name];
      bytes = std::max(bytes, graph.value(input.value).type.bytes());
    }
  for (const auto& [name, bytes] : inputs_) store_.declare(name, MemoryKind::kBatch, bytes);
}

void* Forward::location(const std::string& input, size_t bytes) {
  const auto found = inputs_.find(input);
  if (found == inputs_.end()) fail_user("the model has no input \"", input, "\"");
  if (bytes > found->second) fail_user("input \"", input, "\" takes ", found->second, " bytes, got ", bytes);
  return store_.data(input);
}

Forward& Forward::run(size_t function) {
  last_ = function;
  executors_[function]->run(pool_);
  if (ActivationObserver* observer = layout_.observer()) observer->collect(*executors_[function], store_);
  return *this;
}

std::vector<Forward::NodeTime> Forward::time_nodes(int64_t times) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < times; ++i) executors_[0]->run_timed(pool_, seconds);
  const Graph& graph = plans_[0].graph;
  std::vector<NodeTime> nodes;
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    std::string types;
    for (const ValueId in : node.in) types += graph.value(in).type.text() + ' ';
    types += "->";
    for (const ValueId out : node.out) types += ' ' + graph.value(out).type.text();
    nodes.push_back({node.op->name, types, seconds[id] / static_cast<double>(times)});
  }
  return nodes;
}

const TensorView& Forward::dense_output(const std::string& output, DType dtype) const {
  const TensorView& view = executors_[last_]->output(output);
  if (view.type.dtype != dtype || view.strides != dense_strides(view.shape()))
    fail_internal("output \"", output, "\" is not a dense tensor of ", dtype_name(dtype));
  return view;
}
}  // namespace linnet
