// Convolutional networks on images that come as bytes. The images are ten made patterns under noise, so that there is
// something to learn.
#include <algorithm>

#include "models/modules/cnn.h"
#include "models/modules/resnet.h"
#include "app/bench/made_data.h"

namespace linnet {
namespace {

// Of `count` images, or as many of them as are whole batches, and of one batch at least.
Workload image_workload(const std::shared_ptr<ImageModel>& model, int64_t batch, int64_t count) {
  const ImageShape& shape = model->images;
  const int64_t batches = std::max<int64_t>(count / batch, 1), pixels = shape.height * shape.width * shape.channels;
  MadeNumbers numbers(4);
  std::vector<int32_t> patterns;
  for (int64_t i = 0; i < shape.classes * pixels; ++i) patterns.push_back(numbers.next(0, 3) == 0 ? 160 : 0);
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  for (int64_t image = 0; image < batches * batch; ++image) {
    labels.push_back(numbers.next(0, static_cast<int32_t>(shape.classes)));
    for (int64_t i = 0; i < pixels; ++i)
      images.push_back(
          static_cast<uint8_t>(patterns[static_cast<size_t>(labels.back() * pixels + i)] + numbers.next(0, 96)));
  }

  Workload workload;
  workload.unit = "samples/s", workload.units_per_step = static_cast<double>(batch);
  workload.model = model;
  workload.loss = [model, batch](Trace& trace) { return image_loss(*model, trace, batch); };
  workload.batches = batches;
  workload.inputs = {
      workload_input("images", DType::kU8, {batches, batch, shape.height, shape.width, shape.channels}, images),
      workload_input("labels", DType::kI32, {batches, batch}, labels)};
  return workload;
}

}  // namespace

Workload cnn_workload(const WorkloadOptions& options, int64_t batch) {
  constexpr int64_t kImages = 8192;
  Workload workload =
      image_workload(std::make_shared<Cnn>(CnnConfig{}), options.batch > 0 ? options.batch : batch, kImages);
  workload.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  workload.optimizer.beta2 = 0.999, workload.optimizer.epsilon = 1e-8;
  workload.learning_rate = 1e-3;
  return workload;
}

Workload resnet_workload(const WorkloadOptions& options, int64_t depth, int64_t size, int64_t batch) {
  ResNetConfig config{.depth = depth, .images = {size, size, 3, 10}};
  if (options.batch > 0) batch = options.batch;
  Workload workload = image_workload(std::make_shared<ResNet>(config), batch, 8 * batch);
  workload.optimizer.kind = OptimizerAttrs::Kind::kSgd;
  workload.optimizer.momentum = 0.9, workload.optimizer.weight_decay = 1e-4, workload.optimizer.decoupled = false;
  workload.learning_rate = 0.02;
  return workload;
}

}  // namespace linnet
