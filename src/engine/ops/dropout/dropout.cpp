#include "engine/ops/dropout/dropout.h"
#include <array>
#include "base/hash.h"
#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer_dropout(const InferArgs& args) {
  expect_inputs(args, 2);
  const auto& attrs = args.attrs.as<DropoutAttrs>();
  expect(attrs.probability >= 0 && attrs.probability < 1,
         "got probability " + std::to_string(attrs.probability) + ", expected [0, 1)");
  expect(args.in[1] == TensorType{DType::kI32, {4}}, "got random state " + args.in[1].text() + ", expected i32[4]");
  expect(is_float(args.in[0].dtype) && args.in[0].shape.rank() >= 1, "got " + args.in[0].text());
  expect(attrs.layout == DropoutLayout::kDense || args.in[0].shape.rank() == 4,
         "got " + args.in[0].text() + ", expected [B, H, Tq, Tk]");
  const bool fits = attrs.is_whole() || (attrs.layout == DropoutLayout::kDense && args.in[0].shape.rank() >= 2 &&
                                         attrs.all_columns % 8 == 0 && attrs.first_column % 8 == 0 &&
                                         attrs.first_column + args.in[0].shape[-1] <= attrs.all_columns);
  expect(fits, "got " + args.in[0].text() + " as columns from " + std::to_string(attrs.first_column) + " on of " +
                   std::to_string(attrs.all_columns));
  return {args.in[0]};
}

// The mask is linear: the gradient passes through the same one.
std::vector<Tensor> dropout_gradient(const GradientArgs& args) {
  return {args.graph.add_one(kDropout, std::array{args.out_grad[0], args.in[1]}, args.node.attrs, args.node.where),
          Tensor{}};
}

}  // namespace

const OpDef kDropout{.name = "dropout",
                     .infer = infer_dropout,
                     .gradient = dropout_gradient,
                     .may_overwrite = [](const Node&, int, int input) { return input == 0; },
                     .storage = reduced<0b1, 0b1>};

std::span<const char* const> enum_names(DropoutLayout) {
  static constexpr std::array kNames{"dense", "attention"};
  return kNames;
}

Tensor dropout(At x, Tensor random, float probability, uint64_t site, DropoutLayout layout) {
  if (probability == 0) return x.value;
  return graph_of(x)->add_one(kDropout, std::array{x.value, random}, DropoutAttrs{probability, site, layout}, x.where);
}

uint64_t dropout_site(std::string_view module_path, std::string_view name) {
  return mix64(fnv1a(name, fnv1a("/", fnv1a(module_path))));
}

uint64_t dropout_key(const int32_t* random, uint64_t site) {
  const auto word = [&](int i) { return static_cast<uint64_t>(static_cast<uint32_t>(random[i])); };
  const uint64_t seed = word(0) | word(1) << 32, time = word(2) | word(3) << 32;
  return mix64(mix64(seed ^ site) + mix64(time + 0x9e3779b97f4a7c15u));
}

}  // namespace linnet
