#include <algorithm>
#include <cstring>
#include "engine/ops/matmul/dense_head.h"
#include "engine/ops/matmul/matmul.h"

namespace linnet {
namespace {

enum class Product { kNone, kForward, kWeightGradient, kInputGradient };

constexpr int64_t kMinInputs = 64;  // a few vectors
constexpr int64_t kMinRows = 4;     // the forward product takes four rows at a time

struct HeadProduct {
  Product product = Product::kNone;
  DenseHeadShape shape{};
};

HeadProduct head_product(const MatmulAttrs& attrs, const Shape& a, const Shape& b) {
  if (b.rank() != 2 || attrs.precision != Precision::kF32 || (attrs.trans_a && a.rank() != 2)) return {};
  if (attrs.activation > GemmActivation::kRelu || attrs.has_aux()) return {};
  if (attrs.independent_rows) return {};  // this kernel has no code for fewer rows than kMinRows
  const bool plain = !attrs.bias && !attrs.row_sums && attrs.is_sum();
  HeadProduct head;
  if (!attrs.trans_a && attrs.trans_b && !attrs.accumulate && a.elements() >= kMinRows * a[-1])  // x [m, k], w [n, k]
    head = {Product::kForward, {a.elements() / std::max<int64_t>(a[-1], 1), b[0], b[1]}};
  else if (attrs.trans_a && !attrs.trans_b && plain)  // dy [m, n], x [m, k]
    head = {Product::kWeightGradient, {a[0], a[1], b[1]}};
  else if (!attrs.trans_a && !attrs.trans_b && plain)  // dy [m, n], w [n, k]
    head = {Product::kInputGradient, {a.elements() / std::max<int64_t>(a[-1], 1), b[0], b[1]}};
  const auto [m, n, k] = head.shape;
  return m >= 1 && n >= 1 && n <= DenseHeadShape::kMaxOutputs && k >= kMinInputs ? head : HeadProduct{};
}

void run_dense_head_gradient(const DenseHeadShape& shape, bool of_weight, const KernelArgs& args) {
  const auto *a = args.in[0].as<const float>(), *b = args.in[1].as<const float>();
  const auto gradient = of_weight ? dense_head_weight_gradient : dense_head_input_gradient;
  gradient(shape, a, b, args.attrs<MatmulAttrs>().accumulate, args.out[0].as<float>(), args.pool);
}

}  // namespace

bool dense_head_supports(const KernelQuery& query) {
  return all_f32(query) &&
         head_product(query.attrs<MatmulAttrs>(), query.in[0].shape, query.in[1].shape).product != Product::kNone;
}

void run_dense_head(const KernelArgs& args) {
  const auto& attrs = args.attrs<MatmulAttrs>();
  const auto [product, shape] = head_product(attrs, args.in[0].shape(), args.in[1].shape());
  const auto *a = args.in[0].as<const float>(), *b = args.in[1].as<const float>();
  auto* out = args.out[0].as<float>();
  if (attrs.accumulate && args.in.back().data != out) std::memcpy(out, args.in.back().data, args.out[0].type.bytes());
  switch (product) {
    case Product::kForward:
      return dense_head_forward(shape, a, b, attrs.bias ? args.in[2].as<const float>() : nullptr,
                                attrs.activation == GemmActivation::kRelu, out, args.pool);
    case Product::kWeightGradient:
    case Product::kInputGradient: return run_dense_head_gradient(shape, product == Product::kWeightGradient, args);
    case Product::kNone: break;
  }
  fail_internal("a product that is no linear layer with few outputs");
}

}  // namespace linnet
