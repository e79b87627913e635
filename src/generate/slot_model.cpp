#include "generate/slot_model.h"

#include <algorithm>

#include "base/error.h"
#include "generate/generation_inputs.h"
#include "nn/trace.h"
#include "ops/embedding/embedding.h"
#include "ops/movement/movement.h"
#include "ops/reduce/reduce.h"
#include "passes/passes.h"

namespace linnet {
namespace {

// The graphs' own input names, so that a trainer's batches in the same store stay apart.
constexpr const char* kPrompts = "generate.prompts";
constexpr const char* kLast = "generate.last";
constexpr const char* kSlots = "generate.slots";
constexpr const char* kTokens = "generate.tokens";
constexpr const char* kPositions = "generate.positions";
constexpr const char* kLengths = "generate.lengths";
constexpr const char* kStarts = "generate.starts";
constexpr const char* kParents = "generate.parents";

constexpr int64_t kShortestBucket = 16;

TraceOptions trace_options(const ParameterLayout& layout, const CausalOptions& options) {
  return {.layout = &layout, .flat_name = options.flat_name};
}

void give_logits(CausalModel& model, Graph& graph, Tensor hidden, const CausalOptions& options) {
  const Tensor logits = model.logits(hidden);
  graph.output("logits", logits);
  if (options.beams > 1) graph.output("log_sum_exp", log_sum_exp_last(logits));
}

// prompts i32 [1, T], last i32 [1] (the index of its last token), slots i32 [1] -> "logits" [1, V] after the prompt
Graph prefill_graph(CausalModel& model, const ParameterLayout& layout, const CausalOptions& options, int64_t length) {
  Trace trace(trace_options(layout, options));
  Graph& graph = trace.graph();
  const TensorType one{DType::kI32, {1}};
  const Tensor prompts = graph.input(kPrompts, {DType::kI32, {1, length}});
  const Tensor hidden = options.cache
                            ? model.prefill(prompts, {options.slots(), options.max_length, graph.input(kSlots, one)})
                            : model.hidden({prompts});
  const Tensor last = embedding(reshape(hidden, {length, hidden.dim(2)}), graph.input(kLast, one));
  give_logits(model, graph, last, options);
  return trace.finish();
}

// tokens i32 [R] -> "logits" [R, V]
Graph decode_graph(CausalModel& model, const ParameterLayout& layout, const CausalOptions& options) {
  Trace trace(trace_options(layout, options));
  Graph& graph = trace.graph();
  const TensorType slots{DType::kI32, {options.slots()}};
  const TensorType starts{DType::kI32, {options.slots(), 1}};
  const DecodeStep step{.position = graph.input(kPositions, slots),
                        .lengths = graph.input(kLengths, slots),
                        .starts = model.window() > 0 ? graph.input(kStarts, starts) : Tensor{},
                        .parents = options.beams > 1 ? graph.input(kParents, slots) : Tensor{},
                        .max_length = options.max_length,
                        .beams = options.beams};
  give_logits(model, graph, model.step(graph.input(kTokens, slots), step), options);
  return trace.finish();
}

CausalOptions checked(CausalOptions options, const CausalModel& model) {
  if (options.max_length == 0) options.max_length = model.max_length();
  if (options.max_length > model.max_length())
    fail_user("texts of " + std::to_string(options.max_length) + " tokens, and the model takes " +
              std::to_string(model.max_length()));
  if (options.rows < 1 || options.beams < 1 || options.max_length < 1)
    fail_internal("generation needs at least one prompt, one beam and one token");
  if (options.beams > 1 && !options.cache) fail_user("beam search needs the cache");
  auto& lengths = options.prompt_lengths;
  const bool none = lengths.empty();
  for (int64_t length = kShortestBucket; none && (lengths.empty() || lengths.back() < options.max_length); length *= 2)
    lengths.push_back(std::min(length, options.max_length));
  return options;
}

}  // namespace

struct SlotModel::Bucket {
  int64_t length;
  Plan plan;
  std::optional<Executor> run;
};

struct SlotModel::Inputs {
  int32_t *prompts, *last, *slots, *tokens, *positions, *lengths, *starts, *parents;
};

SlotModel::SlotModel(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                     const CausalOptions& options)
    : options_(checked(options, model)),
      store_(store),
      shared_(shared),
      vocab_(model.vocab_size()),
      window_(model.window()) {
  const PlanOptions plan_options{.threads = options_.threads, .verify = options_.verify_plans};
  std::vector<Graph> graphs;
  for (const int64_t length : options_.prompt_lengths)
    graphs.push_back(optimize(prefill_graph(model, layout, options_, length)));
  if (options_.cache) graphs.push_back(optimize(decode_graph(model, layout, options_), {.independent_rows = true}));
  std::vector<const Graph*> pointers;
  for (const Graph& graph : graphs) pointers.push_back(&graph);
  bind_generation_inputs(store, pointers);
  for (size_t i = 0; i < options_.prompt_lengths.size(); ++i) {
    buckets_.push_back(std::make_unique<Bucket>(
        Bucket{options_.prompt_lengths[i], make_plan(std::move(graphs[i]), store, shared, plan_options), {}}));
    plan_list_.push_back(&buckets_.back()->plan);
  }
  if (!options_.cache) return;
  decode_ = make_plan(std::move(graphs.back()), store, shared, plan_options);
  plan_list_.push_back(&decode_);
}

SlotModel::~SlotModel() = default;

void SlotModel::bind() {
  const auto at = [&](const char* name) { return store_.has(name) ? store_.as<int32_t>(name) : nullptr; };
  inputs_ = std::make_unique<Inputs>(Inputs{at(kPrompts), at(kLast), at(kSlots), at(kTokens), at(kPositions),
                                            at(kLengths), at(kStarts), at(kParents)});
  for (const auto& bucket : buckets_) bucket->run.emplace(bucket->plan, store_, shared_);
  if (options_.cache) run_decode_.emplace(decode_, store_, shared_);
}

void SlotModel::check_prompt(std::span<const int32_t> prompt) const {
  if (!inputs_) fail_internal("generation before bind()");
  if (prompt.empty()) fail_user("a prompt has no tokens: generation needs something to go on from");
  if (static_cast<int64_t>(prompt.size()) >= options_.max_length)
    fail_user("a prompt of " + std::to_string(prompt.size()) + " tokens leaves no room: prompt and text are at most " +
              std::to_string(options_.max_length) + " tokens");
  for (const int32_t token : prompt)
    if (token < 0 || token >= vocab_)
      fail_user("a prompt holds token " + std::to_string(token) + ", and the model's vocabulary has " +
                std::to_string(vocab_));
  bucket_for(static_cast<int64_t>(prompt.size()));
}

const SlotModel::Bucket& SlotModel::bucket_for(int64_t length) const {
  const auto found = std::ranges::find_if(buckets_, [&](const auto& bucket) { return bucket->length >= length; });
  if (found == buckets_.end())
    fail_user("a prompt of " + std::to_string(length) + " tokens, the longest that was planned for has " +
              std::to_string(buckets_.back()->length));
  return **found;
}

SlotModel::Output SlotModel::prefill(int64_t slot, std::span<const int32_t> sequence, ThreadPool& pool) {
  const Bucket& bucket = bucket_for(static_cast<int64_t>(sequence.size()));
  std::fill_n(std::copy(sequence.begin(), sequence.end(), inputs_->prompts),
              bucket.length - static_cast<int64_t>(sequence.size()), 0);
  *inputs_->last = static_cast<int32_t>(sequence.size()) - 1;
  if (inputs_->slots) *inputs_->slots = static_cast<int32_t>(slot);
  bucket.run->run(pool);
  Output output{.logits = {bucket.run->output("logits").as<float>(), static_cast<size_t>(vocab_)}};
  if (options_.beams > 1) output.log_sum_exp = {bucket.run->output("log_sum_exp").as<float>(), 1};
  return output;
}

// A slot of length 0 has nothing to attend to, which spares the reading of its cache.
void SlotModel::feed_nothing() {
  const int64_t slots = options_.slots();
  for (int32_t* input : {inputs_->tokens, inputs_->positions, inputs_->lengths, inputs_->starts})
    if (input) std::fill_n(input, slots, 0);
  for (int32_t slot = 0; inputs_->parents && slot < slots; ++slot) inputs_->parents[slot] = slot;
}

void SlotModel::feed(int64_t slot, int32_t token, int64_t length, int64_t parent) {
  inputs_->tokens[slot] = token;
  inputs_->positions[slot] = static_cast<int32_t>(length - 1);
  inputs_->lengths[slot] = static_cast<int32_t>(length);
  if (window_ > 0) inputs_->starts[slot] = static_cast<int32_t>(std::max<int64_t>(length - window_, 0));
  if (inputs_->parents) inputs_->parents[slot] = static_cast<int32_t>(parent);
}

void SlotModel::decode(ThreadPool& pool) {
  run_decode_->run(pool);
  const auto slots = static_cast<size_t>(options_.slots());
  logits_ = {run_decode_->output("logits").as<float>(), slots * static_cast<size_t>(vocab_)};
  if (options_.beams > 1) log_sum_exp_ = {run_decode_->output("log_sum_exp").as<float>(), slots};
}

SlotModel::Output SlotModel::decoded(int64_t first_slot, int64_t count) const {
  const auto first = static_cast<size_t>(first_slot), rows = static_cast<size_t>(count);
  const auto width = static_cast<size_t>(vocab_);
  Output output{.logits = logits_.subspan(first * width, rows * width)};
  if (options_.beams > 1) output.log_sum_exp = log_sum_exp_.subspan(first, rows);
  return output;
}

}  // namespace linnet
