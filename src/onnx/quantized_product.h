// Products of whole numbers of 8 bits, as processors have them: the weight is known while the network is traced, the
// other operand is rounded by a scale and a zero point that are.
#pragma once
#include <optional>

#include "engine/kernels/quantized/convolution_int8.h"
#include "onnx/call.h"

namespace linnet {

// a W, or a W^T with `trans_b`, of floats that came from 8-bit numbers (TracedQuantization): a [..., K] with one scale,
// W [K, N] of the file with one scale, or one for each output channel. Empty: these two are not such operands.
std::optional<Tensor> quantized_product(OnnxCall& call, const TracedValue& a, const TracedValue& b, bool trans_b);

// The convolution of x [N, C, ...] with a weight [O, C, ...] of the file, over one or two axes and without groups, of
// such operands: [N, ..., O]. Zeros around the image are of floats. Empty as above.
std::optional<Tensor> quantized_convolution(OnnxCall& call, const TracedValue& x, const TracedValue& weight,
                                            std::vector<WindowAxis> axes);

}  // namespace linnet
