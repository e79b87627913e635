#include "onnx/operators.h"

#include <algorithm>

namespace linnet {

const std::vector<OnnxOperatorRow>& onnx_operators() {
  static const std::vector<OnnxOperatorRow> rows = [] {
    std::vector<OnnxOperatorRow> list;
    add_elementwise_operators(list);
    add_shape_operators(list);
    add_index_operators(list);
    add_reduce_operators(list);
    add_matrix_operators(list);
    add_norm_operators(list);
    add_image_operators(list);
    add_resize_operators(list);
    add_attention_operators(list);
    add_loss_operators(list);
    add_recurrent_operators(list);
    add_quantized_operators(list);
    add_qlinear_operators(list);
    add_fused_operators(list);
    add_known_operators(list);
    std::ranges::sort(list, {}, [](const OnnxOperatorRow& row) { return std::string_view(row.name); });
    return list;
  }();
  return rows;
}

OnnxOperator find_onnx_operator(const std::string& name) {
  const auto& rows = onnx_operators();
  const auto found = std::ranges::lower_bound(rows, std::string_view(name), {},
                                              [](const OnnxOperatorRow& row) { return std::string_view(row.name); });
  return found != rows.end() && found->name == name ? found->run : nullptr;
}

}  // namespace linnet
