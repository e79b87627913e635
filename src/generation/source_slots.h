// An encoder-decoder on slots. A prompt is a source: its encoding's keys and values are kept in a memory, one for each
// group of `beams` slots. A text begins with the token `begin`, whose step gives the first logits.
//
// Sources are encoded a few at a time by the plan of the smallest length that they fit. Steps with few texts run
// smaller decode plans; with more than a few rows, a row has the same bits in all of them (engine/kernels/gemm/gemm.h). So
// on the CPU a slot's logits do not depend on other slots.
#pragma once
#include "data/text/tokenizer.h"
#include "engine/plan/state_names.h"
#include "generation/slot_model.h"
#include "models/modules/encoder_decoder.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
struct SourceOptions {
  int64_t rows = 32;                      // texts at once
  int64_t beams = 1;                      // most of a request; there are rows * beams slots
  int64_t max_length = 256;               // generated tokens of a text, the end included; at most the model's limit
  std::vector<int64_t> source_lengths;    // padded lengths of sources, ascending
  int32_t begin = SpecialTokens{}.begin;  // first token of texts
  std::string flat_name = state::kParameters;  // or "ema"
  int threads = 1;                             // most threads of a pool
  bool verify_plans = true;                    // see PlanOptions
  bool cache_in_arena = false;                 // see SlotOptions
};

class SourceSlots : public SlotModel {
 public:
  // Declares memory and makes all plans. Call before store.allocate(). "constants" and options.flat_name must be bound.
  SourceSlots(EncoderDecoder& model, const ParameterLayout& layout, Store& store, const SharedRegions& shared,
      const SourceOptions& options);

  void bind() override;
  void begin(std::span<const Prompt> prompts, ThreadPool& pool, const PromptListener& hear) override;
  int64_t prompts_at_once() const override { return at_once_; }
  void check_prompt(std::span<const int32_t> prompt) const override;
  std::vector<int32_t> first_tokens(const std::vector<int32_t>&) const override { return {options_.begin}; }
  int64_t room() const override { return options_.max_length + 1; }  // includes the begin
  int64_t slots_for(int64_t) const override { return beams(); }      // a group, which shares a memory
  void feed_nothing() override;
  int64_t feed(int64_t slot, int32_t token, int64_t length, int64_t parent) override;

 private:
  void encode(std::span<const Prompt> prompts, size_t bucket, ThreadPool& pool);

  const SourceOptions options_;
  const int64_t at_once_;                         // rows of an encoding plan
  std::vector<std::unique_ptr<Plan>> encodings_;  // by source length
  std::vector<Executor> run_encodings_;
  std::vector<int32_t> lengths_;  // of the source in each group's memory
  // Inputs: of the encoding plans, and the valid length of each memory in a step.
  int32_t *source_ = nullptr, *source_lengths_ = nullptr, *groups_ = nullptr, *memory_lengths_ = nullptr;
};
}  // namespace linnet
