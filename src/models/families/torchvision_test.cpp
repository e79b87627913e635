// Residual networks against the same modules in PyTorch, in float64 (tests/golden/make_resnet.py), and their files.
#include "models/families/torchvision.h"
#include <gtest/gtest.h>
#include <cmath>
#include <cstring>
#include "base/files.h"
#include "base/numbers.h"
#include "engine/exec/interpreter.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/passes/passes.h"
#include "error_of.h"
#include "formats/safetensors.h"
#include "models/modules/resnet.h"
#include "temporary_folder.h"
#include "training/trainer/step_graphs.h"

namespace linnet {
namespace {
// As in make_resnet.py: uniform in [-1, 1).
std::vector<double> values(std::string_view name, int64_t count) {
  std::vector<double> x;
  uint64_t state = fnv1a(name);
  for (int64_t i = 0; i < count; ++i) x.push_back(static_cast<double>(next_splitmix64(state) >> 40) / (1 << 23) - 1);
  return x;
}

// `shape`: in torchvision's layout.
std::vector<float> weight_of(const std::string& name, const Shape& shape) {
  std::vector<float> weight;
  const bool scale = name.ends_with("running_var") || name.ends_with("weight");
  for (const double u : values(name, shape.elements()))
    weight.push_back(
        static_cast<float>(shape.rank() == 4 ? u * std::sqrt(6 / static_cast<double>(shape[0] * shape[2] * shape[3]))
                           : name == "fc.weight" ? u / std::sqrt(static_cast<double>(shape[1]))
                           : scale               ? 1 + 0.5 * u
                                                 : 0.1 * u));
  return weight;
}

double norm(std::span<const double> x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

struct Case {
  int64_t depth, images, size;
};

class TorchvisionResNet : public ::testing::TestWithParam<Case> {
 protected:
  TorchvisionResNet()
      : model_(ResNetConfig{.depth = GetParam().depth, .images = {GetParam().size, GetParam().size, 3, 10}}),
        layout_(model_), reference_("tests/golden/resnet.safetensors"),
        flat_(static_cast<size_t>(layout_.parameter_count())) {
    write_their_file();
    load_torchvision(file_, layout_, flat_.data());
  }

  // Shape of one of our parameters in the file.
  static Shape in_file(const Shape& shape) {
    return shape.rank() == 4 ? Shape{shape[0], shape[3], shape[1], shape[2]} : shape;
  }

  void write_their_file() const {
    std::vector<std::vector<float>> weights;
    std::vector<SafetensorsTensor> tensors;
    const int32_t batches = 0;
    for (const ParameterSlot& slot : layout_.parameters()) {
      const Shape shape = in_file(slot.spec.shape);
      weights.push_back(weight_of(slot.spec.name, shape));
      tensors.push_back({slot.spec.name, {DType::kF32, shape}, weights.back().data()});
    }
    tensors.push_back({"bn1.num_batches_tracked", {DType::kI32, {}}, &batches});
    save_safetensors(file_, tensors);
  }

  std::vector<double> reference(const std::string& name) const {
    const SafetensorsEntry& entry = reference_.at(std::to_string(GetParam().depth) + "." + name);
    std::vector<double> x(static_cast<size_t>(entry.type.shape.elements()));
    std::memcpy(x.data(), entry.data, x.size() * sizeof(double));
    return x;
  }

  template <class T> static void fill(HostTensor& tensor, std::span<T> from) {
    if (tensor.type().dtype == DType::kF64) {
      std::ranges::copy(from, tensor.as<double>().begin());
    } else {
      for (size_t i = 0; i < from.size(); ++i) tensor.as<float>()[i] = static_cast<float>(from[i]);
    }
  }

  LossFunction loss(DType dtype) {
    return [this, dtype](Trace& trace) -> Loss {
      const Case& c = GetParam();
      const Tensor x = trace.input("x", {dtype, {c.images, c.size, c.size, 3}});
      const Tensor labels = trace.input("labels", {DType::kI32, {c.images}});
      const Tensor logits = model_.logits(x);
      trace.graph().output("logits", logits);
      return {cross_entropy_sum(logits, labels), count_targets(labels, dtype)};
    };
  }

  NamedTensors inputs(const Graph& graph) const {
    NamedTensors named;
    const auto trained = static_cast<size_t>(layout_.trained_count());
    for (const GraphInput& input : graph.inputs()) {
      HostTensor tensor(graph.value(input.value).type);
      if (input.name == "labels") {
        for (size_t i = 0; i < tensor.as<int32_t>().size(); ++i) tensor.as<int32_t>()[i] = static_cast<int32_t>(i % 10);
      } else if (input.name == "x") {
        const auto pixels = values("images", tensor.type().shape.elements());
        fill(tensor, std::span(pixels));
      } else if (input.name == "parameters") {
        fill(tensor, std::span(flat_).first(trained));
      } else if (input.name == kBufferInput) {
        fill(tensor, std::span(flat_).subspan(trained));
      }
      named[input.name] = std::move(tensor);
    }
    return named;
  }

  static void expect_near(const HostTensor& ours, const std::vector<double>& theirs, double tolerance) {
    std::vector<double> difference = ours.values();
    ASSERT_EQ(difference.size(), theirs.size());
    for (size_t i = 0; i < theirs.size(); ++i) difference[i] -= theirs[i];
    EXPECT_LE(norm(difference), tolerance * norm(theirs));
  }

  // The gradient of the sum of losses, beside the one of the mean in the file: the norm of each parameter's, within
  // `tolerance` of it, and its first elements, within `tolerance` of a typical element.
  void expect_gradients(const HostTensor& gradient, double tolerance) const {
    const auto images = static_cast<double>(GetParam().images);
    double all = 0;
    for (const ParameterSlot& slot : layout_.trained()) all = std::hypot(all, reference("grad." + slot.spec.name)[0]);
    for (const ParameterSlot& slot : layout_.trained()) {
      const std::vector<double> expected = reference("grad." + slot.spec.name);
      const Shape& shape = slot.spec.shape;
      double sum = 0;
      for (int64_t i = 0; i < shape.elements(); ++i) sum += std::pow(gradient[slot.offset + i] / images, 2);
      EXPECT_NEAR(std::sqrt(sum), expected[0], tolerance * (expected[0] + 0.01 * all)) << slot.spec.name;
      const double typical = (expected[0] + 0.01 * all) / std::sqrt(static_cast<double>(shape.elements()));
      for (int64_t i = 0; i < 8; ++i) {
        // [O, C, R, S] in the file, [O, R, S, C] here; the first filter has more than 8 elements.
        const int64_t window = shape.rank() == 4 ? shape[1] * shape[2] : 1;
        const int64_t ours = shape.rank() == 4 ? i % window * shape[3] + i / window : i;
        EXPECT_NEAR(
            gradient[slot.offset + ours] / images, expected[static_cast<size_t>(i) + 1], 10 * tolerance * typical)
            << slot.spec.name << " " << i;
      }
    }
  }

  ResNet model_;
  ParameterLayout layout_;
  SafetensorsFile reference_;
  const testing::TemporaryFolder folder_;
  const std::string file_ = folder_ / "model.safetensors";
  std::vector<float> flat_;
};

const InterpreterOptions kFastKernels{.kernels = KernelSet::kFast, .threads = 2};

TEST_P(TorchvisionResNet, LogitsInEvaluation) {
  const Graph graph = optimize(evaluate_graph(layout_, loss(DType::kF32), "parameters", DType::kF32));
  expect_near(interpret(graph, inputs(graph), kFastKernels).outputs.at("logits"), reference("eval_logits"), 1e-5);
}

TEST_P(TorchvisionResNet, LogitsGradientsAndStatisticsInFloat64) {
  const Graph graph = accumulate_graph(layout_, loss(DType::kF64), {.dtype = DType::kF64});
  const InterpreterResult result = interpret(graph, inputs(graph), {.threads = 2});
  expect_near(result.outputs.at("logits"), reference("train_logits"), 1e-9);
  expect_gradients(result.states.at("gradient"), 1e-8);
  const std::vector<double> mean = reference("running_mean");
  const HostTensor& buffers = result.states.at(kBufferInput);
  for (const ParameterSlot& slot : layout_.buffers()) {
    if (slot.spec.name != "bn1.running_mean") continue;
    for (size_t i = 0; i < mean.size(); ++i)
      EXPECT_NEAR(buffers[slot.offset - layout_.buffer_offset() + static_cast<int64_t>(i)], mean[i], 1e-9);
  }
}

// In fp32 rounding moves some values across a ReLU's zero, which the gradient of 4 images shows: it is compared
// loosely. The last stage of depth 50 normalizes 4 values a channel here, which magnifies rounding a hundred times.
class TorchvisionTraining : public TorchvisionResNet {};
TEST_P(TorchvisionTraining, LogitsAndGradientsInFloat32) {
  const Graph graph = optimize(accumulate_graph(layout_, loss(DType::kF32), {}));
  const InterpreterResult result = interpret(graph, inputs(graph), kFastKernels);
  expect_near(result.outputs.at("logits"), reference("train_logits"), 1e-4);
  expect_gradients(result.states.at("gradient"), 1e-2);
}

TEST_P(TorchvisionResNet, FilesGoBothWays) {
  const std::string bytes = read_file(file_);
  const SafetensorsFile written_by_them(std::as_bytes(std::span(bytes)), "theirs");
  save_torchvision(file_, layout_, flat_.data());
  const SafetensorsFile written_by_us(file_);
  for (const SafetensorsEntry& entry : written_by_us.entries()) {
    const SafetensorsEntry& original = written_by_them.at(entry.name);
    ASSERT_EQ(entry.type, original.type) << entry.name;
    EXPECT_EQ(std::memcmp(entry.data, original.data, entry.bytes()), 0) << entry.name;
  }
  EXPECT_EQ(written_by_us.entries().size() + 1, written_by_them.entries().size());  // num_batches_tracked
}

INSTANTIATE_TEST_SUITE_P(Depths, TorchvisionResNet,
    ::testing::Values(Case{20, 4, 16}, Case{18, 4, 32}, Case{50, 4, 32}),
    [](const auto& test) { return "depth" + std::to_string(test.param.depth); });

INSTANTIATE_TEST_SUITE_P(Depths, TorchvisionTraining, ::testing::Values(Case{20, 4, 16}, Case{18, 4, 32}),
    [](const auto& test) { return "depth" + std::to_string(test.param.depth); });

// A file says which network it is; a model for other classes keeps its own last layer, one for grey images sums the
// first filters over the colors.
TEST(Torchvision, AFileIsTakenForOtherClassesAndGreyImages) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "model.safetensors";
  const ResNet theirs(ResNetConfig{.depth = 18, .images = {32, 32, 3, 5}}),
      ours(ResNetConfig{.depth = 18, .images = {32, 32, 1, 2}});
  const ParameterLayout saved(theirs), read(ours);
  std::vector<float> weights(static_cast<size_t>(saved.parameter_count()), 0.5f),
      loaded(static_cast<size_t>(read.parameter_count()));
  save_torchvision(file, saved, weights.data());
  const TorchvisionNetwork network = describe_torchvision(file);
  EXPECT_EQ(network.depth, 18);
  EXPECT_EQ(network.channels, 3);
  EXPECT_EQ(network.classes, 5);
  EXPECT_EQ(network.mean, (std::vector<double>{0.485, 0.456, 0.406}));
  load_torchvision(file, read, loaded.data(), true);
  for (const ParameterSlot& slot : read.parameters()) {
    const float first = loaded[static_cast<size_t>(slot.offset)];
    if (slot.spec.name.starts_with("fc.")) EXPECT_NE(first, 0.5f) << slot.spec.name;
    else EXPECT_EQ(first, slot.spec.name == "conv1.weight" ? 1.5f : 0.5f) << slot.spec.name;
  }
  for (const auto& [depth, bottleneck] : {std::pair{20, false}, {34, false}, {50, true}, {101, true}, {152, true}}) {
    const ResNet any(ResNetConfig{.depth = depth, .images = {32, 32, 3, 5}});
    std::vector<int64_t> blocks;
    for (const auto& stage : any.stages) blocks.push_back(static_cast<int64_t>(stage.size()));
    EXPECT_EQ(resnet_depth(blocks, bottleneck), depth);
  }
  EXPECT_EQ(resnet_depth(std::vector<int64_t>{2, 2}, false), 0);
}

TEST(Torchvision, FilesThatDoNotFitAreRefused) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "model.safetensors";
  const ResNet deep(ResNetConfig{.depth = 26}), shallow(ResNetConfig{.depth = 20});
  const ParameterLayout large(deep), small(shallow);
  const std::vector<float> weights(static_cast<size_t>(large.parameter_count()));
  std::vector<float> loaded = weights;
  const auto message = [&](const ParameterLayout& saved, const ParameterLayout& read) {
    save_torchvision(file, saved, weights.data());
    return error_of([&] { load_torchvision(file, read, loaded.data()); });
  };
  EXPECT_PRED2(has_text, message(large, small), "the model has no tensor \"layer1.3.");
  EXPECT_PRED2(has_text, message(small, large), "layer1.3.");
}
}  // namespace
}  // namespace linnet
