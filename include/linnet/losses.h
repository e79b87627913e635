// Whole losses, as a loss function returns them: a sum and the count that it is divided by. Rows that only pad a batch
// are left out. linnet/math.h and linnet/ops.h have losses as sums and by row.
//
//   Learner learner(net, [&](Tracer& trace) {
//     return squared_error_loss(trace, net(trace.input("x")), trace.input("y"));
//   }, loader.shapes());
#pragma once
#include "linnet/loss.h"
#include "linnet/math.h"
#include "linnet/ops.h"
#include "linnet/tracer.h"

namespace linnet {
// The mean of (prediction - target)^2 over all elements [rows, ...] of the samples. It and those below throw
// Error(kShape) unless both have the same shape: [N, 1] and [N] would be broadcast to [N, N].
Loss squared_error_loss(Tracer& trace, At prediction, Tensor target);
// The mean of |prediction - target|.
Loss absolute_error_loss(Tracer& trace, At prediction, Tensor target);
// The mean of huber(prediction, target, delta).
Loss huber_loss(Tracer& trace, At prediction, Tensor target, double delta = 1);
// The mean of the binary cross-entropies of logits and targets in [0, 1].
Loss binary_cross_entropy_loss(Tracer& trace, At logits, Tensor targets);
// The mean of the cross-entropies of rows whose target is not negative: logits [..., V], targets i32 [...].
Loss cross_entropy_loss(At logits, Tensor targets, double label_smoothing = 0);
}  // namespace linnet
