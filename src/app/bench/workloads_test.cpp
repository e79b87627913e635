#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include "app/bench/bench.h"
#include "error_of.h"
#include "formats/safetensors.h"
#include "temporary_folder.h"

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
  EXPECT_EQ((BatchSweep{.largest = BatchSweep::kMost}).largest_text(), "16384 or more");
  // What is measured is what was planned.
  EXPECT_DOUBLE_EQ(sweep.points[0].measured.predicted_mb, static_cast<double>(bytes(8)) / 1e6);
}

TEST(Workloads, DataIsTheSameForAnotherProgram) {
  const Workload workload = make_workload("cnn-128"), again = make_workload("cnn-128");
  const testing::TemporaryFolder folder;
  const std::string path = folder / "workload.safetensors";
  write_data(workload, path);
  const SafetensorsFile file(path);
  for (size_t i = 0; i < workload.inputs.size(); ++i) {
    const WorkloadInput& input = workload.inputs[i];
    EXPECT_EQ(input.data, again.inputs[i].data);
    const SafetensorsEntry& entry = file.at(input.name);
    EXPECT_EQ(entry.type, input.type);
    EXPECT_EQ(std::memcmp(entry.data, input.data.data(), input.data.size()), 0);
  }
}

TEST(Workloads, AMisspeltNameIsToldTheNearest) {
  EXPECT_PRED2(has_text, error_of([] { make_workload("gtp-6l"); }), "gpt-6l");
}

TEST(InferenceBench, MeasuresEachPrecisionOfEachShapeAndReadsTheFolder) {
  const std::string folder = "tests/golden/pretrained/bert_model";
  InferenceBenchOptions options{
      .folder = folder, .batches = {1, 3}, .lengths = {8}, .precisions = {"fp32", "static"}, .seconds = 0};
  std::vector<std::string> heard;
  const std::vector<InferenceRow> rows = measure_inference(
      options, [&](const InferenceRow& row) { heard.push_back(row.precision + " " + std::to_string(row.batch)); });
  EXPECT_EQ(heard, (std::vector<std::string>{"fp32 1", "static 1", "fp32 3", "static 3"}));
  for (const InferenceRow& row : rows) {
    EXPECT_GT(row.p50, 0);
    EXPECT_LE(row.p50, row.p95);
    EXPECT_LE(row.p95, row.p99);
    EXPECT_DOUBLE_EQ(row.file_mb, weight_file_mb(folder));
  }
  EXPECT_LT(rows[1].weight_mb, rows[0].weight_mb);
  options.precisions = {"qat=" + folder};  // its scales were not trained: it has none
  EXPECT_THROW(measure_inference(options, {}), Error);
}

TEST(DecodingBench, MeasuresADecoderInEachPrecision) {
  DecodingBenchOptions options{
      .folder = "tests/golden/pretrained/gpt2", .precisions = {"fp32", "int4-weights"}, .tokens = 4, .seconds = 0};
  const DecodingMeasurement m = measure_decoding(options);
  ASSERT_EQ(m.rows.size(), 2U);
  for (const DecodingRow& row : m.rows) {
    EXPECT_GT(row.tokens_per_second, 0);
    EXPECT_GT(row.share_of_bound, 0);
    EXPECT_GE(row.texts, 3);
  }
  EXPECT_LT(m.rows[1].weight_mb, m.rows[0].weight_mb);
  options.tokens = 100'000;
  EXPECT_THROW(measure_decoding(options), Error);
  options.folder = "tests/golden/pretrained/bert_model";
  EXPECT_THROW(measure_decoding(options), Error);
}

TEST(BarChart, BarsAreSharesOfTheirGroupsLargestValue) {
  const std::string svg = bar_chart("a < b", {{"one", {{"x", 4, "four"}, {"y", 1, "one"}}}, {"none", {{"x", 0, "0"}}}});
  EXPECT_NE(svg.find("a &lt; b"), svg.npos);
  const auto width = [&](size_t from) {
    return std::stod(svg.substr(svg.find("width=\"", svg.find("<rect x", from)) + 7));
  };
  const size_t first = svg.find("one</text>"), second = svg.find("<rect x", svg.find("<rect x", first) + 1);
  EXPECT_NEAR(width(first), 4 * width(second), 0.1);
  EXPECT_NE(svg.find("class=\"c0\"/>", svg.find("none</text>")), svg.npos);  // the color of x
}
}  // namespace
}  // namespace linnet
