// Op tests and training tests run on the emulated device.
#include "cuda_emulation/emulated_backend.h"
#include "cuda_emulation/emulation.cuh"
#include "op_harness.h"

namespace linnet::testing {
const Backend* tested_backend() { return &emulated_backend().backend; }
void disturb_backend(bool disturbed) { emulation::set_reversed(disturbed); }
}  // namespace linnet::testing
