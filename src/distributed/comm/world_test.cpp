// What starters say by environment variables.
#include "distributed/comm/world.h"
#include <gtest/gtest.h>
#include <stdlib.h>
#include <algorithm>
#include "error_of.h"

namespace linnet {
namespace {
class Starters : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",
             "LINNET_MPI_MODULE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"})
      ::unsetenv(name);
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }
};

TEST_F(Starters, AProcessWithoutOneIsAlone) {
  EXPECT_FALSE(find_starter());
  EXPECT_EQ(join_world().size(), 1);
}

TEST_F(Starters, MpirunSaysItsRanks) {
  set("OMPI_COMM_WORLD_RANK", "3"), set("OMPI_COMM_WORLD_SIZE", "8"), set("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  const auto starter = find_starter();
  ASSERT_TRUE(starter);
  EXPECT_EQ(starter->rank, 3);
  EXPECT_EQ(starter->ranks, 8);
  EXPECT_EQ(starter->ranks_here, 4);
  // Which of the machine's GPUs is this rank's.
  EXPECT_EQ(starter->rank_here, 3);
  set("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  EXPECT_EQ(find_starter()->rank_here, 1);
}

// A batch script has them from its job; it is one process all the same.
TEST_F(Starters, ABatchScriptOfSlurmIsAlone) {
  set("SLURM_PROCID", "0"), set("SLURM_NTASKS", "4");
  EXPECT_FALSE(find_starter());
  set("SLURM_STEP_NUM_TASKS", "4");
  EXPECT_EQ(find_starter()->ranks, 4);
}

TEST_F(Starters, TorchrunSaysItsRanksOfOneMachine) {
  EXPECT_FALSE(find_torchrun());
  set("RANK", "1"), set("WORLD_SIZE", "2");
  EXPECT_FALSE(find_torchrun()) << "a RANK of somebody else's";
  set("LOCAL_RANK", "1"), set("LOCAL_WORLD_SIZE", "2"), set("MASTER_ADDR", "localhost");
  ASSERT_TRUE(find_torchrun());
  EXPECT_EQ(find_torchrun()->rank, 1);
  EXPECT_EQ(find_torchrun()->ranks, 2);
  set("WORLD_SIZE", "4");
  EXPECT_THROW(find_torchrun(), Error);
  set("OMPI_COMM_WORLD_RANK", "1"), set("OMPI_COMM_WORLD_SIZE", "2");  // what the first process has started
  EXPECT_FALSE(find_torchrun());
}

TEST_F(Starters, AMissingModuleIsOneLine) {
  set("OMPI_COMM_WORLD_RANK", "0"), set("OMPI_COMM_WORLD_SIZE", "2"), set("LINNET_MPI_MODULE", "/nowhere/module.so");
  const std::string message = error_of([] { join_world(); });
  EXPECT_PRED2(has_text, message, "this program has no MPI module");
  EXPECT_PRED2(has_text, message, "/nowhere/module.so");
}

TEST(MpirunCommand, StartsTheProgramWithItsArguments) {
  ::setenv("LINNET_MPI_MODULE", "/proc/self/exe", 1);  // a file that is there
  if (std::system("command -v mpirun >/dev/null") != 0) GTEST_SKIP() << "mpirun is not installed (openmpi-bin)";
  const std::vector<std::string> command = mpirun_command(4, {"/bin/linnet", "train", "dates"});
  EXPECT_EQ(command[command.size() - 3], "/bin/linnet");
  EXPECT_NE(std::ranges::find(command, "4"), command.end());
}
}  // namespace
}  // namespace linnet
