#include "ops/matmul/panel_matmul.h"

namespace linnet {
namespace {

Node product_of(const Node& node) {
  Node product = node;
  product.op = &kMatmul;
  return product;
}

bool may_overwrite(const Node& node, int output, int input) {
  return kMatmul.may_overwrite(product_of(node), output, input);
}

std::string label(const Node& node) { return kMatmul.label(product_of(node)) + "+packed"; }

double flops(const FlopsArgs& args) { return kMatmul.flops({product_of(args.node), args.in, args.out}); }

}  // namespace

const OpDef kPanelMatmul{.name = "panel_matmul",
                         .infer = [](const InferArgs& args) { return kMatmul.infer(args); },
                         .read_attrs = read_attrs<MatmulAttrs>,
                         .may_overwrite = may_overwrite,
                         .label = label,
                         .flops = flops};

}  // namespace linnet
