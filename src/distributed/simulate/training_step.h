// Schedules a training step of several ranks: data parallel as training/trainer/sharded_step.h does it, tensor parallel
// by exchanges between a rank's nodes, pipeline parallel in the order of distributed/comm/pipeline_order.h.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "base/enum_names.h"
#include "distributed/comm/communicator.h"
#include "distributed/comm/pipeline_order.h"
#include "distributed/comm/shard_sum.h"

namespace linnet {
struct QuantityUnit {
  std::string_view name;
  double factor;
};
// The value of "25 GB/s"; below 0 unless the text is a number and one of the units.
double parse_quantity(std::string_view text, std::span<const QuantityUnit> units);

// The time to move bytes between ranks: a latency for each exchange, and a bandwidth of each rank in each direction.
// Links are not shared: a rank's own port is the bound (the model of Hockney 1994 with one port).
struct Network {
  double bytes_per_second = 0;  // of one rank, in each direction at the same time
  double latency = 0;           // seconds of an exchange of no bytes
  // Whether a rank computes at full speed while messages move. False on one machine, whose processors also copy them.
  bool overlaps = true;
};

// "25GB/s,5us" or "100Gbit/s,2us": bandwidth (B, KB, MB, GB, TB or bit, Kbit, Mbit, Gbit, Tbit a second) and latency
// (s, ms, us or ns). A third word "no-overlap" clears Network::overlaps. User errors name the option --network.
Network parse_network(const std::string& text);
std::string network_text(const Network& network);  // a text that parse_network() reads as nearly the same network

struct TimedExchange {  // each rank sends and receives `bytes`
  double bytes, seconds;
};
// Fits latency and bandwidth to most of the exchanges, which must have at least two sizes.
Network fit_network(std::span<const TimedExchange> exchanges);

// What the busiest rank sends and receives in an operation of comm/, as consecutive exchanges.
struct Traffic {
  int64_t exchanges = 0;
  double port_bytes = 0;  // the larger of what the busiest rank sends and what it receives, over all exchanges
  double sent_bytes = 0;  // mean of the ranks

  Traffic& operator+=(const Traffic& other) {
    exchanges += other.exchanges, port_bytes += other.port_bytes, sent_bytes += other.sent_bytes;
    return *this;
  }
};

double seconds_of(const Traffic& traffic, const Network& network);

// As many exchanges and bytes as comm/ makes of the same call. Every value goes directly to the rank that adds it, so
// an all-reduce of balanced slices moves as many bytes as a ring, 2 (n - 1) / n of the values, in fewer exchanges.

// ShardSum::reduce_scatter of `part` of `values` floats: each rank receives the others' for its own slice.
Traffic reduce_scatter_traffic(size_t values, Slice part, const ShardShare& share);
Traffic gather_slices_traffic(size_t values, int ranks);
Traffic sum_everywhere_traffic(size_t values, const ShardShare& share);
Traffic all_reduce_traffic(size_t values, int ranks);  // sum_over_ranks() of a tensor group: the op all_reduce
// Each rank sends `values` floats to all others: the op all_gather.
Traffic all_gather_traffic(size_t values, int ranks);
Traffic send_traffic(double bytes);  // one message of `bytes` between two ranks

// Bytes that the rank which adds most reads and writes, besides messages, in a reduce_scatter_traffic().
double added_bytes(size_t values, Slice part, const ShardShare& share);

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
template <> inline constexpr std::array kEnumNames<OperationKind>{
    "forward", "backward", "update", "gradients", "parameters", "tensor parallel", "pipeline"};
constexpr int kOperationKinds = kEnumNames<OperationKind>.size();
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
