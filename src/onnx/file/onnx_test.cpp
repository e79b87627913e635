#include <gtest/gtest.h>
#include <cstring>
#include <filesystem>
#include <fstream>
#include "base/files.h"
#include "base/protobuf.h"
#include "error_of.h"
#include "onnx/file/model.h"
#include "onnx/lowering/lowering.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
using Folder = testing::TemporaryFolder;

// y = x * w + w, with w [2, 3] an initializer.
OnnxModel small_model() {
  OnnxModel model;
  model.opsets[""] = 17;
  model.producer = "test";
  OnnxGraph& graph = model.graph;
  graph.name = "small";
  const OnnxValueInfo x{.name = "x", .element = OnnxElement::kFloat, .has_shape = true, .dims = {{-1, "batch"}, {3}}};
  OnnxValueInfo y = x;
  y.name = "y";
  graph.inputs = {x};
  graph.outputs = {y};
  OnnxTensor w = float_tensor({1, 3}, {1, -2, 3.5F});
  w.name = "w";
  graph.initializers = {w};
  graph.nodes = {{.name = "a", .op = "Mul", .in = {"x", "w"}, .out = {"p"}},
      {.name = "b", .op = "Add", .in = {"p", "w"}, .out = {"y"}, .attributes = {ints_attribute("unused", {1, -1})}}};
  return model;
}

// The message of the user error that reading the file ends with.
std::string problem(const std::string& path) {
  const std::string message = error_of([&] { read_onnx(path); });
  EXPECT_TRUE(message == "no error" || has_text(message, path)) << message;
  return message;
}
std::string problem_of(const OnnxModel& model) {
  const Folder folder;
  write_onnx(model, folder / "model.onnx");
  return problem(folder / "model.onnx");
}

std::vector<float> floats_of(const OnnxTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

TEST(Onnx, WhatIsWrittenIsReadAgain) {
  const Folder folder;
  for (const uint64_t most_inside : {uint64_t{1} << 30, uint64_t{0}}) {  // weights inside, then in a file beside
    OnnxModel model = small_model();
    OnnxTensor large{.name = "large", .element = OnnxElement::kFloat, .dims = {1000, 2}};
    large.fill = [](int64_t first, int64_t count, std::byte* out) {
      for (int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(out)[i] = static_cast<float>(first + i);
    };
    model.graph.initializers.push_back(large);
    const std::string path = folder / ("model" + std::to_string(most_inside) + ".onnx");
    write_onnx(model, path, most_inside);
    EXPECT_EQ(file_exists(path + "_data"), most_inside == 0);
    const OnnxModel read = read_onnx(path);
    EXPECT_EQ(read.opsets.at(""), 17);
    ASSERT_EQ(read.graph.nodes.size(), 2);
    EXPECT_EQ(read.graph.nodes[1].in, (std::vector<std::string>{"p", "w"}));
    EXPECT_EQ(read.graph.nodes[1].find("unused")->ints, (std::vector<int64_t>{1, -1}));
    EXPECT_EQ(read.graph.inputs[0].dims[0].symbol, "batch");
    EXPECT_EQ(read.graph.inputs[0].dims[1].size, 3);
    EXPECT_EQ(floats_of(read.graph.initializers[0]), (std::vector<float>{1, -2, 3.5F}));
    EXPECT_EQ(floats_of(read.graph.initializers[1])[1999], 1999);
    std::string first = read_file(path);
    write_onnx(model, path, most_inside);
    EXPECT_EQ(first, read_file(path)) << "the same model, other bytes";
  }
}

TEST(Onnx, GraphsThatCannotRunAreRefused) {
  OnnxModel model = small_model();
  std::swap(model.graph.nodes[0], model.graph.nodes[1]);
  EXPECT_PRED2(has_text, problem_of(model), "\"p\", which is not computed before it");
  model = small_model();
  model.graph.nodes[1].in[0] = "y";  // a cycle
  EXPECT_PRED2(has_text, problem_of(model), "\"y\", which is not computed before it");
  model = small_model();
  model.graph.nodes[1].out[0] = "p";
  EXPECT_PRED2(has_text, problem_of(model), "\"p\" is computed twice");
  model = small_model();
  model.graph.outputs[0].name = "z";
  EXPECT_PRED2(has_text, problem_of(model), "output \"z\" is not computed");
}

TEST(Onnx, ExternalDataStayInTheFolder) {
  for (const char* location : {"../secret", "/etc/passwd", "a/../../b", ""}) {
    OnnxModel model = small_model();
    model.graph.initializers[0].external_file = location[0] ? location : ".";
    EXPECT_NE(problem_of(model), "no error") << location;
  }
  const Folder folder;
  OnnxModel model = small_model();
  model.graph.initializers[0].external_file = "weights";
  write_onnx(model, folder / "model.onnx");
  EXPECT_PRED2(has_text, problem(folder / "model.onnx"), "missing");
  write_file_atomically(folder / "weights", "12345678");
  EXPECT_PRED2(has_text, problem(folder / "model.onnx"), "beyond the end");
  write_file_atomically(folder / "weights", "123456789012");
  EXPECT_EQ(problem(folder / "model.onnx"), "no error");
  std::filesystem::remove(folder / "weights");
  std::filesystem::create_symlink("/etc/passwd", folder / "weights");
  EXPECT_PRED2(has_text, problem(folder / "model.onnx"), "not a file of the model's folder");
}

TEST(Onnx, DamagedFilesAreRefused) {
  const Folder folder;
  const std::string path = folder / "model.onnx";
  write_onnx(small_model(), path);
  const std::string bytes = read_file(path);
  for (size_t length = 0; length < bytes.size(); length += 3) {
    write_file_atomically(path, bytes.substr(0, length));
    EXPECT_NE(problem(path), "no error") << length;
  }
}

TEST(Onnx, NodesWithoutResultsAreRefused) {
  OnnxModel model = small_model();
  model.graph.nodes.push_back({.name = "idle", .op = "Shape", .in = {model.graph.nodes[0].out[0]}, .out = {}});
  EXPECT_PRED2(has_text, problem_of(model), "node \"idle\" has no operator or no result");
}

// A model whose one tensor says it has these sizes, and has 12 bytes of data.
std::string problem_of_sizes(const std::vector<int64_t>& dims) {
  ProtoWriter tensor, graph, model;
  for (const int64_t dim : dims) tensor.integer(1, dim);
  tensor.integer(2, 1);
  tensor.text(8, "w");
  tensor.text(9, std::string(12, '\0'));
  graph.message(5, tensor);
  model.message(7, graph);
  const Folder folder;
  write_file_atomically(folder / "model.onnx", model.bytes());
  return problem(folder / "model.onnx");
}

TEST(Onnx, SizesThatAreNotThereAreRefused) {
  EXPECT_EQ(problem_of_sizes({1, 3}), "no error");
  EXPECT_PRED2(has_text, problem_of_sizes({INT64_C(1) << 40, INT64_C(1) << 40}), "larger than any memory");
  EXPECT_PRED2(has_text, problem_of_sizes({1, 4}), "expected 16");
  EXPECT_PRED2(has_text, problem_of_sizes({-1, 3}), "negative size");
  EXPECT_PRED2(has_text, problem_of_sizes(std::vector<int64_t>(1000, 1)), "too many axes");
}

TEST(SymbolicSize, FollowsFromTheSizesOfTheTraces) {
  const SizeSets sets{{2, 5, 3}, {3, 7, 2}, {5, 4, 6}, {4, 6, 4}};
  const std::vector<std::string> names{"batch", "length", "past"};
  const auto text = [&](const std::vector<int64_t>& values) {
    const auto size = fit_size(values, sets);
    return size ? size->text(names) : "none";
  };
  EXPECT_EQ(text({8, 8, 8, 8}), "8");
  EXPECT_EQ(text({5, 7, 4, 6}), "length");
  EXPECT_EQ(text({10, 21, 20, 24}), "batch*length");
  EXPECT_EQ(text({40, 84, 80, 96}), "4*batch*length");
  EXPECT_EQ(text({8, 9, 10, 10}), "length + past");
  EXPECT_EQ(text({12, 15, 13, 15}), "2*length + past - 1");
  EXPECT_EQ(text({95, 93, 96, 94}), "-length + 100");
  EXPECT_EQ(text({45, 91, 28, 66}), "-length + 2*length*length");
  EXPECT_EQ(text({1, 2, 3, 5}), "none");
}
}  // namespace
}  // namespace linnet
