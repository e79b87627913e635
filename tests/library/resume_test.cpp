// A training program that is killed at random points and started again ends with the bits of one that was left alone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include "temporary_folder.h"

namespace {
constexpr int kSteps = 200;

std::string bytes_of(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

// Starts the program; kills it `delay` microseconds after it has told of step `last`, 0: never. Returns the last step
// that it told of, and whether it ended by itself.
struct Outcome {
  int step = 0;
  bool ended = false;
};
Outcome run_until(const std::string& state, const std::string& weights, int last, int delay) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]), close(ends[1]);
    execl(RESUME_PROGRAM, RESUME_PROGRAM, state.c_str(), weights.c_str(), std::to_string(kSteps).c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  Outcome outcome;
  std::FILE* lines = fdopen(ends[0], "r");
  std::array<char, 32> line;
  while (std::fgets(line.data(), line.size(), lines)) {
    outcome.step = std::atoi(line.data());
    if (last == 0 || outcome.step < last) continue;
    usleep(static_cast<useconds_t>(delay));
    kill(child, SIGKILL);
    last = 0;
  }
  std::fclose(lines);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  outcome.ended = WIFEXITED(status);
  if (outcome.ended) {
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  return outcome;
}

TEST(Resume, AKilledProgramEndsWithTheBitsOfAnUndisturbedOne) {
  const linnet::testing::TemporaryFolder folder;
  ASSERT_TRUE(run_until(folder / "whole.state", folder / "whole", 0, 0).ended);
  const std::string expected = bytes_of(folder / "whole");
  ASSERT_GT(expected.size(), 100u);

  std::random_device device;
  const unsigned seed = device();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  int killed = 0, step = 0;
  while (killed < 5) {
    step += 1 + static_cast<int>(random() % 20);
    const Outcome outcome =
        run_until(folder / "killed.state", folder / "killed", step, static_cast<int>(random() % 3000));
    ASSERT_FALSE(outcome.ended && outcome.step < kSteps);
    if (outcome.ended) break;
    ++killed;
    step = outcome.step;
  }
  EXPECT_GE(killed, 1);
  ASSERT_TRUE(run_until(folder / "killed.state", folder / "killed", 0, 0).ended);
  EXPECT_EQ(bytes_of(folder / "killed"), expected) << "after " << killed << " kills";
}
}  // namespace
