// The CUDA device over the fake runtime: what a GPU's runtime would refuse shows here.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <cstdlib>
#include <vector>
#include "cuda_module/fake_runtime.h"
#include "engine/device/cuda/cublaslt.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/cudnn_graph.h"
#include "op_harness.h"

namespace linnet {
namespace {
struct Floats {
  Floats(CudaDevice& device, std::vector<float> values) : device(device), count(values.size()) {
    memory = device.allocate(4 * count + 64, "test");
    device.upload(memory, reinterpret_cast<const std::byte*>(values.data()), 4 * count);
    device.wait();
  }
  ~Floats() { device.release(memory); }
  Floats(const Floats&) = delete;
  std::vector<float> values() const {
    std::vector<float> values(count);
    device.download(reinterpret_cast<std::byte*>(values.data()), memory, 4 * count);
    device.wait();
    return values;
  }
  CudaDevice& device;
  size_t count;
  std::byte* memory = nullptr;
};

LtProduct small_product() {
  LtProduct p;
  p.m = 1, p.n = 4, p.k = 4;
  p.lda = p.k, p.ldb = p.ldc = p.n;
  return p;
}

TEST(FakeGpu, WorkGoesToItsOwnGpuWhicheverIsCurrent) {
  testing::tested_backend();
  CudaDevice first(0), second(1);
  EXPECT_EQ(testing::current_gpu(), 1);
  Floats x(first, {1, 2, 3}), y(second, {4, 5, 6}), z(first, {0, 0, 0});
  first.copy(z.memory, x.memory, 12);
  EXPECT_EQ(z.values(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(y.values(), (std::vector<float>{4, 5, 6}));
}

TEST(FakeGpu, SaysWhichLibrariesItHasAndWarnsWithoutCudnn) {
  ::testing::internal::CaptureStderr();
  const std::string detail = CudaDevice(0).info().detail;
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(detail.find(", cuBLASLt 13.0.0, "), std::string::npos) << detail;
  const bool lacks_cudnn = detail.find(", no cuDNN, ") != std::string::npos;
  EXPECT_EQ(said.find("linnet: warning: no cuDNN is found: ") == 0, lacks_cudnn) << detail << "\n" << said;
}

TEST(FakeGpu, TellsWhatItRecordedAndWhichAlgorithmsItChose) {
  CudaDevice device(0);
  EXPECT_TRUE(device.choices().recordings.empty() && device.choices().algorithms.empty());
  Floats a(device, {1, 2, 3, 4}), b(device, std::vector<float>(16, 1)), d(device, {0, 0, 0, 0});
  std::byte* const workspace = device.allocate(kLtWorkspace, "workspace");
  const auto multiply = [&] {
    lt_run(device, small_product(), {.a = a.memory, .b = b.memory, .d = d.memory, .workspace = workspace});
  };
  multiply();
  device.record([&] {
    multiply();
    device.copy(a.memory, d.memory, 16);
    device.copy(b.memory, d.memory, 16);
  });
  device.record(multiply);
  const DeviceChoices choices = device.choices();
  EXPECT_EQ(choices.recordings, (std::vector<int64_t>{3, 1}));
  ASSERT_EQ(choices.algorithms.size(), 1u);
  EXPECT_EQ(choices.algorithms.begin()->first.rfind("product 1 1 4 4 ", 0), 0u) << choices.algorithms.begin()->first;
  EXPECT_EQ(choices.algorithms.begin()->second, "algorithm 16, tile 1, stages 1, k in 1 parts");
  device.release(workspace);
}

// In a process of its own, since a real cuDNN may be open in this one.
TEST(FakeGpu, DoesWithoutACudnnThatCannotOpenIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ask_twice = [] {
    if (!dlopen(LINNET_FAKE_CUDNN, RTLD_NOW)) std::exit(1);
    CudaDevice device(0);
    const bool is_open = cudnn_version() == 91901, refuses = cudnn_version(device) == 0 && cudnn_version(device) == 0;
    std::exit(is_open && refuses ? 0 : 2);
  };
  EXPECT_EXIT(ask_twice(), ::testing::ExitedWithCode(0),
      "^linnet: warning: cuDNN: opening the GPU: an error of the fake cuDNN: attention and convolutions are "
      "Linnet's own kernels\n$");
}

TEST(FakeGpu, WaitingOrTakingMemoryInsideOfARecordingIsAnError) {
  CudaDevice device(0);
  EXPECT_THROW(device.record([&] { device.wait(); }), Error);
  EXPECT_THROW(device.record([&] { device.allocate(16, "test"); }), Error);
  std::vector<float> pageable(4);
  Floats x(device, {1, 2, 3, 4});
  EXPECT_THROW(
      device.record([&] { device.upload(x.memory, reinterpret_cast<std::byte*>(pageable.data()), 16); }), Error);
  const auto recording = device.record([&] { device.copy(x.memory + 8, x.memory, 8); });
  EXPECT_EQ(x.values(), (std::vector<float>{1, 2, 3, 4}));
  device.replay(*recording);
  EXPECT_EQ(x.values(), (std::vector<float>{1, 2, 1, 2}));
}

// An algorithm that was tuned where the bias is aligned must not be used where it is not.
TEST(FakeGpu, AProductWithABiasThatBeginsAnywhere) {
  CudaDevice device(0);
  Floats a(device, {1, 2, 3, 4}), d(device, {0, 0, 0, 0}), biases(device, {10, 20, 30, 40, 50, 60, 70, 80});
  Floats b(device, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  std::byte* const workspace = device.allocate(kLtWorkspace, "workspace");
  LtProduct p = small_product();
  p.bias = true;
  for (const size_t begin : {size_t{0}, size_t{1}, size_t{4}}) {
    lt_run(device, p,
        {.a = a.memory, .b = b.memory, .d = d.memory, .bias = biases.memory + 4 * begin, .workspace = workspace});
    std::vector<float> expected;
    for (size_t i = 0; i < 4; ++i) expected.push_back(static_cast<float>(i + 1 + 10 * (begin + i + 1)));
    EXPECT_EQ(d.values(), expected) << begin;
  }
  device.release(workspace);
}
}  // namespace
}  // namespace linnet
