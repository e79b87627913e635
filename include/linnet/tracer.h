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

// Where a value is kept that the loss names.
struct OutputOptions {
  // Also in training steps, for Learner::output() after them; its memory is not used for anything else during the step.
  bool training = false;
};

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
  // f32 [rows]: 1 for each sample of the batch, 0 for rows behind Arrays::samples, which only pad it. Throws
  // Error(kUser) before an input with rows was declared.
  Tensor row_mask();
  // How many samples the batch has, a scalar f32: the count of a loss of one number for each row.
  Tensor sample_count();
  // A scalar that is the same in every run.
  Tensor number(double value, SourceLine where = SourceLine::current());
  // A tensor of this shape with the same number everywhere, or zeros and ones of an i32 type.
  Tensor full(const TensorType& type, double value, SourceLine where = SourceLine::current());
  // Keeps a value for Learner::predict() and Learner::output(), and for metrics. Throws Error(kUser) for a name that is
  // taken or has a control character, and for a tensor of another graph.
  void output(const std::string& name, At value, const OutputOptions& options = {});
  // Whether the graph trains: dropout is active, and buffers are updated.
  bool training() const;

 private:
  Trace* trace_;
  const InputTypes* types_;
};

// Records the loss of one batch shape. It is called several times while a learner is constructed, and not afterwards.
// It records the same each time, but for what depends on Tracer::training(), and declares the same inputs; a difference
// is an Error(kUser). It returns the sum of the losses of all samples or tokens, and how many those are, both scalars.
// With LearnerOptions::training = false it may return {} where only outputs are wanted.
using TracedLoss = std::function<Loss(Tracer&)>;
}  // namespace linnet
