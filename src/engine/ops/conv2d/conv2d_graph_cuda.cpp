#include "engine/ops/conv2d/conv2d_graph_cuda.h"

namespace linnet {
namespace {
// [N, H, W, C] in memory, which cuDNN names N, C, H, W.
CudnnValue channels_last(CudnnGraph& graph, cudnnDataType_t type, const Shape& s) {
  return graph.tensor(type, {s[0], s[3], s[1], s[2]}, {s[1] * s[2] * s[3], 1, s[2] * s[3], s[3]});
}

// For bf16, cuDNN has kernels with fp32 sums only with an epilogue: an empty one.
void weight_gradient(
    CudnnGraph& graph, const CudnnGraph::Convolution& what, const ConvolutionProblem& p, const ConvolutionGraph& made) {
  if (p.dtype != DType::kBF16) return graph.convolution_weight_gradient(what, made.x, made.y, made.weight);
  const Shape& w = p.weight;
  const CudnnValue sums =
      graph.between(CUDNN_DATA_FLOAT, {w[0], w[3], w[1], w[2]}, {w[1] * w[2] * w[3], 1, w[2] * w[3], w[3]});
  graph.convolution_weight_gradient(what, made.x, made.y, sums);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, sums, made.weight);
}
}  // namespace

std::string ConvolutionProblem::text() const {
  return std::to_string(static_cast<int>(kind)) + " " + x.text() + " " + weight.text() + " " + y.text() + " " +
         std::to_string(stride) + " " + std::to_string(padding) + " " + std::to_string(dilation) + " " +
         dtype_name(dtype) + (tensor_cores ? "" : " strict");
}

ConvolutionGraph convolution_graph(const ConvolutionProblem& p) {
  using Kind = ConvolutionPass;
  const auto type = p.dtype == DType::kBF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  ConvolutionGraph made{std::make_unique<CudnnGraph>()};
  CudnnGraph& graph = *made.graph;
  graph.use_tensor_cores(p.tensor_cores);
  made.x = channels_last(graph, type, p.x);
  made.weight = channels_last(graph, p.kind == Kind::kWeightGradient ? CUDNN_DATA_FLOAT : type, p.weight);
  made.y = channels_last(graph, type, p.y);
  const CudnnGraph::Convolution what{.before = {p.padding, p.padding},
      .after = {p.padding, p.padding},
      .strides = {p.stride, p.stride},
      .dilations = {p.dilation, p.dilation}};
  switch (p.kind) {
    case Kind::kForward: graph.convolution(what, made.x, made.weight, made.y); break;
    case Kind::kInputGradient: graph.convolution_input_gradient(what, made.y, made.weight, made.x); break;
    case Kind::kWeightGradient: weight_gradient(graph, what, p, made); break;
  }
  return made;
}
}  // namespace linnet
