// Where each parameter lies in the flat buffer: one fp32 array for the whole model, so that clipping, the optimizer and
// the moving average are one pass over memory. Gradients and moments share the offsets.
//
// Order: parameters with weight decay, then the others; constants (positions) have a buffer of their own.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "nn/module.h"

namespace linnet {

class ThreadPool;

struct ParameterPlace {
  ParameterSpec spec;
  int64_t offset;  // elements, in the parameters or in the constants
};

class ParameterLayout {
 public:
  explicit ParameterLayout(const Module& model);

  const std::vector<ParameterPlace>& trainable() const { return trainable_; }
  const std::vector<ParameterPlace>& constants() const { return constants_; }
  int64_t parameter_count() const { return parameter_count_; }
  int64_t decay_count() const { return decay_count_; }
  int64_t constant_count() const { return constant_count_; }

  void initialize_parameters(uint64_t seed, float* parameters, ThreadPool& pool) const;
  void initialize_constants(float* constants, ThreadPool& pool) const;

 private:
  std::vector<ParameterPlace> trainable_, constants_;
  int64_t parameter_count_ = 0, decay_count_ = 0, constant_count_ = 0;
};

}  // namespace linnet
