// Recurrent layers over sequences, as one node with a loop inside (formulas: engine/kernels/recurrent/recurrent.h).
#pragma once
#include "engine/kernels/recurrent/recurrent.h"
#include "engine/ops/kernel.h"

namespace linnet {
struct RecurrentAttrs {
  RecurrentKind kind = RecurrentKind::kLstm;
  GateOrder order = GateOrder::kUsual;  // of projected, weight, bias and gates
  bool reverse = false;                 // from the last step to the first
  bool cell_slopes = false;             // of the gradient: its last operand is the gradient of an LSTM's memory
  void fields(FieldVisitor& visit) {
    visit("kind", kind), visit("order", order), visit("reverse", reverse), visit("cell_slopes", cell_slopes);
  }
};

// projected [T, B, gates H], weight [gates H, H], weight as packed for the kernel, bias [gates H], hidden [B, H] and,
// of an LSTM, cell [B, H] -> h [T, B, H]; of an LSTM and a GRU also the gates behind their functions [T, B, gates H],
// and the memory [T, B, H]
extern const OpDef kRecurrent;
// The gradient of h, weight as packed for this kernel, hidden, [cell,] h, [gates, memory, [the gradient of the memory]]
// -> the gradients of projected, [of a GRU's s,] of hidden, [of cell]
extern const OpDef kRecurrentGrad;
// CPU kernels. Not in the table of all ops, since few programs need them and they take room.
KernelList recurrent_kernels();
KernelList recurrent_grad_kernels();

struct RecurrentLayer {
  Tensor projected;     // [T, B, gates H]: the product of the inputs, and their biases
  Tensor weight, bias;  // [gates H, H], [gates H]: of the states
  Tensor hidden, cell;  // [B, H] before the first step; cell of an LSTM
};
struct RecurrentResult {
  Tensor hidden;             // [T, B, H]
  Tensor last_hidden, cell;  // [B, H] behind the last step; cell of an LSTM
};
// unrolled: as ops of each step, for a device that has no kernel for the loop.
RecurrentResult recurrent(const RecurrentLayer& layer, const RecurrentAttrs& attrs, bool unrolled = false,
    SourceLine where = SourceLine::current());
}  // namespace linnet
