// A decoder-only model on slots. A decode plan feeds one or more tokens to each slot, with products whose rows do not
// depend on each other (the pass independent_rows). A prompt is computed alone, in chunks of planned lengths, each a
// step of so many tokens of its slot, with the products of prompts.
//
// Bits on the CPU. Logits after a generated token do not depend on the other slots or their number, nor on further
// tokens of its slot in the step. Cache entries of prompts do not depend on how these are cut into chunks: products of
// more than 8 rows compute each row alike (gemm_test.cpp), and attention each token apart
// (engine/ops/attention/attention.h). So the prefix cache can reuse beginnings of prompts with the same logits.
// A token's last bits differ between generation and prompts, so only results of prompts are kept.
//
// On a GPU a whole prompt, right-padded, is computed by the plan of the smallest length that it fits.
#include "base/fail.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/movement/movement.h"
#include "engine/passes/passes.h"
#include "generation/prefix_cache.h"
#include "generation/slot_model.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
constexpr const char* kPrompts = "generate.prompts";
constexpr const char* kLast = "generate.last";
constexpr const char* kSlots = "generate.slots";

constexpr int64_t kShortestBucket = 16;
// More rows than the 8 of products with few rows, whose bits differ; enough to make reading weights relatively cheap.
constexpr int64_t kChunkStep = 16, kLongestChunk = 256;
constexpr int64_t kChunks[] = {16, 32, 48, 64, 96, 128, 192, kLongestChunk};

TraceOptions trace_options(const ParameterLayout& layout, const CausalOptions& options) {
  return {.layout = &layout, .flat_name = options.flat_name};
}

// Verifies only the final graph: a fifth of the time of verifying after each pass, which delays a model's start.
Graph optimized(Graph graph, const Store& store, bool independent_rows) {
  graph = optimize(std::move(graph), {.as_stored = store.device().is_host(),
                                         .independent_rows = independent_rows,
                                         .backend = &store.backend(),
                                         .verify = false});
  verify(graph);
  return graph;
}

CausalOptions checked(CausalOptions options, const CausalModel& model) {
  if (options.max_length == 0) options.max_length = model.max_length();
  if (options.max_length > model.max_length())
    fail_user("texts of ", options.max_length, " tokens, and the model takes ", model.max_length());
  if (options.max_length < 1) fail_internal("generation needs at least one token");
  if (options.beams > 1 && !options.cache) fail_user("beam search needs the cache");
  if (options.prompt_lengths.empty()) options.prompt_lengths = doubling_sizes(kShortestBucket, options.max_length);
  return options;
}

// Chunk lengths for these prompt lengths: a prompt takes as many of the longest as fit, and one for the rest, which
// with a prefix cache may have any length.
std::vector<int64_t> chunk_lengths(const CausalOptions& options) {
  std::set<int64_t> chunks;
  const int64_t longest = options.prompt_lengths.back();
  const auto add = [&](int64_t length) {
    if (length > 0) chunks.insert(*std::ranges::lower_bound(kChunks, length));
  };
  for (const int64_t length : options.prompt_lengths) add(length % kLongestChunk);
  for (const int64_t chunk : kChunks)
    if (options.prefix_bytes != 0 && chunk < longest + kChunkStep) chunks.insert(chunk);
  if (longest >= kLongestChunk) chunks.insert(kLongestChunk);
  return {chunks.begin(), chunks.end()};
}

Tensor last_row(Graph& graph, Tensor hidden) {
  const Tensor rows = reshape(hidden, {hidden.dim(0) * hidden.dim(1), hidden.dim(2)});
  return embedding(rows, graph.input(kLast, {DType::kI32, {1}}));
}

bool computes_in_chunks(const CausalOptions& options, const Store& store) {
  return options.cache && store.device().is_host();
}

class CausalSlots : public SlotModel {
 public:
  CausalSlots(CausalModel& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      const CausalOptions& options)
      : SlotModel(store, shared, model.vocab_size(),
            {.rows = options.rows,
                .beams = options.beams,
                .threads = options.threads,
                .log_sum_exp = options.beams > 1,
                .window = model.window(),
                .verify_plans = options.verify_plans,
                .fed_by_rows = computes_in_chunks(options, store) && options.beams == 1,
                .cache_in_arena = options.cache_in_arena,
                .adapters = options.adapters}),
        model_(model), layout_(layout), options_(checked(options, model)) {
    const bool by_chunks = computes_in_chunks(options_, store), by_rows = by_chunks && options_.beams == 1;
    if (!by_rows && options_.tokens_per_step > 1)
      fail_user("several tokens in a step need the CPU, the cache, and no beams");
    if (!by_chunks && options_.prefix_bytes > 0) fail_user("a prefix cache needs the CPU and the cache");
    const bool later = options_.plan_on_demand && by_chunks && !options_.cache_in_arena;
    const auto step = [&](int64_t rows, bool rows_alone, Logits wanted, bool is_largest) {
      return Step{.graph = [=, this] { return step_graph(rows, rows_alone, wanted); },
          .rows = rows,
          .later = later && !is_largest};
    };
    std::vector<Step> prefills, decodes;
    if (by_chunks) {
      chunk_lengths_ = chunk_lengths(options_);
      const int64_t longest = chunk_lengths_.back();
      for (const int64_t length : chunk_lengths_)
        prefills.push_back(step(length, true, Logits::kLast, length == longest));
      prefills.push_back(step(longest, true, Logits::kNone, false));
    } else {
      for (const int64_t length : options_.prompt_lengths)
        prefills.push_back({.graph = [this, length] { return prefill_graph(length); }});
    }
    const int64_t most = by_rows ? slots() * options_.tokens_per_step : slots();
    const int64_t fewest = by_rows ? 1 : by_chunks ? options_.beams : most;  // whose slots are rows: whole groups
    if (options_.cache)
      for (const int64_t rows : doubling_sizes(fewest, most))
        decodes.push_back(step(rows, by_rows, Logits::kAll, rows == most));
    make_plans(std::move(prefills), std::move(decodes));
    declare_prefixes();
  }

  void bind() override {
    SlotModel::bind();
    prompt_ = input(kPrompts), last_ = input(kLast), slot_ = input(kSlots);
    for (Layer& layer : layers_) layer.cache = store_.as<float>(layer.name);
    if (prefixes_) prefix_memory_ = store_.location(prefix_region_);
  }

  void begin(std::span<const Prompt> prompts, ThreadPool& pool, const PromptListener& hear) override {
    for (size_t i = 0; i < prompts.size(); ++i) {
      counts_.prompt_tokens += std::ssize(prompts[i].ids);
      hear(i, output_of(in_chunks() ? compute_in_chunks(prompts[i], pool) : compute_whole(prompts[i], pool), 1));
    }
  }

  void check_prompt(std::span<const int32_t> prompt) const override {
    if (!is_bound()) fail_internal("generation before bind()");
    const auto size = static_cast<int64_t>(prompt.size());
    if (prompt.empty()) fail_user("a prompt has no tokens: generation needs something to go on from");
    if (size >= options_.max_length)
      fail_user(
          "a prompt of ", size, " tokens leaves no room: prompt and text are at most ", options_.max_length, " tokens");
    for (const int32_t token : prompt)
      if (token < 0 || token >= vocab_size())
        fail_user("a prompt holds token ", token, ", and the model's vocabulary has ", vocab_size());
    if (size > options_.prompt_lengths.back())
      fail_user("a prompt of ", size, " tokens, the longest that was planned for has ", options_.prompt_lengths.back());
  }

  std::vector<int32_t> first_tokens(const std::vector<int32_t>& prompt) const override { return prompt; }
  int64_t room() const override { return options_.max_length; }
  bool computes_again() const override { return !options_.cache; }
  // A step reads all weights with few rows.
  std::vector<Plan*> packable_plans() override { return {}; }
  int64_t longest_prompt() const override { return std::min(options_.prompt_lengths.back(), options_.max_length - 1); }
  bool keeps_prefixes() const override { return prefixes_.has_value(); }

 private:
  // prompts i32 [1, T], last i32 [1] (the index of its last token), slots i32 [1] -> logits [1, V] after the prompt
  Graph prefill_graph(int64_t length) const {
    Trace trace(trace_options(layout_, options_));
    Graph& graph = trace.graph();
    const TensorType one{DType::kI32, {1}};
    const Tensor prompts = graph.input(kPrompts, {DType::kI32, {1, length}});
    add_adapter_choice(graph, 1);
    const auto kept = [&] { return prompt_rows(prompts, {slots(), options_.max_length, graph.input(kSlots, one)}); };
    const Tensor hidden = model_.hidden(options_.cache ? kept() : TokenRows{prompts});
    give_logits(graph, model_.logits(last_row(graph, hidden)));
    return optimized(trace.finish(), store_, options_.independent_prompts);
  }

  enum class Logits { kAll, kLast, kNone };
  // tokens i32 [rows] -> logits [rows, V]; for a chunk, with last i32 [1] -> logits [1, V] after row `last`, or nothing
  Graph step_graph(int64_t rows, bool by_rows, Logits wanted) const {
    Trace trace(trace_options(layout_, options_));
    Graph& graph = trace.graph();
    const bool decodes = wanted == Logits::kAll;
    const DecodeStep step = step_inputs(graph, rows, options_.max_length, by_rows);
    add_adapter_choice(graph, decodes ? rows : 1);
    const Tensor hidden = model_.hidden(step_rows(token_input(graph, rows), step));
    if (decodes) give_logits(graph, model_.logits(reshape(hidden, {rows, hidden.dim(2)})));
    if (wanted == Logits::kLast) give_logits(graph, model_.logits(last_row(graph, hidden)));
    return optimized(trace.finish(), store_, decodes || options_.independent_prompts);
  }

  // The index of a plan for `chunk`, made on demand. If memory is short, that of a longer chunk, with the same bits.
  size_t planned_chunk(size_t chunk) {
    const size_t longest = chunk_lengths_.size() - 1;
    while (!is_ready(prefills_[chunk])) chunk = chunk > longest ? longest : chunk + 1;
    return chunk;
  }

  bool in_chunks() const { return !chunk_lengths_.empty(); }
  void declare_prefixes() {
    if (options_.prefix_bytes == 0 || !in_chunks()) return;
    constexpr std::string_view kPrefix = "cache.";
    for (const auto& [name, binding] : store_.bindings())
      if (name.starts_with(kPrefix))
        layers_.push_back(
            {name, static_cast<int64_t>(binding.capacity / sizeof(float)) / slots() / options_.max_length});
    constexpr int64_t kMost = int64_t{256} << 20;
    const bool as_cache = options_.prefix_bytes == kPrefixAsCache;
    const int64_t cache_bytes = block_bytes() * (slots() * options_.max_length) / PrefixCache::kBlock;
    const int64_t blocks = (as_cache ? std::min(cache_bytes, kMost) : options_.prefix_bytes) / block_bytes();
    if (blocks == 0 && as_cache) return layers_.clear();
    if (blocks == 0)
      fail_user("a prefix cache of ", options_.prefix_bytes, " bytes: ", PrefixCache::kBlock,
          " tokens of this model take ", block_bytes());
    prefixes_.emplace(blocks);
    prefix_region_ = store_.add_region("prefix cache", MemoryKind::kCache, static_cast<size_t>(blocks * block_bytes()));
  }

  const Executor& compute_whole(const Prompt& prompt, ThreadPool& pool) {
    const std::span<const int32_t> ids = prompt.ids;
    const auto size = static_cast<int64_t>(ids.size());
    const size_t bucket = padded_to(options_.prompt_lengths, size);
    std::fill_n(std::ranges::copy(ids, prompt_).out, options_.prompt_lengths[bucket] - size, 0);
    *last_ = static_cast<int32_t>(size) - 1;
    if (slot_) *slot_ = static_cast<int32_t>(prompt.slot);
    choose_adapter(0, prompt.slot);
    prefills_[bucket].run->run(pool);
    return *prefills_[bucket].run;
  }

  const Executor& compute_in_chunks(const Prompt& prompt, ThreadPool& pool) {
    const auto size = static_cast<int64_t>(prompt.ids.size());
    choose_adapter(0, prompt.slot);
    for (int64_t done = reuse(prompt);;) {
      const int64_t count = std::min(size - done, chunk_lengths_.back());
      const bool is_last = done + count == size;
      const size_t bucket = planned_chunk(is_last ? padded_to(chunk_lengths_, count) : chunk_lengths_.size());
      for (int64_t row = 0; row < count; ++row) set_row(row, prompt.slot, prompt.ids[done + row], done + row + 1);
      clear_rows(count, chunk_lengths_[std::min(bucket, chunk_lengths_.size() - 1)]);
      *last_ = static_cast<int32_t>(count) - 1;
      done += count;
      prefills_[bucket].run->run(pool);
      if (!is_last) continue;
      keep(prompt);
      return *prefills_[bucket].run;
    }
  }

  // Copies the cached beginning of the prompt into its slot. Returns its number of tokens.
  int64_t reuse(const Prompt& prompt) {
    if (!prefixes_) return 0;
    int64_t tokens = 0;
    for (const int64_t block : prefixes_->find(prompt.ids, adapter_of(prompt.slot))) {
      for_each_layer(prompt.slot, tokens, block,
          [](float* cache, const std::byte* kept, size_t bytes) { std::memcpy(cache, kept, bytes); });
      tokens += PrefixCache::kBlock;
    }
    counts_.reused_tokens += tokens;
    if (std::ssize(prompt.ids) > PrefixCache::kBlock) ++(tokens > 0 ? counts_.prefix_hits : counts_.prefix_misses);
    return tokens;
  }

  void keep(const Prompt& prompt) {
    if (!prefixes_) return;
    for (const PrefixCache::NewBlock& added : prefixes_->keep(prompt.ids, adapter_of(prompt.slot)))
      for_each_layer(prompt.slot, added.first, added.block,
          [](const float* cache, std::byte* kept, size_t bytes) { std::memcpy(kept, cache, bytes); });
    counts_.prefix_bytes = prefixes_->used() * block_bytes();
  }

  int64_t block_bytes() const {
    return sum_of<int64_t>(layers_, &Layer::width) * PrefixCache::kBlock * static_cast<int64_t>(sizeof(float));
  }

  // Calls body(the slot's cache from token `first` on, the block's copy, bytes) for each layer.
  template <class Body> void for_each_layer(int64_t slot, int64_t first, int64_t block, const Body& body) {
    std::byte* kept = prefix_memory_ + block * block_bytes();
    for (const Layer& layer : layers_) {
      const size_t bytes = static_cast<size_t>(layer.width * PrefixCache::kBlock) * sizeof(float);
      body(layer.cache + (slot * options_.max_length + first) * layer.width, kept, bytes);
      kept += bytes;
    }
  }

  CausalModel& model_;
  const ParameterLayout& layout_;
  CausalOptions options_;
  // Lengths of prefills_, ascending, which has one more: the longest again, without logits. Empty: prompts are whole.
  std::vector<int64_t> chunk_lengths_;
  int32_t *prompt_ = nullptr, *last_ = nullptr, *slot_ = nullptr;  // inputs of the prefill plans

  struct Layer {
    std::string name;
    int64_t width;  // floats of a token
    float* cache = nullptr;
  };
  std::vector<Layer> layers_;
  std::optional<PrefixCache> prefixes_;
  RegionId prefix_region_ = -1;
  std::byte* prefix_memory_ = nullptr;
};
}  // namespace

std::unique_ptr<SlotModel> make_causal_slots(CausalModel& model, const ParameterLayout& layout, Store& store,
    const SharedRegions& shared, const CausalOptions& options) {
  return std::make_unique<CausalSlots>(model, layout, store, shared, options);
}
}  // namespace linnet
