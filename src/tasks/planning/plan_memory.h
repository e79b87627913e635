// `linnet plan`: what a run would take, without taking it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "config/config.h"
#include "distributed/simulate/training_step.h"
#include "training/run/memory_report.h"
#include "training/trainer/trainer.h"

namespace linnet {

class Trainer;

// What bounds a step's time.
struct MachineSpeed {
  double flops = 0;      // of products, a second
  double bandwidth = 0;  // bytes a second
};

struct PlanAnswer {
  MemoryForecast forecast;
  int64_t parameters = 0;
  std::string stage;  // what of the model this rank has (models/nn/pipeline_parallel.h); empty: all of it
  size_t arena_bytes = 0, arena_lower_bound = 0;
  std::string batches;        // "up to 16 x (64 + 64) tokens, 8 shapes"
  std::string assumption;     // what was taken for granted because the data is not at hand; empty: nothing
  std::string batch_key;      // "batch_tokens" or "batch_size": what largest_batch is a value of
  int64_t largest_batch = 0;  // that fits `memory`; 0: none does
  uint64_t least_peak = 0;    // of the smallest batch, where it was looked at
  std::string shorter_key;    // of the configuration: a smaller value of it takes less memory; empty: none
  std::string recomputation;  // what of the layers is computed again, and what that costs; empty: nothing
  std::string fusion;         // what each pass made of the training step (engine/passes/passes.h)
  std::string memory_record;  // the picture of its memory (training/run/run_record.h)
  double step_seconds = 0;    // estimated, where a speed was given
  bool all_fit = false;       // even the whole training data as one batch
  bool more_may_fit = false;  // than largest_batch, beyond which none was planned
};

class SessionTask;

struct PlanRequest {
  Config config;
  uint64_t memory = 0;  // bytes that there are
  bool exact = false;   // read the data however many they are
  // Bytes that the process holds beside the plan, its data among them; absent: as measured. Plans that are compared
  // need the same, because a process that plans keeps growing.
  std::optional<uint64_t> resident = {};
  // Estimate a step's time, and do not look for the largest batch.
  std::optional<MachineSpeed> speed = {};
  // Keeps what was read for the next plan, with batches of other sizes.
  std::unique_ptr<SessionTask>* task = nullptr;
  // Called with the trainer that was planned. With it, too, the largest batch is not looked for.
  std::function<void(const Trainer&)> visit = {};
};

// Data that take more than a moment to read are not read, unless `exact`: then batches are as long as the configuration
// lets them be, which PlanAnswer::assumption says.
PlanAnswer plan_memory(const PlanRequest& request);

// What a rank computes and sends in a step, from the plans of its trainer: the bridge between plans and the simulator
// (distributed/simulate/training_step.h).

// The stages of one rank, by chunk: one without a pipeline.
struct RankStages {
  std::vector<StageWork> stages;
  int64_t micro_batches = 1;    // in a step
  bool divides_update = false;  // as TrainingStep::divides_update
};

// `trainer`: the rank's, planned with the layout. Node times are estimated.
RankStages stages_of_rank(const Trainer& trainer, const MachineSpeed& speed, const RankLayout& layout);

// The step of all ranks, from the stages of each rank of a pipeline.
TrainingStep step_of_ranks(std::vector<RankStages> ranks, const RankLayout& layout);

// Of one process, with all its micro-batches and the update.
double estimated_step_seconds(const Trainer& trainer, const MachineSpeed& speed);

// How many layers of equal form the trained parameters are of ("decoder.layers.3"): a pipeline has at most so many
// stages.
int count_layers(const ParameterLayout& layout);

}  // namespace linnet
