// The kernels that convolution.cpp chooses among. Workspaces are as convolution_layout.h says: shared floats, then
// scratch floats for each thread.
#pragma once
#include "engine/kernels/conv/convolution_layout.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

// For all instruction sets. scratch: problem.scratch_floats() for each thread; packed: the weights, of every group.
// result: floats; Bfloat16 where the kernel is told so.
struct TapCall {
  const convolution_layout::TapProblem& problem;
  const float *source, *packed;
  void* result;
  float* scratch;
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
  float* sums;         // [partials, O, R, S, C / groups]; [partials, R, S, C, O] where filters_are_lanes()
  float* scratch;      // problem.scratch_floats() for each thread
};

// By Winograd's minimal filtering. Sources and results of floats, or Bfloat16 where the problem has pairs.
struct WinogradCall {
  const convolution_layout::WinogradProblem& problem;
  const void* source;
  const float* packed;
  void* result;
  float* scratch;  // problem.scratch_floats() for each thread
  const ConvolutionEpilogue& epilogue;
};
struct WinogradPackCall {
  const convolution_layout::WinogradProblem& problem;
  const float* weight;
  float *packed, *scratch;  // scratch: problem.pack_floats() for each thread
};
struct WinogradWeightCall {
  const convolution_layout::WinogradWeightProblem& problem;
  const void *x, *dy;
  float *sums, *dweight;  // sums: [partials, spots, O, C]
  float* scratch;         // problem.scratch_floats() for each thread
};

// With weights that pack_taps() has packed. scratch: problem.scratch_floats() for each thread.
void convolution_by_packed_taps(const convolution_layout::TapProblem& problem, const float* source, const float* packed,
                                float* result, float* scratch, ThreadPool& pool, const ConvolutionEpilogue& epilogue);
// By Winograd's minimal filtering. scratch: problem.scratch_floats() for each thread.
void convolution_by_winograd(const convolution_layout::WinogradProblem& problem, const float* source,
                             const float* packed, float* result, float* scratch, ThreadPool& pool,
                             const ConvolutionEpilogue& epilogue);
void convolution_weights_by_winograd(const convolution_layout::WinogradWeightProblem& problem, const float* x,
                                     const float* dy, float* dweight, float* workspace, ThreadPool& pool);
void pack_winograd(const convolution_layout::WinogradProblem& problem, const float* weight, float* packed,
                   float* scratch, ThreadPool& pool);
// The same with pairs (convolution_bf16.h): problems with pair = 2, for processors that multiply in bf16.
void convolution_by_bf16_winograd(const convolution_layout::WinogradProblem& problem, const Bfloat16* source,
                                  const float* packed, MutableStoredFloats result, float* scratch, ThreadPool& pool,
                                  const ConvolutionEpilogue& epilogue);
void convolution_weights_by_bf16_winograd(const convolution_layout::WinogradWeightProblem& problem, const Bfloat16* x,
                                          const Bfloat16* dy, float* dweight, float* workspace, ThreadPool& pool);
void pack_bf16_winograd(const convolution_layout::WinogradProblem& problem, const float* weight, float* packed,
                        float* scratch, ThreadPool& pool);
void pack_taps(const convolution_layout::TapProblem& problem, const float* weight, float* packed, ThreadPool& pool);
// dweight = the sum of `sums` [partials, O, R, S, C / groups], or [partials, R, S, C, O] where filters_are_lanes(), in
// order; `sums` may be overwritten.
void add_weight_partials(const convolution_layout::WeightProblem& problem, float* sums, float* dweight,
                         ThreadPool& pool);
void convolution_weights_by_pixels(const convolution_layout::WeightProblem& problem, const float* x, const float* dy,
                                   float* dweight, float* workspace, ThreadPool& pool);

// packed: the weights as [R * S * channels of a group, filters]. Of depthwise and grouped problems.
void pack_depthwise(const ConvolutionSizes& sizes, const float* weight, float* packed);
void depthwise_by_packed_taps(const convolution_layout::TapProblem& problem, const float* source, const float* packed,
                              float* result, float* scratch, ThreadPool& pool, const ConvolutionEpilogue& epilogue);
// The epilogue alone, of results that are complete: y [pixels, filters].
void convolution_epilogue(const ConvolutionEpilogue& epilogue, int64_t pixels, int64_t filters, float* y,
                          ThreadPool& pool);
void depthwise_weights_by_pixels(const convolution_layout::WeightProblem& problem, const float* x, const float* dy,
                                 float* dweight, float* workspace, ThreadPool& pool);

}  // namespace linnet
