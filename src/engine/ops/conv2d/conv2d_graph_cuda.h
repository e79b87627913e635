// Convolutions as graphs of cuDNN. Images and filters have their channels last.
#pragma once
#include <memory>
#include <string>
#include "engine/device/cuda/cudnn_graph.h"
#include "engine/ir/tensor_type.h"
#include "engine/kernels/conv/convolution.h"

namespace linnet {
struct ConvolutionProblem {
  ConvolutionPass kind = ConvolutionPass::kForward;
  Shape x, weight, y;  // of the forward convolution, as conv2d.h has them
  int64_t stride = 1, padding = 0, dilation = 1;
  DType dtype = DType::kF32;  // f32 or bf16: of all but the weights' gradient, which is f32
  bool tensor_cores = true;   // f32 by TF32; without: strict f32
  std::string text() const;   // everything it depends on, as a key
};

struct ConvolutionGraph {
  std::unique_ptr<CudnnGraph> graph;
  CudnnValue x = 0, weight = 0, y = 0;  // or their gradients; addresses are multiples of 16
};
ConvolutionGraph convolution_graph(const ConvolutionProblem& problem);
}  // namespace linnet
