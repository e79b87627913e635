// LSTM, GRU, RNN (https://onnx.ai/onnx/operators): one node for the usual functions, else unrolled over a known length.
#include <algorithm>
#include "base/text.h"
#include "engine/ops/recurrent/recurrent.h"
#include "models/nn/trace.h"
#include "onnx/compose.h"

namespace linnet {
namespace {
constexpr int64_t kMostSteps = 4096;
constexpr const char* kLoops =
    "with lengths of rows, peepholes, clipping, unusual functions or linear_before_reset = 0 unrolled: of at most 4096 "
    "steps";

Number limited(Number x, double clip) { return clip <= 0 ? x : min(max(x, -clip), clip); }

struct ActivationRow {
  const char* name;
  Number (*function)(Number x, double alpha, double beta);
  std::optional<double> alpha = {}, beta = {};  // defaults, if it has such a parameter
};
constexpr ActivationRow kActivations[] = {{"sigmoid", [](Number x, double, double) { return sigmoid(x); }},
    {"tanh", [](Number x, double, double) { return tanh(x); }},
    {"relu", [](Number x, double, double) { return relu(x); }},
    {"affine", [](Number x, double alpha, double beta) { return x * alpha + beta; }, 1, 0},
    {"scaledtanh", [](Number x, double alpha, double beta) { return tanh(x * beta) * alpha; }, 1, 1},
    {"softsign", [](Number x, double, double) { return x / (1 + abs(x)); }},
    {"hardsigmoid", [](Number x, double alpha, double beta) { return min(max(x * alpha + beta, 0), 1); }, .2, .5},
    {"leakyrelu", [](Number x, double alpha, double) { return select(0 > x, x * alpha, x); }, .01}};

// An activation function and its parameters.
struct StepFunction {
  const ActivationRow* row;
  double alpha, beta;
  Number operator()(Number x) const { return row->function(x, alpha, beta); }
};

// `count` per direction. activation_alpha and activation_beta have numbers for those functions that take one, in order.
std::vector<StepFunction> activations(const OnnxCall& call, std::vector<std::string> names, size_t directions) {
  const size_t count = names.size();
  for (size_t i = count; i < count * directions; ++i) names.push_back(names[i - count]);
  if (const std::vector<std::string> given = call.texts("activations"); !given.empty()) names = given;
  if (names.size() != count * directions) call.fail("another number of activations than it has");
  const std::vector<float> alphas = call.reals("activation_alpha"), betas = call.reals("activation_beta");
  size_t alpha = 0, beta = 0;
  std::vector<StepFunction> result;
  for (std::string name : names) {
    name = lower_ascii(name);
    const auto* row = std::ranges::find(kActivations, name, [](const ActivationRow& r) { return std::string(r.name); });
    if (row == std::end(kActivations)) call.fail("the activation \"", name, "\"");
    const auto next = [](const std::vector<float>& values, size_t& at, std::optional<double> otherwise) {
      return otherwise && at < values.size() ? static_cast<double>(values[at++]) : otherwise.value_or(0);
    };
    const double a = next(alphas, alpha, row->alpha);
    result.push_back({row, a, next(betas, beta, row->beta)});
  }
  return result;
}

// Weights of one direction, and what all its steps share.
struct Direction {
  Tensor projected;     // [T, B, gates * H]: x w^T + input biases
  Tensor recurrent;     // [gates * H, H]
  Tensor bias;          // [gates * H], of the recurrent products; undefined: none
  Tensor hidden, cell;  // [B, H]; `cell` of an LSTM
  Tensor peepholes;     // [3 * H] or undefined
  bool backward = false;
  const StepFunction* functions = nullptr;
};

// A step's result, from its slice of `projected` [B, gates * H].
struct State {
  Tensor hidden, cell;
};
using Step = std::function<State(const Direction& direction, Tensor projected, const State& before)>;

Tensor row_of(Tensor x, int64_t which) { return reshape(slice(x, 0, which, 1), Shape(x.shape().sizes().subspan(1))); }

std::vector<Tensor> parts_of(Tensor x, int64_t count) { return split_evenly(x, -1, static_cast<int>(count)); }

// Reads operands, runs all steps, and sets the results.
class Recurrence {
 public:
  // `names`: the default functions of a direction.
  Recurrence(OnnxCall& call, int64_t gates, bool has_cell, const std::vector<std::string>& names)
      : call_(call), gates_(gates), has_cell_(has_cell) {
    batch_first_ = call.flag("layout");
    x_ = call.tensor(0);
    if (x_.shape().rank() != 3) call.fail("of a tensor of shape ", x_.shape().text());
    if (batch_first_) x_ = compose::move_axes(x_, {1, 0, 2});
    steps_ = x_.dim(0), batch_ = x_.dim(1);
    if (steps_ < 1) call.fail("a sequence of no steps");
    const std::string direction = call.text("direction", "forward");
    if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
      call.fail("the direction \"", direction, "\"");
    directions_ = direction == "bidirectional" ? 2 : 1;
    reverse_ = direction == "reverse";
    const Shape recurrent = call.shape(2);
    if (recurrent.rank() != 3 || recurrent[0] != directions_) call.fail("weights of shape ", recurrent.text());
    size_ = recurrent[2];
    if (call.integer("hidden_size", size_) != size_) call.fail("hidden_size is not that of the weights");
    check_shapes(x_.dim(2));
    const auto is_whole = [&](double length) { return length == static_cast<double>(steps_); };
    if (call.has(4) && !(call.in(4).known && std::ranges::all_of(call.numbers(4), is_whole)))
      lengths_ = call.tensor(4, DType::kF32);
    functions_ = activations(call, names, static_cast<size_t>(directions_));
  }

  bool has_functions(const std::vector<std::string>& names) const {
    for (size_t i = 0; i < functions_.size(); ++i)
      if (functions_[i].row->name != names[i % names.size()]) return false;
    return true;
  }

  // Each direction as a node with a loop. False, doing nothing, for rows with lengths, clipped gates and peepholes.
  bool run_loop(RecurrentKind kind) {
    if (lengths_.defined() || call_.real("clip", 0) > 0 || (has_cell_ && call_.has(7))) return false;
    for (int64_t d = 0; d < directions_; ++d) {
      const Direction direction = direction_of(d, /*bias_apart=*/true);
      const Tensor bias = direction.bias.defined() ? direction.bias : call_.uniform(0, {gates_ * size_}, element());
      const RecurrentResult found =
          recurrent({direction.projected, direction.recurrent, bias, direction.hidden, direction.cell},
              {kind, GateOrder::kOnnx, direction.backward}, Trace::must_decompose());
      results_.push_back({found.hidden, {found.last_hidden, found.cell}});
    }
    set_results();
    return true;
  }

  // Runs each direction step by step. `bias_apart`: recurrent biases are added by the step, not to the inputs' biases.
  void run(const Step& step, bool bias_apart) {
    if (steps_ > kMostSteps) call_.fail("a length of ", steps_, "; 1 to ", kMostSteps, " can be unrolled");
    for (int64_t d = 0; d < directions_; ++d) {
      Direction direction = direction_of(d, bias_apart);
      direction.functions =
          functions_.data() + static_cast<size_t>(d) * (functions_.size() / static_cast<size_t>(directions_));
      results_.push_back(run_direction(direction, step));
    }
    set_results();
  }

 private:
  struct Result {
    Tensor hidden;  // [T, B, H]
    State last;
  };

  DType element() const { return x_.type().dtype; }

  void check_shapes(int64_t inputs) const {
    const Shape state = batch_first_ ? Shape{batch_, directions_, size_} : Shape{directions_, batch_, size_};
    const std::pair<const char*, Shape> expected[] = {{"W", {directions_, gates_ * size_, inputs}},
        {"R", {directions_, gates_ * size_, size_}}, {"B", {directions_, 2 * gates_ * size_}},
        {"sequence_lens", {batch_}}, {"initial_h", state}, {"initial_c", state}, {"P", {directions_, 3 * size_}}};
    for (size_t i = 0; i < std::size(expected); ++i) {
      const auto& [name, shape] = expected[i];
      if (call_.has(i + 1) && call_.shape(i + 1) != shape)
        call_.fail(name, " of shape ", call_.shape(i + 1).text(), ", expected ", shape.text());
    }
  }

  Direction direction_of(int64_t d, bool bias_apart) {
    Direction direction;
    direction.backward = reverse_ || d == 1;
    const Tensor rows = reshape(x_, {steps_ * batch_, x_.dim(2)});
    Tensor projected = matmul(rows, row_of(call_.tensor(1), d), false, true);
    if (call_.has(3)) {
      const std::vector<Tensor> biases = parts_of(row_of(call_.tensor(3), d), 2);
      projected = projected + (bias_apart ? biases[0] : biases[0] + biases[1]);
      if (bias_apart) direction.bias = biases[1];
    }
    direction.projected = reshape(projected, {steps_, batch_, gates_ * size_});
    direction.recurrent = row_of(call_.tensor(2), d);
    direction.hidden = initial(5, d);
    if (has_cell_) direction.cell = initial(6, d);
    if (has_cell_ && call_.has(7)) direction.peepholes = row_of(call_.tensor(7), d);
    return direction;
  }

  Tensor initial(size_t operand, int64_t d) {
    if (!call_.has(operand)) return call_.uniform(0, {batch_, size_}, element());
    Tensor all = call_.tensor(operand);
    if (batch_first_) all = compose::move_axes(all, {1, 0, 2});
    return row_of(all, d);
  }

  Result run_direction(const Direction& direction, const Step& step) {
    State state{direction.hidden, direction.cell};
    std::vector<Tensor> hidden(steps_);
    for (int64_t i = 0; i < steps_; ++i) {
      const int64_t time = direction.backward ? steps_ - 1 - i : i;
      State next = step(direction, row_of(direction.projected, time), state);
      Tensor result = next.hidden;
      if (lengths_.defined()) {  // an ended row keeps its state and outputs 0
        result = within(time, next.hidden, call_.uniform(0, {}, element()));
        next.hidden = within(time, next.hidden, state.hidden);
        if (has_cell_) next.cell = within(time, next.cell, state.cell);
      }
      hidden[time] = reshape(result, {1, batch_, size_});
      state = next;
    }
    return {compose::join(hidden, 0), state};
  }

  Tensor within(int64_t time, Tensor then, Tensor otherwise) {
    const Tensor lengths = cast(reshape(lengths_, {batch_, 1}), then.type().dtype);
    return elementwise(call_, {then, otherwise, lengths}, [=](Number then, Number otherwise, Number length) {
      return select(length > static_cast<double>(time), then, otherwise);
    });
  }

  void set_results() {
    if (call_.is_wanted(0)) {  // [T, directions, B, H] or [B, T, directions, H]
      const std::vector<Tensor> parts = mapped(results_, [&](const Result& result) {
        return batch_first_ ? reshape(compose::move_axes(result.hidden, {1, 0, 2}), {batch_, steps_, 1, size_})
                            : reshape(result.hidden, {steps_, 1, batch_, size_});
      });
      call_.set(0, compose::join(parts, batch_first_ ? 2 : 1), call_.element());
    }
    const auto set_last = [&](size_t i, Tensor State::*member) {  // [directions, B, H] or [B, directions, H]
      const Shape shape = batch_first_ ? Shape{batch_, 1, size_} : Shape{1, batch_, size_};
      const auto parts = mapped(results_, [&](const Result& result) { return reshape(result.last.*member, shape); });
      call_.set(i, compose::join(parts, batch_first_ ? 1 : 0), call_.element());
    };
    if (call_.is_wanted(1)) set_last(1, &State::hidden);
    if (has_cell_ && call_.is_wanted(2)) set_last(2, &State::cell);
  }

  OnnxCall& call_;
  int64_t gates_, steps_ = 0, batch_ = 0, size_ = 0, directions_ = 1;
  bool has_cell_, reverse_ = false, batch_first_ = false;
  Tensor x_, lengths_;
  std::vector<StepFunction> functions_;
  std::vector<Result> results_;  // by direction
};

// `rounded` rounds the recurrent product's input.
void lstm(OnnxCall& call, Tensor (*rounded)(OnnxCall& call, Tensor state)) {
  const std::vector<std::string> usual{"sigmoid", "tanh", "tanh"};
  Recurrence recurrence(call, 4, true, usual);
  const double clip = call.real("clip", 0);
  const bool coupled = call.flag("input_forget");
  if (!rounded && !coupled && recurrence.has_functions(usual) && recurrence.run_loop(RecurrentKind::kLstm)) return;
  const Step step = [&call, clip, coupled, rounded](const Direction& d, Tensor projected, const State& before) {
    const StepFunction &f = d.functions[0], &g = d.functions[1], &h = d.functions[2];
    const Tensor hidden_before = rounded ? rounded(call, before.hidden) : before.hidden;
    const std::vector<Tensor> gates = parts_of(projected + matmul(hidden_before, d.recurrent, false, true), 4);
    const Tensor none = call.uniform(0, {}, projected.type().dtype);
    const std::vector<Tensor> looks = d.peepholes.defined() ? parts_of(d.peepholes, 3) : std::vector(3, none);
    const Tensor cell = elementwise(call, {gates[0], gates[2], gates[3], before.cell, looks[0], looks[2]},
        [&](Number in, Number forget, Number fresh, Number before, Number in_look, Number forget_look) {
          in = f(limited(in + in_look * before, clip));
          forget = coupled ? 1 - in : f(limited(forget + forget_look * before, clip));
          return forget * before + in * g(limited(fresh, clip));
        });
    const Tensor hidden = elementwise(call, {gates[1], cell, looks[1]},
        [&](Number out, Number cell, Number look) { return f(limited(out + look * cell, clip)) * h(cell); });
    return State{hidden, cell};
  };
  recurrence.run(step, /*bias_apart=*/false);
}

// ONNX Runtime's: 8-bit weights [directions, inputs, 4 H] with a scale and zero point per direction or column. The
// whole input, and the state before each step, are rounded to 8 bits.
void dynamic_quantize_lstm(OnnxCall& call) {
  const auto weights = [&call](size_t i, size_t scale, size_t zero) {
    const Shape shape = call.shape(i);
    if (shape.rank() != 3) call.fail("weights of shape ", shape.text());
    const auto of_columns = [&](Tensor numbers) {  // [directions] or [directions, 4 H]
      const Shape given = numbers.shape();
      return reshape(numbers, {given[0], 1, given.rank() == 2 ? given[1] : 1});
    };
    const Scaling scaling{of_columns(call.tensor(scale, DType::kF32)), of_columns(call.tensor(zero, DType::kF32))};
    call.replace(i, compose::move_axes(dequantized(call, call.tensor(i, DType::kF32), scaling), {0, 2, 1}));
  };
  weights(1, 8, 9);
  weights(2, 10, 11);
  call.replace(0, dynamically_rounded(call, call.tensor(0)));
  lstm(call, dynamically_rounded);
}

void gru(OnnxCall& call) {
  const std::vector<std::string> usual{"sigmoid", "tanh"};
  Recurrence recurrence(call, 3, false, usual);
  const double clip = call.real("clip", 0);
  const bool reset_after = call.flag("linear_before_reset");
  if (reset_after && recurrence.has_functions(usual) && recurrence.run_loop(RecurrentKind::kGru)) return;
  const Step step = [&call, clip, reset_after](const Direction& d, Tensor projected, const State& before) {
    const StepFunction &f = d.functions[0], &g = d.functions[1];
    const int64_t size = d.recurrent.dim(1);
    const std::vector<Tensor> in = parts_of(projected, 3);
    const auto recurrent = [&](Tensor state, int64_t first, int64_t count) {
      const Tensor y = matmul(state, slice(d.recurrent, 0, first * size, count * size), false, true);
      return d.bias.defined() ? y + slice(d.bias, 0, first * size, count * size) : y;
    };
    const std::vector<Tensor> gates = parts_of(recurrent(before.hidden, 0, 2), 2);
    const auto gate = [&](Tensor a, Tensor b) {
      return elementwise(call, {a, b}, [&](Number a, Number b) { return f(limited(a + b, clip)); });
    };
    const Tensor update = gate(in[0], gates[0]), reset = gate(in[1], gates[1]);
    const Tensor late = reset_after ? recurrent(before.hidden, 2, 1) * reset : recurrent(before.hidden * reset, 2, 1);
    const Tensor hidden = elementwise(
        call, {in[2], late, update, before.hidden}, [&](Number in, Number late, Number update, Number before) {
          return (1 - update) * g(limited(in + late, clip)) + update * before;
        });
    return State{hidden, {}};
  };
  recurrence.run(step, /*bias_apart=*/true);
}

void rnn(OnnxCall& call) {
  Recurrence recurrence(call, 1, false, {"tanh"});
  const double clip = call.real("clip", 0);
  for (const auto& [name, kind] : {std::pair{"tanh", RecurrentKind::kTanh}, {"relu", RecurrentKind::kRelu}})
    if (recurrence.has_functions({name}) && recurrence.run_loop(kind)) return;
  const Step step = [&call, clip](const Direction& d, Tensor projected, const State& before) {
    const Tensor recurrent = matmul(before.hidden, d.recurrent, false, true);
    return State{elementwise(call, {projected, recurrent},
                     [&](Number a, Number b) { return d.functions[0](limited(a + b, clip)); }),
        {}};
  };
  recurrence.run(step, /*bias_apart=*/false);
}
}  // namespace

OnnxOperatorRows recurrent_operators() {
  return {
      {"GRU", gru, kLoops},
      {"LSTM", [](OnnxCall& call) { lstm(call, nullptr); }, kLoops},
      {"RNN", rnn, kLoops},
      {"com.microsoft.DynamicQuantizeLSTM", dynamic_quantize_lstm, "unrolled: of at most 4096 steps"},
  };
}
}  // namespace linnet
