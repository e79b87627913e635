// A model that the ranks of a tensor group compute together (engine/passes/tensor_parallel.h): its division, which goes
// into the ParameterLayout, and the losses of a rank, which are traced with that layout.
#pragma once
#include <memory>
#include "engine/passes/tensor_parallel.h"
#include "models/nn/loss.h"
#include "models/nn/module.h"

namespace linnet {

// `loss` is any of the model's training losses: how parameters are divided does not depend on the batch's shape. User
// error for a model that cannot be divided.
std::shared_ptr<const ModelDivision> divide_model(const Module& model, const LossFunction& loss,
                                                  const TensorRank& rank);

// The loss as the rank computes it, for a trace whose layout has the division, or that has no layout. Its value is
// whole. Without a division, the loss itself.
LossFunction loss_of_rank(LossFunction loss, std::shared_ptr<const ModelDivision> division);

}  // namespace linnet
