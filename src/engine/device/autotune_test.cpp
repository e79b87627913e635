#include <gtest/gtest.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include "base/files.h"
#include "engine/device/disk_cache.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
// A library of three algorithms with the times given.
class Autotune : public ::testing::Test {
 protected:
  Autotune() { setenv("LINNET_CACHE", folder_.path().c_str(), 1); }
  ~Autotune() override { unsetenv("LINNET_CACHE"); }

  Tuning tuning(const std::string& key = "8 x 8") {
    return {.kind = "matmul",
        .key = key,
        .candidates =
            [this] {
              ++asked_;
              std::vector<std::string> names;
              for (const auto& [name, seconds] : times_) names.push_back(name);
              return names;
            },
        .works = [this](const std::string& way) { return times_.contains(way); },
        .seconds =
            [this](const std::string& way) {
              ++runs_;
              return times_.at(way);
            }};
  }

  const testing::TemporaryFolder folder_;
  std::map<std::string, double> times_{{"a", 3.0}, {"b", 1.0}, {"c", 2.0}};
  int asked_ = 0, runs_ = 0;
};

TEST_F(Autotune, TheFastestIsKeptAndNotTimedAgain) {
  EXPECT_EQ(fastest(tuning()), "b");
  EXPECT_EQ(runs_, 9);
  EXPECT_EQ(fastest(tuning()), "b");
  EXPECT_EQ(runs_, 9);
  EXPECT_EQ(asked_, 1);
  times_ = {{"b", 5.0}, {"d", 1.0}};
  EXPECT_EQ(fastest(tuning("another problem")), "d");
  EXPECT_EQ(fastest(tuning()), "b");
}

TEST_F(Autotune, AKeptWayThatIsNoneAnyMoreIsChosenAgain) {
  EXPECT_EQ(fastest(tuning()), "b");
  times_ = {{"a", 1.0}, {"c", 2.0}};
  EXPECT_EQ(fastest(tuning()), "a");
}

TEST_F(Autotune, ACorruptCacheCountsAsNone) {
  EXPECT_EQ(fastest(tuning()), "b");
  const auto damage = [&](auto change) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      std::string bytes = read_file(entry.path());
      change(bytes);
      std::ofstream(entry.path(), std::ios::binary | std::ios::trunc) << bytes;
    }
  };
  damage([](std::string& bytes) { bytes.back() = 'c'; });  // another algorithm that works
  EXPECT_EQ(fastest(tuning()), "b");
  EXPECT_EQ(runs_, 18);
  damage([](std::string& bytes) { bytes.resize(bytes.size() / 2); });
  EXPECT_EQ(fastest(tuning()), "b");
  damage([](std::string& bytes) { bytes.clear(); });
  EXPECT_EQ(fastest(tuning()), "b");
}

TEST_F(Autotune, NoiseDoesNotMoveTheChoiceAndFailuresAreLeftOut) {
  times_ = {{"a", 1.0}, {"b", 0.99}};
  EXPECT_EQ(fastest(tuning()), "a");
  times_ = {{"a", -1.0}, {"b", 2.0}};
  EXPECT_EQ(fastest(tuning("failing")), "b");
  times_ = {{"a", -1.0}, {"b", -1.0}};
  EXPECT_EQ(fastest(tuning("all failing")), "");
  times_ = {};
  EXPECT_EQ(fastest(tuning("none")), "");
  EXPECT_EQ(known_or_first(tuning("none")), "");
}

// Two processes must give the same bits: what one would find by timing, the other would not.
TEST_F(Autotune, WhereNothingCanBeKeptTheLibrarysOwnChoiceIsTaken) {
  setenv("LINNET_CACHE", "/dev/null/none", 1);
  EXPECT_EQ(fastest(tuning()), "a");
  times_["a"] = -1;
  EXPECT_EQ(fastest(tuning()), "b");
}

TEST_F(Autotune, AChoiceThatAnotherProcessKeptMeanwhileIsTaken) {
  Tuning late = tuning();
  late.seconds = [&](const std::string& way) {
    if (runs_ == 0) {
      std::swap(times_["b"], times_["c"]);
      EXPECT_EQ(fastest(tuning()), "c");
      std::swap(times_["b"], times_["c"]);
    }
    ++runs_;
    return times_.at(way);
  };
  EXPECT_EQ(fastest(late), "c");
}

TEST_F(Autotune, InsideARecordingNothingIsTimed) {
  EXPECT_EQ(known_or_first(tuning()), "a");
  EXPECT_EQ(runs_, 0);
  fastest(tuning());
  EXPECT_EQ(known_or_first(tuning()), "b");
}
}  // namespace
}  // namespace linnet
