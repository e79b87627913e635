// Products of few rows with a weight that may lie in memory as bf16: it is read in place, once.
#pragma once
#include "engine/kernels/gemm/gemm.h"

namespace linnet {

// A W^T, computed as gemm() computes products of few rows (or any, with independent_rows) in fp32; args.b may be bf16,
// and the bits are those of a weight in fp32 with the same numbers. One product, without trans_a and with trans_b; all
// else is fp32. Needs no workspace.
void gemm_few_rows(const GemmArgs& args, ThreadPool& pool);

}  // namespace linnet
