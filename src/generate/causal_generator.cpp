#include "generate/causal_generator.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "generate/generation_inputs.h"
#include "kernels/top_k.h"
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

// prompts i32 [B, T], last i32 [B] (of row b: b * T + its length - 1) -> "logits" [B, V] behind each prompt
Graph prefill_graph(CausalModel& model, const ParameterLayout& layout, const CausalOptions& options, int64_t length) {
  Trace trace(trace_options(layout, options));
  Graph& graph = trace.graph();
  const Tensor prompts = graph.input(kPrompts, {DType::kI32, {options.rows, length}});
  const Tensor hidden =
      options.cache ? model.prefill(prompts, {options.max_length, options.beams}) : model.hidden({prompts});
  const int64_t width = hidden.dim(2);
  const Tensor last =
      embedding(reshape(hidden, {options.rows * length, width}), graph.input(kLast, {DType::kI32, {options.rows}}));
  give_logits(model, graph, last, options);
  return trace.finish();
}

// tokens i32 [R] -> "logits" [R, V]
Graph decode_graph(CausalModel& model, const ParameterLayout& layout, const CausalOptions& options) {
  Trace trace(trace_options(layout, options));
  Graph& graph = trace.graph();
  const TensorType rows{DType::kI32, {options.rows * options.beams}};
  const TensorType starts{DType::kI32, {rows.shape[0], 1}};
  const DecodeStep step{.position = graph.input(kPositions, rows),
                        .lengths = graph.input(kLengths, rows),
                        .starts = model.window() > 0 ? graph.input(kStarts, starts) : Tensor{},
                        .parents = options.beams > 1 ? graph.input(kParents, rows) : Tensor{},
                        .max_length = options.max_length,
                        .beams = options.beams};
  give_logits(model, graph, model.step(graph.input(kTokens, rows), step), options);
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

bool is_end(const GenerateSettings& settings, int32_t token) {
  return std::find(settings.ends.begin(), settings.ends.end(), token) != settings.ends.end();
}

}  // namespace

struct CausalGenerator::Bucket {
  int64_t length;
  Plan plan;
  std::optional<Executor> run;
};

struct CausalGenerator::Inputs {
  int32_t *prompts, *last, *tokens, *positions, *lengths, *starts, *parents;
};

CausalGenerator::CausalGenerator(CausalModel& model, const ParameterLayout& layout, Store& store,
                                 const SharedRegions& shared, const CausalOptions& options)
    : options_(checked(options, model)),
      store_(store),
      shared_(shared),
      vocab_(model.vocab_size()),
      window_(model.window()) {
  const PlanOptions plan_options{.threads = options_.threads, .verify = options_.verify_plans};
  std::vector<Graph> graphs;
  for (const int64_t length : options_.prompt_lengths)
    graphs.push_back(optimize(prefill_graph(model, layout, options_, length)));
  if (options_.cache) graphs.push_back(optimize(decode_graph(model, layout, options_)));
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

CausalGenerator::~CausalGenerator() = default;

void CausalGenerator::bind() {
  const auto at = [&](const char* name) { return store_.has(name) ? store_.as<int32_t>(name) : nullptr; };
  inputs_ = std::make_unique<Inputs>(
      Inputs{at(kPrompts), at(kLast), at(kTokens), at(kPositions), at(kLengths), at(kStarts), at(kParents)});
  for (const auto& bucket : buckets_) bucket->run.emplace(bucket->plan, store_, shared_);
  if (options_.cache) run_decode_.emplace(decode_, store_, shared_);
}

void CausalGenerator::check(std::span<const std::vector<int32_t>> prompts) const {
  if (!inputs_) fail_internal("generation before bind()");
  if (prompts.empty() || static_cast<int64_t>(prompts.size()) > options_.rows)
    fail_internal("more prompts than rows were planned");
  for (const std::vector<int32_t>& prompt : prompts) {
    if (prompt.empty()) fail_user("a prompt has no tokens: generation needs something to go on from");
    if (static_cast<int64_t>(prompt.size()) >= options_.max_length)
      fail_user("a prompt of " + std::to_string(prompt.size()) +
                " tokens leaves no room: prompt and text are at most " + std::to_string(options_.max_length) +
                " tokens");
    for (const int32_t token : prompt)
      if (token < 0 || token >= vocab_)
        fail_user("a prompt holds token " + std::to_string(token) + ", and the model's vocabulary has " +
                  std::to_string(vocab_));
  }
}

// Computes whole sequences; the logits are those behind each one's last token.
void CausalGenerator::prefill(std::span<const std::vector<int32_t>> sequences, ThreadPool& pool) {
  size_t longest = 0;
  for (const std::vector<int32_t>& sequence : sequences) longest = std::max(longest, sequence.size());
  const auto found = std::find_if(buckets_.begin(), buckets_.end(),
                                  [&](const auto& bucket) { return bucket->length >= static_cast<int64_t>(longest); });
  if (found == buckets_.end())
    fail_user("a prompt of " + std::to_string(longest) + " tokens, the longest that was planned for has " +
              std::to_string(buckets_.back()->length));
  const Bucket& bucket = **found;
  std::fill_n(inputs_->prompts, options_.rows * bucket.length, 0);
  for (int64_t row = 0; row < options_.rows; ++row) {
    const bool used = row < static_cast<int64_t>(sequences.size());
    const int64_t size = used ? static_cast<int64_t>(sequences[static_cast<size_t>(row)].size()) : 1;
    if (used) std::copy_n(sequences[static_cast<size_t>(row)].begin(), size, inputs_->prompts + row * bucket.length);
    inputs_->last[row] = static_cast<int32_t>(row * bucket.length + size - 1);
  }
  bucket.run->run(pool);
  logits_ = {bucket.run->output("logits").as<float>(), static_cast<size_t>(options_.rows * vocab_)};
  if (options_.beams > 1)
    log_sum_exp_ = {bucket.run->output("log_sum_exp").as<float>(), static_cast<size_t>(options_.rows)};
}

// The next step feeds a row its token number `length`. 0: the row is done, and has nothing to attend to, which spares
// the reading of its cache.
void CausalGenerator::set_row(int64_t row, int32_t token, int64_t length) {
  inputs_->tokens[row] = token;
  inputs_->positions[row] = static_cast<int32_t>(std::max<int64_t>(length - 1, 0));
  inputs_->lengths[row] = static_cast<int32_t>(length);
  if (window_ > 0) inputs_->starts[row] = static_cast<int32_t>(std::max<int64_t>(length - window_, 0));
}

// Broken weights show behind the prompt; what comes later is taken as it is.
void CausalGenerator::check_logits() const {
  if (std::isnan(logits_[0])) fail_user("the model's logits are not numbers (NaN): its weights are broken");
}

void CausalGenerator::decode(ThreadPool& pool) {
  run_decode_->run(pool);
  const auto rows = static_cast<size_t>(options_.rows * options_.beams);
  logits_ = {run_decode_->output("logits").as<float>(), rows * static_cast<size_t>(vocab_)};
  if (options_.beams > 1) log_sum_exp_ = {run_decode_->output("log_sum_exp").as<float>(), rows};
}

std::vector<Continuation> CausalGenerator::generate(std::span<const std::vector<int32_t>> prompts,
                                                    const GenerateSettings& settings, ThreadPool& pool,
                                                    const Listener& listener) {
  check(prompts);
  if (settings.max_tokens < 1) return std::vector<Continuation>(prompts.size());
  return options_.beams > 1 ? search(prompts, settings, pool, listener) : sample(prompts, settings, pool, listener);
}

// One token behind each window that is not done.
void CausalGenerator::feed(std::span<const std::vector<int32_t>> windows, const std::vector<bool>& done,
                           ThreadPool& pool) {
  for (int64_t row = 0; row < options_.rows; ++row) {
    const auto i = static_cast<size_t>(row);
    const bool live = i < windows.size() && !done[i];
    set_row(row, live ? windows[i].back() : 0, live ? static_cast<int64_t>(windows[i].size()) : 0);
  }
  decode(pool);
}

double log_probability_of(std::span<const float> logits, int32_t token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - largest - std::log(sum);
}

std::vector<Continuation> CausalGenerator::sample(std::span<const std::vector<int32_t>> prompts,
                                                  const GenerateSettings& settings, ThreadPool& pool,
                                                  const Listener& listener) {
  Sampler sampler(settings.sampling, vocab_);
  std::vector<std::vector<int32_t>> sequences(prompts.begin(), prompts.end());  // all that was seen
  std::vector<std::vector<int32_t>> windows = sequences;                        // what the model looks at
  std::vector<Continuation> results(prompts.size());
  std::vector<bool> done(prompts.size());
  const auto width = static_cast<size_t>(vocab_), room = static_cast<size_t>(options_.max_length);
  prefill(windows, pool);
  check_logits();
  for (int64_t step = 0;; ++step) {
    bool refill = !options_.cache;
    for (size_t row = 0; row < sequences.size(); ++row) {
      if (done[row]) continue;
      const int32_t token = sampler.pick(logits_.subspan(row * width, width), sequences[row],
                                         settings.first_sample + row, static_cast<uint64_t>(step));
      if (settings.log_probabilities) results[row].add(log_probability_of(logits_.subspan(row * width, width), token));
      done[row] = results[row].ended = is_end(settings, token);
      if (done[row]) results[row].end_token = token;
      if (done[row]) continue;
      results[row].tokens.push_back(token);
      sequences[row].push_back(token);
      windows[row].push_back(token);
      const bool stops = settings.ends_row && settings.ends_row(static_cast<int64_t>(row), token);
      if (listener && !listener(static_cast<int64_t>(row), token)) return results;
      const bool full = windows[row].size() >= room;
      done[row] = stops || step + 1 == settings.max_tokens || (full && !settings.slide);
      if (!full || done[row]) continue;
      windows[row].assign(windows[row].end() - static_cast<std::ptrdiff_t>((room + 1) / 2), windows[row].end());
      refill = true;
    }
    if (std::find(done.begin(), done.end(), false) == done.end()) return results;
    if (refill)
      prefill(windows, pool);
    else
      feed(windows, done, pool);
  }
}

std::vector<Continuation> CausalGenerator::search(std::span<const std::vector<int32_t>> prompts,
                                                  const GenerateSettings& settings, ThreadPool& pool,
                                                  const Listener& listener) {
  const int64_t beams = options_.beams, rows = options_.rows * beams;
  const SpecialTokens special{-1, -1, -1, settings.ends.empty() ? -1 : settings.ends[0]};
  std::vector<int32_t> other_ends = settings.ends;
  if (!other_ends.empty()) other_ends.erase(other_ends.begin());
  std::vector<int64_t> limits;
  for (const std::vector<int32_t>& prompt : prompts)
    limits.push_back(std::min(settings.max_tokens, options_.max_length - static_cast<int64_t>(prompt.size())));
  BeamSearch search(options_.rows, beams, *std::max_element(limits.begin(), limits.end()),
                    {.length_penalty = settings.length_penalty,
                     .early_stopping = settings.early_stopping,
                     .special = special,
                     .other_ends = std::move(other_ends)});
  search.start(limits);
  const int64_t count = std::min(vocab_, search.candidates());
  std::vector<float> values(static_cast<size_t>(rows * count)), sums(static_cast<size_t>(rows));
  std::vector<int32_t> ids(values.size());
  // The prompts' logits are those of each sentence's first row, which alone takes part in the first step.
  prefill(prompts, pool);
  check_logits();
  std::vector<float> first_values(static_cast<size_t>(options_.rows * count));
  std::vector<int32_t> first_ids(first_values.size());
  top_k_rows(options_.rows, vocab_, count, logits_.data(), first_values.data(), first_ids.data(), pool);
  for (int64_t i = 0; i < options_.rows; ++i) {
    std::copy_n(first_values.begin() + i * count, count, values.begin() + i * beams * count);
    std::copy_n(first_ids.begin() + i * count, count, ids.begin() + i * beams * count);
    sums[static_cast<size_t>(i * beams)] = log_sum_exp_[static_cast<size_t>(i)];
  }
  search.advance(count, ids.data(), values.data(), sums.data());
  for (int64_t step = 0; !search.done(); ++step) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t sentence = row / beams;
      const bool live = sentence < static_cast<int64_t>(prompts.size()) && !search.done(sentence);
      const auto prompt = live ? static_cast<int64_t>(prompts[static_cast<size_t>(sentence)].size()) : 0;
      set_row(row, search.tokens()[static_cast<size_t>(row)], live ? prompt + step + 1 : 0);
      inputs_->parents[row] = search.parents()[static_cast<size_t>(row)];
    }
    decode(pool);
    top_k_rows(rows, vocab_, count, logits_.data(), values.data(), ids.data(), pool);
    search.advance(count, ids.data(), values.data(), log_sum_exp_.data());
    if (listener && !listener(-1, -1)) break;  // only whether to go on
  }
  std::vector<Continuation> results(prompts.size());
  for (size_t i = 0; i < results.size(); ++i) {
    auto best = search.result(static_cast<int64_t>(i), 1);
    if (best.empty()) continue;
    results[i].tokens = std::move(best[0].ids), results[i].ended = best[0].finished;
    results[i].log_probability = best[0].log_probability;
  }
  return results;
}

}  // namespace linnet
