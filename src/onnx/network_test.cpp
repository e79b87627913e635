#include "onnx/network.h"
#include <gtest/gtest.h>
#include <stdlib.h>
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>
#include "base/files.h"
#include "engine/exec/interpreter.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "error_of.h"
#include "formats/safetensors.h"
#include "models/families/pretrained.h"
#include "models/modules/image_model.h"
#include "models/modules/resnet.h"
#include "models/modules/transformer.h"
#include "models/nn/trace.h"
#include "onnx/save_onnx.h"
#include "temporary_folder.h"
#include "training/trainer/learner.h"

namespace linnet {
namespace {
constexpr const char* kModels = "tests/golden/pretrained/";

using Folder = testing::TemporaryFolder;

NamedTensors run(const Graph& graph, const NamedTensors& inputs) {
  return interpret(graph, inputs, {.kernels = KernelSet::kFast}).outputs;
}

// Ids, floats, and lengths with their masks, for a source's inputs at one set of sizes.
struct Batch {
  NamedTensors ours, theirs;
};
Batch make_batch(const Graph& graph, const OnnxSource& source, const std::vector<int64_t>& sizes,
    const std::map<std::string, HostTensor>& parameters) {
  std::mt19937 random(7);
  Batch batch;
  for (const GraphInput& input : graph.inputs()) {
    if (parameters.contains(input.name)) {
      batch.ours[input.name] = parameters.at(input.name);
      continue;
    }
    const TensorType type = graph.value(input.value).type;
    HostTensor tensor(type);
    const auto mask = std::ranges::find(source.masks, input.name, &OnnxMask::lengths);
    if (mask == source.masks.end()) {
      if (type.dtype == DType::kU8)
        for (uint8_t& x : tensor.as<uint8_t>()) x = static_cast<uint8_t>(random() % 256);
      else if (type.dtype == DType::kF32)
        for (float& x : tensor.as<float>()) x = static_cast<float>(random() % 1000) / 500 - 1;
      else
        for (int32_t& id : tensor.as<int32_t>()) id = static_cast<int32_t>(random() % 2);
      batch.theirs[input.name] = tensor;
    } else {
      HostTensor ones({DType::kI32, {mask->shape[0].at(sizes), mask->shape[1].at(sizes)}});
      const int64_t keys = ones.type().shape[1];
      for (int64_t row = 0; row < ones.type().shape[0]; ++row) {
        const int64_t length = std::max<int64_t>(keys - row, 1);
        tensor.as<int32_t>()[static_cast<size_t>(row)] = static_cast<int32_t>(length);
        std::fill_n(ones.as<int32_t>().begin() + row * keys, length, 1);
      }
      batch.theirs[mask->name] = ones;
    }
    batch.ours[input.name] = tensor;
  }
  return batch;
}

std::map<std::string, HostTensor> values_of(const ParameterLayout& layout, const std::vector<float>& flat) {
  std::vector<float> constants(static_cast<size_t>(layout.constant_count()));
  ThreadPool pool(1);
  if (!constants.empty()) layout.initialize_constants(constants.data(), pool);
  std::map<std::string, HostTensor> values;
  const auto add = [&](const ParameterSlot& location, const std::vector<float>& from) {
    const auto count = static_cast<size_t>(location.spec.shape.elements());
    values.emplace(location.spec.name, HostTensor({DType::kF32, location.spec.shape},
                                           std::span(from).subspan(static_cast<size_t>(location.offset), count)));
  };
  for (const ParameterSlot& location : layout.parameters()) add(location, flat);
  for (const ParameterSlot& location : layout.constants()) add(location, constants);
  return values;
}

// Outputs of an imported file on these inputs.
NamedTensors run_imported(const std::string& path, const NamedTensors& inputs) {
  const std::unique_ptr<OnnxNetwork> network = load_onnx(path);
  Trace trace;
  std::map<std::string, Tensor> tensors;
  NamedTensors host = inputs;
  for (const auto& [name, tensor] : inputs) tensors[name] = trace.input(name, tensor.type());
  for (const auto& [name, tensor] : network->run(tensors)) trace.graph().output(name, tensor);
  for (const ParameterSpec& spec : network->parameters()) {
    HostTensor& values = host[spec.name] = HostTensor({DType::kF32, spec.shape});
    initialize(spec.initializer, spec.name, 0, spec.shape, values.as<float>());
  }
  std::erase_if(host, [&](const auto& entry) { return !trace.graph().find_input(entry.first); });
  return run(trace.finish(), host);
}

// The largest difference, as a share of the largest value if that is above 1.
double largest_difference(const HostTensor& got, const HostTensor& expected) {
  EXPECT_EQ(got.type().shape, expected.type().shape);
  double largest = 0, scale = 1;
  for (int64_t i = 0; i < expected.type().shape.elements(); ++i) {
    largest = std::max(largest, std::abs(got[i] - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  return largest / scale;
}

// Exported and imported again, at sizes it was not traced at, a model computes what it did.
void check_round_trip(const Module& module, const std::vector<OnnxFile>& files, const std::vector<float>& flat,
    const OnnxOptions& options, double tolerance = 1e-6) {
  const Folder folder;
  const ParameterLayout layout(module);
  for (const OnnxFile& file : files) {
    if (file.with_past) continue;
    SCOPED_TRACE(file.name);
    save_onnx(layout, flat.data(), file.source, folder / file.name, options);
    std::vector<int64_t> sizes{3, 8, 1, 2};
    sizes.resize(file.source.symbols.size());
    Trace trace;
    file.source.trace(trace, sizes);
    const Graph graph = trace.finish();
    const Batch batch = make_batch(graph, file.source, sizes, values_of(layout, flat));
    const NamedTensors expected = run(graph, batch.ours), got = run_imported(folder / file.name, batch.theirs);
    for (const auto& [output, tensor] : expected)
      EXPECT_LT(largest_difference(got.at(output), tensor), tolerance) << output;
  }
}

void check_round_trip(
    const std::string& name, int64_t opset, const OnnxFileOptions& files = {}, double tolerance = 1e-6) {
  SCOPED_TRACE(name + " in opset " + std::to_string(opset));
  const PretrainedModel model = open_pretrained(kModels + name);
  const ParameterLayout layout(*model.module);
  std::vector<float> flat(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, flat.data());
  check_round_trip(*model.module, onnx_files(model, files), flat, {.opset = opset}, tolerance);
}

std::vector<float> initial(const ParameterLayout& layout) {
  std::vector<float> flat(static_cast<size_t>(layout.parameter_count()));
  ThreadPool pool(1);
  layout.initialize_parameters(3, flat.data(), pool);
  return flat;
}

TEST(OnnxNetwork, EncodersComeBack) {
  for (const char* name : {"bert_classifier", "bert_masked", "bert_model", "roberta_masked", "roberta_classifier",
           "jina_masked", "deberta_masked", "deberta_conv_classifier"})
    for (const int64_t opset : {14, 17}) check_round_trip(name, opset);
}
TEST(OnnxNetwork, AHeadThatFindsAnswersComesBack) {
  const PretrainedModel model = open_pretrained(std::string(kModels) + "bert_model", {.head = ModelHead::kSpans});
  check_round_trip(*model.module, onnx_files(model), initial(ParameterLayout(*model.module)), {.opset = 17});
}
TEST(OnnxNetwork, DecodersComeBack) {
  for (const char* name : {"gpt2", "llama", "llama_scaled", "mistral", "qwen2", "qwen3", "gemma3", "phi3_long",
           "gpt_neox", "opt", "gemma2", "qwen3_yarn"})  // ONNX's sines are rounded once more than rope's
    check_round_trip(name, 17, {}, 2e-6);
  check_round_trip("gpt2", 17, {.joined_past = true});
}
TEST(OnnxNetwork, EncoderDecodersComeBack) {
  for (const char* name : {"t5_gated", "marian"}) check_round_trip(name, 14);
}

TEST(OnnxNetwork, ThePlainTransformerComesBack) {
  for (const bool pre : {false, true}) {
    Transformer model(TransformerConfig{.source_vocab = 11,
        .target_vocab = 13,
        .d_model = 8,
        .num_heads = 2,
        .d_ff = 12,
        .num_encoder_layers = 2,
        .num_decoder_layers = 2,
        .max_seq_len = 16,
        .dropout = 0,
        .norm_first = pre,
        .final_norm = pre,
        .activation = pre ? Activation::kGelu : Activation::kRelu});
    check_round_trip(model, onnx_files(model), initial(ParameterLayout(model)), {.opset = 17});
  }
}

// Weights of 16 and 8 bits: close to the model, but not the model.
TEST(OnnxNetwork, FewerBitsComeBackClose) {
  const PretrainedModel model = open_pretrained(std::string(kModels) + "bert_model");
  const ParameterLayout layout(*model.module);
  std::vector<float> flat(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, flat.data());
  const Folder folder;
  const auto size_of = [&](OnnxPrecision precision) {
    save_onnx(layout, flat.data(), onnx_files(model)[0], folder.path(), {.precision = precision});
    return std::filesystem::file_size(folder / "model.onnx");
  };
  const auto whole = size_of(OnnxPrecision::kF32);
  for (const auto& [precision, tolerance] :
      {std::pair{OnnxPrecision::kF16, 2e-3}, {OnnxPrecision::kInt8Qdq, 0.05}, {OnnxPrecision::kInt8Dynamic, 0.1}}) {
    EXPECT_LT(size_of(precision), whole);
    check_round_trip(*model.module, onnx_files(model), flat, {.precision = precision}, tolerance);
  }
  EXPECT_THROW(onnx_precision("fp8"), Error);
}

// The scales of static int8 go with the file: what was calibrated here multiplies bytes wherever the file runs.
TEST(OnnxNetwork, ScalesOfStaticInt8BecomeProductsOfBytes) {
  const PretrainedModel model = open_pretrained(std::string(kModels) + "bert_model");
  const ParameterLayout layout(*model.module);
  std::vector<float> flat(static_cast<size_t>(layout.parameter_count()));
  load_parameters(model, layout, flat.data());
  OnnxOptions options{.precision = OnnxPrecision::kInt8Qdq};
  int64_t weights = 0;
  for (const ParameterSlot& slot : layout.parameters()) {
    if (slot.spec.shape.rank() != 2 || slot.spec.name.find("layers.") == std::string::npos) continue;
    options.input_scales[slot.spec.name] = 5.0F / 127;
    ++weights;
  }
  ASSERT_GE(weights, 8);
  check_round_trip(*model.module, onnx_files(model), flat, options, 0.1);

  const Folder folder;
  const auto products = [&](const OnnxOptions& written) {
    save_onnx(layout, flat.data(), onnx_files(model)[0], folder.path(), written);
    const auto network = load_onnx(folder / "model.onnx");
    Trace trace;
    std::map<std::string, Tensor> inputs;
    for (const auto& input : network->inputs()) inputs[input.name] = trace.input(input.name, {DType::kI32, {2, 8}});
    for (const auto& [name, tensor] : network->run(inputs)) trace.graph().output(name, tensor);
    const Graph graph = optimize(trace.finish());
    return std::ranges::count_if(
        graph.nodes(), [](const Node& node) { return std::string_view(node.op->name) == "quantized_matmul"; });
  };
  EXPECT_GE(products(options), weights);
  options.input_scales.clear();
  EXPECT_EQ(products(options), 0);
}

CnnConfig small_images() {
  return {
      .height = 6, .width = 8, .channels = 2, .filters = 4, .classes = 3, .mean = {0.4, 0.5}, .deviation = {0.2, 0.3}};
}

TEST(OnnxNetwork, ImageModelsComeBack) {
  Cnn cnn(small_images());
  check_round_trip(cnn, onnx_files(cnn), initial(ParameterLayout(cnn)), {.opset = 17});
  ResNet resnet(ResNetConfig{.depth = 20, .images = {8, 8, 2, 3}, .mean = {0.4, 0.5}, .deviation = {0.2, 0.3}});
  check_round_trip(resnet, onnx_files(resnet), initial(ParameterLayout(resnet)), {.opset = 14});
}

// An imported network is trained as the model it came from is: the same losses.
TEST(OnnxNetwork, TrainsLikeTheModelItCameFrom) {
  const Folder folder;
  Cnn cnn(small_images());
  const ParameterLayout layout(cnn);
  const std::vector<float> flat = initial(layout);
  save_onnx(layout, flat.data(), onnx_files(cnn)[0].source, folder / "model.onnx");
  const std::unique_ptr<OnnxNetwork> network = load_onnx(folder / "model.onnx");
  EXPECT_EQ(network->parameter_count(), layout.parameter_count());
  EXPECT_EQ(network->model().producer, "linnet");
  EXPECT_FALSE(network->model().producer_version.empty());

  constexpr int64_t kBatch = 4;
  const auto loss_of = [&](Trace& trace, const std::function<Tensor(Tensor)>& logits_of) -> Loss {
    const Tensor images = trace.input("images", {DType::kU8, {kBatch, 6, 8, 2}});
    const Tensor labels = trace.input("labels", {DType::kI32, {kBatch}});
    const Tensor logits = logits_of(images);
    return {cross_entropy_sum(logits, labels), count_targets(labels, logits.type().dtype)};
  };
  SingleShapeLearner own(cnn, [&](Trace& trace) { return loss_of(trace, [&](Tensor x) { return cnn(x); }); });
  for (const ParameterSlot& location : layout.parameters())
    std::copy_n(
        flat.begin() + location.offset, location.spec.shape.elements(), own.parameter(location.spec.name).begin());
  SingleShapeLearner imported(*network, [&](Trace& trace) {
    return loss_of(trace, [&](Tensor x) { return network->run({{"images", x}}).at("logits"); });
  });
  std::mt19937 random(1);
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    std::vector<uint8_t> images(kBatch * 6 * 8 * 2);
    for (uint8_t& pixel : images) pixel = static_cast<uint8_t>(random() % 256);
    const std::vector<int32_t> labels{0, 1, 2, 1};
    for (SingleShapeLearner* learner : {&own, &imported}) {
      learner->set<uint8_t>("images", std::span<const uint8_t>(images));
      learner->set<int32_t>("labels", std::span<const int32_t>(labels));
    }
    const double a = own.step(0.01).loss, b = imported.step(0.01).loss;
    EXPECT_NEAR(a, b, 1e-4 * a) << step;
    if (step == 0) first = b;
    last = b;
  }
  EXPECT_NE(first, last);
}

// The folder of `linnet import` is read like the file it was made from.
TEST(OnnxNetwork, AnImportedFolderIsTheSameNetwork) {
  const Folder folder;
  Cnn cnn(small_images());
  const ParameterLayout layout(cnn);
  const std::vector<float> flat = initial(layout);
  save_onnx(layout, flat.data(), onnx_files(cnn)[0].source, folder / "model.onnx");
  save_onnx_folder(*load_onnx(folder / "model.onnx"), folder / "imported");
  HostTensor images({DType::kU8, {2, 6, 8, 2}});
  for (size_t i = 0; i < images.as<uint8_t>().size(); ++i) images.as<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  const NamedTensors a = run_imported(folder / "model.onnx", {{"images", images}}),
                     b = run_imported(folder / "imported", {{"images", images}});
  EXPECT_EQ(a.at("logits").values(), b.at("logits").values());
}

// A batch normalization in training mode, as torch.onnx.export(training=TrainingMode.TRAINING) writes it, learns
// running statistics while the network is trained, and uses them otherwise.
TEST(OnnxNetwork, RunningStatisticsOfTheFileAreUpdatedInTrainingAndUsedOtherwise) {
  for (const int64_t opset : {13, 17}) {
    OnnxModel model;
    model.opsets[""] = opset;
    model.graph.inputs = {{.name = "x", .element = OnnxElement::kFloat}};
    model.graph.outputs = {{.name = "y", .element = OnnxElement::kFloat}};
    model.graph.initializers = {float_tensor({1}, {2}, "scale"), float_tensor({1}, {1}, "bias"),
        float_tensor({1}, {2}, "mean"), float_tensor({1}, {3}, "variance")};
    OnnxNode node{.name = "b",
        .op = "BatchNormalization",
        .in = {"x", "scale", "bias", "mean", "variance"},
        .out = {"y", "next_mean", "next_variance"},
        .attributes = {float_attribute("momentum", 0.75F)}};
    if (opset == 17) node.attributes.push_back(int_attribute("training_mode", 1));
    else node.out.insert(node.out.end(), {"saved_mean", "saved_variance"});
    model.graph.nodes = {node};
    OnnxNetwork network(model, "norm.onnx");
    EXPECT_EQ(network.parameters().size(), 4u);
    const auto run_as = [&](bool training) {
      Trace trace({.training = training});
      const Tensor x = trace.input("x", {DType::kF32, {4, 1}});
      trace.graph().output("y", network.run({{"x", x}}).at("y"));
      trace.finish_buffers();
      const std::vector<float> batch{1, 3, 5, 7};
      NamedTensors host{{"x", HostTensor({DType::kF32, {4, 1}}, std::span<const float>(batch))}};
      for (const ParameterSpec& spec : network.parameters()) {
        HostTensor& values = host[spec.name] = HostTensor({DType::kF32, spec.shape});
        initialize(spec.initializer, spec.name, 0, spec.shape, values.as<float>());
      }
      std::erase_if(host, [&](const auto& entry) { return !trace.graph().find_input(entry.first); });
      return interpret(trace.finish(), host);
    };
    const InterpreterResult trained = run_as(true), evaluated = run_as(false);  // the batch has mean 4, variance 5
    EXPECT_NEAR(trained.outputs.at("y")[0], 1 + 2 * (1 - 4) / std::sqrt(5), 1e-5);
    EXPECT_NEAR(trained.states.at("mean")[0], 2 * 0.75 + 4 * 0.25, 1e-5);
    EXPECT_NEAR(trained.states.at("variance")[0], 3 * 0.75 + 5 * 0.25, 1e-5);
    EXPECT_NEAR(evaluated.outputs.at("y")[0], 1 + 2 * (1 - 2) / std::sqrt(3), 1e-5);
    EXPECT_TRUE(evaluated.states.empty());
  }
}

// Exporters let equal initializers be shared: a weight that is also a variance is no running statistic.
TEST(OnnxNetwork, SharedInitializersAreNoRunningStatistics) {
  OnnxModel model;
  model.opsets[""] = 17;
  model.graph.inputs = {{.name = "x", .element = OnnxElement::kFloat}};
  model.graph.outputs = {{.name = "y", .element = OnnxElement::kFloat}};
  model.graph.initializers = {float_tensor({1}, {1}, "ones"), float_tensor({1}, {0}, "zeros")};
  model.graph.nodes = {{.name = "b",
      .op = "BatchNormalization",
      .in = {"x", "ones", "zeros", "zeros", "ones"},
      .out = {"y"},
      .attributes = {int_attribute("training_mode", 1)}}};
  OnnxNetwork network(model, "norm.onnx");
  EXPECT_TRUE(network.parameters().empty());  // fixed values, as of all statistics that are not learned
}

// With sizes fixed in the file, a run refuses others; a trace fails only where the network does not take them, and then
// names them.
TEST(OnnxNetwork, SizesFixedInTheFileAreNamed) {
  OnnxModel model;
  model.opsets[""] = 17;
  model.graph.inputs = {{.name = "x", .element = OnnxElement::kFloat, .has_shape = true, .dims = {{2, ""}, {-1, "n"}}}};
  model.graph.outputs = {{.name = "y", .element = OnnxElement::kFloat}};
  model.graph.initializers = {float_tensor({1}, {1}, "bias"), int64_tensor({2}, {-1, 3}, "shape")};
  model.graph.nodes = {{.name = "a", .op = "Add", .in = {"x", "bias"}, .out = {"h"}},
      {.name = "r", .op = "Reshape", .in = {"h", "shape"}, .out = {"y"}}};
  OnnxNetwork network(model, "fixed.onnx");
  const auto run_on = [&](const Shape& shape) {
    Trace trace;
    network.run({{"x", trace.input("x", {DType::kF32, shape})}});
  };
  EXPECT_EQ(error_of([&] { run_on({2, 3}); }), "no error");
  EXPECT_EQ(error_of([&] { run_on({3, 2}); }), "no error");
  EXPECT_PRED2(has_text, error_of([&] { run_on({4, 4}); }), "input \"x\" is [2, ?] in the file, got [4, 4]");

  const Folder folder;
  const auto run_file = [&](const Shape& shape) {
    const std::vector<float> values(static_cast<size_t>(shape.elements()));
    const std::vector<SafetensorsTensor> tensors{{"x", {DType::kF32, shape}, values.data()}};
    save_safetensors(folder / "x.safetensors", tensors);
    run_onnx_file(network, folder / "x.safetensors", folder / "y.safetensors", {.threads = 1});
  };
  EXPECT_EQ(error_of([&] { run_file({2, 3}); }), "no error");
  EXPECT_PRED2(has_text, error_of([&] { run_file({3, 2}); }), "input \"x\" is [2, ?] in the file, got [3, 2]");
}

TEST(OnnxNetwork, AnOperatorThatIsNotThereIsNamed) {
  OnnxModel model;
  model.opsets[""] = 17;
  model.graph.inputs = {{.name = "x", .element = OnnxElement::kFloat}};
  model.graph.outputs = {{.name = "y", .element = OnnxElement::kFloat}};
  model.graph.nodes = {{.name = "parts", .op = "StringSplit", .in = {"x"}, .out = {"y"}}};
  EXPECT_PRED2(has_text, error_of([&] { OnnxNetwork(model, "split.onnx"); }), "operator StringSplit (node \"parts\")");
}

// Filters are parameters with channels last, also where Identity hands them on to a second convolution, and are written
// as the file has them. Those that something else reads, too, keep their layout.
TEST(OnnxNetwork, FiltersKeepTheirLayoutInTheFile) {
  for (const auto& [op, is_shared] : {std::pair{"", false}, {"Identity", false}, {"Neg", true}}) {
    OnnxModel model;
    model.opsets[""] = 17;
    model.graph.inputs = {{.name = "x", .element = OnnxElement::kFloat}};
    model.graph.outputs = {{.name = "y", .element = OnnxElement::kFloat}};
    model.graph.nodes = {{.name = "c", .op = "Conv", .in = {"x", "w"}, .out = {"y"}}};
    if (*op) model.graph.nodes.push_back({.name = "n", .op = op, .in = {"w"}, .out = {"z"}});
    if (op == std::string("Identity"))
      model.graph.nodes.push_back({.name = "d", .op = "Conv", .in = {"x", "z"}, .out = {"u"}});
    std::vector<float> numbers(2 * 3 * 2 * 2);
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    OnnxTensor w{.name = "w", .element = OnnxElement::kFloat, .dims = {2, 3, 2, 2}};
    w.data = std::as_bytes(std::span(numbers));
    model.graph.initializers = {w};
    const OnnxNetwork network(model, "filters.onnx");
    const ParameterSpec spec = network.parameters().front();
    EXPECT_EQ(spec.shape, (is_shared ? Shape{2, 3, 2, 2} : Shape{2, 2, 2, 3}));
    HostTensor parameter({DType::kF32, spec.shape});
    initialize(spec.initializer, spec.name, 0, spec.shape, parameter.as<float>());
    EXPECT_EQ(parameter[1], is_shared ? 1 : 4);  // the next element of the row, or of the channels
    const OnnxTensor written = network.trained_tensor(w, parameter.as<float>().data());
    EXPECT_TRUE(std::ranges::equal(written.data, w.data));
  }
}
}  // namespace
}  // namespace linnet
