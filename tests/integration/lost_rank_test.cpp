// A rank that is lost: the others end soon, in one line, and the run goes on from its last checkpoint.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <filesystem>
#include <map>
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

class LostRank : public Ranks, public ::testing::WithParamInterface<int> {};

// A rank that is killed, or stopped for good: one line names it, all end, and go on from the last checkpoint.
TEST_P(LostRank, IsNamedAndTheRunGoesOn) {
  const Arguments settings{"data_shards=2", "max_steps=600", "eval_every=300", "save_every=20"};
  Arguments arguments = translation(folder_ / "run", settings);
  arguments.insert(arguments.end(), {"--ranks", "2", "--restart", "1"});
  Program program(arguments);
  while (program.running() && read_metrics(folder_ / "run").size() < 60) ::usleep(500);
  const std::map<int, pid_t> ranks = ranks_of(folder_ / "run");
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks.at(1), GetParam());
  const Outcome outcome = program.wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(lines(outcome.error).size(), 1u) << outcome.error;
  EXPECT_NE(outcome.error.find("rank 1 "), std::string::npos) << outcome.error;
  EXPECT_TRUE(ranks_of(folder_ / "run").empty());
  ASSERT_EQ(with_ranks(translation(folder_ / "whole", settings), 1).exit_code, 0);
  expect_same_bits(folder_ / "run", folder_ / "whole");
}

// The process that started a process.
pid_t parent_of(pid_t process) {
  const std::string status = contents("/proc/" + std::to_string(process) + "/status"), name = "PPid:";
  return std::atoi(status.c_str() + status.find(name) + name.size());
}

// The ranks of an mpirun that is killed do not keep the run folder from the restarted ones, even one that is stopped.
TEST_F(Ranks, AKilledMpirunIsStartedAgain) {
  const Arguments settings{"data_shards=2", "max_steps=600", "eval_every=300", "save_every=20"};
  Arguments arguments = translation(folder_ / "run", settings);
  arguments.insert(arguments.end(), {"--ranks", "2", "--restart", "1"});
  Program program(arguments);
  while (program.running() && read_metrics(folder_ / "run").size() < 60) ::usleep(500);
  const std::map<int, pid_t> ranks = ranks_of(folder_ / "run");
  ASSERT_EQ(ranks.size(), 2u);
  const pid_t mpirun = parent_of(ranks.at(0));
  ASSERT_EQ(parent_of(mpirun), program.pid());
  ::kill(ranks.at(0), SIGSTOP);
  ::kill(mpirun, SIGKILL);
  const Outcome outcome = program.wait();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.error.find("mpirun was ended by signal 9"), std::string::npos) << outcome.error;
  EXPECT_TRUE(ranks_of(folder_ / "run").empty());
  ASSERT_EQ(with_ranks(translation(folder_ / "whole", settings), 1).exit_code, 0);
  expect_same_bits(folder_ / "run", folder_ / "whole");
}

INSTANTIATE_TEST_SUITE_P(Ranks, LostRank, ::testing::Values(SIGKILL, SIGSTOP));
}  // namespace
}  // namespace linnet::testing
