#include "engine/ops/recurrent/recurrent.h"
#include <gtest/gtest.h>
#include "op_harness.h"

namespace linnet {
namespace {
// A GPU has no kernel for the loop: layers are unrolled there.
class Recurrent : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::tested_backend()) GTEST_SKIP() << "on a device";
  }
};

// A loop over `steps`, of which all results are read; sizes that fill vectors, panels and blocks of rows, and not.
testing::OpCase recurrent_case(RecurrentKind kind, int64_t steps, int64_t batch, int64_t hidden, bool reverse,
    GateOrder order = GateOrder::kUsual) {
  const int64_t width = gates_of(kind) * hidden;
  testing::OpCase made{.inputs = {{.shape = {steps, batch, width}}, {.shape = {width, hidden}, .spread = 0.5},
                           {.shape = {width}}, {.shape = {batch, hidden}}, {.shape = {batch, hidden}}}};
  made.build = [=](Graph&, const auto& x) {
    const RecurrentResult found = recurrent({x[0], x[1], x[2], x[3], x[4]}, {kind, order, reverse});
    return kind == RecurrentKind::kLstm ? std::vector{found.hidden, found.last_hidden, found.cell}
                                        : std::vector{found.hidden, found.last_hidden, x[4]};
  };
  return made;
}

TEST_F(Recurrent, EveryKindAtManySizes) {
  for (const auto kind : {RecurrentKind::kLstm, RecurrentKind::kGru, RecurrentKind::kTanh, RecurrentKind::kRelu})
    for (const bool reverse : {false, true}) {
      SCOPED_TRACE(std::string(enum_names(kind)[static_cast<size_t>(kind)]) + (reverse ? ", reverse" : ""));
      testing::check_op(recurrent_case(kind, 1, 1, 1, reverse));
      testing::check_op(recurrent_case(kind, 5, 3, 7, reverse));
      testing::check_op(recurrent_case(kind, 3, 7, 40, reverse));
      testing::check_op(recurrent_case(kind, 2, 2, 5, reverse, GateOrder::kOnnx));
    }
}

TEST_F(Recurrent, StepsThatThreadsShare) {
  testing::check_op(recurrent_case(RecurrentKind::kLstm, 3, 9, 64, false));
  testing::check_op(recurrent_case(RecurrentKind::kGru, 3, 30, 48, true));
}

TEST_F(Recurrent, UnrolledIsTheSame) {
  for (const auto kind : {RecurrentKind::kLstm, RecurrentKind::kGru, RecurrentKind::kTanh}) {
    Graph graph;
    const int64_t width = gates_of(kind) * 6;
    NamedTensors inputs;
    std::vector<Tensor> x;
    for (const Shape& shape : {Shape{4, 2, width}, Shape{width, 6}, Shape{width}, Shape{2, 6}, Shape{2, 6}}) {
      const std::string name = "x" + std::to_string(x.size());
      x.push_back(graph.input(name, {DType::kF32, shape}));
      HostTensor& value = inputs[name] = HostTensor(x.back().type());
      for (int i = 0; float& number : value.as<float>()) number = 0.1f * static_cast<float>(i++ * 7 % 13 - 6);
    }
    for (const bool unrolled : {false, true}) {
      const RecurrentResult found = recurrent(
          {x[0], x[1], x[2], x[3], x[4]}, {.kind = kind, .order = GateOrder::kOnnx, .reverse = true}, unrolled);
      graph.output(unrolled ? "u" : "l", found.hidden);
    }
    for (const NamedTensors& got : testing::run_everywhere(graph, inputs))
      EXPECT_LT(testing::distance(got.at("u"), got.at("l")), 1e-6);
  }
}
}  // namespace
}  // namespace linnet
