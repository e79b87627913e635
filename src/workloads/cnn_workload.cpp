// The small convolutional network on 28 x 28 images, as bytes: Adam 1e-3. The images are ten made patterns under noise,
// so that there is something to learn.
#include <algorithm>

#include "models/cnn.h"
#include "workloads/made_data.h"

namespace linnet {

Workload cnn_workload(const WorkloadOptions& options, int64_t batch) {
  constexpr int64_t kImages = 8192, kSize = 28;
  if (options.batch > 0) batch = options.batch;
  constexpr int32_t kClasses = 10;
  const int64_t batches = std::max<int64_t>(kImages / batch, 1);
  auto model = std::make_shared<Cnn>(CnnConfig{});

  MadeNumbers numbers(4);
  std::vector<int32_t> patterns;
  for (int64_t i = 0; i < kClasses * kSize * kSize; ++i) patterns.push_back(numbers.next(0, 3) == 0 ? 160 : 0);
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  for (int64_t image = 0; image < batches * batch; ++image) {
    labels.push_back(numbers.next(0, kClasses));
    for (int64_t i = 0; i < kSize * kSize; ++i)
      images.push_back(
          static_cast<uint8_t>(patterns[static_cast<size_t>(labels.back() * kSize * kSize + i)] + numbers.next(0, 96)));
  }

  Workload workload;
  workload.unit = "samples/s", workload.units_per_step = static_cast<double>(batch);
  workload.model = model;
  workload.loss = [model, batch](Trace& trace) { return image_loss(*model, trace, batch); };
  workload.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  workload.optimizer.beta2 = 0.999, workload.optimizer.epsilon = 1e-8;
  workload.learning_rate = 1e-3;
  workload.batches = batches;
  workload.inputs = {workload_input("images", DType::kU8, {batches, batch, kSize, kSize, 1}, images),
                     workload_input("labels", DType::kI32, {batches, batch}, labels)};
  return workload;
}

}  // namespace linnet
