// The profiled steps of a run: the spans of a timeline with the plans they belong to.
#pragma once
#include <map>
#include <string>
#include <vector>
#include "base/timeline.h"
#include "engine/plan/plan.h"

namespace linnet {
// What is known of a plan's nodes before a run: phases (kBoth: of a loss and its gradient), names, costs.
enum class StepPhase { kForward, kBoth, kBackward, kUpdate, kEvaluation };
template <> inline constexpr std::array kEnumNames<StepPhase>{"forward", "both", "backward", "update", "evaluation"};
// The share of the forward pass (the logits' product) in the operations of a kBoth node.
constexpr double kForwardShare = 1.0 / 3;

struct NodeProfile {
  std::string label;   // "matmul+bias"
  std::string module;  // "encoder.layers.0.self_attention"; empty outside of modules
  std::string source;  // "layers.cpp:41"
  StepPhase phase;
  double bytes;       // read and written: all of its operands and results, of a table only the rows that are looked up
  double flops;       // OpDef::flops
  double kept_bytes;  // of the arena that its results take until the backward pass, if it is of the forward pass
};

struct PlanProfile {
  std::string name;  // "train.0"
  std::vector<NodeProfile> nodes;
  std::vector<ArenaTenant> tenants;
  std::vector<size_t> live;  // bytes of the arena in use, by node
  size_t arena_bytes = 0;
};

PlanProfile describe_plan(std::string name, const Plan& plan, RegionId arena);

struct ProfiledStep {
  int64_t step;
  int64_t begin, end;      // nanoseconds, as in the timeline
  uint64_t process_bytes;  // resident memory of the process at its end
};

// The peak that shares refer to. 0: not measured.
struct MachinePeak {
  std::string name;      // "2 threads, avx512, fp32"
  double flops = 0;      // multiply-adds on registers, per second
  double bandwidth = 0;  // bytes read from memory, per second
};

struct Profile {
  std::vector<ProfiledStep> steps;
  std::vector<Track> tracks;  // the first is the thread that ran the plans
  std::map<const void*, PlanProfile> plans;
  MachinePeak machine;
  size_t planned_bytes = 0;  // of the whole store
};

// All executions of one op in one module, source line and phase.
struct ProfileRow {
  std::string phase, label, module, source;
  int64_t calls = 0;
  double seconds = 0, flops = 0, bytes = 0, kept_bytes = 0;  // of one step: sums divided by the number of steps
};

struct ProfileSummary {
  int64_t first_step = 0, last_step = 0, steps = 0;
  double step_seconds = 0;     // mean wall time of a step
  double node_seconds = 0;     // of it in nodes
  double data_seconds = 0;     // of it in waiting for the batch and copying it
  double sharing_seconds = 0;  // of it in adding up shards and exchanging with other processes
  size_t arena_bytes = 0, peak_live_bytes = 0, planned_bytes = 0;
  uint64_t process_bytes = 0;
  MachinePeak machine;
  std::vector<ProfileRow> rows;  // the slowest first
};

// Spans outside of steps, such as an evaluation in between, count in the rows but not in node_seconds.
ProfileSummary summarize(const Profile& profile);

// Chrome's trace format with Kineto's conventions, for Perfetto, HTA and chrome://tracing: steps, phases, modules and
// nodes as nested slices on their thread's track, a track for every other thread, and counters of live and planned
// memory.
std::string chrome_trace(const Profile& profile);

// Parts of chrome_trace(): the events of one process, and the trace of all. `start`: the trace's time 0.
struct TracedProcess {
  int id = 1;  // unique in the trace, and the order of the processes
  std::string name = "linnet";
  int64_t start = 0;
};
int64_t first_moment(const Profile& profile);
std::string trace_events(const Profile& profile, const TracedProcess& process);
std::string trace_of(const std::vector<std::string>& events, const MachinePeak& machine);

// The slowest `count` rows as a table, and a step's time by phase.
std::string summary_table(const ProfileSummary& summary, size_t count);

// How long pipeline stages wait between the first and the last pass of a step, per second of passes.
struct PipelineBubble {
  int stages = 1;             // ranks; 1: there is no pipeline
  int64_t micro_batches = 1;  // that pass through it one behind the other
  double measured = 0;
  int chunks = 1;  // stages that each rank has, where they are interleaved
  double in_theory() const { return (stages - 1) / static_cast<double>(micro_batches * chunks); }
  std::string text() const;  // a line; empty without a pipeline
};

// A summary as JSON, with the pipeline's data if there is one.
std::string summary_json(const ProfileSummary& summary, const PipelineBubble& bubble = {});

// One line per module down to `depth` names: forward and backward milliseconds, their ratio, the share of the machine's
// peak, and saved activations. Neighbors whose names differ in a number alone (layers.0, layers.1, ...) share a line
// with their mean, unless `each` is set.
std::string layer_table(const ProfileSummary& summary, int depth, bool each);

// At most `count` modules whose backward pass takes over twice the forward pass, by the excess time, and `count` ops
// farthest from what arithmetic and memory allow, by the time lost.
std::string worst_ratios(const ProfileSummary& summary, size_t count);
}  // namespace linnet
