#include "onnx/operators.h"

#include <algorithm>

namespace linnet {
namespace {

std::string_view name_of(const OnnxOperatorRow& row) { return row.name; }

}  // namespace

const std::vector<OnnxOperatorRow>& onnx_operators() {
  static const std::vector<OnnxOperatorRow> rows = [] {
    std::vector<OnnxOperatorRow> all;
    for (const auto& part :
         {attention_operators, elementwise_operators, fused_operators, image_operators, index_operators,
          known_operators, loss_operators, matrix_operators, norm_operators, quantized_operators, recurrent_operators,
          reduce_operators, resize_operators, shape_operators})
      std::ranges::move(part(), std::back_inserter(all));
    std::ranges::sort(all, {}, name_of);
    return all;
  }();
  return rows;
}

const OnnxOperator* find_onnx_operator(const std::string& name) {
  const auto& rows = onnx_operators();
  const auto found = std::ranges::lower_bound(rows, std::string_view(name), {}, name_of);
  return found != rows.end() && found->name == name ? &found->run : nullptr;
}

}  // namespace linnet
