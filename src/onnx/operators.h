// The rows of the operator table, by file; onnx_operators() in call.h joins them.
#pragma once
#include "onnx/call.h"

namespace linnet {

using OnnxOperatorRows = std::vector<OnnxOperatorRow>;

OnnxOperatorRows attention_operators();
OnnxOperatorRows elementwise_operators();
OnnxOperatorRows image_operators();
OnnxOperatorRows index_operators();
OnnxOperatorRows known_operators();
OnnxOperatorRows matrix_operators();
OnnxOperatorRows norm_operators();
OnnxOperatorRows quantized_operators();
OnnxOperatorRows recurrent_operators();
OnnxOperatorRows reduce_operators();
OnnxOperatorRows resize_operators();
OnnxOperatorRows shape_operators();

}  // namespace linnet
