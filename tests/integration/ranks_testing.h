// Programs of several ranks: what their tests share.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>
#include <cstdlib>
#include "integration/program.h"

namespace linnet::testing {
class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v mpirun >/dev/null") != 0)
      GTEST_SKIP() << "mpirun is not installed (Debian: openmpi-bin)";
    // Open MPI leaves memory to the end of the process.
    const char* options = std::getenv("ASAN_OPTIONS");
    ::setenv("ASAN_OPTIONS", (std::string(options ? options : "") + ":detect_leaks=0").c_str(), 1);
    // On one machine the network is not needed, and Open MPI 5 has lines of its own about it.
    ::setenv("OMPI_MCA_btl", "^tcp", 0);
    const std::string folder = program_path().substr(0, program_path().rfind('/'));
    if (!exists(folder + "/liblinnet_mpi.so")) GTEST_SKIP() << "the MPI module is not built";
  }

  // A tiny translation model, and what is saved and averaged with it.
  static Arguments translation(const std::string& run, const Arguments& settings) {
    Arguments all{"dropout=0.1", "ema_decay=0.9"};
    all.insert(all.end(), settings.begin(), settings.end());
    return train_arguments(run, all);
  }

  static Outcome with_ranks(Arguments arguments, int ranks, const std::string& log = "off") {
    if (ranks > 1) arguments.insert(arguments.end(), {"--ranks", std::to_string(ranks)});
    return run(arguments, {.log = log});
  }

  // Losses, norms and weights of two runs.
  void expect_same_bits(const std::string& a, const std::string& b) {
    EXPECT_FALSE(read_metrics(a).empty());
    EXPECT_EQ(read_metrics(a), read_metrics(b));
    EXPECT_EQ(contents(a + "/model.safetensors"), contents(b + "/model.safetensors"));
  }

  TemporaryFolder folder_;
};
}  // namespace linnet::testing
