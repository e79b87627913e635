// How many launches a recorded step takes: short steps on a GPU are bound by them. NVIDIA's libraries count one for
// each call, attention is Linnet's own kernels here, which begin three in the backward pass.
#include <gtest/gtest.h>

#include <map>

#include "cuda_module/fake_gpu_backend.h"
#include "cuda_module/fake_runtime.h"
#include "device/cuda/cuda_device.h"
#include "train/learner.h"
#include "workloads/workload.h"

namespace linnet {
namespace {

// Counts what each op queues in its first run, which is what is recorded in the second.
class CountingDevice : public CudaDevice {
 public:
  CountingDevice() : CudaDevice(0) {}
  void launched(FunctionRef<std::string()> where_text) override {
    CudaDevice::launched(where_text);
    const int64_t queued = testing::queued_so_far();
    // "file.cpp:12: op ..."
    const std::string text = where_text();
    const size_t op = text.find(": ") + 2;
    by_op[text.substr(op, text.find_first_of(" :(", op) - op)] += queued - before_;
    before_ = queued;
  }
  void begin() { by_op.clear(), before_ = testing::queued_so_far(); }
  int64_t total() const {
    int64_t sum = 0;
    for (const auto& [op, count] : by_op) sum += count;
    return sum;
  }
  std::string text() const {
    std::string text;
    for (const auto& [op, count] : by_op) text += op + " " + std::to_string(count) + "\n";
    return text;
  }

  std::map<std::string, int64_t> by_op;

 private:
  int64_t before_ = 0;
};

// What the second step queues, with its batch.
void expect_launches(const char* name, int64_t most) {
  testing::only_count();
  CountingDevice device;
  const std::vector<BackendOp> ops = testing::fake_gpu_ops();
  const Backend backend{&device, ops};
  const Workload workload = make_workload(name);
  TrainerOptions options;
  options.optimizer = workload.optimizer;
  options.backend = &backend;
  options.passes.precision = Precision::kBf16, options.passes.storage_type = DType::kBF16;
  SingleShapeLearner learner(*workload.model, workload.loss, options);
  learner.submit(1e-3);
  device.begin();
  learner.submit(1e-3);
  EXPECT_LE(device.total(), most) << name << "\n" << device.text();
}

TEST(Launches, OfARecordedStep) {
  expect_launches("r-256", 235);
  expect_launches("gpt2-124m-8", 435);
}

}  // namespace
}  // namespace linnet
