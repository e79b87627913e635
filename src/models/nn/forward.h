// Runs functions of a Trace in memory planned beforehand. For training see training/trainer/learner.h.
//
//   Forward forward(model, {[&](Trace& trace) {
//     const Tensor tokens = trace.input("tokens", {DType::kI32, {1, 8}});
//     trace.graph().output("logits", model(tokens));
//   }});
//   ... fill forward.parameters() ...
//   forward.set<int32_t>("tokens", ids);
//   std::span<const float> logits = forward.run().output("logits");
#pragma once
#include "base/thread_pool.h"
#include "engine/exec/executor.h"
#include "engine/passes/passes.h"
#include "engine/plan/plan.h"
#include "engine/plan/store.h"
#include "models/nn/parameter_layout.h"
#include "models/nn/trace.h"

namespace linnet {
class ParameterFile;

struct ForwardOptions {
  int threads = 0;  // 0: all the process may use
  // If any, use load() instead of parameters(). bf16: products are computed in bf16; int8: those of attention are.
  WeightQuantization quantization = {};
  std::string device = "cpu";
  // load() computes what depends on parameters alone (engine/passes/passes.h) and packs filters and weights of linear
  // layers (engine/plan/plan.h) once instead of in every run, with the same bits. load() must fill all parameters, and
  // parameters() must not be used. Processes do not share the pages of a mapped model with these weights.
  bool pack_weights = false;
};

class Forward {
 public:
  using Function = std::function<void(Trace&)>;  // declares inputs and names outputs

  // Traces and plans each function: one for every batch shape. They share parameters, inputs by name, and working
  // memory. Takes all memory; parameters are zero until they are filled.
  Forward(const Module& model, const std::vector<Function>& functions, int threads = 0)
      : Forward(model, functions, ForwardOptions{.threads = threads}) {}
  Forward(const Module& model, const std::vector<Function>& functions, const ForwardOptions& options);

  const ParameterLayout& layout() const { return layout_; }
  float* parameters() { return store_.as<float>(state::kParameters); }
  // See load_into() (models/nn/model_store.h).
  void load(const std::function<void(const ParameterTarget& parameters)>& load);
  // Loads a packed model, mapped if possible; false if it lacks a parameter. Do not write to parameters() afterwards.
  bool load(const ParameterFile& file);
  // Loads the folder if it is such a model, or else what `weights` reads.
  void load(const std::string& folder, const LoadWeights& weights);
  void check_weights() const;  // ParameterFile's, of a folder; to be called before outputs count

  // Fills the beginning of an input. User error for an unknown input or too many values.
  template <class T> void set(const std::string& input, std::span<const T> values) {
    std::copy(values.begin(), values.end(), static_cast<T*>(location(input, sizeof(T) * values.size())));
  }
  template <class T> void set(const std::string& input, const std::vector<T>& values) {
    set(input, std::span<const T>(values));
  }

  Forward& run(size_t function = 0);
  // An output of the function that ran last; valid until the next run.
  std::span<const float> output(const std::string& name) const { return elements<float>(name, DType::kF32); }
  std::span<const int32_t> whole_output(const std::string& name) const {  // of i32
    return elements<int32_t>(name, DType::kI32);
  }

  size_t memory_bytes() const { return store_.total_bytes(); }

  // The time of each node of the first function: the mean of `times` runs.
  struct NodeTime {
    std::string op, types;  // "conv2d", "f32[1, 3, 224, 224] f32[16, 3, 3, 3] -> f32[1, 16, 112, 112]"
    double seconds;
  };
  std::vector<NodeTime> time_nodes(int64_t times);

 private:
  template <class T> std::span<const T> elements(const std::string& output, DType dtype) const {
    const TensorView& view = dense_output(output, dtype);
    return {view.as<const T>(), static_cast<size_t>(view.elements())};
  }
  const TensorView& dense_output(const std::string& output, DType dtype) const;
  void* location(const std::string& input, size_t bytes);
  void bind_inputs(const std::vector<Graph>& graphs);
  std::vector<Graph> take_computed_once(std::vector<Graph>& graphs);
  void pack_loaded();

  ParameterLayout layout_;
  Store store_;
  std::vector<PackedFilters> filters_;
  PackedWeights weights_;
  std::map<std::string, size_t> inputs_;  // capacity in bytes
  std::vector<Plan> plans_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<Plan> once_plans_;  // run by load()
  std::vector<std::unique_ptr<Executor>> once_;
  std::shared_ptr<const ParameterFile> file_;  // its pages may be the parameters
  size_t last_ = 0;
  ThreadPool pool_;
};
}  // namespace linnet
