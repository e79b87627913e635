#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>
#include "onnx/network.h"

namespace linnet {
namespace {
// A linear layer of 3 features and 2 classes, in the forms that files have.
OnnxModel network(const std::string& form) {
  OnnxModel model;
  OnnxGraph& graph = model.graph;
  const bool by_rows = form == "Gemm transB";
  OnnxTensor weight = float_tensor(
                 by_rows ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{3, 2}, std::vector<float>(6, 1)),
             bias = float_tensor({2}, {1, 1});
  weight.name = "w", bias.name = "b";
  graph.initializers = {weight, bias};
  if (form == "MatMul") {
    graph.nodes.push_back({.name = "m", .op = "MatMul", .in = {"x", "w"}, .out = {"h"}});
    graph.nodes.push_back({.name = "a", .op = "Add", .in = {"b", "h"}, .out = {"y"}});
  } else {
    graph.nodes.push_back({.name = "g", .op = "Gemm", .in = {"x", "w", "b"}, .out = {"y"}});
    if (by_rows) graph.nodes.back().attributes = {int_attribute("transB", 1)};
  }
  graph.outputs = {{.name = "y", .element = OnnxElement::kFloat, .has_shape = true, .dims = {{1, ""}, {2, ""}}}};
  return model;
}

TEST(NewHead, ReplacesTheLastLinearLayer) {
  for (const std::string form : {"Gemm", "Gemm transB", "MatMul"}) {
    OnnxModel model = network(form);
    EXPECT_EQ(head_classes(model), 2) << form;
    replace_head(model, 5);
    EXPECT_EQ(head_classes(model), 5) << form;
    const OnnxTensor &weight = model.graph.initializers[0], &bias = model.graph.initializers[1];
    EXPECT_EQ(weight.name, "w");
    EXPECT_EQ(weight.dims, form == "Gemm transB" ? (std::vector<int64_t>{5, 3}) : (std::vector<int64_t>{3, 5}));
    EXPECT_EQ(bias.dims, std::vector<int64_t>{5});
    EXPECT_EQ(model.graph.outputs[0].dims[1].size, 5);
    const std::vector<std::byte> before(weight.data.begin(), weight.data.end());
    replace_head(model, 5);  // nothing is left to do
    EXPECT_TRUE(std::ranges::equal(model.graph.initializers[0].data, before));
  }
  OnnxModel shared = network("Gemm");
  shared.graph.nodes.push_back({.name = "s", .op = "Relu", .in = {"w"}, .out = {"z"}});
  EXPECT_EQ(head_classes(shared), 0);
}
}  // namespace
}  // namespace linnet
