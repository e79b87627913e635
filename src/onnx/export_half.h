// Exported models that compute in 16 bits.
#pragma once
#include <vector>

#include "onnx/file/model.h"

namespace linnet {

// Weights and results become float16, inputs and outputs of the model stay float32. Powers, sums, roots and softmax,
// whose results may be beyond 65504 or need more digits, are computed in 32 bits.
void set_half(OnnxModel& model);

constexpr int64_t kOnnxPiece = 1 << 16;  // elements of a weight that are rewritten at once

// Elements [first, first + count) of an exported float tensor.
void read_piece(const OnnxTensor& tensor, int64_t first, int64_t count, std::vector<float>& values);

}  // namespace linnet
