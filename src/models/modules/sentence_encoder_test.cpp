#include <gtest/gtest.h>
#include <algorithm>
#include "base/files.h"
#include "base/json.h"
#include "engine/exec/interpreter.h"
#include "engine/passes/passes.h"
#include "models/modules/text_encoder.h"

namespace linnet {
namespace {
using Kind = EmbeddingLoss::Kind;

Kind kind_of(const std::string& name) {
  return name == "in_batch"  ? Kind::kInBatch
         : name == "triplet" ? Kind::kTriplet
         : name == "cosent"  ? Kind::kCosent
                             : Kind::kCosine;
}

HostTensor tensor_of(Shape shape, const std::vector<double>& values) {
  HostTensor tensor({DType::kF64, shape});
  std::ranges::copy(values, tensor.as<double>().begin());
  return tensor;
}

// tests/golden/make_embedding_losses.py asks sentence-transformers. Rows that are left out, here two behind the others,
// change nothing and get no gradient.
TEST(EmbeddingLosses, AreThoseOfSentenceTransformers) {
  constexpr int64_t kLeftOut = 2;
  const Json cases = Json::parse(read_file("tests/golden/embedding_losses.json"), JsonLimits::tables());
  ASSERT_EQ(cases.size(), 8u);
  for (const Json& one : cases) {
    const EmbeddingLoss options{.kind = kind_of(one["kind"].text()),
        .parts = one["parts"].get<int64_t>(),
        .dimensions = one["dimensions"].get<std::vector<int64_t>>()};
    const auto rows = static_cast<int64_t>(one["labels"].size()), batch = rows + kLeftOut;
    const auto width = static_cast<int64_t>(one["embeddings"][0].size());
    std::vector<double> values, labels = one["labels"].get<std::vector<double>>(),
                                weights(static_cast<size_t>(rows), 1);
    for (int64_t row = 0; row < options.parts * batch; ++row)
      for (int64_t i = 0; i < width; ++i)
        values.push_back(row % batch < rows ? one["embeddings"][row / batch * rows + row % batch][i].get<double>()
                                            : static_cast<double>(row + i));
    labels.resize(static_cast<size_t>(batch), 7), weights.resize(static_cast<size_t>(batch), 0);

    Trace trace({.dtype = DType::kF64, .training = true});
    const Tensor embeddings = trace.input("embeddings", {DType::kF64, {options.parts * batch, width}});
    const Loss loss = embedding_loss_of(options, trace, embeddings, batch);
    trace.graph().output("gradients", gradients(loss.sum, std::span(&embeddings, 1))[0]);
    trace.graph().output("sum", loss.sum), trace.graph().output("count", loss.count);
    NamedTensors inputs;
    inputs["embeddings"] = tensor_of({options.parts * batch, width}, values);
    inputs["weights"] = tensor_of({batch}, weights);
    if (options.has_labels()) inputs["labels"] = tensor_of({batch}, labels);
    const auto found = interpret(trace.finish(), inputs);

    const double count = found.outputs.at("count").values()[0];
    EXPECT_EQ(count, options.kind == Kind::kCosent ? 1 : static_cast<double>(rows));
    EXPECT_NEAR(found.outputs.at("sum").values()[0] / count, one["loss"].get<double>(), 1e-9) << one["kind"].text();
    const auto& changes = found.outputs.at("gradients").values();
    for (int64_t row = 0; row < options.parts * batch; ++row)
      for (int64_t i = 0; i < width; ++i)
        EXPECT_NEAR(changes[static_cast<size_t>(row * width + i)] / count,
            row % batch < rows ? one["gradients"][row / batch * rows + row % batch][i].get<double>() : 0, 1e-9)
            << one["kind"].text() << " " << options.parts << " row " << row;
  }
}
}  // namespace
}  // namespace linnet
