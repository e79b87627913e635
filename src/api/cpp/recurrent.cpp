#include "linnet/recurrent.h"

#include <cmath>
#include <functional>
#include <vector>

#include "api/cpp/helpers.h"
#include "base/error.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "linnet/math.h"

namespace linnet {
namespace {

constexpr int64_t kLstmGates = 4, kGruGates = 3;

Initializer uniform_of(int64_t hidden) { return uniform_init(1 / std::sqrt(static_cast<double>(hidden))); }

int64_t checked_recurrent(const std::string& name, int64_t in, int64_t hidden) {
  if (in < 1 || hidden < 1)
    fail_user("recurrent layer \"" + name + "\" from " + std::to_string(in) + " to " + std::to_string(hidden) +
              " features: both must be at least 1");
  return hidden;
}

// One position: the gates' projection of its input [B, gates * hidden], and of the state before it.
using Position = std::function<void(Tensor input, RecurrentState& state)>;

// The projections of all inputs are one product; positions follow each other along the first axis, so that each is read
// where it lies.
Tensor unrolled(At x, const Parameter& weight, const Parameter& bias, int64_t hidden, bool has_cell,
                const std::string& path, RecurrentState* given, const Position& step) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Shape shape = x.value.shape();
  if (shape.rank() != 3 || shape[2] != weight.spec().shape[1])
    throw Error(ErrorKind::kShape, x.where.text() + ": recurrent layer of " + shape.text() + ", expected [B, T, " +
                                       std::to_string(weight.spec().shape[1]) + "] (in " + path + ")");
  const Tensor projected = at(matmul(at(permute(x, {1, 0, 2})), weight, false, true)) + bias;
  const std::vector<Tensor> inputs = split_evenly(at(projected), 0, static_cast<int>(shape[1]));
  RecurrentState state = given ? *given : RecurrentState{};
  const Shape one{shape[0], hidden};
  if (!state.hidden.defined()) state.hidden = zeros(x.value, one);
  if (!state.cell.defined() && has_cell) state.cell = zeros(x.value, one);
  std::vector<Tensor> outputs;
  for (const Tensor& input : inputs) {
    step(reshape(at(input), {shape[0], input.dim(2)}), state);
    outputs.push_back(reshape(at(state.hidden), {1, shape[0], hidden}));
  }
  if (given) *given = state;
  return permute(at(concat(outputs, 0, x.where)), {1, 0, 2});
}

}  // namespace

Lstm::Lstm(Module* parent, std::string name, int64_t in, int64_t hidden)
    : Module(parent, std::move(name)),
      weight_ih{this, "weight_ih_l0", {kLstmGates * checked_recurrent(path(), in, hidden), in}, uniform_of(hidden)},
      weight_hh{this, "weight_hh_l0", {kLstmGates * hidden, hidden}, uniform_of(hidden)},
      bias_ih{this, "bias_ih_l0", {kLstmGates * hidden}, uniform_of(hidden)},
      bias_hh{this, "bias_hh_l0", {kLstmGates * hidden}, uniform_of(hidden)} {}

Tensor Lstm::operator()(At x, RecurrentState* state) {
  ModuleScope scope(*this);
  const auto step = [&](Tensor input, RecurrentState& now) {
    const Tensor gates = input + (matmul(now.hidden, weight_hh, false, true) + bias_hh);
    const std::vector<Tensor> parts = split_evenly(gates, 1, kLstmGates);
    now.cell = sigmoid(parts[1]) * now.cell + sigmoid(parts[0]) * tanh(parts[2]);
    now.hidden = sigmoid(parts[3]) * tanh(now.cell);
  };
  return unrolled(x, weight_ih, bias_ih, weight_hh.spec().shape[1], true, path(), state, step);
}

Gru::Gru(Module* parent, std::string name, int64_t in, int64_t hidden)
    : Module(parent, std::move(name)),
      weight_ih{this, "weight_ih_l0", {kGruGates * checked_recurrent(path(), in, hidden), in}, uniform_of(hidden)},
      weight_hh{this, "weight_hh_l0", {kGruGates * hidden, hidden}, uniform_of(hidden)},
      bias_ih{this, "bias_ih_l0", {kGruGates * hidden}, uniform_of(hidden)},
      bias_hh{this, "bias_hh_l0", {kGruGates * hidden}, uniform_of(hidden)} {}

Tensor Gru::operator()(At x, RecurrentState* state) {
  ModuleScope scope(*this);
  const auto step = [&](Tensor input, RecurrentState& now) {
    const std::vector<Tensor> of_input = split_evenly(input, 1, kGruGates),
                              of_state =
                                  split_evenly(matmul(now.hidden, weight_hh, false, true) + bias_hh, 1, kGruGates);
    const Tensor reset = sigmoid(of_input[0] + of_state[0]), update = sigmoid(of_input[1] + of_state[1]);
    const Tensor fresh = tanh(of_input[2] + reset * of_state[2]);
    now.hidden = fresh + update * (now.hidden - fresh);
  };
  return unrolled(x, weight_ih, bias_ih, weight_hh.spec().shape[1], false, path(), state, step);
}

}  // namespace linnet
