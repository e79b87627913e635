// The recording of one graph: while a Trace is alive on a thread, modules on that thread add their nodes to it.
#pragma once
#include <string>

#include "ir/graph.h"

namespace linnet {

struct TraceOptions {
  DType dtype = DType::kF32;  // of parameters and activations; f64 for the interpreter
  bool training = false;      // dropout is active; the graph gets an input "random" i32 [4]
};

class Trace {
 public:
  explicit Trace(const TraceOptions& options = {});
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  static Trace& current();  // internal error when none is alive

  Graph& graph() { return graph_; }
  const TraceOptions& options() const { return options_; }
  Tensor random();  // see ops/dropout: {seed low, seed high, step, micro-step}
  Graph finish() { return std::move(graph_); }

 private:
  Graph graph_;
  TraceOptions options_;
  Trace* outer_;
};

}  // namespace linnet
