// Parts of `linnet plan`, one file each.
#pragma once
#include "config/config.h"
#include "tasks/planning/plan_memory.h"

namespace linnet {
// `linnet plan --network`: memory and speed of a run on several ranks.

struct PlanRanksArguments {
  std::string ranks;     // "64", or a list "1,2,4,8" with a row for each
  std::string parallel;  // a layout, "auto" or empty
  std::string network;
  std::string speed;  // of a rank, such as "500GFLOP/s,20GB/s"; empty: measures this machine
  std::string trace;  // a file; empty: none
  bool batch_per_rank = false, exact = false, json = false;
};

// Parses "8" or "1,2,4,8". User error otherwise.
std::vector<int> parse_rank_counts(const std::string& text);

// `config` has neither process.ranks nor train.parallel. Returns the exit code.
int plan_ranks(const PlanRanksArguments& arguments, const Config& config);

// `linnet plan CONFIG --sweep`: memory and step time for all precisions, recomputation modes, optimizers and, from a
// model folder, with and without adapters.

// Prints each line once planned. `memory`: available; marks lines that need more.
void print_plan_sweep(const Config& config, uint64_t memory);
}  // namespace linnet
