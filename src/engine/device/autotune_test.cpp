#include <gtest/gtest.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include "engine/device/disk_cache.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

// A library of three algorithms with the times given.
class Autotune : public ::testing::Test {
 protected:
  Autotune() {
    std::string name = (fs::temp_directory_path() / "linnet_tune_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LINNET_CACHE", folder_.c_str(), 1);
  }
  ~Autotune() override {
    unsetenv("LINNET_CACHE");
    fs::remove_all(folder_);
  }

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

  fs::path folder_;
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
    for (const auto& entry : fs::directory_iterator(folder_)) {
      std::ifstream in(entry.path(), std::ios::binary);
      std::string bytes{std::istreambuf_iterator<char>(in), {}};
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
