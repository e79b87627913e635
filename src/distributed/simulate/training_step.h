// A training step of several ranks as a schedule: data parallel as training/trainer/sharded_step.h does it, tensor
// parallel by exchanges between a rank's nodes, pipeline parallel by one forward and one backward pass in turn, with
// interleaved stages where a rank has several (distributed/comm/pipeline_order.h).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>
#include "distributed/comm/pipeline_order.h"
#include "distributed/simulate/network.h"

namespace linnet {

// A discrete-event simulation of what ranks compute and send. Operations occupy lanes; an operation begins when all
// that it waits for has ended and its lanes are free. Lanes serve operations in the order in which these become ready.

// What a rank does one thing at a time with.
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

  // When each operation runs.
  std::vector<Interval> simulate() const;

 private:
  int ranks_;
  std::vector<Operation> operations_;
};

// The end of the last operation.
double duration_of(const std::vector<Interval>& intervals);

// Chrome's trace format, for Perfetto: a process for each rank, with a track for each of its lanes that is used.
std::string chrome_trace(const RankSchedule& schedule, const std::vector<Interval>& intervals);

std::string layout_text(const RankLayout& layout);  // "data=8,tensor=4,pipeline=2,interleave=3"
// All layouts of so many ranks with at most so many tensor ranks and stages, of which each rank has one.
std::vector<RankLayout> layouts_of(int ranks, int most_tensor, int most_pipeline);

// A part of what a rank does in order: it computes, and then exchanges values with its tensor group.
struct WorkItem {
  std::string name;
  double seconds = 0;
  Traffic exchange = {};  // none, unless exchange.exchanges > 0
};

// Gradients that the data groups add together.
struct GradientTraffic {
  Traffic traffic;
  double add_seconds = 0;   // of the rank that adds most
  double wait_seconds = 0;  // until messages are seen, in which ranks sleep
  size_t after = 0;         // items of the backward pass after which the gradients are complete
};

// What each rank of a stage of the pipeline does for it in a step.
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
  // Gradients leave while the last backward pass still computes others; otherwise after it.
  bool adds_early = false;
  // Each rank updates a part of the parameters, which are gathered then (ZeRO); otherwise gradients are, before it.
  bool divides_update = false;
};

RankSchedule schedule_of(const TrainingStep& step, const Network& network);

struct StepForecast {
  double seconds = 0;
  double compute_seconds = 0;  // mean of the ranks
  // Of the mean rank's time without work: what would be left if nothing had to be sent and added, which is the
  // pipeline's bubble and the imbalance of its stages; and the rest.
  double bubble_seconds = 0, exposed_seconds = 0;
  // By OperationKind, of the rank that sends most.
  std::array<double, kOperationKinds> sent_bytes = {};
};

StepForecast forecast_step(const TrainingStep& step, const Network& network);

}  // namespace linnet
