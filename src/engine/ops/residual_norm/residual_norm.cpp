#include "engine/ops/residual_norm/residual_norm.h"
#include "engine/ops/dropout/dropout.h"
#include "engine/ops/graph_of.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {

Shape residual_norm_rows_shape(Shape shape) {
  shape.set(-1, 1);
  return shape;
}

void expect_random(const InferArgs& args, const ResidualNormAttrs& attrs) {
  if (attrs.probability == 0) return;
  expect(attrs.probability > 0 && attrs.probability < 1,
         "got probability " + std::to_string(attrs.probability) + ", expected [0, 1)");
  expect(args.in.back() == TensorType{DType::kI32, {4}},
         "got random state " + args.in.back().text() + ", expected i32[4]");
}

std::vector<TensorType> infer_residual_norm(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ResidualNormAttrs>();
  expect_inputs(args, 2u + attrs.norm.has_weight + attrs.norm.has_bias + (attrs.probability > 0));
  const TensorType& x = args.in[0];
  expect(x.shape.rank() >= 1 && is_float(x.dtype) && args.in[1] == x, "got " + x.text() + " and " + args.in[1].text());
  const TensorType row{full_type(x.dtype), residual_norm_rows_shape(x.shape)};
  expect_norm_parameters(attrs.norm, x, args.in.subspan(2));
  expect_random(args, attrs);
  return {x, x, row, row};
}

std::vector<TensorType> infer_residual_norm_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ResidualNormAttrs>();
  expect_inputs(args, 4u + attrs.norm.has_weight + attrs.dsum + (attrs.probability > 0));
  const TensorType& sum = args.in[1];
  for (const int i : {0, attrs.dsum ? attrs.dsum_input() : 0})
    expect(args.in[static_cast<size_t>(i)] == sum,
           "got " + args.in[static_cast<size_t>(i)].text() + " and " + sum.text());
  expect_random(args, attrs);
  std::vector<TensorType> out{sum};
  out.resize(1u + attrs.norm.has_weight + attrs.norm.has_bias, TensorType{full_type(sum.dtype), {sum.shape[-1]}});
  if (attrs.probability > 0) out.push_back(args.in[1]);
  return out;
}

Tensor dropped(Tensor x, Tensor random, const ResidualNormAttrs& attrs, SourceLine where) {
  return attrs.probability > 0 ? dropout(At(x, where), random, attrs.probability, attrs.site) : x;
}

std::vector<Tensor> residual_norm_gradient(const GradientArgs& args) {
  ResidualNormAttrs attrs = args.node.attrs.as<ResidualNormAttrs>();
  const Tensor random = args.in.back(), dsum = args.out_grad[0], dy = args.out_grad[1];
  std::vector<Tensor> gradients(args.in.size());
  if (!dy.defined()) {
    gradients[0] = dsum;
    gradients[1] = dropped(dsum, random, attrs, args.node.where);
    return gradients;
  }
  std::vector<Tensor> in{dy, args.out[0], args.out[2], args.out[3]};
  if (attrs.norm.has_weight) in.push_back(args.in[2]);
  attrs.dsum = dsum.defined();
  if (attrs.dsum) in.push_back(dsum);
  if (attrs.probability > 0) in.push_back(random);
  const auto out = args.graph.add(kResidualNormGrad, in, attrs, args.node.where);
  gradients[0] = out[0], gradients[1] = attrs.probability > 0 ? out.back() : out[0];
  for (size_t i = 1; i <= size_t{attrs.norm.has_weight} + attrs.norm.has_bias; ++i) gradients[i + 1] = out[i];
  return gradients;
}

std::vector<Tensor> decompose_residual_norm(const DecomposeArgs& args) {
  const auto& attrs = args.node.attrs.as<ResidualNormAttrs>();
  const Tensor sum = args.in[0] + dropped(args.in[1], args.in.back(), attrs, args.node.where);
  std::vector<Tensor> in{sum};
  for (size_t i = 0; i < size_t{attrs.norm.has_weight} + attrs.norm.has_bias; ++i) in.push_back(args.in[i + 2]);
  const auto norm = args.graph.add(kLayerNorm, in, attrs.norm, args.node.where);
  return {sum, norm[0], norm[1], norm[2]};
}

// A row of x and f has been read when its sum is written, and its sum when its y is.
bool residual_norm_may_overwrite(const Node&, int output, int input) { return output < 2 && input < 2; }

// dx and df are written element by element as dy, sum and dsum are read for the last time.
bool grad_may_overwrite(const Node& node, int output, int input) {
  const auto& attrs = node.attrs.as<ResidualNormAttrs>();
  const bool is_df = attrs.probability > 0 && output == static_cast<int>(node.out.size()) - 1;
  return (output == 0 || is_df) && (input < 2 || (attrs.dsum && input == attrs.dsum_input()));
}

// The sum's gradient from elsewhere and the gradient towards f have operands and results of their own.
StorageRule residual_norm_grad_storage(const Node& node) {
  const auto& attrs = node.attrs.as<ResidualNormAttrs>();
  StorageRule rule{.in = std::vector<Storage>(node.in.size(), Storage::kF32),
                   .out = std::vector<Storage>(node.out.size(), Storage::kF32)};
  rule.in[0] = rule.in[1] = rule.out[0] = Storage::kReduced;
  if (attrs.dsum) rule.in[static_cast<size_t>(attrs.dsum_input())] = Storage::kReduced;
  if (attrs.probability > 0) rule.out.back() = Storage::kReduced;
  return rule;
}

// "residual_norm+dropout": addition and norm are in the name.
std::string residual_norm_label(const Node& node) {
  const bool drops = node.attrs.as<ResidualNormAttrs>().probability > 0;
  return std::string(node.op->name) + (drops ? "+dropout" : "");
}

}  // namespace

const OpDef kResidualNorm{.name = "residual_norm",
                          .infer = infer_residual_norm,
                          .gradient = residual_norm_gradient,
                          .decompose = decompose_residual_norm,
                          .may_overwrite = residual_norm_may_overwrite,
                          .storage = reduced<0b11, 0b11>,
                          .label = residual_norm_label};
const OpDef kResidualNormGrad{.name = "residual_norm_grad",
                              .infer = infer_residual_norm_grad,
                              .may_overwrite = grad_may_overwrite,
                              .storage = residual_norm_grad_storage,
                              .label = residual_norm_label};

ResidualNorm residual_norm(At x, Tensor f, Tensor weight, Tensor bias, Tensor random, const ResidualNormAttrs& attrs) {
  std::vector<Tensor> in{x.value, f};
  if (attrs.norm.has_weight) in.push_back(weight);
  if (attrs.norm.has_bias) in.push_back(bias);
  if (attrs.probability > 0) in.push_back(random);
  const auto out = graph_of(x)->add(kResidualNorm, in, attrs, x.where);
  return {out[0], out[1]};
}

}  // namespace linnet
