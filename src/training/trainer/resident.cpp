#include "training/trainer/resident.h"
#include "base/fail.h"
#include "engine/ops/resident/resident.h"
#include "engine/passes/rewriter.h"

namespace linnet {
namespace {
const std::string kPrefix = "resident.";
constexpr std::array kReported{state::kLossSum, state::kTokenCount, state::kSumOfSquares};
// Longer recordings save nothing: the host is ahead anyway.
constexpr int64_t kNodesTogether = 512;
constexpr size_t kDeviceAlignment = 256;

ValueId output_of(const Graph& graph, const std::string& name) {
  if (const GraphOutput* found = find_item(graph.outputs(), name, &GraphOutput::name)) return found->value;
  fail_internal("a step without ", name);
}

// All data of an input, as a new input of the graph.
Tensor all_of(Graph& graph, const ResidentOptions::Input& data, const TensorType& batch) {
  TensorType row = batch;
  const bool has_rows = batch.shape.rank() >= 1 && data.type.shape.rank() >= 1;
  if (has_rows) row.shape.set(0, data.type.shape[0]);
  if (!has_rows || row != data.type)
    fail_user("resident data \"", data.name, "\" are ", data.type.text(), ", and a batch is ", batch.text());
  return graph.input(kPrefix + data.name, data.type);
}

// A step graph (training/trainer/step_graphs.h) that reads its data from inputs "resident.NAME" [N, ...], `control`
// from a row of "resident.control" [steps, 2] and `random` from "resident.random" i32 [steps, 4]. "resident.order" i32
// [steps * rows] lists the rows of each batch. States: "resident.cursor" i32 [1] counts steps; "resident.ring" [steps,
// 3] has each step's loss_sum, token_count and sum_of_squares.
Graph resident_graph(const Graph& step, const ResidentOptions& options) {
  std::set<std::string> replaced{state::kControl, state::kRandom};
  for (const auto& data : options.data) replaced.insert(data.name);
  Rewriter rewriter(step, replaced);
  Graph& graph = rewriter.graph();
  const Tensor cursor = graph.input(kPrefix + "cursor", {DType::kI32, {1}});
  std::vector<ValueId> wanted;
  std::vector<Tensor> from;
  const auto map_to = [&](const std::vector<Tensor>& made) {
    for (size_t i = 0; i < made.size(); ++i) rewriter.map(wanted[i], made[i]);
    wanted.clear(), from.clear();
  };
  for (const char* name : {state::kControl, state::kRandom})
    if (const auto value = step.find_input(name)) {
      const TensorType& type = step.value(*value).type;
      wanted.push_back(*value);
      from.push_back(graph.input(kPrefix + name, {type.dtype, {options.steps_per_chunk, type.shape[0]}}));
    }
  map_to(pick_rows(cursor, from));
  for (const auto& data : options.data) {
    const auto value = step.find_input(data.name);
    if (!value) fail_user("the loss has no input \"", data.name, "\"");
    wanted.push_back(*value);
    from.push_back(all_of(graph, data, step.value(*value).type));
  }
  const int64_t rows = step.value(wanted.front()).type.shape[0];
  const Tensor order = graph.input(kPrefix + "order", {DType::kI32, {options.steps_per_chunk * rows}});
  map_to(gather_rows(order, cursor, from, rows));
  for (const Node& node : step.nodes()) rewriter.copy(node);
  std::vector<Tensor> scalars = mapped(kReported, [&](const char* name) { return rewriter[output_of(step, name)]; });
  const auto width = static_cast<int64_t>(kReported.size());
  const Tensor ring = graph.input(kPrefix + "ring", {scalars[0].type().dtype, {options.steps_per_chunk, width}});
  const RowWrite written = write_row(ring, cursor, scalars);
  graph.update(ring, written.table);
  graph.update(cursor, written.cursor);
  return rewriter.finish();
}
}  // namespace

ResidentSteps::ResidentSteps(
    Trainer& trainer, Store& store, const SharedRegions& shared, const LossFunction& loss, ResidentOptions options)
    : store_(store), shared_(shared), options_(std::move(options)), seed_(trainer.options().seed),
      pool_(trainer.pool()) {
  if (trainer.options().accumulates()) fail_internal("resident steps are of one micro-batch");
  if (options_.steps_per_chunk < 1 || options_.steps_per_graph < 1 || options_.data.empty())
    fail_internal("resident steps without data or steps");
  const TrainerOptions& training = trainer.options();
  if (training.loss_scale.is_on())
    fail_user("training in fp16 takes its batches from the host: leave out the resident data");
  Graph step = single_graph(trainer.state().layout(), loss, {DType::kF32, training.optimizer});
  PassOptions passes = training.passes;
  if (passes.storage_type == DType::kBF16) step = round_shared(step);  // before recomputation is planned
  const Fit fit = fit_by_mode(step, passes, training.recompute);
  Graph graph = resident_graph(recompute_blocks(step, fit.choices), options_);
  declare(graph);
  passes.recompute = true;
  passes.backend = &store.backend();
  plan_ = make_plan(optimize(std::move(graph), passes), store_, shared_,
      {.threads = training.threads, .verify = training.verify_plans});
  const int64_t nodes = plan_.graph.node_count();
  together_ = std::clamp<int64_t>(kNodesTogether / nodes, 1, options_.steps_per_graph);
}

// Three regions: the data; what begin_chunk() uploads at once ("resident.chunk"); the ring, which is read back.
void ResidentSteps::declare(const Graph& graph) {
  const auto bind_in_one = [&](const char* region, MemoryKind kind, const std::vector<std::string>& names) {
    Store::Parts parts;
    for (const std::string& name : names)
      if (const auto input = graph.find_input(kPrefix + name))
        parts.emplace_back(kPrefix + name, graph.value(*input).type.bytes());
    return store_.declare_together(region, kind, parts, kDeviceAlignment);
  };
  std::vector<std::string> names;
  for (const auto& [name, type] : options_.data) {
    names.push_back(name);
    rows_ = graph.value(*graph.find_input(kPrefix + "order")).type.shape[0] / options_.steps_per_chunk;
    if (type.shape[0] != options_.data[0].type.shape[0]) fail_user("resident data \"", name, "\" are not as many");
  }
  bind_in_one("resident data", MemoryKind::kData, names);
  const RegionId chunk =
      bind_in_one("steps to come", MemoryKind::kConstants, {"cursor", state::kControl, state::kRandom, "order"});
  store_.bind(kPrefix + "chunk", {chunk, 0}, store_.regions()[chunk].bytes);
  bind_in_one("loss ring", MemoryKind::kConstants, {"ring"});
}

void ResidentSteps::stage(const std::string& input, std::span<const std::byte> data) {
  const auto found = std::ranges::find(options_.data, input, &ResidentOptions::Input::name);
  if (found == options_.data.end()) fail_internal("no resident data \"", input, "\"");
  if (found->type.bytes() != data.size())
    fail_internal("resident data \"", input, "\" take ", found->type.bytes(), " bytes, got ", data.size());
  store_.fill(kPrefix + input, data.data(), data.size());
}

void ResidentSteps::begin_chunk(std::span<const int32_t> order, std::span<const float> rates, int64_t first_step) {
  prepared_ = static_cast<int64_t>(rates.size());
  done_ = 0;
  if (prepared_ > options_.steps_per_chunk || static_cast<int64_t>(order.size()) != prepared_ * rows_)
    fail_internal("a chunk of ", prepared_, " steps with an order of ", order.size());
  *store_.as<int32_t>(kPrefix + "cursor") = 0;
  std::ranges::copy(order, store_.as<int32_t>(kPrefix + "order"));
  float* control = store_.as<float>(kPrefix + state::kControl);
  int32_t* random = store_.has(kPrefix + state::kRandom) ? store_.as<int32_t>(kPrefix + state::kRandom) : nullptr;
  for (int64_t i = 0; i < prepared_; ++i) {
    write_control(control + 2 * i, rates[i], first_step + i);
    if (random) write_random(random + 4 * i, seed_, first_step + i, 0);
  }
  store_.push(kPrefix + "chunk");
}

void ResidentSteps::run(int64_t steps) {
  if (done_ + steps > prepared_) fail_internal("more steps than the chunk has");
  done_ += steps;
  for (; steps >= together_; steps -= together_) executor_->run_together(pool_, together_);
  for (; steps > 0; --steps) executor_->run_together(pool_, 1);
}

std::vector<StepReport> ResidentSteps::reports() const {
  store_.pull(kPrefix + "ring");
  const float* row = store_.as<float>(kPrefix + "ring");
  std::vector<StepReport> reports;
  for (int64_t i = 0; i < done_; ++i, row += kReported.size()) reports.push_back(step_report(row[0], row[1], row[2]));
  return reports;
}
}  // namespace linnet
