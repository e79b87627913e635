// Linear layers with few outputs have a kernel of their own, for the product and both gradients.
#include <gtest/gtest.h>
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/pointwise/pointwise.h"
#include "op_harness.h"

namespace linnet {
KernelList matmul_kernels();  // engine/ops/matmul/matmul.cpp

namespace {
TEST(DenseHeadOp, ALinearLayerAndItsGradients) {
  for (const int64_t rows : {4, 37})
    testing::check_op({.inputs = {{{rows, 100}}, {{10, 100}}, {{10}}},
        .build = [](Graph&, const auto& x) { return std::vector{relu(matmul(x[0], x[1], false, true) + x[2])}; }});
}

TEST(DenseHeadOp, LeadingAxesAreRowsAndASumTakesTheProductInPlace) {
  testing::check_op({.inputs = {{{2, 5, 70}}, {{3, 70}}, {{10, 3}}, {{10, 70}}}, .build = [](Graph&, const auto& x) {
                       return std::vector{matmul(x[0], x[1], false, true), matmul(x[2], x[1]) + x[3] * 2.0};
                     }});
}

TEST(DenseHeadOp, TakesOnlyProductsItHasCodeFor) {
  const Kernel& dense_head = matmul_kernels().front();
  ASSERT_EQ(std::string_view(dense_head.name), "dense_head");
  const auto takes = [&](Shape a, Shape b, MatmulAttrs attrs) {
    Graph graph;
    const std::vector<Tensor> in{graph.input("a", {DType::kF32, a}), graph.input("b", {DType::kF32, b})};
    graph.add_one(kMatmul, in, attrs, SourceLine::current());
    const std::vector<TensorType> types{in[0].type(), in[1].type()};
    return dense_head.supports({graph.node(0), types, {}, 1});
  };
  EXPECT_TRUE(takes({128, 3136}, {10, 3136}, {.trans_b = true}));
  EXPECT_TRUE(takes({128, 10}, {128, 3136}, {.trans_a = true}));
  EXPECT_TRUE(takes({128, 10}, {10, 3136}, {}));
  EXPECT_FALSE(takes({128, 3136}, {17, 3136}, {.trans_b = true}));
  EXPECT_FALSE(takes({2, 3136}, {10, 3136}, {.trans_b = true}));
  EXPECT_FALSE(takes({128, 10}, {10, 32}, {}));
  EXPECT_FALSE(takes({4, 128, 80}, {4, 10, 80}, {.trans_b = true}));
  EXPECT_FALSE(takes({128, 3136}, {10, 3136}, {.trans_b = true, .precision = Precision::kBf16}));
  EXPECT_FALSE(takes({128, 3136}, {10, 3136}, {.trans_b = true, .independent_rows = true}));
}
}  // namespace
}  // namespace linnet
