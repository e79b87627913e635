// The module loads without a driver and says in one line what is missing.
#include <gtest/gtest.h>
#include <cstdlib>
#include "engine/exec/backend.h"

namespace linnet {
namespace {
TEST(CudaModule, LoadsAndTellsInOneLineThatThereIsNoGpu) {
  setenv("LINNET_CUDA_MODULE", LINNET_CUDA_MODULE_FILE, 1);
  try {
    const Backend& backend = open_backend("cuda:0");
    GTEST_SKIP() << "there is a GPU here: " << backend.device->info().name;
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(exit_code(error.kind()), 2) << text;
    EXPECT_NE(text.find("no NVIDIA driver or GPU"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}
}  // namespace
}  // namespace linnet
