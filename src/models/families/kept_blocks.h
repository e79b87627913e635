// Matrices that a file of llama.cpp has in blocks, and that inference keeps so.
#pragma once
#include <map>
#include <string>
#include "models/families/tensor_match.h"

namespace linnet {

// By parameter, of a model whose weights are in `folder`, which may be a file. A matrix made of tensors in three or
// more formats is not among them.
std::map<std::string, PackedShape> parameters_in_blocks(const std::string& folder);

// The blocks of such a parameter, one row after another, in the place of its numbers. User error where a scale is no
// finite number.
void load_blocks(const TensorMatch& match, const ParameterSlot& slot, float* parameters);

}  // namespace linnet
