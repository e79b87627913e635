#include "engine/profile/profile.h"
#include <gtest/gtest.h>
#include "base/files.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "error_of.h"
#include "models/nn/layers.h"
#include "parsed_json.h"
#include "temporary_folder.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
struct Net : Module {
  Linear first{this, "first", 64, 128}, second{this, "second", 128, 8};
};

Loss net_loss(Net& net, Trace& trace) {
  const Tensor x = trace.input("x", {DType::kF32, {32, 64}});
  return {sum_to(square(net.second(relu(net.first(x)))), {}), trace.number(32)};
}

// Profiles a small network and keeps what the profiler found.
struct Profiled {
  explicit Profiled(ProfileOptions options, int64_t accumulate = 1, int steps = 12)
      : learner(net, [this](Trace& trace) { return net_loss(net, trace); },
            {.accumulate_steps = accumulate, .threads = 2, .profile = options}) {
    StepProfiler& profiler = *learner.trainer().profiler();
    profiler.on_summary = [this](const ProfileSummary& summary) { summaries.push_back(summary); };
    for (int64_t step = 1; step <= steps; ++step) {
      if (accumulate == 1) {
        learner.step(0.01);
        continue;
      }
      profiler.begin_step(step);
      for (int64_t micro = 0; micro < accumulate; ++micro) learner.trainer().accumulate(0, step, micro);
      learner.trainer().apply(0.01, step);
    }
  }
  Net net;
  SingleShapeLearner learner;
  std::vector<ProfileSummary> summaries;
};

double phase_seconds(const ProfileSummary& summary, const std::string& phase) {
  double seconds = 0;
  for (const ProfileRow& row : summary.rows)
    if (row.phase == phase) seconds += row.seconds;
  return seconds;
}

TEST(Profile, TheStepsAreThoseOfTheSchedule) {
  const testing::TemporaryFolder folder;
  const Profiled run({.skip_first = 1, .wait = 1, .warmup = 1, .active = 3, .repeat = 2, .folder = folder.path()});
  ASSERT_EQ(run.summaries.size(), 2u);
  EXPECT_EQ(run.summaries[0].first_step, 4);
  EXPECT_EQ(run.summaries[0].last_step, 6);
  EXPECT_EQ(run.summaries[1].first_step, 9);
  EXPECT_EQ(run.summaries[1].last_step, 11);
  EXPECT_TRUE(file_exists(folder / "steps-4-6.pt.trace.json"));
  EXPECT_TRUE(file_exists(folder / "steps-9-11.summary.json"));
  EXPECT_FALSE(Timeline::is_active());
}

TEST(Profile, RowsHavePhaseModuleSourceAndOperations) {
  const testing::TemporaryFolder folder;
  const Profiled run({.active = 2, .folder = folder.path()});
  const ProfileSummary& summary = run.summaries.at(0);
  EXPECT_GT(phase_seconds(summary, "forward"), 0);
  EXPECT_GT(phase_seconds(summary, "backward"), 0);
  EXPECT_GT(phase_seconds(summary, "update"), 0);
  EXPECT_LE(summary.node_seconds, summary.step_seconds);
  bool found = false;
  for (const ProfileRow& row : summary.rows)
    if (row.module == "first" && row.phase == "forward" && row.flops > 0) {
      found = true;
      EXPECT_EQ(row.label, "matmul+bias+relu");
      EXPECT_EQ(row.flops, 2.0 * 32 * 64 * 128);
      EXPECT_TRUE(row.source.starts_with("profile_test.cpp:")) << row.source;
      EXPECT_EQ(row.calls, 2);
      EXPECT_EQ(row.kept_bytes, 4.0 * 32 * 128);  // relu's result, for its gradient and the weights'
    }
  EXPECT_TRUE(found);
}

TEST(Profile, MicroBatchesAndTheUpdateAreOneStep) {
  const testing::TemporaryFolder folder;
  const Profiled run({.wait = 0, .warmup = 0, .active = 2, .folder = folder.path()}, 3, 2);
  const ProfileSummary& summary = run.summaries.at(0);
  EXPECT_EQ(summary.steps, 2);
  EXPECT_GT(phase_seconds(summary, "update"), 0);
  for (const ProfileRow& row : summary.rows) {
    EXPECT_FALSE(row.label.empty()) << row.source;  // viewers drop slices without a name
    if (row.module == "first" && row.phase == "forward") {
      EXPECT_EQ(row.calls, 6);
    }
  }
}

// Slices of one track that begin within another one end within it.
void expect_nesting(const ParsedJson& trace) {
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> tracks;  // nanoseconds
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X") {
      const int64_t begin = std::llround(event["ts"].get<double>() * 1000);
      tracks[event["tid"]].emplace_back(begin, begin + std::llround(event["dur"].get<double>() * 1000));
    }
  EXPECT_FALSE(tracks.empty());
  for (auto& [thread, slices] : tracks) {
    std::ranges::sort(
        slices, [](auto a, auto b) { return a.first < b.first || (a.first == b.first && a.second > b.second); });
    std::vector<int64_t> open;
    for (const auto& [begin, end] : slices) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end, open.back()) << "thread " << thread;
      }
      open.push_back(end);
    }
  }
}

TEST(Profile, TheTraceIsWhatViewersRead) {
  const testing::TemporaryFolder folder;
  const Profiled run({.active = 2, .folder = folder.path()});
  const auto trace = ParsedJson::parse(read_file(folder / "steps-3-4.pt.trace.json"));
  EXPECT_EQ(trace["distributedInfo"]["rank"], 0);
  expect_nesting(trace);
  std::map<std::string, int> names;
  double live = 0;
  for (const auto& event : trace["traceEvents"]) {
    ++names[event["name"]];
    if (event["name"] == "live activations") live = std::max(live, event["args"]["MB"].get<double>());
  }
  EXPECT_EQ(names["ProfilerStep#3"], 1);
  EXPECT_EQ(names["forward"], 2);
  EXPECT_EQ(names["backward"], 2);
  EXPECT_EQ(names["update"], 2);
  EXPECT_GE(names["matmul+bias+relu"], 2);  // and the other thread's part of it
  EXPECT_NEAR(live * 1e6, static_cast<double>(run.summaries[0].peak_live_bytes), 1);
  const auto summary = ParsedJson::parse(read_file(folder / "steps-3-4.summary.json"));
  EXPECT_EQ(summary["rows"].size(), run.summaries[0].rows.size());
}

// A language model's ends: rows of a table, and a loss that is computed together with its gradient.
struct Ends : Module {
  static constexpr int64_t kWords = 500, kWidth = 16, kTokens = 24;
  Embedding words{this, "words", kWords, kWidth};
  Linear head{this, "head", kWidth, kWords, xavier_uniform(), false};
};

TEST(Profile, ALossWithItsGradientIsBothAndATableCountsTheRowsThatAreRead) {
  const testing::TemporaryFolder folder;
  Ends model;
  SingleShapeLearner learner(model,
      [&](Trace& trace) -> Loss {
        const TensorType type{DType::kI32, {Ends::kTokens}};
        const Tensor targets = trace.input("targets", type);
        const Tensor states = tanh(model.words(trace.input("tokens", type)));
        return {linear_cross_entropy_sum(states, model.head.weight.tensor(), std::nullopt, targets), trace.number(1)};
      },
      {.threads = 1, .profile = ProfileOptions{.active = 2, .folder = folder.path()}});
  std::vector<ProfileSummary> summaries;
  learner.trainer().profiler()->on_summary = [&](const ProfileSummary& summary) { summaries.push_back(summary); };
  for (int step = 0; step < 6; ++step) learner.step(0.01);
  ASSERT_EQ(summaries.size(), 1u);
  const double product = 2.0 * Ends::kTokens * Ends::kWords * Ends::kWidth;
  double forward = 0, backward = 0, both = 0;
  for (const ProfileRow& row : summaries[0].rows) {
    if (row.label == "embedding") {
      EXPECT_EQ(row.bytes, 4.0 * (Ends::kTokens + 2 * Ends::kTokens * Ends::kWidth));
    }
    if (row.phase == "both") {
      EXPECT_EQ(row.flops, 3 * product);
      EXPECT_EQ(row.label, "linear_cross_entropy_grad+loss");
    }
    (row.phase == "both" ? both : row.phase == "forward" ? forward : backward) += row.seconds;
  }
  EXPECT_GT(both, 0);
  EXPECT_GT(forward, 0);
  EXPECT_GT(backward, 0);
  // The tree's first line has the whole step: no time is lost between the columns.
  const std::string whole = layer_table(summaries[0], 0, false);
  double share = 0, all = 0, ahead = 0, back = 0;
  ASSERT_EQ(std::sscanf(whole.c_str() + whole.find('\n') + 1, "%lf%% %lf %lf %lf", &share, &all, &ahead, &back), 4);
  EXPECT_NEAR(ahead, 1e3 * (forward + both / 3), 0.011);
}

TEST(Profile, WaitingForDataAndForOtherProcessesAreToldApart) {
  Profile profile;
  profile.steps = {{.step = 1, .begin = 0, .end = 1000, .process_bytes = 0}};
  profile.tracks = {{"main", {{.begin = 0, .end = 300, .name = "next batch"},
                                 {.begin = 300, .end = 900, .name = "add ranks", .kind = SpanKind::kSharing}}}};
  const ProfileSummary summary = summarize(profile);
  EXPECT_DOUBLE_EQ(summary.data_seconds, 300e-9);
  EXPECT_DOUBLE_EQ(summary.sharing_seconds, 600e-9);
  EXPECT_NE(summary_table(summary, 0).find("30% waiting for data, 60% sharing\n"), std::string::npos);
  EXPECT_DOUBLE_EQ(ParsedJson::parse(summary_json(summary))["sharing_ms"].get<double>(), 600e-6);
}

TEST(Profile, OptionsAreReadAndMistakesNamed) {
  const ProfileOptions options = parse_profile_options("wait=2,active=5", "--profile");
  EXPECT_EQ(options.wait, 2);
  EXPECT_EQ(options.warmup, 1);
  EXPECT_EQ(options.active, 5);
  EXPECT_EQ(options.repeat, 1);
  for (const char* bad :
      {"wait", "wait=", "wait=-1", "active=0", "actve=3", "wait=1x", ",", "active=99999999999999999999"}) {
    const std::string message = error_of([&] { parse_profile_options(bad, "--profile"); });
    EXPECT_TRUE(message.starts_with("--profile: ")) << bad << ": " << message;
  }
}
}  // namespace
}  // namespace linnet
