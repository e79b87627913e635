#include "engine/ops/quantized/quantized.h"
#include <gtest/gtest.h>
#include <random>
#include "base/thread_pool.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/passes/passes.h"
#include "op_harness.h"
#include "quantized_testing.h"

namespace linnet {
namespace {
constexpr WeightFormat kFormats[] = {
    WeightFormat::kInt8, WeightFormat::kInt8Blocks, WeightFormat::kInt4Blocks, WeightFormat::kBf16};

// A random matrix, packed, as a constant of the graph.
Tensor packed_literal(Graph& graph, const PackedShape& shape) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> w(static_cast<size_t>(shape.rows * shape.columns));
  for (float& x : w) x = normal(random);
  ThreadPool pool(1);
  std::vector<std::byte> bytes(shape.bytes());
  pack_weight(shape, w.data(), bytes.data(), pool);
  return literal(graph, {DType::kU8, {static_cast<int64_t>(bytes.size())}}, bytes.data());
}

// Convolutions of bytes, and the rounding of weights that are trained.
class QuantizedOpsOfCpus : public ::testing::Test {
 protected:
  void SetUp() override {
    if (linnet::testing::tested_backend()) GTEST_SKIP() << "on a device";
  }
};

TEST(QuantizedOps, DequantizeAndLookups) {
  for (const WeightFormat format : kFormats) {
    const PackedShape shape{format, 37, 70};
    linnet::testing::check_op({.inputs = {{.shape = {2, 5}, .integer = true, .low = 0, .high = 37}},
        .build =
            [shape](Graph& graph, const auto& x) {
              const Tensor table = dequantize(packed_literal(graph, shape), shape);
              return std::vector{embedding(table, x[0]), table};
            },
        .differentiate = false});
  }
}

// As the passes meet them: a product of a weight that is dequantized, with what is fused into it.
TEST(QuantizedOps, ProductsWithWhatIsFusedIntoThem) {
  for (const WeightFormat format : {WeightFormat::kInt8Blocks, WeightFormat::kInt4Blocks})
    for (const int64_t rows : {1, 6, 20}) {
      const PackedShape shape{format, 50, 70};
      linnet::testing::check_op({.inputs = {{.shape = {rows, 70}}, {.shape = {50}}, {.shape = {rows, 50}}},
          .build =
              [shape](Graph& graph, const auto& x) {
                const Tensor w = dequantize(packed_literal(graph, shape), shape, x[0].type().dtype);
                return std::vector{gelu(matmul(x[0], w, false, true) + x[1]), x[2] + matmul(x[0], w, false, true)};
              },
          .tolerance = 5e-5,  // with few rows, activations are rounded to 16 bits
          .differentiate = false});
    }
}

// Blocks as files have them; of the last one, the rows behind the first 32 have another format.
TEST(QuantizedOps, ProductsAndRowsOfFilesBlocks) {
  std::vector<PackedShape> shapes;
  for (auto format = WeightFormat::kQ8_0; format <= WeightFormat::kQ6K;
       format = static_cast<WeightFormat>(static_cast<int>(format) + 1))
    shapes.push_back({format, 40, 512});
  shapes.push_back({WeightFormat::kQ4K, 48, 512, 16, WeightFormat::kQ6K});
  for (const PackedShape& shape : shapes)
    for (const int64_t rows : {1, 3, 20}) {
      SCOPED_TRACE(::testing::Message() << "format " << static_cast<int>(shape.format) << ", " << rows << " rows");
      linnet::testing::check_op(
          {.inputs = {{.shape = {rows, 512}}, {.shape = {5}, .integer = true, .low = 0, .high = 40}},
              .build =
                  [shape](Graph& graph, const auto& x) {
                    Packed packed(shape);
                    const Tensor bytes =
                        literal(graph, {DType::kU8, {static_cast<int64_t>(shape.bytes())}}, packed.weight().data);
                    const Tensor w = dequantize(bytes, shape, x[0].type().dtype);
                    return std::vector{matmul(x[0], w, false, true), embedding(w, x[1])};
                  },
              .tolerance = 5e-5,
              .differentiate = false});
    }
}

// A layer with a frozen weight, differentiated: what its backward pass needs of the weight is a product with it, too.
TEST(QuantizedOps, GradientsOfALayerWithAFrozenWeight) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8Blocks}) {
    const PackedShape shape{format, 50, 70};
    linnet::testing::check_op({.inputs = {{.shape = {12, 70}}, {.shape = {50}}, {.shape = {12, 70}}},
        .build = [shape](Graph& graph, const auto& x) {
          const Tensor w = dequantize(packed_literal(graph, shape), shape, x[0].type().dtype);
          const Tensor hidden = gelu(matmul(relu(x[0]) + x[2], w, false, true) + x[1]);
          return std::vector{matmul(hidden, w)};
        }});
  }
}

// A classifier over many classes whose table is frozen.
TEST(QuantizedOps, LossOfAFrozenTable) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8Blocks})
    for (const double smoothing : {0.0, 0.1}) {
      const PackedShape shape{format, 90, 40};
      linnet::testing::check_op(
          {.inputs = {{.shape = {12, 40}}, {.shape = {12}, .integer = true, .low = -1, .high = 90}, {.shape = {90}}},
              .build = [shape, smoothing](Graph& graph, const auto& x) {
                const Tensor table = dequantize(packed_literal(graph, shape), shape, x[0].type().dtype);
                return std::vector{linear_cross_entropy_sum(x[0], table, x[2], x[1], smoothing)};
              }});
    }
}

// A weight that is trained in bf16: its gradient and that of what it is multiplied by.
TEST(QuantizedOps, LossesWithTheGradientOfThePackedWeight) {
  const PackedShape shape{WeightFormat::kBf16, 90, 40};
  linnet::testing::check_op({.inputs = {{.shape = {12, 40}}, {.shape = {12}, .integer = true, .low = -1, .high = 90}},
      .build =
          [shape](Graph& graph, const auto& x) {
            const Tensor table = dequantize(packed_literal(graph, shape), shape, x[0].type().dtype);
            const Tensor loss = linear_cross_entropy_sum(x[0], table, {}, x[1], 0.1);
            std::vector<Tensor> results = gradients(loss, std::array{table, x[0]});
            results.push_back(loss);
            return results;
          },
      .differentiate = false});
}

// The rounding of activations is part of this op, so its reference is the op itself.
TEST(QuantizedOps, Int8Products) {
  const PackedShape shape{WeightFormat::kInt8, 50, 70};
  for (const int64_t rows : {1, 20, 33})
    linnet::testing::check_op({.inputs = {{.shape = {rows, 70}}, {.shape = {50}}, {.shape = {rows, 50}}},
        .build =
            [shape](Graph& graph, const auto& x) {
              const Tensor packed = packed_literal(graph, shape);
              QuantizedMatmulAttrs attrs{.weight = {shape.format, {x[0].type().dtype, {shape.rows, shape.columns}}}};
              std::vector<Tensor> out{quantized_matmul(x[0], packed, shape)};
              attrs.product.bias = true, attrs.product.activation = GemmActivation::kGeluTanh;
              out.push_back(
                  graph.add_one(kQuantizedMatmul, std::array{x[0], packed, x[1]}, attrs, SourceLine::current()));
              attrs.product.activation = GemmActivation::kNone, attrs.product.accumulate = true;
              out.push_back(
                  graph.add_one(kQuantizedMatmul, std::array{x[0], packed, x[1], x[2]}, attrs, SourceLine::current()));
              return out;
            },
        .differentiate = false});
}

// So many rows and columns that a GPU takes its largest tiles.
TEST(QuantizedOps, LargeInt8Products) {
  const PackedShape shape{WeightFormat::kInt8, 3841, 9};
  linnet::testing::check_op({.inputs = {{.shape = {897, 9}}},
      .build = [shape](Graph& graph,
                   const auto& x) { return std::vector{quantized_matmul(x[0], packed_literal(graph, shape), shape)}; },
      .differentiate = false});
}

// As the pass makes them of a feed-forward block with scales: the first product hands on codes, which the second reads.
TEST(QuantizedOps, Int8ProductsThatHandOnCodes) {
  for (const auto& [rows, hidden] : {std::pair<int64_t, int64_t>{2, 50}, {33, 64}})
    linnet::testing::check_op({.inputs = {{.shape = {rows, 70}}, {.shape = {hidden}}},
        .build = [hidden](Graph& graph, const auto& x) -> std::vector<Tensor> {
          const StaticRounding codes{.scale = 0.021F, .least = 1};
          const auto product = [&](Tensor a, int64_t out, int64_t in, const StaticRounding& rounding, bool bias) {
            QuantizedMatmulAttrs attrs{
                .weight = {WeightFormat::kInt8, {x[0].type().dtype, {out, in}}}, .rounding = rounding};
            std::vector<Tensor> operands{a, packed_literal(graph, attrs.weight.packed())};
            if (bias) operands.push_back(x[1]), attrs.product.bias = true, attrs.result_rounding = codes;
            attrs.product.activation = bias ? GemmActivation::kRelu : GemmActivation::kNone;
            return graph.add_one(kQuantizedMatmul, operands, attrs, SourceLine::current());
          };
          const Tensor y = product(x[0], hidden, 70, {.scale = 0.0131F, .least = 1}, true);
          return {product(y, 18, hidden, codes, false)};
        },
        .differentiate = false});
}

// Filters of one pixel with steps, and wide ones with zeros around the image, in images of two sizes.
TEST_F(QuantizedOpsOfCpus, Int8Convolutions) {
  const WindowAxis wide{.size = 3, .stride = 2, .dilation = 1, .before = 1, .after = 1}, one{.stride = 2},
      dilated{.size = 2, .dilation = 3, .after = 2};
  for (const auto& [vertical, horizontal] : {std::pair{wide, wide}, {one, one}, {dilated, wide}}) {
    const PackedShape shape{WeightFormat::kInt8, 18, vertical.size * horizontal.size * 6};
    linnet::testing::check_op({.inputs = {{.shape = {2, 8, 7, 6}}},
        .build = [=](Graph& graph, const auto& x) -> std::vector<Tensor> {
          const StaticRounding rounding{.scale = 0.0131F, .zero = 128};
          return {quantized_conv2d(x[0], packed_literal(graph, shape), shape, rounding, vertical, horizontal)};
        },
        .differentiate = false});
  }
}

// As the pass makes them: the first has batch normalization and ReLU behind it and hands on codes, which the second
// multiplies and adds; a third finds a scale for each image and adds floats.
TEST_F(QuantizedOpsOfCpus, Int8ConvolutionsWithWhatFollows) {
  const WindowAxis wide{.size = 3, .before = 1, .after = 1};
  linnet::testing::check_op(
      {.inputs = {{.shape = {2, 8, 7, 16}}, {.shape = {18}}, {.shape = {18}}, {.shape = {2, 8, 7, 18}}},
          .build = [=](Graph& graph, const auto& x) -> std::vector<Tensor> {
            const auto attrs = [&](int64_t channels) {
              QuantizedConv2dAttrs made{.vertical = wide, .horizontal = wide};
              made.weight = {WeightFormat::kInt8, {x[0].type().dtype, {18, 9 * channels}}};
              return made;
            };
            const StaticRounding codes{.scale = 0.12F, .zero = 0};
            QuantizedConv2dAttrs first = attrs(16), second = attrs(18), third = attrs(16);
            first.rounding = {.scale = 0.0131F, .zero = 128, .least = 1};
            first.scale = first.bias = first.relu = true, first.result_rounding = codes;
            second.rounding = second.residual_rounding = codes, second.residual = true;
            third.residual = third.bias = true;
            const Tensor w16 = packed_literal(graph, first.weight.packed()),
                         w18 = packed_literal(graph, second.weight.packed());
            const auto where = SourceLine::current();
            const Tensor y = graph.add_one(kQuantizedConv2d, std::array{x[0], w16, x[1], x[2]}, first, where);
            return {graph.add_one(kQuantizedConv2d, std::array{y, w18, y}, second, where),
                graph.add_one(kQuantizedConv2d, std::array{x[0], w16, x[1], x[3]}, third, where)};
          },
          .differentiate = false});
}

// An update's result becomes a weight in bf16: the executor's bits are the interpreter's.
TEST_F(QuantizedOpsOfCpus, StochasticRounding) {
  for (const int64_t rows : {1, 7, 33}) {
    const PackedShape shape{WeightFormat::kBf16, rows, 10};
    linnet::testing::check_op({.inputs = {{.shape = {10 * rows}}},
        .build =
            [shape](Graph& graph, const auto& x) {
              const int32_t random[] = {1, 2, 3, 4};
              const Tensor numbers = literal(graph, {DType::kI32, {4}}, random);
              return std::vector{dequantize(round_bf16(x[0], numbers, shape, 5), shape, x[0].type().dtype)};
            },
        .tolerance = 0,
        .differentiate = false});
  }
}

// A layer as training in int8 computes it: its weight is rounded in the step, forward and, transposed, backward.
TEST_F(QuantizedOpsOfCpus, Int8ProductsWithAWeightThatIsTrained) {
  for (const int64_t rows : {1, 33})
    linnet::testing::check_op({.inputs = {{.shape = {rows, 70}}, {.shape = {50, 70}, .full = true},
                                   {.shape = {50}, .full = true}, {.shape = {rows, 50}}},
        .build =
            [](Graph& graph, const auto& x) {
              const auto where = SourceLine::current();
              const DType dtype = x[0].type().dtype;
              const QuantizedAttrs forward{.weight = {dtype, {50, 70}}}, backward{.weight = {dtype, {70, 50}}};
              const auto packed = [&](const QuantizedAttrs& weight, bool transposed) {
                return graph.add_one(kQuantizeWeight, std::array{x[1]}, QuantizeWeightAttrs{weight, transposed}, where);
              };
              QuantizedMatmulAttrs up{.weight = forward, .rounding = {.largest_error = 0.01F}};
              up.product.bias = up.product.pre_activation = true, up.product.activation = GemmActivation::kGelu;
              const Tensor a = x[0] * 1.0;
              std::vector<Tensor> out =
                  graph.add(kQuantizedMatmul, std::array{a, packed(forward, false), x[2]}, up, where);
              QuantizedMatmulAttrs down{.weight = backward, .rounding = {.largest_error = 0.01F}};
              down.product.derivative = GemmActivation::kGeluTanh, down.product.derivative_scale = 1.25F;
              out.push_back(
                  graph.add_one(kQuantizedMatmul, std::array{x[3] * 1.0, packed(backward, true), a}, down, where));
              down.product.derivative = GemmActivation::kNone, down.product.accumulate = true;
              out.push_back(
                  graph.add_one(kQuantizedMatmul, std::array{x[3] * 1.0, packed(backward, true), a}, down, where));
              return out;
            },
        .differentiate = false});
}
}  // namespace
}  // namespace linnet
