// `linnet plan`: what a run would take, without taking it.
#pragma once
#include <optional>

#include "app/translation_task.h"

namespace linnet {

struct PlanAnswer {
  MemoryForecast forecast;
  int64_t parameters = 0;
  size_t arena_bytes = 0, arena_lower_bound = 0;
  std::vector<BatchShape> shapes;
  bool assumed = false;       // no training text at hand: every batch taken at its longest
  std::string batch_key;      // "batch_tokens" or "batch_size": what largest_batch is a value of
  int64_t largest_batch = 0;  // that fits `memory`; 0: none does
  bool all_fit = false;       // even the whole training text as one batch
};

PlanAnswer plan_memory(const Config& config, uint64_t memory);

}  // namespace linnet
