#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "io/safetensors.h"
#include "workloads/batch_sweep.h"
#include "workloads/measure.h"

namespace linnet {
namespace {

// Each runs, and what it is given can be learned or at least does no harm.
TEST(Workloads, TrainAndAreMeasured) {
  for (const char* name : {"cnn-128", "resnet20", "r-64"}) {
    const Workload workload = make_workload(name);
    const Measurement m = measure(workload, {.threads = 2, .seconds = 0, .least = 2}, 0);
    EXPECT_EQ(m.steps, 2) << name;
    EXPECT_LT(m.last_loss, m.first_loss * 1.02) << name;
    EXPECT_GT(m.flop_per_step, 1e7) << name;
    EXPECT_LE(m.min, m.median);
    EXPECT_LE(m.median, m.max);
    EXPECT_EQ(m.forward_seconds > 0, workload.forward_apart);
  }
}

TEST(Workloads, ASweepMeasuresWhatFitsAndNamesTheLargestBatch) {
  const MeasureOptions measuring{.threads = 2, .seconds = 0, .least = 1};
  const auto bytes = [&](int64_t batch) {
    return planned_bytes(make_workload("cnn-128", {.batch = batch}), measuring);
  };
  std::vector<int64_t> seen;
  const BatchSweep sweep = sweep_batches("cnn-128", {}, {64, 8, 1000, 16}, measuring, bytes(100), 0,
                                         [&](const BatchPoint& point) { seen.push_back(point.batch); });
  EXPECT_EQ(seen, (std::vector<int64_t>{8, 16, 64}));
  EXPECT_GE(sweep.largest, 99);
  EXPECT_LE(bytes(sweep.largest), bytes(100));
  EXPECT_GT(bytes(sweep.largest + 2), bytes(100));
  EXPECT_NE(std::ranges::find(seen, sweep.knee), seen.end());
  const std::string svg = batch_chart("cnn-128", "samples/s", sweep);
  EXPECT_NE(svg.find(">knee<"), std::string::npos);
  EXPECT_NE(svg.find("the largest that fits is " + std::to_string(sweep.largest)), std::string::npos);
  // What is measured is what was planned.
  EXPECT_DOUBLE_EQ(sweep.points[0].measured.predicted_mb, static_cast<double>(bytes(8)) / 1e6);
}

TEST(Workloads, DataIsTheSameForAnotherProgram) {
  const Workload workload = make_workload("cnn-128"), again = make_workload("cnn-128");
  const std::string path = ::testing::TempDir() + "/workload.safetensors";
  write_data(workload, path);
  const SafetensorsFile file(path);
  for (size_t i = 0; i < workload.inputs.size(); ++i) {
    const WorkloadInput& input = workload.inputs[i];
    EXPECT_EQ(input.data, again.inputs[i].data);
    const SafetensorsEntry& entry = file.at(input.name);
    EXPECT_EQ(entry.type, input.type);
    EXPECT_EQ(std::memcmp(entry.data, input.data.data(), input.data.size()), 0);
  }
  std::remove(path.c_str());
}

TEST(Workloads, AMisspeltNameIsToldTheNearest) {
  try {
    make_workload("gtp-6l");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gpt-6l"), std::string::npos);
  }
}

}  // namespace
}  // namespace linnet
