#include <gtest/gtest.h>
#include "base/thread_pool.h"
#include "engine/kernels/processor.h"

namespace linnet {
namespace {
TEST(Peak, IsMeasuredInEitherPrecision) {
  ThreadPool pool(2);
  for (const Precision precision : {Precision::kF32, Precision::kBf16})
    EXPECT_GT(measured_peak_gflops(precision, pool), 0) << precision_name(precision);
}
}  // namespace
}  // namespace linnet
