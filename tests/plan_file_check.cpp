#include "plan_file_check.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>

#include "base/files.h"

namespace linnet::testing {

void check_plan_file(const NamedPlans& plans, const Store& store, const SharedRegions& shared) {
  std::string folder = (std::filesystem::temp_directory_path() / "linnet-plans-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/plans", before = folder + "/before", after = folder + "/after";
  write_plans(file, store, shared, plans);
  write_file_atomically(before, region_bytes(store));
  const std::string expected = run_plans(plans, store, shared);
  const int status = std::system((std::string(LINNET_PLAN_RUNNER) + " " + file + " " + before + " " + after).c_str());
  EXPECT_EQ(status, 0);
  if (status == 0) {
    EXPECT_TRUE(read_file(after) == expected) << "another process computes other bits";
  }
  std::filesystem::remove_all(folder);
}

}  // namespace linnet::testing
