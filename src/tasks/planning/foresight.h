// Memory and step time of a run on several ranks, which need not exist here.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "distributed/simulate/training_step.h"
#include "tasks/planning/plan_memory.h"

namespace linnet {
struct ForesightRequest {
  Config config;
  Network network;
  MachineSpeed speed;  // of one rank
  // Each data group has the configuration's batch (weak scaling); otherwise they divide it.
  bool batch_per_group = false;
  bool exact = false;                     // as PlanRequest::exact
  uint64_t memory = 0;                    // bytes of each rank
  std::optional<uint64_t> resident = {};  // as PlanRequest::resident; absent: measured by the first plan
};

struct Foresight {
  RankLayout layout;
  std::string recompute;  // "block" if needed to fit; else as configured
  PlanAnswer plan;        // of one rank; with a pipeline the largest
  bool fits = true;
  StepForecast step;
  // The time of one rank for the same work, divided by the ranks' total time: 1 is a step without any loss.
  double efficiency = 0;
  // Steps a second times data groups; ranks layouts.
  double groups_per_second = 0;
  TrainingStep simulated;  // for a trace
};

// User error for a layout that the model or its batches do not allow.
Foresight foresee(ForesightRequest request, const RankLayout& layout);

struct LayoutSearch {
  std::vector<Foresight> found;  // fitting ones first, then by speed
  int64_t refused = 0;           // layouts that the model or its batches do not allow
  std::string why_refused;       // of one of them
};

// Tries all layouts of `ranks`. For pipelines picks the fastest number of micro-batches, and may interleave the stages;
// recomputes whole layers where a layout does not fit.
LayoutSearch search_layouts(ForesightRequest request, int ranks);
}  // namespace linnet
