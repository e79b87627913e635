// Records one graph: while a Trace is alive on a thread, modules on that thread add their nodes to it.
#pragma once
#include <map>
#include "engine/ir/graph.h"
#include "engine/plan/store.h"

namespace linnet {
class Module;
class ParameterLayout;
struct AttentionContext;  // models/modules/attention_block.h
struct ParameterSpec;
namespace python {
class Recording;  // api/python/tree.h
}

struct TraceOptions {
  DType dtype = DType::kF32;  // of parameters and activations; f64 for the interpreter
  bool training = false;      // dropout is active; the graph gets an input "random" i32 [4]
  // Parameters are parts of the flat inputs `flat_name` and "constants"; without a layout each is an input.
  const ParameterLayout* layout = nullptr;
  std::string flat_name = state::kParameters;
};

class Trace {
 public:
  explicit Trace(const TraceOptions& options = {});
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  static Trace& current();  // Error(kUser) when none is alive
  static Trace* find();     // null when none is alive
  // Whether a trace is alive whose device has no kernels for a program's own ops and for recurrent layers.
  static bool must_decompose() { return find() && find()->decomposes; }

  // From now on parameters of modules outside of `model` are errors, even with a name that the model has. nullptr: any
  // parameter that the layout has by name and shape.
  void set_model(const Module* model) { model_ = model; }
  const Module* model() const { return model_; }

  Graph& graph() { return graph_; }
  Tensor input(std::string name, TensorType type) { return graph_.input(std::move(name), type); }
  Tensor number(double value, SourceLine where = SourceLine::current());  // of the trace's float type
  const TraceOptions& options() const { return options_; }
  Tensor parameter(const ParameterSpec& spec);
  bool is_frozen(const ParameterSpec& spec) const;
  // Sets the buffer's value after the run; parameter() gives it from here on. Error(kUser) outside of training.
  void update_buffer(const ParameterSpec& spec, Tensor next);
  // Adds the updates of buffers to the graph. Called once, at the end of a training graph.
  void finish_buffers();
  Tensor random();  // see ops/dropout: {seed low, seed high, step, micro-step}
  Graph finish() { return std::move(graph_); }

  // Looked up by layers and ops whose callers, the program's functions, do not know of it.
  const AttentionContext* decoding = nullptr;  // how layers of a generating decoder attend to themselves
  bool decomposes = false;                     // see must_decompose()
  python::Recording* recording = nullptr;      // of a model of Python

 private:
  Graph graph_;
  TraceOptions options_;
  std::map<std::string, Tensor> parts_;         // parameters cut from the flat inputs, by name
  std::map<std::string, Tensor> next_buffers_;  // updated buffers, by name
  const Module* model_ = nullptr;
  Trace* outer_;
};
}  // namespace linnet
