// What a loss is written with: inputs, outputs and numbers of the graph that is recorded.
#pragma once
#include <functional>
#include <string>

#include "linnet/arrays.h"
#include "linnet/tensor.h"

namespace linnet {

class Module;
class Trace;
struct Loss;

// Given to a loss function while its graph is recorded; not to be kept.
class Tracer {
 public:
  // Made by the library.
  Tracer(Trace& trace, const InputTypes* types) : trace_(&trace), types_(types) {}
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  // An input of the batch, of the type that the batches of the learner have. Throws Error(kUser) when they have none of
  // that name.
  Tensor input(const std::string& name);
  // An input with its type, for a learner that is constructed without batch shapes. Throws Error(kShape) for a size
  // below 1 and for another type than the first time.
  Tensor input(const std::string& name, const TensorType& type);
  // A scalar that is the same in every run.
  Tensor number(double value, SourceLine where = SourceLine::current());
  // A tensor of this shape with the same number everywhere, or zeros and ones of an i32 type.
  Tensor full(const TensorType& type, double value, SourceLine where = SourceLine::current());
  // Keeps a value for Learner::predict() and Learner::output(), and for metrics. Throws Error(kUser) for a name that is
  // taken and for a tensor of another graph. Nothing happens in graphs that train.
  void output(const std::string& name, At value);
  // Whether the graph trains: dropout is active, and buffers are updated.
  bool training() const;

 private:
  Trace* trace_;
  const InputTypes* types_;
};

// Records the loss of one batch shape. It is called once for each graph that is made of it, and declares the same
// inputs each time; it returns the sum of the losses of all samples or tokens, and how many those are, both scalars.
using TracedLoss = std::function<Loss(Tracer&)>;

}  // namespace linnet
