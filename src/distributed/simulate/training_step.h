// Schedules a training step of several ranks: data parallel as training/trainer/sharded_step.h does it, tensor parallel
// by exchanges between a rank's nodes, pipeline parallel in the order of distributed/comm/pipeline_order.h.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>
#include "distributed/comm/pipeline_order.h"
#include "distributed/simulate/network.h"

namespace linnet {
// A discrete-event simulation of what ranks compute and send. Operations occupy lanes; one begins when all that it
// waits for has ended and its lanes are free. Lanes serve operations in the order in which these become ready.

// Each rank does one thing at a time per lane.
enum class LaneKind : uint8_t { kCompute, kSend, kReceive };
constexpr int kLaneKinds = 3;
struct Lane {
  int rank;
  LaneKind kind;
};

enum class OperationKind : uint8_t { kForward, kBackward, kUpdate, kGradients, kParameters, kTensor, kPipeline };
constexpr int kOperationKinds = 7;
const char* operation_kind_name(OperationKind kind);  // "forward"
bool is_communication(OperationKind kind);

using OperationId = int32_t;

struct Operation {
  std::string name;
  OperationKind kind;
  double seconds;
  std::vector<Lane> lanes;         // all at once
  std::vector<OperationId> after;  // operations that were added before
  double sent_bytes = 0;           // by each of its ranks that sends
};

struct Interval {
  double begin, end;  // seconds
};

class RankSchedule {
 public:
  explicit RankSchedule(int ranks) : ranks_(ranks) {}

  OperationId add(Operation operation);
  const std::vector<Operation>& operations() const { return operations_; }
  int ranks() const { return ranks_; }

  std::vector<Interval> simulate() const;

 private:
  int ranks_;
  std::vector<Operation> operations_;
};

double duration_of(const std::vector<Interval>& intervals);

// Chrome's trace format, for Perfetto: a process for each rank, a track for each lane in use.
std::string chrome_trace(const RankSchedule& schedule, const std::vector<Interval>& intervals);

std::string layout_text(const RankLayout& layout);  // "data=8,tensor=4,pipeline=2,interleave=3"
// All layouts of `ranks` ranks with one stage each, within the limits.
std::vector<RankLayout> layouts_of(int ranks, int most_tensor, int most_pipeline);

// A rank computes this, and then exchanges values with its tensor group.
struct WorkItem {
  std::string name;
  double seconds = 0;
  Traffic exchange = {};  // none, unless exchange.exchanges > 0
};

// Gradients that the data groups sum.
struct GradientTraffic {
  Traffic traffic;
  double add_seconds = 0;   // of the rank that adds most
  double wait_seconds = 0;  // until messages are seen, in which ranks sleep
  size_t after = 0;         // items of the backward pass after which the gradients are complete
};

// The work of each rank of a pipeline stage in a step.
struct StageWork {
  std::vector<WorkItem> forward, backward;  // of one micro-batch
  double sent_bytes = 0;                    // to the next stage after a forward pass, and back after a backward pass
  std::vector<GradientTraffic> gradients;   // in the order in which they are added
  Traffic counts;                           // loss, tokens and norms, which all ranks of the data groups add
  Traffic gather;                           // of what the ranks have of gradients or parameters
  double update_seconds = 0;
};

struct TrainingStep {
  RankLayout layout;
  int64_t micro_batches = 1;      // of each rank
  std::vector<StageWork> stages;  // layout.stages() of them
  // Gradients are sent while the last backward pass computes others; otherwise after it.
  bool adds_early = false;
  // Each rank updates a part of the parameters, which are gathered afterwards (ZeRO); otherwise gradients are, before.
  bool divides_update = false;
};

RankSchedule schedule_of(const TrainingStep& step, const Network& network);

struct StepForecast {
  double seconds = 0;
  double compute_seconds = 0;  // mean of the ranks
  // Idle time of the mean rank: what remains without communication (pipeline bubble, imbalance), and the rest.
  double bubble_seconds = 0, exposed_seconds = 0;
  std::array<double, kOperationKinds> sent_bytes = {};  // by OperationKind, of the rank that sends most
};

StepForecast forecast_step(const TrainingStep& step, const Network& network);
}  // namespace linnet
