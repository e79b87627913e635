#include "linnet/recurrent.h"
#include <cmath>
#include "api/cpp/helpers.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/recurrent/recurrent.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
constexpr int64_t kLstmGates = 4, kGruGates = 3;

Initializer uniform_of(int64_t hidden) { return uniform_init(1 / std::sqrt(static_cast<double>(hidden))); }

int64_t checked_recurrent(const std::string& name, int64_t in, int64_t hidden) {
  if (in < 1 || hidden < 1)
    fail_user("recurrent layer \"", name, "\" from ", in, " to ", hidden, " features: both must be at least 1");
  return hidden;
}

// One product projects all inputs; the loop runs along the first axis.
Tensor looped(At x, RecurrentKind kind, const Parameter& weight_ih, const Parameter& weight_hh,
    const Parameter& bias_ih, const Parameter& bias_hh, const std::string& path, RecurrentState* given) {
  const auto at = [&](Tensor value) { return At(value, x.where); };
  const Shape shape = x.value.shape();
  const int64_t in = weight_ih.spec().shape[1], hidden = weight_hh.spec().shape[1];
  if (shape.rank() != 3 || shape[2] != in)
    fail_shape(x, "recurrent layer of ", shape, ", expected [B, T, ", in, "] (in ", path, ")");
  const Tensor projected = at(matmul(at(permute(x, {1, 0, 2})), weight_ih, false, true)) + bias_ih;
  RecurrentState state = given ? *given : RecurrentState{};
  const Shape one{shape[0], hidden};
  if (!state.hidden.defined()) state.hidden = zeros(x.value, one);
  if (!state.cell.defined() && kind == RecurrentKind::kLstm) state.cell = zeros(x.value, one);
  const RecurrentResult found = recurrent(
      {projected, weight_hh, bias_hh, state.hidden, state.cell}, {.kind = kind}, Trace::must_decompose(), x.where);
  if (given) *given = {found.last_hidden, found.cell};
  return permute(at(found.hidden), {1, 0, 2});
}
}  // namespace

Lstm::Lstm(Module* parent, std::string name, int64_t in, int64_t hidden)
    : Module(parent, std::move(name)), weight_ih{this, "weight_ih_l0",
                                           {kLstmGates * checked_recurrent(path(), in, hidden), in},
                                           uniform_of(hidden)},
      weight_hh{this, "weight_hh_l0", {kLstmGates * hidden, hidden}, uniform_of(hidden)},
      bias_ih{this, "bias_ih_l0", {kLstmGates * hidden}, uniform_of(hidden)}, bias_hh{this, "bias_hh_l0",
                                                                                  {kLstmGates * hidden},
                                                                                  uniform_of(hidden)} {}

Tensor Lstm::operator()(At x, RecurrentState* state) {
  ModuleScope scope(*this);
  return looped(x, RecurrentKind::kLstm, weight_ih, weight_hh, bias_ih, bias_hh, path(), state);
}

Gru::Gru(Module* parent, std::string name, int64_t in, int64_t hidden)
    : Module(parent, std::move(name)), weight_ih{this, "weight_ih_l0",
                                           {kGruGates * checked_recurrent(path(), in, hidden), in}, uniform_of(hidden)},
      weight_hh{this, "weight_hh_l0", {kGruGates * hidden, hidden}, uniform_of(hidden)},
      bias_ih{this, "bias_ih_l0", {kGruGates * hidden}, uniform_of(hidden)}, bias_hh{this, "bias_hh_l0",
                                                                                 {kGruGates * hidden},
                                                                                 uniform_of(hidden)} {}

Tensor Gru::operator()(At x, RecurrentState* state) {
  ModuleScope scope(*this);
  return looped(x, RecurrentKind::kGru, weight_ih, weight_hh, bias_ih, bias_hh, path(), state);
}
}  // namespace linnet
