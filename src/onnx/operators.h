// The rows of the operator table, by kind; onnx_operators() in call.h joins them.
#pragma once
#include "onnx/call.h"

namespace linnet {

void add_elementwise_operators(std::vector<OnnxOperatorRow>& rows);
void add_shape_operators(std::vector<OnnxOperatorRow>& rows);
void add_index_operators(std::vector<OnnxOperatorRow>& rows);
void add_reduce_operators(std::vector<OnnxOperatorRow>& rows);
void add_matrix_operators(std::vector<OnnxOperatorRow>& rows);
void add_norm_operators(std::vector<OnnxOperatorRow>& rows);
void add_image_operators(std::vector<OnnxOperatorRow>& rows);
void add_resize_operators(std::vector<OnnxOperatorRow>& rows);
void add_attention_operators(std::vector<OnnxOperatorRow>& rows);
void add_loss_operators(std::vector<OnnxOperatorRow>& rows);
void add_recurrent_operators(std::vector<OnnxOperatorRow>& rows);
void add_fused_operators(std::vector<OnnxOperatorRow>& rows);
void add_known_operators(std::vector<OnnxOperatorRow>& rows);
void add_quantized_operators(std::vector<OnnxOperatorRow>& rows);
void add_qlinear_operators(std::vector<OnnxOperatorRow>& rows);

}  // namespace linnet
