#include <gtest/gtest.h>
#include <filesystem>
#include <string>
#include "base/process.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
class Cgroup : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    return folder_.write(name, text);
  }
  std::string root() const { return folder_ / "root"; }

  testing::TemporaryFolder folder_;
};

TEST_F(Cgroup, TheLowestLimitOfTheGroupsAboveCounts) {
  const std::string membership = write("membership", "0::/user.slice/run.scope\n");
  write("root/user.slice/memory.max", "1000\n");
  write("root/user.slice/memory.current", "700\n");
  write("root/user.slice/memory.stat", "anon 1\nactive_file 150\ninactive_file 50\n");
  write("root/user.slice/run.scope/memory.max", "max\n");
  write("root/user.slice/run.scope/memory.current", "600\n");
  write("root/user.slice/cpu.max", "150000 100000\n");
  write("root/user.slice/run.scope/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_memory_left(root(), membership), 500u) << "pages of files are free";
  EXPECT_EQ(cgroup_processors(root(), membership), 1.5);
}

TEST_F(Cgroup, OfVersionOneEachControllerHasAFolder) {
  const std::string membership = write("membership", "5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n");
  write("root/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("root/memory/memory.usage_in_bytes", "700\n");
  write("root/memory/box/memory.limit_in_bytes", "900\n");
  write("root/memory/box/memory.usage_in_bytes", "700\n");
  write("root/memory/box/memory.stat", "inactive_file 1\ntotal_inactive_file 30\n");
  write("root/cpu/cpu.cfs_quota_us", "-1\n");
  write("root/cpu/cpu.cfs_period_us", "100000\n");
  write("root/cpu/box/cpu.cfs_quota_us", "50000\n");
  write("root/cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_memory_left(root(), membership), 230u);
  EXPECT_EQ(cgroup_processors(root(), membership), 0.5);
}

// A container without a namespace of its own reads the path that its host uses, and sees its group at the root.
TEST_F(Cgroup, AContainerSeesItsOwnGroupAtTheRoot) {
  const std::string membership = write("membership", "0::/docker/abc\n");
  write("root/memory.max", "800\n");
  write("root/memory.current", "900\n");
  write("root/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_memory_left(root(), membership), 0u);
  EXPECT_GT(cgroup_processors(root(), membership), 1e6);
}

TEST_F(Cgroup, WithoutGroupsNothingIsLimited) {
  EXPECT_EQ(cgroup_memory_left(root(), root() + "/none"), UINT64_MAX);
  EXPECT_GT(cgroup_processors(root(), write("membership", "junk\n0::\n")), 1e6);
}
}  // namespace
}  // namespace linnet
