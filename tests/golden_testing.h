// For tests: a model folder of tests/golden/pretrained and the float64 reference that transformers computed beside it.
#pragma once
#include <functional>
#include <string>
#include "engine/exec/interpreter.h"
#include "formats/safetensors.h"
#include "models/families/pretrained.h"
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {
class PretrainedGolden {
 public:
  // `reference`: the name of another file with the reference.
  explicit PretrainedGolden(
      const std::string& name, const OpenOptions& options = {}, const std::string& reference = "");

  const Shape& shape(const std::string& name) const { return reference_.at(name).type.shape; }
  std::vector<int32_t> ids(const std::string& name) const;
  double number(const std::string& name) const { return reference_doubles(name).at(0); }

  using Output = std::function<Tensor(Trace&)>;
  // Compares with the tensor of that name where it is not NaN, relative to its norm: fp32 executor 1e-5, float64
  // interpreter 1e-9. Inputs are the reference's tensors of the same names.
  void check_output(const std::string& name, const Output& output) const;
  // The mean loss and its gradient for each tensor of the folder (zero if the reference has none).
  void check_loss_and_gradients(const LossFunction& loss) const;
  // The same loss in fp16, and training with a loss scale of 2^16: steps with an overflowing gradient change only the
  // scale; others train.
  void check_training_in_fp16(const LossFunction& loss) const;
  // A saved copy has the same tensor names, types, shapes and bits, and the same other files.
  void check_saving() const;

  PretrainedModel model;
  ParameterLayout layout;
  std::vector<float> parameters;

 private:
  std::vector<double> reference_doubles(const std::string& name) const;
  NamedTensors inputs(const Graph& graph) const;

  SafetensorsFile reference_;
};
}  // namespace linnet
