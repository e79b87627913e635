// A matmul whose second operand, a weight, lies in memory as panels (kernels/gemm/panels.h). Operands, attributes and
// result are those of the matmul it stands for, and so are the bits of the result. Made by the pass pack_weights alone;
// the CPU has its kernel.
#pragma once
#include "ops/matmul/matmul.h"

namespace linnet {

extern const OpDef kPanelMatmul;
KernelList panel_matmul_kernels();

}  // namespace linnet
