#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "io/safetensors.h"
#include "workloads/measure.h"

namespace linnet {
namespace {

// Each runs, and what it is given can be learned or at least does no harm.
TEST(Workloads, TrainAndAreMeasured) {
  for (const char* name : {"cnn-128", "r-64"}) {
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
