// Tests on a GPU: LINNET_TEST_DEVICE=cuda:0. Without it, or with "cpu", op tests run on the CPU alone.
#include <cstdlib>
#include <string>
#include "engine/exec/backend.h"
#include "op_harness.h"

namespace linnet::testing {
const Backend* tested_backend() {
  const char* device = std::getenv("LINNET_TEST_DEVICE");
  return device && std::string(device) != "cpu" ? &open_backend(device) : nullptr;
}

void disturb_backend(bool) {}  // a GPU chooses its own
}  // namespace linnet::testing
