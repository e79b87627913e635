#include "models/modules/resnet.h"
#include "base/fail.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/pool/pool.h"
#include "engine/ops/quantized/quantized.h"
#include "engine/ops/reduce/reduce.h"
#include "models/nn/activation_observer.h"
#include "models/nn/weight_quantization.h"

namespace linnet {
namespace {
struct Plan {
  std::vector<int64_t> blocks;  // of each stage
  int64_t width = 64;           // of the first stage
  bool bottleneck = false, large = true;
};

Plan plan_of(int64_t depth) {
  switch (depth) {
    case 18: return {{2, 2, 2, 2}};
    case 34: return {{3, 4, 6, 3}};
    case 50: return {{3, 4, 6, 3}, 64, true};
    case 101: return {{3, 4, 23, 3}, 64, true};
    case 152: return {{3, 8, 36, 3}, 64, true};
    default: break;
  }
  if (depth < 8 || depth > 1202 || depth % 6 != 2)
    fail_user("there is no residual network of depth ", depth,
        "; there are 18, 34, 50, 101 and 152 for large images, and 20, 32, 44, 56 (6 n + 2) for small ones");
  const int64_t n = (depth - 2) / 6;
  return {{n, n, n}, 16, false, false};
}

// 3x3 windows, stride 2, a border of one pixel. Padding with zeros is right, as nothing is below zero after a ReLU.
Tensor pool_positive(Tensor x) {
  for (const int axis : {1, 2}) {
    const Tensor edge = fill(*x.graph, {x.type().dtype, with_size(x.shape(), axis, 1)}, 0);
    x = concat(edge, std::array{x, edge}, axis);
  }
  return max_pool(x, 3, 2);
}

// [N, H, W, C] -> [N, C]
Tensor mean_of_pixels(Tensor x) {
  const Shape s = x.shape();
  const int64_t pixels = s[1] * s[2];
  const Tensor by_channel = permute(reshape(x, {s[0], pixels, s[3]}), {0, 2, 1});
  return reshape(sum_to(by_channel, {s[0], s[3], 1}), {s[0], s[3]}) * (1 / static_cast<double>(pixels));
}
}  // namespace

// Initial weights: He et al. 2015, for layers before a ReLU, by fan-out.
FilterLayer::FilterLayer(Module* parent, std::string name, int64_t in, int64_t out, int64_t window, int64_t stride)
    : Module(parent, std::move(name)),
      stride(stride), weight{this, "weight", {out, window, window, in},
                          normal_init(std::sqrt(2 / static_cast<double>(out * window * window)))} {}

Tensor FilterLayer::operator()(At x) {
  ModuleScope scope(*this);
  watch_input(weight.spec(), x.value);
  const Shape& filters = weight.spec().shape;
  if (!input_step) return conv2d(x, weight, stride, filters[1] / 2);
  const Tensor rows = reshape(At(weight, x.where), {filters[0], filters.elements(1, 4)});
  const Tensor rounded = reshape(round_weight(At(rows, x.where)), filters);
  return conv2d(At(fake_quantize(x, *input_step), x.where), rounded, stride, filters[1] / 2);
}

void FilterLayer::train_quantized(float step) { input_step.emplace(this, "input_step", Shape{1}, constant_init(step)); }

int64_t train_quantized(Module& model) {
  constexpr float kUntilCalibrated = 0.05F;
  const WeightQuantization int8 = parse_quantization("int8");
  int64_t count = 0;
  const auto add_step = [&](auto* layer) {
    if (!layer || layer->input_step || !int8.choose(layer->weight.spec())) return;
    layer->train_quantized(kUntilCalibrated);
    ++count;
  };
  model.visit([&](Module& module) {
    add_step(dynamic_cast<Linear*>(&module));
    add_step(dynamic_cast<FilterLayer*>(&module));
  });
  return count;
}

Shortcut::Shortcut(Module* parent, std::string name, int64_t in, int64_t out, int64_t stride)
    : Module(parent, std::move(name)), conv{this, "0", in, out, 1, stride}, norm{this, "1", out} {}

Tensor Shortcut::operator()(At x) {
  ModuleScope scope(*this);
  return norm(conv(x));
}

ResidualBlock::ResidualBlock(
    Module* parent, std::string name, int64_t in, int64_t width, int64_t stride, bool bottleneck)
    : Module(parent, std::move(name)), conv1{this, "conv1", in, width, bottleneck ? 1 : 3, bottleneck ? 1 : stride},
      bn1{this, "bn1", width}, conv2{this, "conv2", width, width, 3, bottleneck ? stride : 1}, bn2{this, "bn2", width} {
  const int64_t out = bottleneck ? 4 * width : width;
  if (bottleneck) {
    conv3.emplace(this, "conv3", width, out, 1);
    bn3.emplace(this, "bn3", out);
  }
  if (stride != 1 || in != out) downsample.emplace(this, "downsample", in, out, stride);
}

Tensor ResidualBlock::operator()(At x) {
  ModuleScope scope(*this);
  // First, so that the last norm can add it (engine/passes/fuse_norms.cpp).
  const Tensor shortcut = downsample ? (*downsample)(x) : x.value;
  Tensor y = bn2(conv2(relu(bn1(conv1(x)))));
  if (conv3) y = (*bn3)((*conv3)(relu(y)));
  return relu(y + shortcut);
}

int64_t resnet_depth(std::span<const int64_t> blocks, bool bottleneck) {
  const auto fits = [&](int64_t depth) {
    const Plan plan = plan_of(depth);
    return std::ranges::equal(plan.blocks, blocks) && plan.bottleneck == bottleneck;
  };
  for (const int64_t depth : {18, 34, 50, 101, 152})
    if (fits(depth)) return depth;
  const int64_t small = blocks.size() == 3 ? 6 * blocks[0] + 2 : 0;
  return small > 2 && fits(small) ? small : 0;
}

ResNet::ResNet(const ResNetConfig& config)
    : ImageModel(config.images, config.mean, config.deviation),
      config(config), conv1{this, "conv1", config.images.channels, plan_of(config.depth).width,
                          plan_of(config.depth).large ? 7 : 3, plan_of(config.depth).large ? 2 : 1},
      bn1{this, "bn1", plan_of(config.depth).width} {
  const Plan plan = plan_of(config.depth);
  int64_t in = plan.width, width = plan.width;
  for (size_t i = 0; i < plan.blocks.size(); ++i, width *= 2) {
    ModuleList<ResidualBlock>& stage = stages.emplace_back(this, "layer" + std::to_string(i + 1));
    for (int64_t block = 0; block < plan.blocks[i]; ++block) {
      stage.append(in, width, i > 0 && block == 0 ? 2 : 1, plan.bottleneck);
      in = plan.bottleneck ? 4 * width : width;
    }
  }
  fc = std::make_unique<Linear>(
      this, "fc", in, config.images.classes, uniform_init(1 / std::sqrt(static_cast<double>(in))));
}

Tensor ResNet::operator()(At images) { return logits(scale_pixels(images, scaling)); }

Tensor ResNet::logits(At images) {
  Tensor x = relu(bn1(conv1(images)));
  if (plan_of(config.depth).large) x = pool_positive(x);
  for (ModuleList<ResidualBlock>& stage : stages)
    for (ResidualBlock& block : stage) x = block(x);
  return (*fc)(mean_of_pixels(x));
}
}  // namespace linnet
