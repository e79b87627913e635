// What a run of several ranks would take and how long its steps would, for ranks and a network that need not exist
// here.
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
  uint64_t memory = 0;                    // bytes that each rank has
  std::optional<uint64_t> resident = {};  // as PlanRequest::resident; absent: as the first plan measures it
};

struct Foresight {
  RankLayout layout;
  std::string recompute;  // "block", where that was needed to fit; else as the configuration says
  PlanAnswer plan;        // of a rank; of a pipeline of the one that takes most
  bool fits = true;
  StepForecast step;
  // Of the same work on one rank alone, times the ranks that would be needed: 1 is a step without any loss.
  double efficiency = 0;
  // Steps a second times groups that train on different data, by which layouts are compared.
  double groups_per_second = 0;
  TrainingStep simulated;  // for a trace
};

// User error for a layout that the model or its batches cannot have.
Foresight foresee(ForesightRequest request, const RankLayout& layout);

struct LayoutSearch {
  std::vector<Foresight> found;  // those that fit first, then by speed
  int64_t refused = 0;           // layouts that the model or its batches cannot have
  std::string why_refused;       // of one of them
};

// Every layout of so many ranks. With a pipeline a step's batch is cut into as many micro-batches as is fastest, and
// the stages may be interleaved; where a layout does not fit, whole layers are computed again.
LayoutSearch search_layouts(ForesightRequest request, int ranks);

}  // namespace linnet
