// Trains a network of an ONNX file with a loss of one's own: cross-entropy of one of its outputs. Prints the loss of
// each step.
//
//   train_onnx MODEL.onnx BATCH.safetensors OUTPUT STEPS RATE [adam|sgd]
//
// BATCH holds a tensor for each of the network's inputs, and "labels": a class for each row of OUTPUT's last axis.
#include <cstdio>
#include <cstdlib>
#include "base/error.h"
#include "base/thread_pool.h"
#include "engine/ops/cross_entropy/cross_entropy.h"
#include "engine/ops/movement/movement.h"
#include "formats/safetensors.h"
#include "onnx/network.h"
#include "training/trainer/learner.h"
using namespace linnet;

namespace {
DType taken_as(FileDType dtype) { return is_float(dtype) ? DType::kF32 : DType::kI32; }

void set_input(SingleShapeLearner& learner, const SafetensorsEntry& entry) {
  const int64_t count = entry.type.shape.elements();
  if (is_float(entry.dtype)) {
    std::vector<float> values(static_cast<size_t>(count));
    read_floats(entry.dtype, entry.data, count, values.data());
    return learner.set<float>(entry.name, values);
  }
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  read_integers(entry.dtype, entry.data, count, numbers.data());
  const std::vector<int32_t> ids(numbers.begin(), numbers.end());
  learner.set<int32_t>(entry.name, ids);
}

int run(int count, char** arguments) {
  if (count < 6) fail_user("usage: train_onnx MODEL.onnx BATCH.safetensors OUTPUT STEPS RATE [adam|sgd]");
  const std::unique_ptr<OnnxNetwork> network = load_onnx(arguments[1]);
  if (network->parameters().empty()) fail_user("the network has no parameters that can be trained");
  const SafetensorsFile batch(arguments[2], SafetensorsTypes::kAll);
  const std::string output = arguments[3];
  const bool sgd = count > 6 && std::string(arguments[6]) == "sgd";

  const auto loss = [&](Trace& trace) -> Loss {
    std::map<std::string, Tensor> inputs;
    for (const OnnxValueInfo& info : network->inputs()) {
      const SafetensorsEntry& entry = batch.at(info.name);
      inputs[info.name] = trace.input(info.name, {taken_as(entry.dtype), entry.type.shape});
    }
    const Tensor labels = trace.input("labels", {DType::kI32, {batch.at("labels").type.shape.elements()}});
    const Tensor logits = network->run(inputs).at(output);
    const Tensor rows = reshape(logits, {labels.dim(0), logits.dim(-1)});
    return {cross_entropy_sum(rows, labels), count_targets(labels, DType::kF32)};
  };
  TrainerOptions options;
  options.threads = available_threads();
  if (sgd) options.optimizer.kind = OptimizerAttrs::Kind::kSgd;
  SingleShapeLearner learner(*network, loss, options);
  for (const SafetensorsEntry& entry : batch.entries()) set_input(learner, entry);
  for (int step = 0; step < std::atoi(arguments[4]); ++step)
    std::printf("%.9g\n", learner.step(std::atof(arguments[5])).loss);
  return 0;
}
}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_code(error.kind());
  }
}
