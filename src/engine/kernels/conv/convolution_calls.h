// The kernels that convolution.cpp chooses among. Workspaces are as convolution_layout.h says: shared floats, then
// scratch floats for each thread.
#pragma once
#include "engine/kernels/conv/convolution_layout.h"
#include "engine/kernels/stored_floats.h"

namespace linnet {

// The forward pass or the input gradient. Sources are bf16 where the problem has pairs; results then may be.
template <class Problem>
struct ConvolveCall {
  const Problem& problem;
  StoredFloats source;
  const float* packed;  // the filters, of every group
  MutableStoredFloats result;
  float* scratch;  // problem.scratch_floats() for each thread
  const ConvolutionEpilogue& epilogue;
};
using TapCall = ConvolveCall<convolution_layout::TapProblem>;
using WinogradCall = ConvolveCall<convolution_layout::WinogradProblem>;

template <class Problem>
struct PackFiltersCall {
  const Problem& problem;
  const float* weight;
  float *packed, *scratch;  // scratch: problem.pack_floats() for each thread, of Winograd's problems
};
using PackCall = PackFiltersCall<convolution_layout::TapProblem>;
using WinogradPackCall = PackFiltersCall<convolution_layout::WinogradProblem>;

template <class Problem>
struct WeightGradientCall {
  const Problem& problem;
  StoredFloats x, dy;  // bf16 where the problem has pairs
  float *dweight, *sums;
  float* scratch;  // problem.scratch_floats() for each thread
};
// sums, where problem.has_sums(): [partials, O, R, S, C / groups], or [partials, R, S, C, O] where filters are lanes.
using WeightCall = WeightGradientCall<convolution_layout::WeightProblem>;
using WinogradWeightCall = WeightGradientCall<convolution_layout::WinogradWeightProblem>;  // [partials, spots, O, C]

// Of one instruction set, for products of floats or of bf16 pairs.
struct ConvolutionKernels {
  void (*pack_taps)(const PackCall&, ThreadPool&);
  void (*taps)(const TapCall&, ThreadPool&);
  void (*weights)(const WeightCall&, ThreadPool&);
  void (*pack_winograd)(const WinogradPackCall&, ThreadPool&);
  void (*winograd)(const WinogradCall&, ThreadPool&);
  void (*winograd_weights)(const WinogradWeightCall&, ThreadPool&);
};
const ConvolutionKernels* fp32_convolution_kernels();
const ConvolutionKernels* bf16_convolution_kernels();  // null where the processor has none

// Depthwise and grouped problems, in fp32. They pack the filters as [R * S * channels of a group, filters].
void pack_depthwise(const PackCall& call, ThreadPool& pool);
void depthwise_taps(const TapCall& call, ThreadPool& pool);
void depthwise_weights(const WeightCall& call, ThreadPool& pool);

// The epilogue alone, of results that are complete: y [pixels, filters].
void convolution_epilogue(const ConvolutionEpilogue& epilogue, int64_t pixels, int64_t filters, float* y,
                          ThreadPool& pool);

}  // namespace linnet
