// What the files of operators include, and the rows of the operator table, by file; onnx_operators() in call.h joins
// them.
#pragma once
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"
#include "onnx/compose.h"

namespace linnet {

using compose::elementwise;
using compose::Number;

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
