#include "generation/slot_model.h"
#include "base/fail.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/low_rank.h"

namespace linnet {
namespace {
// The graphs' own input names, so that a trainer's batches in the same store stay apart.
constexpr const char* kTokens = "generate.tokens";
constexpr const char* kPositions = "generate.positions";
constexpr const char* kLengths = "generate.lengths";
constexpr const char* kStarts = "generate.starts";
constexpr const char* kParents = "generate.parents";
constexpr const char* kCacheRows = "generate.cache_rows";

bool is_of_generation(const std::string& name) {
  constexpr std::array<std::string_view, 3> kPrefixes{"generate.", "cache.", "memory."};
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Binds unbound inputs of these graphs, each as large as its largest use: integers ("generate.*") in a batch region,
// states ("cache.*", "memory.*") in a cache. The caller binds parameters and constants. `cache`: where the states
// begin, in a region that grows to hold them; otherwise they get their own.
void bind_generation_inputs(Store& store, const std::vector<const Graph*>& graphs, std::optional<Location> cache) {
  std::map<std::string, TensorType> largest;
  for (const Graph* graph : graphs)
    for (const GraphInput& input : graph->inputs()) {
      if (!is_of_generation(input.name)) continue;
      const TensorType& type = graph->value(input.value).type;
      TensorType& have = largest.try_emplace(input.name, type).first->second;
      if (type.bytes() > have.bytes()) have = type;
    }
  for (const bool floats : {false, true}) {
    Store::Parts parts;
    for (const auto& [name, type] : largest)
      if (!store.has(name) && is_float(type.dtype) == floats) parts.emplace_back(name, type.bytes());
    if (parts.empty()) continue;
    if (!floats) store.declare_together("decoding batch", MemoryKind::kBatch, parts);
    else if (!cache) store.declare_together("decoding cache", MemoryKind::kCache, parts);
    else store.bind_together(*cache, parts);
  }
}
}  // namespace

SlotModel::SlotModel(Store& store, const SharedRegions& shared, int64_t vocab_size, const SlotOptions& options)
    : store_(store), shared_(shared),
      options_(options), planning_{.threads = options.threads, .verify = options.verify_plans}, vocab_(vocab_size),
      adapters_(static_cast<size_t>(options.slots()), -1) {
  if (options.rows < 1 || options.beams < 1) fail_internal("generation needs at least one text and one beam");
  if (options.fed_by_rows && options.beams > 1) fail_internal("a search whose rows are not slots");
}

DecodeStep SlotModel::step_inputs(Graph& graph, int64_t rows, int64_t max_length, bool by_rows) const {
  const TensorType of_rows{DType::kI32, {rows}};
  DecodeStep step{.position = graph.input(kPositions, of_rows),
      .lengths = graph.input(kLengths, of_rows),
      .starts = options_.window > 0 ? graph.input(kStarts, {DType::kI32, {rows, 1}}) : Tensor{},
      .parents = !by_rows && options_.beams > 1 ? graph.input(kParents, of_rows) : Tensor{},
      .max_length = max_length,
      .beams = by_rows ? 1 : options_.beams};
  if (by_rows) step.cache_rows = graph.input(kCacheRows, of_rows), step.slots = slots();
  return step;
}

Tensor SlotModel::token_input(Graph& graph, int64_t rows) const { return graph.input(kTokens, {DType::kI32, {rows}}); }

void SlotModel::add_adapter_choice(Graph& graph, int64_t rows) const {
  if (options_.adapters > 0) graph.input(kAdapterChoice, {DType::kF32, {rows, options_.adapters}});
}

void SlotModel::use_adapter(int64_t slot, int64_t set) {
  if (set >= options_.adapters) fail_internal("there is no set of adapters ", set);
  adapters_[slot] = set;
}

void SlotModel::choose_adapter(int64_t row, int64_t slot) {
  if (!inputs_->adapters) return;
  float* choice = inputs_->adapters + row * options_.adapters;
  std::fill_n(choice, options_.adapters, 0.0f);
  if (const int64_t set = adapter_of(slot); set >= 0) choice[set] = 1;
}

void SlotModel::give_logits(Graph& graph, Tensor logits) const {
  graph.output("logits", logits);
  if (options_.log_sum_exp) graph.output("log_sum_exp", log_sum_exp_last(logits));
}

void SlotModel::plan(Step& step, Graph graph) {
  step.plan = std::make_unique<Plan>(make_plan(std::move(graph), store_, shared_, planning_));
  plan_list_.push_back(step.plan.get());
}

void SlotModel::make_plans(std::vector<Step> prefills, std::vector<Step> decodes) {
  prefills_ = std::move(prefills), decodes_ = std::move(decodes);
  std::vector<Step*> steps;
  for (auto* some : {&prefills_, &decodes_})
    for (Step& step : *some)
      if (!step.later) steps.push_back(&step);
  std::vector<Graph> graphs = mapped(steps, [](Step* step) { return std::exchange(step->graph, nullptr)(); });
  std::optional<Location> cache;
  if (options_.cache_in_arena) {
    const size_t used = max_of<size_t>(graphs,
        [&](const Graph& graph) { return plan_size(graph, store_.backend(), planning_, /*placed=*/true).arena_bytes; });
    cache = Location{shared_.arena, (used + 63) / 64 * 64};
  }
  bind_generation_inputs(store_, mapped<const Graph*>(graphs, [](const Graph& graph) { return &graph; }), cache);
  if (options_.adapters > 0) {
    choice_rows_ = decodes_.empty() ? 1 : decodes_.back().rows;
    const size_t bytes = sizeof(float) * static_cast<size_t>(choice_rows_ * options_.adapters);
    store_.bind(kAdapterChoice, {store_.add_region("adapters' choice", MemoryKind::kBatch, bytes), 0}, bytes);
  }
  for (size_t i = 0; i < steps.size(); ++i) plan(*steps[i], std::move(graphs[i]));
}

int32_t* SlotModel::input(const char* name) const { return store_.has(name) ? store_.as<int32_t>(name) : nullptr; }

void SlotModel::bind(Step& step) const {
  if (step.plan) step.run = std::make_unique<Executor>(*step.plan, store_, shared_);
}

void SlotModel::bind() {
  inputs_ = {input(kTokens), input(kPositions), input(kLengths), input(kStarts), input(kParents), input(kCacheRows),
      store_.has(kAdapterChoice) ? store_.as<float>(kAdapterChoice) : nullptr};
  if (inputs_->adapters) std::fill_n(inputs_->adapters, choice_rows_ * options_.adapters, 0.0f);
  for (auto* some : {&prefills_, &decodes_})
    for (Step& step : *some) bind(step);
}

bool SlotModel::is_ready(Step& step) {
  if (!std::exchange(step.later, false)) return step.run != nullptr;
  Graph graph = std::exchange(step.graph, nullptr)();
  const PlanSize size = plan_size(graph, store_.backend(), planning_, /*placed=*/true);
  const auto room = [&](RegionId region) { return store_.regions()[static_cast<size_t>(region)].bytes; };
  if (size.arena_bytes > room(shared_.arena) || size.workspace_bytes > room(shared_.workspace)) return false;
  plan(step, std::move(graph));
  bind(step);
  return true;
}

void SlotModel::set_row(int64_t row, int64_t slot, int32_t token, int64_t length) {
  inputs_->tokens[row] = token;
  inputs_->positions[row] = static_cast<int32_t>(length - 1);
  inputs_->lengths[row] = static_cast<int32_t>(length);
  if (inputs_->starts) inputs_->starts[row] = static_cast<int32_t>(std::max<int64_t>(length - options_.window, 0));
  if (inputs_->cache_rows) inputs_->cache_rows[row] = static_cast<int32_t>(slot);
}

// Length 0 attends to nothing, which saves reading the row's cache.
void SlotModel::clear_rows(int64_t begin, int64_t end) {
  for (int32_t* input : {inputs_->tokens, inputs_->positions, inputs_->lengths, inputs_->starts})
    if (input) std::fill(input + begin, input + end, 0);
  if (inputs_->cache_rows) std::fill(inputs_->cache_rows + begin, inputs_->cache_rows + end, -1);
}

void SlotModel::feed_nothing() {
  fed_ = 0;
  if (options_.fed_by_rows) return;
  clear_rows(0, slots());
  for (int32_t slot = 0; inputs_->parents && slot < slots(); ++slot) inputs_->parents[slot] = slot;
}

int64_t SlotModel::feed(int64_t slot, int32_t token, int64_t length, int64_t parent) {
  const int64_t row = options_.fed_by_rows ? fed_ : slot;
  if (row >= most_rows()) fail_internal("more tokens are fed than a step was planned for");
  fed_ = std::max(fed_, row + 1);
  choose_adapter(row, slot);
  set_row(row, slot, token, length);
  if (inputs_->parents) inputs_->parents[slot] = static_cast<int32_t>(parent);
  return row;
}

void SlotModel::decode(ThreadPool& pool) {
  auto smallest = std::ranges::find_if(decodes_, [&](const Step& step) { return step.rows >= fed_; });
  // Kernels divide fewer rows differently and may need more memory. Then a larger step computes them, with equal bits.
  while (!is_ready(*smallest)) ++smallest;
  if (options_.fed_by_rows) clear_rows(fed_, smallest->rows);
  smallest->run->run(pool);
  decoded_ = output_of(*smallest->run, smallest->rows);
}

SlotModel::Output SlotModel::output_of(const Executor& run, int64_t rows) const {
  const auto count = static_cast<size_t>(rows);
  Output output{.logits = {run.output("logits").as<float>(), count * static_cast<size_t>(vocab_)}};
  if (options_.log_sum_exp) output.log_sum_exp = {run.output("log_sum_exp").as<float>(), count};
  return output;
}

SlotModel::Output SlotModel::decoded(int64_t first_row, int64_t count) const {
  const auto first = static_cast<size_t>(first_row), rows = static_cast<size_t>(count);
  const auto width = static_cast<size_t>(vocab_);
  Output output{.logits = decoded_.logits.subspan(first * width, rows * width)};
  if (options_.log_sum_exp) output.log_sum_exp = decoded_.log_sum_exp.subspan(first, rows);
  return output;
}

size_t padded_to(std::span<const int64_t> lengths, int64_t length) {
  return static_cast<size_t>(std::ranges::lower_bound(lengths, length) - lengths.begin());
}
}  // namespace linnet
