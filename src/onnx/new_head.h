// The last layer of a classifier that was read from an ONNX file, for other classes than the file's.
#pragma once
#include "onnx/file/model.h"

namespace linnet {

// How many classes the network tells apart: the outputs of the linear layer (Gemm, or MatMul with or without Add) that
// gives its only output. 0: it does not end in such a layer, whose weight nothing else reads.
int64_t head_classes(const OnnxModel& model);
// Gives that layer so many outputs: a weight drawn by its name, a bias of zeros. Of a network that has as many, or ends
// otherwise, nothing changes.
void replace_head(OnnxModel& model, int64_t classes);

}  // namespace linnet
