// A loss as a graph on its own, for what decides how ranks share a model.
#pragma once
#include <vector>
#include "models/nn/loss.h"
#include "models/nn/trace.h"

namespace linnet {

// With each parameter as an input of its name.
struct WholeLoss {
  WholeLoss(const LossFunction& loss, DType dtype, bool training) {
    Trace trace({.dtype = dtype, .training = training});
    const Loss traced = loss(trace);
    results = {traced.sum.id, traced.count.id};
    graph = trace.finish();
  }
  Graph graph;
  std::vector<ValueId> results;  // sum and count
};

}  // namespace linnet
