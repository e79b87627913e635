#include <gtest/gtest.h>
#include <functional>
#include <vector>
#include "engine/exec/executor.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/passes/passes.h"
#include "engine/plan/store.h"
#include "models/nn/model_store.h"
#include "models/nn/module.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
// 4 images of 180 x 180 with 32 channels take 16 MB.
constexpr int64_t kImages = 4, kSide = 180, kChannels = 32;

struct Network : Module {
  Parameter stem{this, "stem", {kChannels, 3, 3, 3}, normal_init(0.1)};
  Parameter wide{this, "wide", {kChannels, 3, 3, kChannels}, normal_init(0.1)};
  Parameter gate{this, "gate", {kChannels, kChannels}, normal_init(0.1)};
  Parameter last{this, "last", {8, 1, 1, kChannels}, normal_init(0.1)};

  Tensor layers(Tensor images) {
    Tensor x = relu(conv2d(images, stem, 1, 1));
    x = relu(conv2d(x, wide, 1, 1) + x);
    // Each image's channels by their own means: a small layer between two large ones.
    const Tensor rows = permute(reshape(x, {kImages, kSide * kSide, kChannels}), {0, 2, 1});
    const Tensor means = reshape(sum_to(rows, {kImages, kChannels, 1}), {kImages, kChannels}) * (1.0 / kSide / kSide);
    const Tensor gates = reshape(tanh(matmul(means, gate)), {kImages, 1, 1, kChannels});
    return max_pool(conv2d(x * broadcast_to(gates, x.shape()), wide, 1, 1));
  }
};

using Rest = std::function<Tensor(Network&, Tensor)>;

struct Computed {
  std::vector<float> y;
  size_t bytes;
};

Computed computed(bool in_groups, int threads, const Rest& rest) {
  Network network;
  const ParameterLayout layout(network);
  Trace trace({.layout = &layout});
  trace.graph().output(
      "y", rest(network, network.layers(trace.input("images", {DType::kF32, {kImages, kSide, kSide, 3}}))));
  Graph graph = trace.finish();
  if (in_groups) graph = group_images(graph);
  Store store;
  const SharedRegions shared = declare_model(store, layout);
  constexpr size_t kInput = kImages * kSide * kSide * 3;
  store.bind(
      "images", {store.add_region("images", MemoryKind::kBatch, kInput * sizeof(float)), 0}, kInput * sizeof(float));
  const Plan plan = make_plan(optimize(std::move(graph)), store, shared, {.threads = threads});
  store.allocate();
  ThreadPool pool(threads);
  layout.initialize_parameters(5, store.as<float>(state::kParameters), pool);
  float* images = store.as<float>("images");
  for (size_t i = 0; i < kInput; ++i) images[i] = static_cast<float>(i * 37 % 101) / 50.0f - 1.0f;
  Executor executor(plan, store, shared);
  executor.run(pool);
  const TensorView& y = executor.output("y");
  return {{y.as<const float>(), y.as<const float>() + y.elements()}, store.total_bytes()};
}

TEST(GroupImages, LargeLayersTakeTheMemoryOfOneImageAndKeepTheirBits) {
  const Rest rest = [](Network& network, Tensor x) { return conv2d(x, network.last); };
  const Computed whole = computed(false, 1, rest), groups = computed(true, 2, rest);
  EXPECT_EQ(groups.y, whole.y);
  const size_t one_image = kSide * kSide * kChannels * sizeof(float);
  EXPECT_LT(groups.bytes + 3 * one_image, whole.bytes);
}

// A sum over all images, between large layers and after them.
TEST(GroupImages, ImagesThatDependOnEachOtherAreComputedTogether) {
  const Rest rest = [](Network& network, Tensor x) {
    const Tensor sum = sum_to(x, {1, kSide / 2, kSide / 2, kChannels});
    return conv2d(relu(conv2d(x - broadcast_to(sum, x.shape()), network.wide, 1, 1)), network.last);
  };
  EXPECT_EQ(computed(true, 2, rest).y, computed(false, 1, rest).y);
}

// The first axis of what attention in windows reads counts parts of images.
TEST(GroupImages, PartsOfImagesAreRowsOfTheirOwn) {
  const Rest rest = [](Network& network, Tensor x) {
    const Tensor windows = reshape(x, {kImages * 9, (kSide / 2) * (kSide / 2) / 9, kChannels});
    const Tensor weights = matmul(windows, permute(windows, {0, 2, 1}));
    const Tensor mixed = layer_norm(matmul(weights * 1e-3, windows), {}, {});
    return conv2d(reshape(mixed, x.shape()), network.last);
  };
  EXPECT_EQ(computed(true, 2, rest).y, computed(false, 1, rest).y);
}
}  // namespace
}  // namespace linnet
