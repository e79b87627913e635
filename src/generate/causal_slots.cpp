#include "generate/causal_slots.h"

#include <algorithm>

#include "base/error.h"
#include "nn/trace.h"
#include "ops/embedding/embedding.h"
#include "ops/movement/movement.h"
#include "passes/passes.h"

namespace linnet {
namespace {

constexpr const char* kPrompts = "generate.prompts";
constexpr const char* kLast = "generate.last";
constexpr const char* kSlots = "generate.slots";

constexpr int64_t kShortestBucket = 16;

TraceOptions trace_options(const ParameterLayout& layout, const CausalOptions& options) {
  return {.layout = &layout, .flat_name = options.flat_name};
}

CausalOptions checked(CausalOptions options, const CausalModel& model) {
  if (options.max_length == 0) options.max_length = model.max_length();
  if (options.max_length > model.max_length())
    fail_user("texts of " + std::to_string(options.max_length) + " tokens, and the model takes " +
              std::to_string(model.max_length()));
  if (options.max_length < 1) fail_internal("generation needs at least one token");
  if (options.beams > 1 && !options.cache) fail_user("beam search needs the cache");
  auto& lengths = options.prompt_lengths;
  const bool none = lengths.empty();
  for (int64_t length = kShortestBucket; none && (lengths.empty() || lengths.back() < options.max_length); length *= 2)
    lengths.push_back(std::min(length, options.max_length));
  return options;
}

}  // namespace

CausalSlots::CausalSlots(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                         const CausalOptions& options)
    : SlotModel(store, shared, model.vocab_size(),
                {.rows = options.rows,
                 .beams = options.beams,
                 .threads = options.threads,
                 .log_sum_exp = options.beams > 1,
                 .window = model.window(),
                 .verify_plans = options.verify_plans,
                 .cache_in_arena = options.cache_in_arena}),
      options_(checked(options, model)) {
  // prompts i32 [1, T], last i32 [1] (the index of its last token), slots i32 [1] -> logits [1, V] after the prompt
  const auto prefill_graph = [&](int64_t length) {
    Trace trace(trace_options(layout, options_));
    Graph& graph = trace.graph();
    const TensorType one{DType::kI32, {1}};
    const Tensor prompts = graph.input(kPrompts, {DType::kI32, {1, length}});
    const auto kept = [&] { return prompt_rows(prompts, {slots(), options_.max_length, graph.input(kSlots, one)}); };
    const Tensor hidden = model.hidden(options_.cache ? kept() : TokenRows{prompts});
    const Tensor last = embedding(reshape(hidden, {length, hidden.dim(2)}), graph.input(kLast, one));
    give_logits(graph, model.logits(last));
    return trace.finish();
  };
  // tokens i32 [R] -> logits [R, V]
  const auto decode_graph = [&] {
    Trace trace(trace_options(layout, options_));
    Graph& graph = trace.graph();
    const DecodeStep step = decode_inputs(graph, slots(), options_.max_length);
    const Tensor hidden = model.hidden(step_rows(token_input(graph, slots()), step));
    give_logits(graph, model.logits(reshape(hidden, {slots(), hidden.dim(2)})));
    return trace.finish();
  };
  std::vector<Graph> prefills;
  for (const int64_t length : options_.prompt_lengths)
    prefills.push_back(optimize(prefill_graph(length), {.independent_rows = options_.independent_prompts}));
  std::vector<DecodeGraph> decodes;
  if (options_.cache) decodes.push_back({slots(), optimize(decode_graph(), {.independent_rows = true})});
  prefills_ = make_plans(std::move(prefills), std::move(decodes));
}

void CausalSlots::bind() {
  SlotModel::bind();
  prompt_ = store_.as<int32_t>(kPrompts), last_ = store_.as<int32_t>(kLast);
  if (options_.cache) slot_ = store_.as<int32_t>(kSlots);
  run_prefills_.reserve(prefills_.size());
  for (const auto& plan : prefills_) run_prefills_.emplace_back(*plan, store_, shared_);
}

void CausalSlots::check_prompt(std::span<const int32_t> prompt) const {
  if (!is_bound()) fail_internal("generation before bind()");
  const auto size = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) fail_user("a prompt has no tokens: generation needs something to go on from");
  if (size >= options_.max_length)
    fail_user("a prompt of " + std::to_string(size) + " tokens leaves no room: prompt and text are at most " +
              std::to_string(options_.max_length) + " tokens");
  for (const int32_t token : prompt)
    if (token < 0 || token >= vocab_size())
      fail_user("a prompt holds token " + std::to_string(token) + ", and the model's vocabulary has " +
                std::to_string(vocab_size()));
  if (size > options_.prompt_lengths.back())
    fail_user("a prompt of " + std::to_string(size) + " tokens, the longest that was planned for has " +
              std::to_string(options_.prompt_lengths.back()));
}

void CausalSlots::begin(std::span<const Prompt> prompts, ThreadPool& pool, const PromptListener& hear) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::span<const int32_t> ids = prompts[i].ids;
    const auto size = static_cast<int64_t>(ids.size());
    const size_t bucket = padded_to(options_.prompt_lengths, size);
    std::fill_n(std::ranges::copy(ids, prompt_).out, options_.prompt_lengths[bucket] - size, 0);
    *last_ = static_cast<int32_t>(size) - 1;
    if (slot_) *slot_ = static_cast<int32_t>(prompts[i].slot);
    run_prefills_[bucket].run(pool);
    hear(i, output_of(run_prefills_[bucket], 1));
  }
}

}  // namespace linnet
