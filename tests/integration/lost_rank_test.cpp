// A rank that is lost: the others end soon, in one line, and the run goes on from its last checkpoint.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <filesystem>
#include <map>
#include <optional>
#include "integration/ranks_testing.h"

namespace linnet::testing {
namespace {
// The pids of the ranks that were started for a run folder, by rank.
std::map<int, pid_t> ranks_of(const std::string& folder) {
  std::map<int, pid_t> ranks;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string process = entry.path().string(), variables = contents(process + "/environ");
    const std::string name = "OMPI_COMM_WORLD_RANK=";
    const size_t rank = variables.find(name);
    if (rank == std::string::npos || contents(process + "/cmdline").find(folder) == std::string::npos) continue;
    ranks[std::atoi(variables.c_str() + rank + name.size())] = std::atoi(entry.path().filename().c_str());
  }
  return ranks;
}

class LostRanks : public Ranks {
 protected:
  // Ranks that train, may be restarted once, and have begun.
  void start() {
    Arguments arguments = translation(folder_ / "run", settings_);
    arguments.insert(arguments.end(), {"--ranks", "2", "--restart", "1"});
    program_.emplace(arguments);
    while (program_->running() && read_metrics(folder_ / "run").size() < 60) ::usleep(500);
    ranks_ = ranks_of(folder_ / "run");
    ASSERT_EQ(ranks_.size(), 2u);
  }
  void expect_trained_whole() {
    EXPECT_TRUE(ranks_of(folder_ / "run").empty());
    ASSERT_EQ(with_ranks(translation(folder_ / "whole", settings_), 1).exit_code, 0);
    expect_same_bits(folder_ / "run", folder_ / "whole");
  }

  const Arguments settings_{"data_shards=2", "max_steps=600", "eval_every=300", "save_every=20"};
  std::optional<Program> program_;
  std::map<int, pid_t> ranks_;
};

class LostRank : public LostRanks, public ::testing::WithParamInterface<int> {};

// A rank that is killed, or stopped for good: one line names it, all end, and go on from the last checkpoint.
TEST_P(LostRank, IsNamedAndTheRunGoesOn) {
  ASSERT_NO_FATAL_FAILURE(start());
  ::kill(ranks_.at(1), GetParam());
  const Outcome outcome = program_->wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
  EXPECT_NE(outcome.error.find("rank 1 "), std::string::npos) << outcome.error;
  expect_trained_whole();
}

// The process that started a process.
pid_t parent_of(pid_t process) {
  const std::string status = contents("/proc/" + std::to_string(process) + "/status"), name = "PPid:";
  return std::atoi(status.c_str() + status.find(name) + name.size());
}

// The ranks of an mpirun that is killed do not keep the run folder from the restarted ones, even one that is stopped.
TEST_F(LostRanks, AKilledMpirunIsStartedAgain) {
  ASSERT_NO_FATAL_FAILURE(start());
  const pid_t mpirun = parent_of(ranks_.at(0));
  ASSERT_EQ(parent_of(mpirun), program_->pid());
  ::kill(ranks_.at(0), SIGSTOP);
  ::kill(mpirun, SIGKILL);
  const Outcome outcome = program_->wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.error.find("mpirun was ended by signal 9"), std::string::npos) << outcome.error;
  expect_trained_whole();
}

INSTANTIATE_TEST_SUITE_P(Ranks, LostRank, ::testing::Values(SIGKILL, SIGSTOP));
}  // namespace
}  // namespace linnet::testing
