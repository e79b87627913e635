// An encoder-decoder on slots. A prompt is a source: its encoding's keys and values are kept in a memory, one for each
// group of `beams` slots. A text begins with the token `begin`, whose step gives the first logits.
//
// Sources are encoded a few at a time by the plan of the smallest length that they fit. Steps with few texts run
// smaller decode plans; with more than a few rows, a row has the same bits in all of them (engine/kernels/gemm/gemm.h).
// So on the CPU a slot's logits do not depend on other slots.
#include "base/fail.h"
#include "engine/ops/movement/movement.h"
#include "engine/passes/passes.h"
#include "generation/slot_model.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
constexpr const char* kSource = "generate.source";
constexpr const char* kSourceLengths = "generate.source_lengths";
constexpr const char* kGroups = "generate.groups";
constexpr const char* kMemoryLengths = "generate.memory_lengths";

// Few enough that slots do not wait long, enough for products with some rows.
constexpr int64_t kSourcesAtOnce = 4;
// Fewest rows of smaller decode plans: products of fewer than 9 are computed in another order.
constexpr int64_t kFewestRows = 16;

SourceOptions checked(SourceOptions options, const EncoderDecoder& model) {
  options.max_length = std::min(options.max_length, model.max_length());
  const auto& lengths = options.source_lengths;
  if (options.max_length < 1) fail_internal("generation needs at least one token");
  if (lengths.empty() || !std::ranges::is_sorted(lengths) || lengths.front() < 1 || lengths.back() > model.max_length())
    fail_internal("the source lengths of generation must ascend from 1 to the model's longest");
  return options;
}

class SourceSlots : public SlotModel {
 public:
  SourceSlots(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      const SourceOptions& options)
      : SlotModel(store, shared, model.output_vocab_size(),
            {.rows = options.rows,
                .beams = options.beams,
                .threads = options.threads,
                .log_sum_exp = true,
                .verify_plans = options.verify_plans,
                .cache_in_arena = options.cache_in_arena}),
        options_(checked(options, model)), at_once_(std::min(options.rows, kSourcesAtOnce)),
        lengths_(static_cast<size_t>(options.rows)) {
    const TraceOptions trace_options{.layout = &layout, .flat_name = options_.flat_name};
    const int64_t longest = options_.source_lengths.back();
    // source i32 [B, S], source_lengths i32 [B], groups i32 [B] -> the states "memory.<path>"
    const auto encoding_graph = [&](int64_t length) {
      Trace trace(trace_options);
      Graph& graph = trace.graph();
      const TensorType of_sources{DType::kI32, {at_once_}};
      const Tensor source = graph.input(kSource, {DType::kI32, {at_once_, length}});
      const Tensor lengths = graph.input(kSourceLengths, of_sources);
      model.prefill(source, lengths, {options_.rows, longest, graph.input(kGroups, of_sources)});
      return optimize(trace.finish(), {.as_stored = store.device().is_host(), .backend = &store.backend()});
    };
    // tokens i32 [slots] -> logits [slots, V]
    const auto decode_graph = [&](int64_t slots) {
      Trace trace(trace_options);
      Graph& graph = trace.graph();
      const int64_t rows = slots / options_.beams;
      DecodeStep step = step_inputs(graph, slots, options_.max_length, false);
      step.memory_length = longest;
      step.memory_lengths = graph.input(kMemoryLengths, {DType::kI32, {rows}});
      const Tensor logits = model.decode(step_targets(token_input(graph, slots), step));
      give_logits(graph, reshape(logits, {slots, logits.dim(2)}));
      return optimize(trace.finish(), {.as_stored = store.device().is_host(), .backend = &store.backend()});
    };
    std::vector<Step> encodings, decodes;
    for (const int64_t length : options_.source_lengths)
      encodings.push_back({.graph = [&encoding_graph, length] { return encoding_graph(length); }});
    for (int64_t rows = options_.rows;; rows /= 2) {  // all texts, half of them, and so on
      const int64_t slots = rows * options_.beams;
      decodes.insert(
          decodes.begin(), Step{.graph = [&decode_graph, slots] { return decode_graph(slots); }, .rows = slots});
      if (rows == 1 || rows / 2 * options_.beams < kFewestRows) break;
    }
    make_plans(std::move(encodings), std::move(decodes));
  }

  void bind() override {
    SlotModel::bind();
    source_ = store_.as<int32_t>(kSource), source_lengths_ = store_.as<int32_t>(kSourceLengths);
    groups_ = store_.as<int32_t>(kGroups), memory_lengths_ = store_.as<int32_t>(kMemoryLengths);
  }

  // Neighbors of one padded length are encoded together.
  void begin(std::span<const Prompt> prompts, ThreadPool& pool, const PromptListener&) override {
    const auto bucket_of = [&](const Prompt& prompt) {
      return padded_to(options_.source_lengths, static_cast<int64_t>(prompt.ids.size()));
    };
    while (!prompts.empty()) {
      const size_t bucket = bucket_of(prompts.front());
      size_t count = 1;
      while (count < prompts.size() && static_cast<int64_t>(count) < at_once_ && bucket_of(prompts[count]) == bucket)
        ++count;
      encode(prompts.first(count), bucket, pool);
      prompts = prompts.subspan(count);
    }
  }

  int64_t prompts_at_once() const override { return at_once_; }
  void check_prompt(std::span<const int32_t> prompt) const override {
    if (!is_bound()) fail_internal("generation before bind()");
    const auto size = static_cast<int64_t>(prompt.size());
    if (prompt.empty()) fail_user("a source has no tokens");
    if (size > options_.source_lengths.back())
      fail_user(
          "a source of ", size, " tokens, the longest that can be translated has ", options_.source_lengths.back());
  }

  std::vector<int32_t> first_tokens(const std::vector<int32_t>&) const override { return {options_.begin}; }
  int64_t room() const override { return options_.max_length + 1; }  // includes the begin
  int64_t slots_for(int64_t) const override { return beams(); }      // a group, which shares a memory
  // A group that is not fed attends to nothing.
  void feed_nothing() override {
    SlotModel::feed_nothing();
    std::fill_n(memory_lengths_, options_.rows, 0);
  }
  int64_t feed(int64_t slot, int32_t token, int64_t length, int64_t parent) override {
    memory_lengths_[slot / beams()] = lengths_[slot / beams()];
    return SlotModel::feed(slot, token, length, parent);
  }

 private:
  void encode(std::span<const Prompt> prompts, size_t bucket, ThreadPool& pool) {
    const int64_t padded = options_.source_lengths[bucket];
    std::fill_n(source_, at_once_ * padded, 0);
    std::fill_n(source_lengths_, at_once_, 0);
    std::fill_n(groups_, at_once_, -1);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Prompt& prompt = prompts[i];
      const int64_t group = prompt.slot / beams();
      std::ranges::copy(prompt.ids, source_ + static_cast<int64_t>(i) * padded);
      groups_[i] = static_cast<int32_t>(group);
      source_lengths_[i] = lengths_[group] = static_cast<int32_t>(prompt.ids.size());
    }
    prefills_[bucket].run->run(pool);
  }

  const SourceOptions options_;
  const int64_t at_once_;         // rows of an encoding plan; each source length has its plan
  std::vector<int32_t> lengths_;  // of the source in each group's memory
  // Inputs: of the encoding plans, and the valid length of each memory in a step.
  int32_t *source_ = nullptr, *source_lengths_ = nullptr, *groups_ = nullptr, *memory_lengths_ = nullptr;
};
}  // namespace

std::unique_ptr<SlotModel> make_source_slots(EncoderDecoder& model, const ParameterLayout& layout, Store& store,
    const SharedRegions& shared, const SourceOptions& options) {
  return std::make_unique<SourceSlots>(model, layout, store, shared, options);
}
}  // namespace linnet
