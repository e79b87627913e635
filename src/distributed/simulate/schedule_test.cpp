#include <gtest/gtest.h>
#include "base/error.h"
#include "distributed/simulate/training_step.h"
#include "parsed_json.h"

namespace linnet {
namespace {
Operation on(int rank, LaneKind kind, double seconds, std::vector<OperationId> after = {}) {
  return {.name = "work",
      .kind = OperationKind::kForward,
      .seconds = seconds,
      .lanes = {{rank, kind}},
      .after = std::move(after)};
}

TEST(RankSchedule, LanesDoOneThingAtATimeAndSeparateLanesRunTogether) {
  RankSchedule schedule(2);
  schedule.add(on(0, LaneKind::kCompute, 2));
  schedule.add(on(0, LaneKind::kCompute, 3));
  schedule.add(on(0, LaneKind::kSend, 4));
  schedule.add(on(1, LaneKind::kCompute, 1));
  const std::vector<Interval> intervals = schedule.simulate();
  EXPECT_EQ(intervals[1].begin, 2);
  EXPECT_EQ(intervals[1].end, 5);
  EXPECT_EQ(intervals[2].end, 4);
  EXPECT_EQ(intervals[3].end, 1);
  EXPECT_EQ(duration_of(intervals), 5);
}

TEST(RankSchedule, WhatIsReadyFirstIsServedFirst) {
  RankSchedule schedule(1);
  const OperationId late = schedule.add(on(0, LaneKind::kCompute, 5));
  const OperationId message_of_late = schedule.add(on(0, LaneKind::kSend, 1, {late}));
  const OperationId message = schedule.add(on(0, LaneKind::kSend, 1));
  const std::vector<Interval> intervals = schedule.simulate();
  EXPECT_EQ(intervals[static_cast<size_t>(message)].begin, 0);
  EXPECT_EQ(intervals[static_cast<size_t>(message_of_late)].begin, 5);
}

TEST(RankSchedule, AnOperationOfSeveralRanksWaitsForAllOfThem) {
  RankSchedule schedule(2);
  const OperationId a = schedule.add(on(0, LaneKind::kCompute, 2));
  const OperationId b = schedule.add(on(1, LaneKind::kCompute, 7));
  Operation both = on(0, LaneKind::kCompute, 1, {a, b});
  both.lanes.push_back({1, LaneKind::kCompute});
  const OperationId sum = schedule.add(both);
  const OperationId next = schedule.add(on(0, LaneKind::kCompute, 1, {sum}));
  const std::vector<Interval> intervals = schedule.simulate();
  EXPECT_EQ(intervals[static_cast<size_t>(sum)].begin, 7);
  EXPECT_EQ(intervals[static_cast<size_t>(next)].begin, 8);
}

TEST(RankSchedule, RefusesWhatCannotBe) {
  RankSchedule schedule(1);
  EXPECT_THROW(schedule.add(on(0, LaneKind::kCompute, 1, {0})), Error);  // itself
  EXPECT_THROW(schedule.add(on(1, LaneKind::kCompute, 1)), Error);
}

TEST(RankSchedule, TheTraceHasAProcessForEachRankAndItsTracks) {
  RankSchedule schedule(2);
  const OperationId first = schedule.add(on(0, LaneKind::kCompute, 0.5));
  Operation message = on(0, LaneKind::kSend, 0.25, {first});
  message.lanes.push_back({1, LaneKind::kReceive});
  message.kind = OperationKind::kPipeline, message.sent_bytes = 1000;
  schedule.add(message);
  const auto json = ParsedJson::parse(chrome_trace(schedule, schedule.simulate()));
  EXPECT_EQ(json["distributedInfo"]["world_size"], 2);
  int slices = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++slices;
    if (event["cat"] != "pipeline") continue;
    EXPECT_EQ(event["ts"], 0.5e6);
    EXPECT_EQ(event["dur"], 0.25e6);
    EXPECT_EQ(event["args"]["Bytes"], 1000);
  }
  EXPECT_EQ(slices, 3);
}
}  // namespace
}  // namespace linnet
