// Measures one workload for `linnet bench`.
#pragma once
#include "app/bench/workload.h"
#include "base/function_ref.h"
#include "engine/kernels/precision.h"
#include "engine/ops/kernel.h"
#include "engine/profile/profile.h"
#include "training/trainer/fit_memory.h"
#include "training/trainer/trainer.h"

namespace linnet {
struct MeasureOptions {
  Precision precision = Precision::kF32;
  bool int8 = false;                                  // PassOptions::int8
  std::optional<Precision> attention_precision = {};  // if it differs
  bool store_fp32 = false;                            // store activations in fp32 with kBf16 too
  const Backend* backend = &cpu_backend();
  RecomputeMode recompute = RecomputeMode::kAuto;
  uint64_t memory = 0;         // most bytes to use; 0: no limit
  uint64_t memory_beside = 0;  // of them, unplanned: the program's own
  int threads = 1;
  double seconds = 5;  // of timed steps
  int64_t least = 3;   // fewest timed steps
  bool parts = true;   // time the forward pass and the update separately, if the workload asks for it
};

struct Measurement {
  int64_t steps = 0;
  double median = 0, min = 0, max = 0;  // in the workload's unit
  double seconds_per_step = 0;          // median
  double processor_seconds = 0;         // of all threads, a step; median
  double flop_per_step = 0;             // of the products, see OpDef::flops
  double forward_seconds = 0;           // 0: not measured
  double update_seconds = 0;            // clipping and optimizer
  double first_step_seconds = 0;        // from the process's start to the end of step 1
  double memory_mb = 0;                 // peak RSS less RSS at start; on a device: planned
  double predicted_mb = 0;
  double program_mb = 0;  // RSS beside planned memory, before that was touched, less RSS at start
  double saved_mb = 0;    // saved activations
  double planning_seconds = 0;
  double extra_work = 0;      // estimated share of recomputation
  std::string recomputation;  // empty: none
  int64_t parameters = 0;
  // Of a device that counts its energy, else 0: all of it, and what it draws when idle.
  double joules_per_unit = 0, idle_watts = 0;
  double first_loss = 0, last_loss = 0;
};

// `resident_at_start`: RSS of the process before it knew what to do.
Measurement measure(const Workload& workload, const MeasureOptions& options, uint64_t resident_at_start);

// Predicts a training step: predicted_mb, program_mb, saved_mb, planning_seconds, extra_work, recomputation. Allocates
// and runs nothing. User error if options.memory is too small for any plan.
Measurement plan_step(const Workload& workload, const MeasureOptions& options);

// Planned bytes of a training step, regardless of options.memory.
size_t planned_bytes(const Workload& workload, const MeasureOptions& options);

// A table of the step's time by op, slowest first.
std::string profile(const Workload& workload, const MeasureOptions& options);

// The same by module, phase and op, for `steps` steps after two others (engine/profile/profile.h).
ProfileSummary profiled(Trainer& trainer, int64_t steps, FunctionRef<void()> step);
ProfileSummary profile_layers(const Workload& workload, const MeasureOptions& options, int64_t steps);

void write_data(const Workload& workload, const std::string& path);
}  // namespace linnet
