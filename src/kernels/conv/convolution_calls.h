// The kernels that convolution.cpp chooses among. Workspaces are as convolution_layout.h says: shared floats, then
// scratch floats for each thread.
#pragma once
#include "kernels/conv/convolution_layout.h"

namespace linnet {

// For all instruction sets. scratch: problem.scratch_floats() for each thread; packed: the weights, of every group.
struct TapCall {
  const convolution_layout::TapProblem& problem;
  const float *source, *packed;
  float *result, *scratch;
  const ConvolutionEpilogue& epilogue;
};
struct PackCall {
  const convolution_layout::TapProblem& problem;
  const float* weight;
  float* packed;
};

struct WeightCall {
  const convolution_layout::WeightProblem& problem;
  const void *x, *dy;  // floats; where the problem has pairs, Bfloat16
  float* sums;         // [partials, O, R, S, C / groups]
  float* scratch;      // problem.scratch_floats() for each thread
};

void convolution_by_taps(const convolution_layout::TapProblem& problem, const float* source, const float* weight,
                         float* result, float* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue);
// The same with weights that pack_taps() has packed: the workspace is the scratch floats alone.
void convolution_by_packed_taps(const convolution_layout::TapProblem& problem, const float* source, const float* packed,
                                float* result, float* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue);
// By Winograd's minimal filtering. scratch: problem.scratch_floats() for each thread.
void convolution_by_winograd(const convolution_layout::WinogradProblem& problem, const float* source,
                             const float* packed, float* result, float* scratch, ThreadPool& pool,
                             const ConvolutionEpilogue& epilogue);
void convolution_weights_by_winograd(const convolution_layout::WinogradWeightProblem& problem, const float* x,
                                     const float* dy, float* dweight, float* workspace, ThreadPool& pool);
void pack_winograd(const convolution_layout::WinogradProblem& problem, const float* weight, float* packed,
                   float* scratch, ThreadPool& pool);
void pack_taps(const convolution_layout::TapProblem& problem, const float* weight, float* packed, ThreadPool& pool);
// dweight = the sum of `sums` [partials, O, R, S, C / groups], in order.
void add_weight_partials(const convolution_layout::WeightProblem& problem, const float* sums, float* dweight,
                         ThreadPool& pool);
void convolution_weights_by_pixels(const convolution_layout::WeightProblem& problem, const float* x, const float* dy,
                                   float* dweight, float* workspace, ThreadPool& pool);

void depthwise_by_taps(const convolution_layout::TapProblem& problem, const float* source, const float* weight,
                       float* result, float* workspace, ThreadPool& pool, const ConvolutionEpilogue& epilogue);
// The epilogue alone, of results that are complete: y [pixels, filters].
void convolution_epilogue(const ConvolutionEpilogue& epilogue, int64_t pixels, int64_t filters, float* y,
                          ThreadPool& pool);
void depthwise_weights_by_pixels(const convolution_layout::WeightProblem& problem, const float* x, const float* dy,
                                 float* dweight, float* workspace, ThreadPool& pool);

}  // namespace linnet
