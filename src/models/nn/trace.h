// The recording of one graph: while a Trace is alive on a thread, modules on that thread add their nodes to it.
#pragma once
#include <map>
#include <string>
#include "engine/ir/graph.h"
#include "engine/plan/state_names.h"

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
  // Parameters are parts of the flat inputs `flat_name` and "constants". Without a layout each is an input of its own.
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
  // Whether one is alive whose device has no kernels for a program's own ops, nor for recurrent layers.
  static bool must_decompose() { return find() && find()->decomposes; }

  // From now on parameters of modules outside of `model` are errors, also where the model has some of the same name.
  // nullptr: any parameter that the layout knows by name and shape.
  void set_model(const Module* model) { model_ = model; }
  const Module* model() const { return model_; }

  Graph& graph() { return graph_; }
  // A value that is given from outside, by name.
  Tensor input(std::string name, TensorType type) { return graph_.input(std::move(name), type); }
  // A scalar of the trace's float type.
  Tensor number(double value, SourceLine where = SourceLine::current());
  const TraceOptions& options() const { return options_; }
  // A parameter as a tensor of this graph.
  Tensor parameter(const ParameterSpec& spec);
  // Whether it stays as it is in training.
  bool is_frozen(const ParameterSpec& spec) const;
  // The value that a buffer has after the graph has run. Internal error outside training or for a second one.
  void update_buffer(const ParameterSpec& spec, Tensor next);
  // Makes the updates of buffers part of the graph. Whoever builds a training graph calls it once, at the end.
  void finish_buffers();
  Tensor random();  // see ops/dropout: {seed low, seed high, step, micro-step}
  Graph finish() { return std::move(graph_); }

  // What layers and ops look up in the trace, because the program's functions that call them do not know it.
  const AttentionContext* decoding = nullptr;  // how layers of a decoder that writes attend to themselves
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
