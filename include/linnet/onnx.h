// ONNX files: networks of other programs as parts of models, and models for other programs.
//
//   struct Net : Module {
//     OnnxModule body{this, "body", "resnet18.onnx"};
//     Linear head{this, "head", 1000, 10};
//     Tensor operator()(Tensor images) { return head(relu(body(images))); }
//   };
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "linnet/arrays.h"
#include "linnet/learner.h"
#include "linnet/module.h"
#include "linnet/tracer.h"

namespace linnet {
// The network of an ONNX file, or of a folder that `linnet import` wrote. Weights are parameters that begin with the
// file's values and are trained as all others are; their names are those in the file. The sizes of the inputs are those
// that it is applied to, in the order of axes that the file has: images of PyTorch's files are [N, C, H, W], which
// permute(x, {0, 3, 1, 2}) makes of Linnet's [N, H, W, C].
class OnnxModule : public Module {
 public:
  // Throws Error(kUser) naming the file, and the operator and node that cannot be run.
  OnnxModule(Module* parent, std::string name, const std::string& path);
  // Takes its parts.
  OnnxModule(OnnxModule&& other) noexcept;
  // Frees it.
  ~OnnxModule() override;

  // The names of the inputs that are no parameters, in the order of the file.
  std::vector<std::string> inputs() const;
  // The names of the outputs, in the order of the file.
  std::vector<std::string> outputs() const;
  // Applies it: all outputs by name. Floats are f32 tensors, whole numbers i32. Throws Error(kUser) for inputs that are
  // missing or do not fit.
  std::map<std::string, Tensor> operator()(const std::map<std::string, Tensor>& inputs);
  // The same for a network of one input: its first output.
  Tensor operator()(Tensor input);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// How a model becomes an ONNX file.
struct OnnxExportOptions {
  // Axes that stay open, by input: their number and the name that the file gives them. Axes of one name have one size.
  // Inputs without any here have an open first axis, "batch".
  std::map<std::string, std::map<int, std::string>> open_axes = {};
  // 14 to 18.
  int64_t opset = 17;
};

// Writes what `outputs` computes with the weights that the learner's evaluation takes: it calls trace.input(name) for
// the inputs given and trace.output(name, value), and is called several times with different sizes of the open axes.
// Throws Error(kUser) naming the op that ONNX cannot have, or the size that does not follow from the open axes.
//
//   export_onnx(learner, {{"x", {DType::kF32, {1, 8}}}},
//               [&](Tracer& trace) { trace.output("y", net(trace.input("x"))); }, "net.onnx");
void export_onnx(const Learner& learner, const InputTypes& inputs, const std::function<void(Tracer&)>& outputs,
    const std::string& path, const OnnxExportOptions& options = {});
}  // namespace linnet
