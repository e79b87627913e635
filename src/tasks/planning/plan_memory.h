// `linnet plan`: what a run would take, without running it.
#pragma once
#include <tuple>
#include "config/config.h"
#include "distributed/simulate/training_step.h"
#include "training/run/memory_report.h"
#include "training/trainer/trainer.h"

namespace linnet {
struct MachineSpeed {
  double flops = 0;      // of products, per second
  double bandwidth = 0;  // bytes per second
};

struct PlanAnswer {
  MemoryForecast forecast;
  int64_t parameters = 0;
  std::string stage;  // this rank's part of the model (models/nn/pipeline_parallel.h); empty: all
  size_t arena_bytes = 0, arena_lower_bound = 0;
  std::string batches;        // "up to 16 x (64 + 64) tokens, 8 shapes"
  std::string assumption;     // assumptions about missing data; empty: none
  std::string batch_key;      // key of largest_batch: "batch_tokens" or "batch_size"
  int64_t largest_batch = 0;  // within `memory`; 0: none
  uint64_t least_peak = 0;    // of the smallest batch, if planned
  std::string shorter_key;    // a key that saves memory with a smaller value; empty: none
  std::string recomputation;  // recomputed layers and their cost; empty: nothing
  std::string fusion;         // results of the training step's passes (engine/passes/passes.h)
  std::string memory_record;  // the picture of its memory (training/run/run_record.h)
  double step_seconds = 0;    // estimated, if a speed is given
  bool all_fit = false;       // even with all training data in one batch
  bool more_may_fit = false;  // larger batches were not planned
};

class SessionTask;

struct PlanRequest {
  Config config;
  uint64_t memory = 0;  // available bytes
  bool exact = false;   // read any amount of data
  // Process memory beside the plan, data included; absent: measured. Set it to compare plans, as the process grows.
  std::optional<uint64_t> resident = {};
  int64_t micro_batches = 1;  // a factor of accumulate_steps; the largest batch is searched without it
  // Estimates a step's time instead of the largest batch.
  std::optional<MachineSpeed> speed = {};
  // Keeps the data for the next plan with other batch sizes.
  std::unique_ptr<SessionTask>* task = nullptr;
  // Called with the planned trainer. If set, the largest batch is not looked for.
  std::function<void(const Trainer&)> visit = {};
};

// Assumes data that take long to read, unless `exact`, to have the greatest lengths allowed (PlanAnswer::assumption).
PlanAnswer plan_memory(const PlanRequest& request);

// For the simulator (distributed/simulate/training_step.h): what a rank computes and sends in a step, from its plans.

// One rank's stages by chunk; one without a pipeline.
struct RankStages {
  std::vector<StageWork> stages;
  int64_t micro_batches = 1;    // in a step
  bool divides_update = false;  // as TrainingStep::divides_update
};

// `trainer`: the rank's, planned with the layout. Node times are estimated.
RankStages stages_of_rank(const Trainer& trainer, const MachineSpeed& speed, const RankLayout& layout);

// The step of all ranks of a pipeline.
TrainingStep step_of_ranks(std::vector<RankStages> ranks, const RankLayout& layout);

// The number of equal layers ("decoder.layers.3") with trained parameters, and so the most stages of a pipeline.
int count_layers(const ParameterLayout& layout);

// Memory and step time of a run on several ranks, which need not exist here.
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
  std::string recompute;      // "block" if needed to fit; else as configured
  int64_t micro_batches = 0;  // train.micro_batches of the plans
  PlanAnswer plan;            // of one rank; with a pipeline the largest
  bool fits = true;
  StepForecast step;
  // The time of one rank for the same work, divided by the ranks' total time: 1 is a step without any loss.
  double efficiency = 0;
  double groups_per_second = 0;  // steps a second times data groups, by which layouts are ranked
  TrainingStep simulated;        // for a trace

  auto order() const { return std::tuple(fits, groups_per_second); }  // the better layout has the greater one
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
