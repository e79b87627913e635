// Profiles of two stages of a pipeline, made by hand: rank 1's clock is ahead of rank 0's.
#include <gtest/gtest.h>
#include <map>
#include "comm_testing.h"
#include "engine/profile/step_profiler.h"
#include "parsed_json.h"

namespace linnet {
namespace {
constexpr int64_t kAhead = 5'000'000;

// Two micro-batches, each pass of which takes 100 ns forward and 200 ns backward on either stage.
Profile profile_of(int stage) {
  Profile profile;
  const int64_t clock = stage * kAhead;
  const auto pass = [&](const char* name, int64_t micro, int64_t begin, int64_t end) {
    return Span{.begin = clock + begin, .end = clock + end, .name = name, .index = micro, .kind = SpanKind::kStagePass};
  };
  profile.steps = {{.step = 3, .begin = clock + 1000, .end = clock + 2000, .process_bytes = 0}};
  if (stage == 0)
    profile.tracks = {{"main", {pass("forward", 0, 1100, 1200), pass("forward", 1, 1200, 1300),
                                   pass("backward", 0, 1500, 1700), pass("backward", 1, 1800, 2000)}}};
  else
    profile.tracks = {
        {"main", {pass("forward and backward", 0, 1200, 1500), pass("forward and backward", 1, 1500, 1800)}}};
  return profile;
}

TEST(RankProfiles, AreOneTraceInRankZerosTime) {
  testing::run_ranks(2, [](Communicator& world) {
    RankProfiles ranks({.world = &world, .name = "rank " + std::to_string(world.rank())});
    const std::string text = ranks.put_together(profile_of(world.rank()), world.rank() * kAhead);
    EXPECT_EQ(ranks.bubble().text(), "");
    EXPECT_EQ(text.empty(), world.rank() > 0);
    if (text.empty()) return;
    const auto trace = ParsedJson::parse(text);
    EXPECT_EQ(trace["distributedInfo"]["world_size"], 2);
    std::map<std::pair<int, std::string>, double> begins;
    for (const auto& event : trace["traceEvents"])
      if (event["ph"] == "X") {
        const auto& arguments = event["args"];
        begins[{event["pid"], event["name"].get<std::string>() +
                                  (arguments.contains("Micro-batch") ? arguments["Micro-batch"].dump() : "")}] =
            event["ts"];
      }
    EXPECT_DOUBLE_EQ((begins[{0, "ProfilerStep#3"}]), 0);
    EXPECT_DOUBLE_EQ((begins[{1, "ProfilerStep#3"}]), 0);
    EXPECT_DOUBLE_EQ((begins[{0, "backward1"}]), 0.8);
    EXPECT_DOUBLE_EQ((begins[{1, "forward and backward0"}]), 0.2);
    EXPECT_EQ(begins.size(), 8u);
  });
}

// From 1100 to 2000 each stage computes for 600 ns: it waits for 300, which is (p - 1) / m.
TEST(RankProfiles, TellHowLongStagesWaited) {
  testing::run_ranks(2, [](Communicator& world) {
    RankProfiles ranks({.world = &world, .name = "", .stages = &world, .micro_batches = 2});
    const Profile profile = profile_of(world.rank());
    ranks.put_together(profile, world.rank() * kAhead);
    EXPECT_DOUBLE_EQ(ranks.bubble().measured, 0.5);
    EXPECT_EQ(ranks.bubble().text(),
        "2 stages, 2 micro-batches: they waited 50% of the time they computed; (p - 1) / m is 50%\n");
    const ProfileSummary summary = summarize(profile);
    EXPECT_DOUBLE_EQ(summary.data_seconds, 0);
    const auto pipeline = ParsedJson::parse(summary_json(summary, ranks.bubble()))["pipeline"];
    EXPECT_EQ(pipeline["bubble"], 0.5);
    EXPECT_EQ(pipeline["bubble_in_theory"], 0.5);
  });
}
}  // namespace
}  // namespace linnet
