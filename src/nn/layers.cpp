#include "nn/layers.h"

#include <cmath>

#include "nn/trace.h"
#include "ops/dropout/dropout.h"
#include "ops/embedding/embedding.h"

namespace linnet {

Linear::Linear(Module* parent, std::string name, int64_t in, int64_t out, const Initializer& initializer, bool has_bias)
    : Module(parent, std::move(name)), weight{this, "weight", {out, in}, initializer} {
  if (has_bias) bias.emplace(this, "bias", Shape{out}, constant_init(0));
}

Tensor Linear::operator()(At x) {
  ModuleScope scope(*this);
  const Tensor product = matmul(x, weight, false, true);
  return bias ? At(product, x.where) + *bias : product;
}

LayerNorm::LayerNorm(Module* parent, std::string name, int64_t width, double epsilon, NormKind kind)
    : Module(parent, std::move(name)), kind(kind), epsilon(epsilon) {
  if (kind != NormKind::kBare) weight.emplace(this, "weight", Shape{width}, constant_init(1));
  if (kind == NormKind::kLayer) bias.emplace(this, "bias", Shape{width}, constant_init(0));
}

Tensor LayerNorm::operator()(At x) {
  ModuleScope scope(*this);
  const Tensor scale = weight ? weight->tensor() : Tensor{};
  return kind == NormKind::kRms ? rms_norm(x, scale, epsilon)
                                : layer_norm(x, scale, bias ? bias->tensor() : Tensor{}, epsilon);
}

Embedding::Embedding(Module* parent, std::string name, int64_t vocab_size, int64_t width)
    : Module(parent, std::move(name)),
      weight{this, "weight", {vocab_size, width}, normal_init(1 / std::sqrt(static_cast<double>(width)))},
      scale(std::sqrt(static_cast<double>(width))) {}

Embedding::Embedding(Module* parent, std::string name, int64_t vocab_size, int64_t width,
                     const Initializer& initializer)
    : Module(parent, std::move(name)), weight{this, "weight", {vocab_size, width}, initializer}, scale(1) {}

Tensor Embedding::operator()(At ids) {
  ModuleScope scope(*this);
  const Tensor rows = embedding(At(weight, ids.where), ids.value, padding);
  return scale == 1 ? rows : At(rows, ids.where) * scale;
}

Dropout::Dropout(Module* parent, std::string name, float probability)
    : Module(parent, std::move(name)), probability(probability) {}

Tensor Dropout::operator()(At x) {
  Trace& trace = Trace::current();
  if (!trace.options().training || probability == 0) return x.value;
  ModuleScope scope(*this);
  return dropout(x, trace.random(), probability, dropout_site(path(), "dropout"));
}

}  // namespace linnet
