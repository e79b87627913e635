#include <cmath>
#include "engine/ops/recurrent/recurrent.h"

namespace linnet {
namespace {

RecurrentSizes sizes_of(const KernelArgs& args, const Shape& h) {
  const auto& attrs = args.attrs<RecurrentAttrs>();
  return {attrs.kind, h[0], h[1], h[2], attrs.reverse, gate_places(attrs.kind, attrs.order)};
}

// Operands of the gradient, whose places depend on the kind.
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

template <class T>
void recurrent_reference(const KernelArgs& args, const RecurrentSizes& s) {
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

template <class T>
void recurrent_grad_reference(const KernelArgs& args, const RecurrentSizes& s) {
  const GradientOperands o(args);
  const auto at = [](const void* data) { return static_cast<const T*>(data); };
  const int64_t h = s.hidden, width = s.gates() * h, states = s.batch * h;
  const bool lstm = s.kind == RecurrentKind::kLstm, gru = s.kind == RecurrentKind::kGru;
  T* const projected = o.out[0].as<T>();
  T* const sums = gru ? static_cast<T*>(o.sums) : projected;
  std::vector<double> carry(static_cast<size_t>(states));  // to the memory of an LSTM, to h of a GRU
  for (int64_t i = s.steps - 1; i >= -1; --i)
    for (int64_t j = 0; j < states; ++j) {
      const int64_t row = j / h, unit = j % h;
      double& back = carry[static_cast<size_t>(j)];
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

LINNET_KERNELS(recurrent, {"simd", all_f32, nullptr, run_recurrent},
               {"reference", nullptr, nullptr, run_recurrent_reference})
LINNET_KERNELS(recurrent_grad, {"simd", all_f32, nullptr, run_recurrent_grad},
               {"reference", nullptr, nullptr, run_recurrent_grad_reference})

}  // namespace linnet
