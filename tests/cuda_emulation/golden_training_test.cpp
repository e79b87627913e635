// The golden files' losses on a device: all twenty on a GPU, the first few where it is emulated.
#include "engine/kernels/gemm/gemm.h"
#include "op_harness.h"
#include "transformer_golden.h"
#include "translation_fixture.h"

namespace linnet {
namespace {
using testing::TokenBatch;
using testing::Training;
using testing::TransformerGolden;

#ifdef LINNET_CUDA_EMULATION
constexpr int64_t kSteps = 5;
#else
constexpr int64_t kSteps = 20;
#endif

class GoldenOnADevice : public ::testing::TestWithParam<const char*> {
 protected:
  // Step `step`'s rows of an input [steps, rows...].
  static std::vector<int32_t> ids(const TransformerGolden& golden, const char* name, int64_t step) {
    const SafetensorsEntry& entry = golden.file().at(name);
    const int64_t count = entry.type.shape.elements() / entry.type.shape[0];
    std::vector<int32_t> values(static_cast<size_t>(count));
    std::memcpy(values.data(), entry.data + static_cast<size_t>(step * count) * 4, values.size() * 4);
    return values;
  }

  static TokenBatch batch(const TransformerGolden& golden, const BatchShape& shape, int64_t step) {
    return {shape, ids(golden, "source", step), ids(golden, "source_lengths", step), ids(golden, "target_in", step),
        ids(golden, "target_out", step), ids(golden, "target_lengths", step)};
  }

  // `tolerance` is relative, of each loss.
  static void train(const PassOptions& passes, double tolerance) {
    const TransformerGolden golden(GetParam());
    const Shape& source = golden.file().at("source").type.shape;
    const BatchShape shape{source[1], source[2], golden.file().at("target_in").type.shape[2]};
    TrainerOptions options;
    if (const Backend* backend = testing::tested_backend()) options.backend = backend;
    options.passes = passes;
    options.optimizer.beta1 = golden.number("beta1"), options.optimizer.beta2 = golden.number("beta2");
    options.optimizer.epsilon = golden.number("epsilon");
    Training training(golden.config(), {shape}, options, golden.number("label_smoothing"));
    training.trainer->state().pull();
    const std::vector<double> initial = golden.flat(training.layout, "init");
    std::copy(initial.begin(), initial.end(), training.trainer->state().flat("parameters"));
    training.trainer->state().push();
    const std::vector<double> losses = testing::read_doubles(golden.file().at("losses"));
    ASSERT_GE(source[0], kSteps);
    for (int64_t step = 0; step < kSteps; ++step) {
      training.load(batch(golden, shape, step));
      const double loss = training.trainer->step(0, golden.number("lr"), step + 1).loss;
      const double expected = losses[static_cast<size_t>(step)];
      EXPECT_NEAR(loss, expected, tolerance * expected) << "step " << step + 1;
    }
  }
};

TEST_P(GoldenOnADevice, LossesInStrictFloat32) { train({}, 1e-5); }
TEST_P(GoldenOnADevice, LossesInTf32) { train({.precision = Precision::kTf32}, 2e-3); }
TEST_P(GoldenOnADevice, LossesWithAttentionAloneInBf16) { train({.attention_precision = Precision::kBf16}, 5e-3); }
TEST_P(GoldenOnADevice, LossesInBf16) {
  if (!testing::tested_backend() && !gemm_has_bf16()) GTEST_SKIP() << "no bf16 here";
  train({.precision = Precision::kBf16, .storage_type = DType::kBF16}, 2e-2);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, GoldenOnADevice, ::testing::Values("post_ln_relu", "pre_ln_gelu"),
    [](const auto& info) { return std::string(info.param); });
}  // namespace
}  // namespace linnet
