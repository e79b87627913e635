// A discrete-event simulation of what ranks compute and send. Operations occupy lanes; an operation begins when all
// that it waits for has ended and its lanes are free. Lanes serve operations in the order in which these become ready.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/simulate/network.h"

namespace linnet {

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

}  // namespace linnet
