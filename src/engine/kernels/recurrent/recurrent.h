// Recurrent layers over whole sequences: each step multiplies the previous state by the recurrent weight and finishes
// the gates in registers. With p[t] = projected[t] (of the input, with its biases) and s = h[t-1] weight^T + bias, by
// gates:
//
//   kLstm (Hochreiter & Schmidhuber 1997), gates i, f, g, o:  a = p + s,  i, f, o = sigmoid(a),  g = tanh(a),
//                                    c[t] = f c[t-1] + i g,  h[t] = o tanh(c[t])
//   kGru (Cho et al. 2014, the reset behind the product), gates r, z, n:  r, z = sigmoid(p + s),
//                                    n = tanh(p + r s),  h[t] = n + z (h[t-1] - n)
//   kTanh, kRelu (Elman 1990), one gate:  h[t] = tanh(p + s) or max(p + s, 0)
//
// projected and gates are [T, B, gates H], h and the memory [T, B, H], states [B, H]; all dense, fp32. `reverse` goes
// from the last step to the first. A result's bits depend on the instruction set alone. Nothing is allocated.
#pragma once
#include <array>
#include <cstdint>
#include "base/enum_names.h"

namespace linnet {
class ThreadPool;

enum class RecurrentKind : uint8_t { kLstm, kGru, kTanh, kRelu };
template <> inline constexpr std::array kEnumNames<RecurrentKind>{"lstm", "gru", "tanh", "relu"};
constexpr int64_t gates_of(RecurrentKind kind) {
  return kind == RecurrentKind::kLstm ? 4 : kind == RecurrentKind::kGru ? 3 : 1;
}
// Whether it keeps a memory beside h: c of an LSTM, s of a GRU's third gate, which its gradient reads.
constexpr bool has_memory(RecurrentKind kind) { return kind == RecurrentKind::kLstm || kind == RecurrentKind::kGru; }

struct RecurrentSizes {
  RecurrentKind kind = RecurrentKind::kLstm;
  int64_t steps = 0, batch = 0, hidden = 0;
  bool reverse = false;
  std::array<int64_t, 4> places = {0, 1, 2, 3};  // gate_places(): of the gates in all but a packed weight

  int64_t gates() const { return gates_of(kind); }
  int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
  int64_t place(int64_t gate) const { return places[static_cast<size_t>(gate)] * hidden; }
};

// The order of gates: as above, or ONNX's i, o, f, g and z, r, n.
enum class GateOrder : uint8_t { kUsual, kOnnx };
template <> inline constexpr std::array kEnumNames<GateOrder>{"usual", "onnx"};
constexpr std::array<int64_t, 4> gate_places(RecurrentKind kind, GateOrder order) {
  if (order == GateOrder::kUsual || !has_memory(kind)) return {0, 1, 2, 3};
  return kind == RecurrentKind::kLstm ? std::array<int64_t, 4>{0, 2, 3, 1} : std::array<int64_t, 4>{1, 0, 2, 3};
}

// Units computed together. Packed weights have zeros beyond `hidden`.
constexpr int64_t kRecurrentUnits = 32;

struct RecurrentForward {
  const float *projected, *packed;    // packed: the weight [gates H, H] as [H / 32, 2, H, gates, 16],
                                      // gates in the usual order
  const float *bias, *hidden, *cell;  // [gates H]; the states before the first step, cell of an LSTM
  float *result, *gates, *memory;     // gates, of those with a memory: after their functions; may be `projected`
};
void recurrent_forward(const RecurrentSizes& sizes, const RecurrentForward& call, ThreadPool& pool);

struct RecurrentBackward {
  const float *slopes, *cell_slopes;  // of h and, of an LSTM, of c; cell_slopes may be null: zeros
  const float* packed;                // the weight as [H / 32, gates H, 32]
  const float *hidden, *cell;         // the states before the first step
  const float *result, *gates, *memory;
  float* projected;  // the gradient of projected
  float* sums;       // of s [T, B, gates H], of a GRU; of others it is that of projected, and this is not used
  float *hidden_slopes, *first_cell_slopes;  // of the states before the first step; the latter of an LSTM, or null
};
void recurrent_backward(const RecurrentSizes& sizes, const RecurrentBackward& call, ThreadPool& pool);
}  // namespace linnet
