// Makes a Learner: records the loss for each batch shape, compares the recordings, and plans.
#include <algorithm>
#include <array>
#include "api/cpp/helpers.h"
#include "api/cpp/learner_state.h"
#include "base/text.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/passes/rewriter.h"
#include "engine/plan/store.h"

namespace linnet {
namespace {
// The loss is two scalars of the traced graph.
void check_loss(const Loss& loss, const Graph& graph) {
  const auto check = [&](Tensor tensor, const char* name) {
    if (!tensor.defined())
      fail_user("the loss has no ", name,
          "; a loss is {.sum = ..., .count = ...}, the sum over samples and how many there are");
    if (tensor.graph != &graph) fail_user("the ", name, " of the loss is a tensor of another graph");
    const TensorType type = tensor.type();
    if (type.shape.rank() != 0 || type.dtype != DType::kF32)
      throw Error(ErrorKind::kShape, std::string("the ") + name + " of the loss is " + type.text() +
                                         ", expected a scalar f32[]; sum(x) makes one");
  };
  check(loss.sum, "sum");
  check(loss.count, "count");
}

// One line for each input and node. Values are named by what makes them, so equal recordings have equal lines.
std::vector<std::string> lines_of(const Graph& graph) {
  std::vector<std::string> names(graph.value_count()), lines;
  for (const GraphInput& input : graph.inputs()) {
    std::string& name = names[input.value];
    name = is_reserved(input.name) ? "state" : "input " + input.name;
    if (!is_reserved(input.name)) lines.push_back(name + " " + graph.value(input.value).type.text());
  }
  for (NodeId id = 0; id < graph.node_count(); ++id) {
    const Node& node = graph.node(id);
    std::string line = graph.where_text(id) + " of ";
    for (size_t i = 0; i < node.in.size(); ++i) line += (i ? ", " : "") + names[node.in[i]];
    line += " {" + node.attrs.text() + "}";
    for (size_t i = 0; i < node.out.size(); ++i) {
      names[node.out[i]] = "node " + std::to_string(id) + "." + std::to_string(i);
      line += " " + graph.value(node.out[i]).type.text();
    }
    lines.push_back(line);
  }
  return lines;
}

std::set<std::string> inputs_of(const Graph& graph, ValueId value) {
  const std::vector<bool> is_needed = ancestors_of(graph, std::array{value});
  std::set<ValueId> read{value};
  for (NodeId id = 0; id < graph.node_count(); ++id)
    if (is_needed[id]) read.insert(graph.node(id).in.begin(), graph.node(id).in.end());
  std::set<std::string> names;
  for (const GraphInput& input : graph.inputs())
    if (read.contains(input.value)) names.insert(input.name);
  return names;
}

// Whether the group has a parameter that no earlier one has.
bool reaches_any(std::span<const TrainingGroup> groups, size_t number, const ParameterLayout& layout) {
  return std::ranges::any_of(layout.parameters(), [&](const ParameterSlot& slot) {
    const auto has_it = [&](const TrainingGroup& group) { return matches_any(slot.spec.name, group.patterns); };
    return has_it(groups[number]) && std::ranges::none_of(groups.first(number), has_it);
  });
}

// The inputs that attention reads as lengths.
std::map<std::string, int64_t> attention_lengths(const Graph& graph) {
  std::map<std::string, int64_t> lengths;
  for (const Node& node : graph.nodes()) {
    if (!is(node, kAttention) || !node.attrs.as<AttentionAttrs>().has_lengths) continue;
    for (const GraphInput& input : graph.inputs()) {
      if (input.value != node.in[kAttentionFixed] || is_reserved(input.name)) continue;
      const int64_t keys = graph.value(node.in[1]).type.shape[1];
      const auto [known, is_new] = lengths.try_emplace(input.name, keys);
      known->second = std::min(known->second, keys);
    }
  }
  return lengths;
}

// The inputs that reach operand number operand(node) of some node (-1: none), directly or through ops of one operand.
std::set<std::string> inputs_read_as(const Graph& graph, int (*operand)(const Node& node)) {
  std::vector<bool> is_read(graph.value_count());
  for (NodeId id = graph.node_count(); id-- > 0;) {
    const Node& node = graph.node(id);
    const bool hands_on = node.in.size() == 1 && is_read[node.out[0]];
    if (const int i = hands_on ? 0 : operand(node); i >= 0) is_read[node.in[static_cast<size_t>(i)]] = true;
  }
  std::set<std::string> names;
  for (const GraphInput& input : graph.inputs())
    if (is_read[input.value] && !is_reserved(input.name)) names.insert(input.name);
  return names;
}

int target_operand(const Node& node) {
  if (is(node, kCountTargets) || is(node, kOneHot)) return 0;
  return is(node, kCrossEntropy) ? 1 : is(node, kLinearCrossEntropy) ? 2 : -1;
}

void check_inputs(const InputTypes& evaluated, const InputTypes& trained) {
  const auto compare = [](const InputTypes& one, const char* in, const InputTypes& other, const char* not_in) {
    for (const auto& [name, type] : one) {
      const auto found = other.find(name);
      if (found == other.end())
        fail_user("the loss declares input \"", name, "\" in ", in, " and not in ", not_in,
            "; it declares the same inputs in both");
      if (found->second != type)
        fail_user(
            "the loss declares input \"", name, "\" as ", type, " in ", in, " and as ", found->second, " in ", not_in);
    }
  };
  compare(trained, "training", evaluated, "evaluation");
  compare(evaluated, "evaluation", trained, "training");
}

// Scales the shapes so that the largest has `rows` rows.
std::vector<InputTypes> with_rows(std::vector<InputTypes> shapes, int64_t rows) {
  const int64_t largest = std::max<int64_t>(1, max_of<int64_t>(shapes, most_rows));
  for (InputTypes& types : shapes) {
    const int64_t most = most_rows(types);
    for (auto& [name, type] : types)
      if (type.shape.rank() > 0 && type.shape[0] == most)
        type.shape.set(0, std::max<int64_t>(1, most * rows / largest));
  }
  return shapes;
}
// Whether the loss follows from a parameter that is trained.
void check_learns(const ParameterLayout& layout, const Graph& graph, ValueId loss) {
  if (!layout.packed_ranges().empty()) return;
  const std::vector<bool> needed = ancestors_of(graph, std::span(&loss, 1));
  for (const TrainedRange& range : layout.ranges())
    if (const auto flat = graph.find_input(state::kParameters + range.suffix))
      for (size_t id = 0; id < needed.size(); ++id)
        if (needed[id] && std::ranges::count(graph.nodes()[id].in, *flat)) return;
  fail_user("the loss follows from no parameter that is trained, so there is nothing to learn");
}
}  // namespace

int64_t most_rows(const InputTypes& types) {
  return max_of<int64_t>(types, [](const auto& row) { return row.second.shape.rank() > 0 ? row.second.shape[0] : 0; });
}

InputTypes declared(const Graph& graph) {
  InputTypes types;
  for (const GraphInput& input : graph.inputs())
    if (!is_reserved(input.name)) types[input.name] = graph.value(input.value).type;
  return types;
}

std::string types_text(const InputTypes& types) {
  const std::string text = joined(types, ", ", [](const auto& row) { return row.first + " " + row.second.text(); });
  return text.empty() ? "nothing" : text;
}

Learner::State::State(
    const Module& module, TracedLoss given_loss, const std::vector<InputTypes>& shapes, const LearnerOptions& all)
    : model(&module), loss(std::move(given_loss)), options(all),
      owner(all.weights ? &all.weights->state().weights() : nullptr), explicit_types(shapes.empty()),
      trainer_options(linnet::trainer_options(all, owner ? &owner->store : nullptr)),
      layout(module, parameter_groups(all), {}, nullptr, owner ? &owner->layout : nullptr),
      store(*trainer_options.backend) {
  if (owner && options.average_decay > 0)
    fail_user("a learner that shares weights has no moving average of its own: leave average_decay out");
  if (!loss) fail_user("a learner needs a loss function");
  if (layout.parameters().empty())
    fail_user("the model has no parameters; they are members of modules: Linear, Parameter");
  for (size_t i = 0; i < options.groups.size(); ++i)
    if (!reaches_any(options.groups, i, layout))
      fail_user("the group \"", options.groups[i].patterns[0],
          "\" has no parameter: earlier groups, which come first, have all that its patterns match");
  if (owner && owner->options.device != options.device)
    fail_user("learners that share weights are on one device, not on ", owner->options.device, " and ", options.device);
  if (owner && owner->trainer->state().evaluated() == state::kAverage)
    fail_user("weights with a moving average cannot be shared: leave average_decay out");
  shared = add_shared_regions(store);
  trainer = std::make_unique<Trainer>(layout, store, shared, trainer_options);
  if (explicit_types) add_kind(nullptr, options.training);
  for (const InputTypes& types : shapes) add_kind(&types, options.training);
  for (const InputTypes& types : options.evaluation_shapes) add_kind(&types, false);
  for (const auto& [name, bytes] : capacities) store.declare(name, MemoryKind::kBatch, bytes);
  plan();
  loss = nullptr;
  traces.clear();
}

void Learner::State::allocate() {
  store.allocate();
  store.touch();
  trainer->plans().bind();
  trainer->state().initialize();
}

LossFunction Learner::State::traced(const InputTypes* types) {
  return [this, types](Trace& trace) {
    Tracer tracer(trace, types);
    trace.set_model(model);
    Loss traced = loss(tracer);
    if (!options.training && !traced.sum.defined() && !traced.count.defined())
      traced = {.sum = tracer.number(0), .count = tracer.number(1)};
    check_loss(traced, trace.graph());
    if (trace.options().training) check_learns(layout, trace.graph(), traced.sum.id);
    check_same_trace(types, trace);
    return traced;
  };
}

// A loss that depends on changing state, such as a counter, would train one model and evaluate another.
void Learner::State::check_same_trace(const InputTypes* types, Trace& trace) {
  const std::vector<std::string> lines = lines_of(trace.graph());
  const auto [known, is_new] = traces.try_emplace({types, trace.options().training}, lines);
  if (is_new || known->second == lines) return;
  const auto [before, now] = std::ranges::mismatch(known->second, lines);
  const auto text = [](const auto& at, const auto& all) {
    return at == all.end() ? "nothing more" : "\"" + *at + "\"";
  };
  fail_user("the loss does not record the same each time it is called: first ", text(before, known->second), ", later ",
      text(now, lines), "; it may depend on nothing that changes but Tracer::training()");
}

int64_t Learner::State::BatchKind::rows() const { return std::max(mask_rows, most_rows(used)); }

const std::set<std::string>& Learner::State::BatchKind::inputs_of(const char* output) const {
  return find_item(outputs, std::string(output), &Output::name)->inputs;
}

bool Learner::State::BatchKind::knows_padding() const {
  return inputs_of(state::kLossSum).contains(kRowMask) ||
         std::ranges::any_of(inputs_of(state::kTokenCount), [&](const std::string& name) {
           return name == kRowMask || (!is_reserved(name) && !counted.contains(name));
         });
}

// Records what the loss uses of a batch shape.
void Learner::State::add_kind(const InputTypes* types, bool trained) {
  for (const auto& kind : kinds)
    if (types && kind->types == *types) return;
  BatchKind& kind = *kinds.emplace_back(std::make_unique<BatchKind>());
  kind.trained = trained;
  if (types) kind.types = *types;
  const LossFunction recorded = traced(types ? &kind.types : nullptr);
  const Graph graph = evaluate_graph(layout, recorded, state::kParameters);
  kind.used = declared(graph);
  kind.lengths = attention_lengths(graph);
  const std::set<std::string> targets = inputs_read_as(graph, target_operand),
                              ids =
                                  inputs_read_as(graph, [](const Node&node) { return is(node, kEmbedding) ? 1 : -1; });
  for (const auto& [name, type] : kind.used) {
    const bool is_target = targets.contains(name) && type.dtype == DType::kI32;
    if ((is_target || is_label(name, type.dtype)) && !ids.contains(name)) kind.labels.insert(name);
    if (is_target && ids.contains(name)) kind.counted.insert(name);
  }
  const auto find_mask = [&](const Graph& recording) {
    if (const auto mask = recording.find_input(kRowMask)) kind.mask_rows = recording.value(*mask).type.shape[0];
  };
  find_mask(graph);
  for (const GraphOutput& output : graph.outputs())
    kind.outputs.push_back({output.name, inputs_of(graph, output.value)});
  if (trained) {
    Trace training({.training = true, .layout = &layout});
    (void)recorded(training);
    check_inputs(kind.used, declared(training.graph()));
    find_mask(training.graph());
    for (const GraphOutput& output : training.graph().outputs()) kind.step_outputs.push_back(output.name);
  }
  const auto reserve = [&](const std::string& name, size_t bytes) {
    capacities[name] = std::max(capacities[name], bytes);
  };
  for (const auto& [name, type] : kind.used) reserve(name, type.bytes());
  if (kind.mask_rows > 0) reserve(kRowMask, float_bytes(kind.mask_rows));
}

void Learner::State::plan() {
  const auto add = [&](BatchKind& kind, bool trained) {
    const LossFunction traced_loss = traced(explicit_types ? nullptr : &kind.types);
    kind.number =
        trained ? trainer->plans().add_shape(traced_loss) : trainer->plans().add_evaluation_shape(traced_loss);
  };
  const bool limited = options.memory > 0;
  for (const auto& kind : kinds)
    if (kind->trained) add(*kind, !limited);
  if (limited && options.training) trainer->plans().plan_training_within_memory(0);
  for (const auto& kind : kinds)
    if (!kind->trained) add(*kind, false);
  if (limited && store.total_bytes() > options.memory)
    fail_user("the model does not fit within ", options.memory, " bytes: it needs at least ", store.total_bytes());
}

MemoryPlan Learner::State::memory() const {
  MemoryPlan all{.bytes = store.total_bytes()};
  for (const Store::Region& region : store.regions()) {
    if (region.owner) continue;
    const std::string kind = enum_name(region.kind);
    const size_t bytes = store.device().footprint(region.bytes);
    if (MemoryUse* found = find_item(all.kinds, kind, &MemoryUse::kind)) found->bytes += bytes;
    else all.kinds.push_back({kind, bytes});
  }
  return all;
}

MemoryPlan plan(const Module& model, TracedLoss loss, const LearnerOptions& options) {
  return Learner::State(model, std::move(loss), {}, options).memory();
}

MemoryPlan plan(
    const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes, const LearnerOptions& options) {
  if (shapes.empty()) fail_user("a plan needs at least one batch shape; Loader::shapes() gives them");
  return Learner::State(model, std::move(loss), shapes, options).memory();
}

int64_t largest_batch(const Module& model, TracedLoss loss, const std::vector<InputTypes>& shapes, size_t bytes,
    const LearnerOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 24;
  const auto fits = [&](int64_t rows) { return plan(model, loss, with_rows(shapes, rows), options).bytes <= bytes; };
  if (!fits(1)) return 0;
  int64_t good = 1, bad = 2;
  while (bad < kMost && fits(bad)) good = bad, bad *= 2;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}
}  // namespace linnet
