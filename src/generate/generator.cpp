#include "generate/generator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "generate/generation_inputs.h"
#include "generate/sampling.h"
#include "kernels/reduce/top_k.h"
#include "nn/trace.h"
#include "ops/reduce/reduce.h"
#include "passes/passes.h"

namespace linnet {
namespace {

// The graphs' own input names, so that a trainer's batches in the same store stay apart.
constexpr const char* kSource = "generate.source";
constexpr const char* kSourceLengths = "generate.source_lengths";
constexpr const char* kTokens = "generate.tokens";
constexpr const char* kPosition = "generate.position";
constexpr const char* kLengths = "generate.lengths";
constexpr const char* kParents = "generate.parents";

TraceOptions trace_options(const ParameterLayout& layout, const GenerateOptions& options) {
  return {.layout = &layout, .flat_name = options.flat_name};
}

// source i32 [B, S], source_lengths i32 [B] -> states "memory.<i>"
Graph prefill_graph(EncoderDecoder& model, const ParameterLayout& layout, const GenerateOptions& options,
                    int64_t length) {
  Trace trace(trace_options(layout, options));
  Graph& graph = trace.graph();
  const Tensor source = graph.input(kSource, {DType::kI32, {options.sentences, length}});
  model.prefill(source, graph.input(kSourceLengths, {DType::kI32, {options.sentences}}));
  return trace.finish();
}

// tokens i32 [R] -> "logits" [R, V], "log_sum_exp" [R, 1]
Graph decode_graph(EncoderDecoder& model, const ParameterLayout& layout, const GenerateOptions& options,
                   int64_t length) {
  Trace trace(trace_options(layout, options));
  Graph& graph = trace.graph();
  const TensorType rows{DType::kI32, {options.sentences * options.beams}};
  const DecodeStep step{.position = graph.input(kPosition, {DType::kI32, {1}}),
                        .lengths = graph.input(kLengths, rows),
                        .parents = graph.input(kParents, rows),
                        .max_length = options.max_length,
                        .beams = options.beams};
  const Tensor source_lengths = graph.input(kSourceLengths, {DType::kI32, {options.sentences}});
  const Tensor logits = model.step(graph.input(kTokens, rows), step, length, source_lengths);
  graph.output("logits", logits);
  graph.output("log_sum_exp", log_sum_exp_last(logits));
  return trace.finish();
}

GenerateOptions checked(GenerateOptions options, const EncoderDecoder& model) {
  options.max_length = std::min(options.max_length, model.max_length());
  const auto& lengths = options.source_lengths;
  if (options.sentences < 1 || options.beams < 1 || options.max_length < 1)
    fail_internal("generation needs at least one sentence, one beam and one token");
  if (lengths.empty() || !std::is_sorted(lengths.begin(), lengths.end()) || lengths.front() < 1 ||
      lengths.back() > model.max_length())
    fail_internal("the source lengths of generation must ascend from 1 to the model's longest");
  return options;
}

// Broken weights show at the first token.
void check_logits(std::span<const float> logits) {
  if (std::ranges::any_of(logits, [](float value) { return std::isnan(value); }))
    fail_user("the model's logits are not numbers (NaN): its weights are broken");
}

}  // namespace

struct Generator::Bucket {
  int64_t length;
  Plan prefill, decode;
  std::optional<Executor> run_prefill, run_decode;
};

struct Generator::Inputs {
  int32_t *source, *source_lengths, *tokens, *position, *lengths, *parents;
};

Generator::Generator(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
                     const GenerateOptions& options)
    : options_(checked(options, model)),
      store_(store),
      shared_(shared),
      vocab_(model.output_vocab_size()),
      // Two more than the search takes: padding and begin may be among them.
      candidates_(std::min(vocab_, (2 + static_cast<int64_t>(options_.other_ends.size())) * options_.beams + 2)),
      search_(options_.sentences, options_.beams, options_.max_length,
              {.length_penalty = options_.length_penalty,
               .early_stopping = options_.early_stopping,
               .forced_end = options_.forced_end,
               .special = options_.special,
               .other_ends = options_.other_ends}) {
  std::vector<Graph> graphs;
  for (int64_t length : options_.source_lengths) {
    graphs.push_back(optimize(prefill_graph(model, layout, options_, length)));
    graphs.push_back(optimize(decode_graph(model, layout, options_, length)));
  }
  std::vector<const Graph*> pointers;
  for (const Graph& graph : graphs) pointers.push_back(&graph);
  bind_generation_inputs(store, pointers);
  for (size_t i = 0; i < options_.source_lengths.size(); ++i) {
    auto bucket = std::make_unique<Bucket>();
    bucket->length = options_.source_lengths[i];
    bucket->prefill = make_plan(std::move(graphs[2 * i]), store, shared,
                                {.threads = options_.threads, .verify = options_.verify_plans});
    bucket->decode = make_plan(std::move(graphs[2 * i + 1]), store, shared,
                               {.threads = options_.threads, .verify = options_.verify_plans});
    plan_list_.push_back(&bucket->prefill);
    plan_list_.push_back(&bucket->decode);
    buckets_.push_back(std::move(bucket));
  }
  const auto slots = static_cast<size_t>(options_.sentences * options_.beams * candidates_);
  top_values_.resize(slots);
  top_ids_.resize(slots);
}

Generator::~Generator() = default;

void Generator::bind() {
  inputs_ = std::make_unique<Inputs>(Inputs{store_.as<int32_t>(kSource), store_.as<int32_t>(kSourceLengths),
                                            store_.as<int32_t>(kTokens), store_.as<int32_t>(kPosition),
                                            store_.as<int32_t>(kLengths), store_.as<int32_t>(kParents)});
  for (const auto& bucket : buckets_) {
    bucket->run_prefill.emplace(bucket->prefill, store_, shared_);
    bucket->run_decode.emplace(bucket->decode, store_, shared_);
  }
}

std::vector<std::vector<Hypothesis>> Generator::generate(std::span<const std::vector<int32_t>> sources, int n_best,
                                                         ThreadPool& pool,
                                                         const std::function<void(int64_t done)>& progress) {
  if (!inputs_) fail_internal("generation before bind()");
  if (n_best < 1 || n_best > options_.beams)
    fail_user("asked for the " + std::to_string(n_best) + " best translations of " + std::to_string(options_.beams) +
              " beams");
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sources[a].size() < sources[b].size(); });
  std::vector<std::vector<Hypothesis>> results(sources.size());
  std::vector<const std::vector<int32_t>*> batch;
  for (size_t begin = 0; begin < order.size(); begin += batch.size()) {
    batch.clear();
    for (size_t i = begin; i < order.size() && batch.size() < static_cast<size_t>(options_.sentences); ++i)
      batch.push_back(&sources[order[i]]);
    decode_batch(batch, pool);
    for (size_t i = 0; i < batch.size(); ++i)
      results[order[begin + i]] = search_.result(static_cast<int64_t>(i), n_best);
    if (progress) progress(static_cast<int64_t>(begin + batch.size()));
  }
  return results;
}

const Generator::Bucket& Generator::bucket_for(int64_t source_length) const {
  const auto fits = [source_length](const auto& bucket) { return bucket->length >= source_length; };
  const auto found = std::find_if(buckets_.begin(), buckets_.end(), fits);
  if (found == buckets_.end())
    fail_user("a source of " + std::to_string(source_length) + " tokens, the longest that can be translated has " +
              std::to_string(buckets_.back()->length));
  return **found;
}

// Sentences of ascending length, at most options_.sentences.
void Generator::decode_batch(std::span<const std::vector<int32_t>* const> sources, ThreadPool& pool) {
  const Bucket& bucket = bucket_for(static_cast<int64_t>(sources.back()->size()));
  fill_sources(sources, bucket.length);
  bucket.run_prefill->run(pool);

  std::vector<int64_t> limits;
  for (const auto* source : sources) limits.push_back(generated_limit(source->size()));
  search_.start(limits);
  const int64_t rows = options_.sentences * options_.beams;
  for (int32_t position = 0; !search_.done(); ++position) {
    *inputs_->position = position;
    std::copy_n(search_.tokens().data(), rows, inputs_->tokens);
    std::copy_n(search_.parents().data(), rows, inputs_->parents);
    // A sentence that is done has nothing to attend to, which spares the reading of its cache.
    for (int64_t row = 0; row < rows; ++row)
      inputs_->lengths[row] = search_.done(row / options_.beams) ? 0 : position + 1;
    for (int64_t i = 0; i < options_.sentences; ++i)
      if (search_.done(i)) inputs_->source_lengths[i] = 0;
    bucket.run_decode->run(pool);
    // Asked for after each run: of a device they are copied then.
    const float* logits = bucket.run_decode->output("logits").as<float>();
    const float* log_sum_exp = bucket.run_decode->output("log_sum_exp").as<float>();
    if (position == 0) check_logits({logits, static_cast<size_t>(vocab_)});
    top_k_rows(rows, vocab_, candidates_, logits, top_values_.data(), top_ids_.data(), pool);
    search_.advance(candidates_, top_ids_.data(), top_values_.data(), log_sum_exp);
    if (stop_ && stop_()) break;
  }
}

std::vector<Continuation> Generator::sample(std::span<const std::vector<int32_t>> sources,
                                            const GenerateSettings& settings, ThreadPool& pool,
                                            const CausalGenerator::Listener& listener) {
  if (!inputs_) fail_internal("generation before bind()");
  if (options_.beams != 1 || static_cast<int64_t>(sources.size()) > options_.sentences || sources.empty())
    fail_internal("sampling needs one beam, and as many sentences as were planned");
  std::vector<const std::vector<int32_t>*> batch;
  size_t longest = 0;
  for (const auto& source : sources) batch.push_back(&source), longest = std::max(longest, source.size());
  const Bucket& bucket = bucket_for(static_cast<int64_t>(longest));
  fill_sources(batch, bucket.length);
  bucket.run_prefill->run(pool);

  Sampler sampler(settings.sampling, vocab_);
  const SpecialTokens& special = options_.special;
  std::vector<std::vector<int32_t>> written(sources.size(), {special.begin});
  std::vector<Continuation> results(sources.size());
  std::vector<bool> done(sources.size());
  std::vector<float> row_logits(static_cast<size_t>(vocab_));
  const int64_t limit = std::min(settings.max_tokens, options_.max_length);
  for (int32_t position = 0; position < limit && std::ranges::find(done, false) != done.end(); ++position) {
    *inputs_->position = position;
    for (int64_t row = 0; row < options_.sentences; ++row) {
      const auto i = static_cast<size_t>(row);
      const bool live = i < sources.size() && !done[i];
      inputs_->tokens[row] = live ? written[i].back() : std::max(special.pad, 0);
      inputs_->parents[row] = static_cast<int32_t>(row);
      inputs_->lengths[row] = live ? position + 1 : 0;
      if (!live) inputs_->source_lengths[row] = 0;
    }
    bucket.run_decode->run(pool);
    const float* logits = bucket.run_decode->output("logits").as<float>();
    if (position == 0) check_logits({logits, row_logits.size()});
    for (size_t i = 0; i < sources.size(); ++i) {
      if (done[i]) continue;
      std::copy_n(logits + static_cast<int64_t>(i) * vocab_, vocab_, row_logits.begin());
      for (const TokenId never : {special.pad, special.begin})
        if (never >= 0) row_logits[static_cast<size_t>(never)] = -INFINITY;
      const int32_t token =
          sampler.pick(row_logits, written[i], settings.first_sample + i, static_cast<uint64_t>(position));
      if (settings.log_probabilities)
        results[i].add(log_probability_of({logits + static_cast<int64_t>(i) * vocab_, row_logits.size()}, token));
      done[i] = results[i].ended = std::ranges::find(settings.ends, token) != settings.ends.end();
      if (done[i]) results[i].end_token = token;
      if (done[i]) continue;
      written[i].push_back(token);
      results[i].tokens.push_back(token);
      done[i] = settings.ends_row && settings.ends_row(static_cast<int64_t>(i), token);
      if (listener && !listener(static_cast<int64_t>(i), token)) return results;
    }
  }
  return results;
}

void Generator::fill_sources(std::span<const std::vector<int32_t>* const> sources, int64_t padded_length) {
  std::fill_n(inputs_->source, options_.sentences * padded_length, std::max(options_.special.pad, 0));
  std::fill_n(inputs_->source_lengths, options_.sentences, 0);
  for (size_t i = 0; i < sources.size(); ++i) {
    std::copy(sources[i]->begin(), sources[i]->end(), inputs_->source + static_cast<int64_t>(i) * padded_length);
    inputs_->source_lengths[i] = static_cast<int32_t>(sources[i]->size());
  }
}

int64_t Generator::generated_limit(size_t source_length) const {
  const double allowed =
      options_.length_ratio * static_cast<double>(source_length) + static_cast<double>(options_.length_margin);
  return std::max<int64_t>(1, std::min(options_.max_length, static_cast<int64_t>(allowed)));
}

}  // namespace linnet
