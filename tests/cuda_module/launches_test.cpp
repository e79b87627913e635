// How many launches a recorded step takes: short steps on a GPU are bound by them. NVIDIA's libraries count one for
// each call, attention is Linnet's own kernels here, which begin three in the backward pass.
#include <gtest/gtest.h>
#include <array>
#include <map>
#include <memory>
#include "app/bench/bench.h"
#include "cuda_module/fake_gpu_backend.h"
#include "cuda_module/fake_runtime.h"
#include "engine/device/cuda/cuda_device.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
// Counts what each op queues in a recording.
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
  void aside(int64_t number, FunctionRef<void()> work) override {
    asides = number + 1;
    CudaDevice::aside(number, work);
  }
  std::unique_ptr<Recording> record(FunctionRef<void()> work) override {
    return CudaDevice::record([&] {
      by_op.clear(), before_ = testing::queued_so_far();
      work();
    });
  }
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
  int64_t asides = 0;  // nodes that run beside others

 private:
  int64_t before_ = 0;
};

enum class Batch { kFromHost, kResident };

// The second step is the first that is recorded. What lies on the device already is gathered there.
void expect_launches(const char* name, Batch batch, int64_t most, int64_t least_asides) {
  testing::only_count();
  CountingDevice device;
  const std::vector<BackendOp> ops = testing::fake_gpu_ops();
  const Backend backend{&device, ops};
  const Workload workload = make_workload(name);
  TrainerOptions options;
  options.optimizer = workload.optimizer;
  options.backend = &backend;
  options.passes.precision = Precision::kBf16, options.passes.storage_type = DType::kBF16;
  ResidentOptions resident{.data = {}, .steps_per_chunk = 2, .steps_per_graph = 1};
  if (batch == Batch::kResident)
    for (const WorkloadInput& input : workload.inputs) {  // [batches, rows, ...]
      const auto sizes = input.type.shape.sizes();
      TensorType type{input.type.dtype, Shape(sizes.subspan(1))};
      type.shape.set(0, sizes[0] * sizes[1]);
      resident.data.push_back({input.name, type});
    }
  SingleShapeLearner learner(*workload.model, workload.loss, options, resident);
  if (batch == Batch::kResident) {
    const std::vector<int32_t> order(static_cast<size_t>(2 * learner.resident().rows()));
    learner.resident().begin_chunk(order, std::array{1e-3f, 1e-3f}, 1);
    learner.resident().run(1), learner.resident().run(1);
  } else {
    learner.submit(1e-3), learner.submit(1e-3);
  }
  EXPECT_GT(device.total(), 0);
  EXPECT_LE(device.total(), most) << name << "\n" << device.text();
  EXPECT_EQ(device.choices().recordings.back(), device.total()) << name;
  EXPECT_GE(device.asides, least_asides) << name;
}

TEST(Launches, OfARecordedStep) {
  // Bounds with some room: a fusion that is lost in every layer costs more.
  expect_launches("r-256", Batch::kFromHost, 120, 5);
  expect_launches("r-256", Batch::kResident, 120, 5);
  expect_launches("gpt2-124m-8", Batch::kFromHost, 275, 0);
}
}  // namespace
}  // namespace linnet
