#include "engine/ops/recurrent/recurrent.h"
#include <cmath>
#include "base/numbers.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/pointwise/pointwise.h"
#include "engine/ops/reduce/reduce.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_recurrent(const InferArgs& args) {
  const RecurrentKind kind = args.attrs.as<RecurrentAttrs>().kind;
  expect_inputs(args, kind == RecurrentKind::kLstm ? 6 : 5);
  const TensorType &projected = args.in[0], &weight = args.in[1], &state = args.in[4];
  const int64_t gates = gates_of(kind);
  expect(is_float(projected.dtype) && projected.shape.rank() == 3 && state.shape.rank() == 2, "got ", projected,
      " and a state ", state);
  const int64_t hidden = state.shape[1], width = gates * hidden;
  const auto given = [&](size_t i, const Shape& shape) {
    expect(args.in[i] == TensorType{projected.dtype, shape}, "operand ", i, " is ", args.in[i], ", expected ", shape);
  };
  given(1, {width, hidden});
  given(2, {ceil_div(hidden, kRecurrentUnits), 2, hidden, gates, kRecurrentUnits / 2});
  given(3, {width});
  given(4, {projected.shape[1], hidden});
  if (kind == RecurrentKind::kLstm) given(5, state.shape);
  expect(projected.shape[2] == width && projected.shape[0] > 0, "got ", projected, " and ", weight);
  const TensorType result{projected.dtype, {projected.shape[0], projected.shape[1], hidden}};
  if (!has_memory(kind)) return {result};
  return {result, projected, result};
}

// x [..., n, ...] -> [..., n / units, units, ...], zero-padded.
Tensor in_panels(Tensor x, int axis, int64_t units) {
  const Shape shape = x.shape();
  const int64_t size = shape[axis], whole = round_up(size, units);
  x = padded(x, axis, 0, whole - size);
  std::vector<int64_t> sizes;
  for (int i = 0; i < shape.rank(); ++i) {
    sizes.push_back(i == axis ? whole / units : x.dim(i));
    if (i == axis) sizes.push_back(units);
  }
  return reshape(x, Shape(sizes));
}

std::vector<Tensor> gates_along(Tensor x, int axis, RecurrentKind kind, GateOrder order) {
  const std::vector<Tensor> parts = split_evenly(x, axis, static_cast<int>(gates_of(kind)));
  return mapped(parts.size(), [&](size_t i) { return parts[gate_places(kind, order)[i]]; });
}
Tensor gates_joined(const std::vector<Tensor>& gates, int axis, RecurrentKind kind, GateOrder order) {
  std::vector<Tensor> parts(gates.size());
  for (size_t i = 0; i < gates.size(); ++i) parts[gate_places(kind, order)[i]] = gates[i];
  return concat(parts, axis);
}

// [gates H, H] packed for the loop: [H / 32, 2, H, gates, 16].
Tensor packed_forward(Tensor weight, const RecurrentAttrs& attrs) {
  const int64_t hidden = weight.dim(1), gates = gates_of(attrs.kind);
  if (gate_places(attrs.kind, attrs.order) != gate_places(attrs.kind, GateOrder::kUsual))
    weight = gates_joined(gates_along(weight, 0, attrs.kind, attrs.order), 0, attrs.kind, GateOrder::kUsual);
  const Tensor panels = in_panels(reshape(weight, {gates, hidden, hidden}), 1, kRecurrentUnits);
  const Shape halves{gates, panels.dim(1), 2, kRecurrentUnits / 2, hidden};
  return permute(reshape(panels, halves), {1, 2, 4, 0, 3});
}

// Packed for the gradient's loop: [H / 32, gates H, 32].
Tensor packed_backward(Tensor weight) { return permute(in_panels(weight, 1, kRecurrentUnits), {1, 0, 2}); }

Tensor at_time(Tensor x, int64_t time) { return reshape(slice(x, 0, time, 1), Shape(x.shape().sizes().subspan(1))); }

std::vector<Tensor> recurrent_gradient(const GradientArgs& args) {
  const auto& attrs = args.attrs<RecurrentAttrs>();
  const bool lstm = attrs.kind == RecurrentKind::kLstm, gru = attrs.kind == RecurrentKind::kGru;
  const Tensor h = args.out[0], hidden = args.in[4];
  const int64_t steps = h.dim(0), batch = h.dim(1), size = h.dim(2), width = args.in[0].dim(2);
  const Tensor slopes = args.out_grad[0].defined() ? args.out_grad[0] : fill(args.graph, h.type(), 0, args.node.where);
  const std::vector<Tensor> fixed{slopes, packed_backward(args.in[1]), hidden};
  std::vector<Tensor> operands = with_more(with_defined(fixed, {lstm ? args.in[5] : Tensor{}}), args.out);
  const bool cell_slopes = lstm && args.out_grad[2].defined();
  if (cell_slopes) operands.push_back(args.out_grad[2]);
  const std::vector<Tensor> found = args.graph.add(
      kRecurrentGrad, operands, RecurrentAttrs{attrs.kind, attrs.order, attrs.reverse, cell_slopes}, args.node.where);
  const Tensor sums = reshape(found[gru ? 1 : 0], {steps * batch, width}), one = reshape(hidden, {1, batch, size});
  Tensor before = one;  // the states that the steps were given
  if (steps > 1)
    before = attrs.reverse ? concat(slice(h, 0, 1, steps - 1), std::array{one}, 0)
                           : concat(one, std::array{slice(h, 0, 0, steps - 1)}, 0);
  std::vector<Tensor> gradients(args.in.size());
  gradients[0] = found[0];
  if (args.wanted[1]) gradients[1] = matmul(sums, reshape(before, {steps * batch, size}), true, false);
  if (args.wanted[3]) gradients[3] = reshape(sum_to(sums, {1, width}), {width});
  gradients[4] = found[gru ? 2 : 1];
  if (lstm) gradients[5] = found[2];
  return gradients;
}

std::vector<TensorType> infer_recurrent_grad(const InferArgs& args) {
  const auto& attrs = args.attrs.as<RecurrentAttrs>();
  const bool lstm = attrs.kind == RecurrentKind::kLstm, memory = has_memory(attrs.kind);
  expect_inputs(args, size_t{4} + lstm + 2 * memory + attrs.cell_slopes);
  const TensorType &h = args.in[0], &hidden = args.in[2];
  expect(h.shape.rank() == 3 && hidden.shape == Shape{h.shape[1], h.shape[2]}, "got ", h, " and ", hidden);
  const int64_t width = gates_of(attrs.kind) * h.shape[2];
  const Shape packed{ceil_div(h.shape[2], kRecurrentUnits), width, kRecurrentUnits};
  expect(args.in[1].shape == packed, "got ", args.in[1], ", expected ", packed);
  const TensorType projected{h.dtype, {h.shape[0], h.shape[1], width}};
  std::vector<TensorType> results{projected, hidden};
  if (attrs.kind == RecurrentKind::kGru) results.insert(results.begin(), projected);
  if (lstm) results.push_back(hidden);
  return results;
}

// A step of the unrolled layer: the new state and, if it keeps a memory, gates and memory.
struct UnrolledStep {
  Tensor hidden, gates, memory;
};

UnrolledStep unrolled_step(const RecurrentAttrs& attrs, Tensor projected, Tensor sums, Tensor hidden, Tensor cell) {
  if (attrs.kind == RecurrentKind::kTanh) return {tanh(projected + sums), {}, {}};
  if (attrs.kind == RecurrentKind::kRelu) return {relu(projected + sums), {}, {}};
  const auto gates = [&](Tensor x) { return gates_along(x, 1, attrs.kind, attrs.order); };
  const auto joined = [&](const std::vector<Tensor>& x) { return gates_joined(x, 1, attrs.kind, attrs.order); };
  const auto sigmoid = [](Tensor x) { return apply_scalar(Scalar::kSigmoid, x); };
  if (attrs.kind == RecurrentKind::kLstm) {
    const std::vector<Tensor> in = gates(projected + sums);
    const Tensor input = sigmoid(in[0]), forget = sigmoid(in[1]), fresh = tanh(in[2]), out = sigmoid(in[3]);
    const Tensor next = forget * cell + input * fresh;
    return {out * tanh(next), joined({input, forget, fresh, out}), next};
  }
  const std::vector<Tensor> in = gates(projected), of_state = gates(sums);
  const Tensor reset = sigmoid(in[0] + of_state[0]), update = sigmoid(in[1] + of_state[1]);
  const Tensor fresh = tanh(in[2] + reset * of_state[2]);
  return {fresh + update * (hidden - fresh), joined({reset, update, fresh}), of_state[2]};
}

// h of all steps, their gates and memories; the latter two may be undefined.
std::vector<Tensor> unrolled_steps(const RecurrentLayer& layer, const RecurrentAttrs& attrs) {
  const int64_t steps = layer.projected.dim(0);
  const RecurrentSizes sizes{.steps = steps, .reverse = attrs.reverse};
  Tensor hidden = layer.hidden, cell = layer.cell;
  std::vector<std::vector<Tensor>> all(has_memory(attrs.kind) ? 3 : 1, std::vector<Tensor>(static_cast<size_t>(steps)));
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = sizes.time(i);
    const Tensor sums = matmul(hidden, layer.weight, false, true) + layer.bias;
    const UnrolledStep step = unrolled_step(attrs, at_time(layer.projected, t), sums, hidden, cell);
    hidden = step.hidden, cell = step.memory;
    const std::array values{step.hidden, step.gates, step.memory};
    for (size_t j = 0; j < all.size(); ++j) all[j][t] = reshape(values[j], {1, values[j].dim(0), values[j].dim(1)});
  }
  return mapped(all, [](const std::vector<Tensor>& values) { return concat(values, 0); });
}

std::vector<Tensor> decompose_recurrent(const DecomposeArgs& args) {
  const auto& attrs = args.attrs<RecurrentAttrs>();
  const Tensor cell = attrs.kind == RecurrentKind::kLstm ? args.in[5] : Tensor{};
  return unrolled_steps({args.in[0], args.in[1], args.in[3], args.in[4], cell}, attrs);
}

double recurrent_flops(const FlopsArgs& args) {  // of the states
  const TensorType& h = args.node.op == &kRecurrent ? args.out[0] : args.in[0];
  return 2.0 * static_cast<double>(gates_of(args.attrs<RecurrentAttrs>().kind) * h.shape.elements()) *
         static_cast<double>(h.shape[2]);
}

RecurrentSizes sizes_of(const KernelArgs& args, const Shape& h) {
  const auto& attrs = args.attrs<RecurrentAttrs>();
  return {attrs.kind, h[0], h[1], h[2], attrs.reverse, gate_places(attrs.kind, attrs.order)};
}

// Operands of the gradient, whose indices depend on the kind.
struct GradientOperands {
  explicit GradientOperands(const KernelArgs& args) : in(args.in), out(args.out) {
    const auto& attrs = args.attrs<RecurrentAttrs>();
    const bool lstm = attrs.kind == RecurrentKind::kLstm, gru = attrs.kind == RecurrentKind::kGru;
    size_t next = 3;
    if (lstm) cell = in[next++].data;
    result = in[next++].data;
    if (has_memory(attrs.kind)) gates = in[next++].data, memory = in[next++].data;
    if (attrs.cell_slopes) cell_slopes = in[next].data;
    if (gru) sums = out[1].data;
    hidden_slopes = out[gru ? 2 : 1].data;
    if (lstm) first_cell_slopes = out[2].data;
  }
  std::span<const TensorView> in, out;
  void *cell = nullptr, *result, *gates = nullptr, *memory = nullptr, *cell_slopes = nullptr;
  void *sums = nullptr, *hidden_slopes, *first_cell_slopes = nullptr;
};

void run_recurrent(const KernelArgs& args) {
  const RecurrentSizes s = sizes_of(args, args.out[0].shape());
  const auto in = [&](size_t i) { return i < args.in.size() ? args.in[i].as<const float>() : nullptr; };
  const auto out = [&](size_t i) { return i < args.out.size() ? args.out[i].as<float>() : nullptr; };
  recurrent_forward(s,
      {.projected = in(0),
          .packed = in(2),
          .bias = in(3),
          .hidden = in(4),
          .cell = in(5),
          .result = out(0),
          .gates = out(1),
          .memory = out(2)},
      args.pool);
}

void run_recurrent_grad(const KernelArgs& args) {
  const GradientOperands o(args);
  const auto in = [](void* data) { return static_cast<const float*>(data); };
  const auto out = [](void* data) { return static_cast<float*>(data); };
  recurrent_backward(sizes_of(args, args.in[0].shape()),
      {.slopes = in(o.in[0].data),
          .cell_slopes = in(o.cell_slopes),
          .packed = in(o.in[1].data),
          .hidden = in(o.in[2].data),
          .cell = in(o.cell),
          .result = in(o.result),
          .gates = in(o.gates),
          .memory = in(o.memory),
          .projected = out(o.out[0].data),
          .sums = out(o.sums),
          .hidden_slopes = out(o.hidden_slopes),
          .first_cell_slopes = out(o.first_cell_slopes)},
      args.pool);
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

template <class T> void recurrent_reference(const KernelArgs& args, const RecurrentSizes& s) {
  const int64_t h = s.hidden, gates = s.gates(), units = kRecurrentUnits / 2;
  const T *const packed = args.in[2].as<T>(), *const bias = args.in[3].as<T>();
  for (int64_t i = 0; i < s.steps; ++i)
    for (int64_t j = 0; j < s.batch * h; ++j) {
      const int64_t row = j / h, unit = j % h, states = s.batch * h, t = s.time(i), last = s.time(i - 1);
      const T* const before = (i > 0 ? args.out[0].as<T>() + last * states : args.in[4].as<T>()) + row * h;
      const T* const projected = args.in[0].as<T>() + (t * s.batch + row) * gates * h + unit;
      double in[4], sum[4], value[4];
      for (int64_t g = 0; g < gates; ++g) {
        sum[g] = bias[s.place(g) + unit];
        const T* weight = packed + (unit / units * h * gates + g) * units + unit % units;
        for (int64_t k = 0; k < h; ++k) sum[g] += static_cast<double>(before[k]) * weight[k * gates * units];
        in[g] = projected[s.place(g)];
      }
      T& result = args.out[0].as<T>()[t * states + j];
      if (!has_memory(s.kind)) {
        const double x = in[0] + sum[0];
        result = static_cast<T>(s.kind == RecurrentKind::kTanh ? std::tanh(x) : x < 0 ? 0 : x);
        continue;
      }
      T& memory = args.out[2].as<T>()[t * states + j];
      for (int64_t g = 0; g < gates; ++g) value[g] = sigmoid_of(in[g] + sum[g]);
      if (s.kind == RecurrentKind::kLstm) {
        value[2] = std::tanh(in[2] + sum[2]);
        const double cell = (i > 0 ? args.out[2].as<T>() + last * states : args.in[5].as<T>())[j];
        memory = static_cast<T>(value[1] * cell + value[0] * value[2]);
        result = static_cast<T>(value[3] * std::tanh(static_cast<double>(memory)));
      } else {
        value[2] = std::tanh(in[2] + value[0] * sum[2]);
        memory = static_cast<T>(sum[2]);
        result = static_cast<T>(value[2] + value[1] * (before[unit] - value[2]));
      }
      for (int64_t g = 0; g < gates; ++g)
        args.out[1].as<T>()[(t * s.batch + row) * gates * h + s.place(g) + unit] = static_cast<T>(value[g]);
    }
}

void run_recurrent_reference(const KernelArgs& args) {
  const RecurrentSizes s = sizes_of(args, args.out[0].shape());
  for_float(args.out[0].type.dtype, [&]<class T>() { recurrent_reference<T>(args, s); });
}

template <class T> void recurrent_grad_reference(const KernelArgs& args, const RecurrentSizes& s) {
  const GradientOperands o(args);
  const auto at = [](const void* data) { return static_cast<const T*>(data); };
  const int64_t h = s.hidden, width = s.gates() * h, states = s.batch * h;
  const bool lstm = s.kind == RecurrentKind::kLstm, gru = s.kind == RecurrentKind::kGru;
  T* const projected = o.out[0].as<T>();
  T* const sums = gru ? static_cast<T*>(o.sums) : projected;
  std::vector<double> carry(states);  // to the memory of an LSTM, to h of a GRU
  for (int64_t i = s.steps - 1; i >= -1; --i)
    for (int64_t j = 0; j < states; ++j) {
      const int64_t row = j / h, unit = j % h;
      double& back = carry[j];
      double slope = gru ? back : 0;
      for (int64_t k = 0; k < width && i + 1 < s.steps; ++k)
        slope += static_cast<double>(sums[(s.time(i + 1) * s.batch + row) * width + k]) *
                 o.in[1].as<T>()[(unit / kRecurrentUnits * width + k) * kRecurrentUnits + unit % kRecurrentUnits];
      if (i < 0) {
        static_cast<T*>(o.hidden_slopes)[j] = static_cast<T>(slope);
        if (lstm) static_cast<T*>(o.first_cell_slopes)[j] = static_cast<T>(back);
        continue;
      }
      const int64_t t = s.time(i), now = t * states + j, last = s.time(i - 1) * states + j;
      const int64_t place = (t * s.batch + row) * width + unit;
      slope += o.in[0].as<T>()[now];
      const auto gate = [&](int64_t g) { return static_cast<double>(at(o.gates)[place + s.place(g)]); };
      const auto keep = [&](T* to, int64_t g, double x) { to[place + s.place(g)] = static_cast<T>(x); };
      const auto sigmoid = [](double x, double y) { return x * y * (1 - y); };
      const auto tanh = [](double x, double y) { return x * (1 - y * y); };
      if (lstm) {
        const double bent = std::tanh(static_cast<double>(at(o.memory)[now]));
        const double cell = back + tanh(slope * gate(3), bent) + (o.cell_slopes ? at(o.cell_slopes)[now] : T(0));
        keep(projected, 0, sigmoid(cell * gate(2), gate(0)));
        keep(projected, 1, sigmoid(cell * (i > 0 ? at(o.memory)[last] : at(o.cell)[j]), gate(1)));
        keep(projected, 2, tanh(cell * gate(0), gate(2)));
        keep(projected, 3, sigmoid(slope * bent, gate(3)));
        back = cell * gate(1);
      } else if (gru) {
        const double before = i > 0 ? at(o.result)[last] : o.in[2].as<T>()[j];
        const double fresh = tanh(slope * (1 - gate(1)), gate(2));
        for (T* to : {projected, sums}) {
          keep(to, 0, sigmoid(fresh * at(o.memory)[now], gate(0)));
          keep(to, 1, sigmoid(slope * (before - gate(2)), gate(1)));
          keep(to, 2, to == sums ? fresh * gate(0) : fresh);
        }
        back = slope * gate(1);
      } else {
        const double y = at(o.result)[now];
        keep(projected, 0, s.kind == RecurrentKind::kTanh ? tanh(slope, y) : y > 0 ? slope : 0);
      }
    }
}

void run_recurrent_grad_reference(const KernelArgs& args) {
  const RecurrentSizes s = sizes_of(args, args.in[0].shape());
  for_float(args.in[0].type.dtype, [&]<class T>() { recurrent_grad_reference<T>(args, s); });
}
}  // namespace

// A step reads `projected` before it writes the gates there.
const OpDef kRecurrent{.name = "recurrent",
    .infer = infer_recurrent,
    .gradient = recurrent_gradient,
    .decompose = decompose_recurrent,
    .may_overwrite = [](const Node&, int output, int input) { return output == 1 && input == 0; },
    .kernels = recurrent_kernels,
    .arranged_inputs = 0b100,
    .flops = recurrent_flops};
const OpDef kRecurrentGrad{.name = "recurrent_grad",
    .infer = infer_recurrent_grad,
    .kernels = recurrent_grad_kernels,
    .flops = recurrent_flops};

RecurrentResult recurrent(const RecurrentLayer& layer, const RecurrentAttrs& attrs, bool unrolled, SourceLine where) {
  std::vector<Tensor> found;
  if (unrolled) {
    found = unrolled_steps(layer, attrs);
  } else {
    std::vector<Tensor> operands{
        layer.projected, layer.weight, packed_forward(layer.weight, attrs), layer.bias, layer.hidden};
    if (attrs.kind == RecurrentKind::kLstm) operands.push_back(layer.cell);
    found = graph_of(At(layer.projected, where))->add(kRecurrent, operands, attrs, where);
  }
  const int64_t last = attrs.reverse ? 0 : layer.projected.dim(0) - 1;
  return {found[0], at_time(found[0], last), attrs.kind == RecurrentKind::kLstm ? at_time(found[2], last) : Tensor{}};
}

LINNET_KERNELS(recurrent, {"simd", run_recurrent, all_f32}, {"reference", run_recurrent_reference})
LINNET_KERNELS(recurrent_grad, {"simd", run_recurrent_grad, all_f32}, {"reference", run_recurrent_grad_reference})
}  // namespace linnet
