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
  // `reference`: where another file has the reference.
  explicit PretrainedGolden(const std::string& name, const OpenOptions& options = {},
                            const std::string& reference = "");

  // Shape of a tensor of the reference file.
  const Shape& shape(const std::string& name) const { return reference_.at(name).type.shape; }
  // An integer tensor of the reference file.
  std::vector<int32_t> ids(const std::string& name) const;
  double number(const std::string& name) const { return reference_doubles(name).at(0); }

  using Output = std::function<Tensor(Trace&)>;
  // `output` against the tensor of that name where it is not NaN: fp32 executor 1e-5, float64 interpreter 1e-9, of the
  // norm. Inputs are the reference's tensors of the same names.
  void check_output(const std::string& name, const Output& output) const;
  // The mean loss, and its gradient towards each tensor of the folder (zero where the reference has none).
  void check_loss_and_gradients(const LossFunction& loss) const;
  // The same loss in fp16; and training with a loss scale of 2^16: steps whose gradient is made to overflow change
  // nothing but the scale, and the others train.
  void check_training_in_fp16(const LossFunction& loss) const;
  // Saved elsewhere, every tensor has the same name, type, shape and bits, and the other files are the same.
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
