#include <algorithm>
#include <atomic>
#include "base/numbers.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/recurrent/recurrent.h"

#define HWY_TARGET_INCLUDE "engine/kernels/recurrent/recurrent_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
// Rows of the state that share loads of weights: sums of four gates for each stay in registers.
constexpr int64_t kRows = kFloatLanes >= 16 ? 4 : 2;
constexpr int64_t kUnits = kRecurrentUnits / 2;  // of a panel of the forward pass, which has so many of each gate

// sums[p, r, j, :] = sum over k of rows[r, k] * panels[p, k, j, :], in order, for a vector of the last axis of kUnits,
// at which `panels` and `sums` begin. Panels are `apart` floats apart.
template <int64_t P, int64_t R, int64_t N> HWY_INLINE void Multiply(
    const float* rows, int64_t stride, int64_t depth, const float* panels, int64_t apart, float* HWY_RESTRICT sums) {
  Floats sum[P][R][N];
#pragma GCC unroll 16
  for (int64_t i = 0; i < P * R * N; ++i) sum[i / (R * N)][i / N % R][i % N] = hn::Zero(FloatTag());
  for (int64_t k = 0; k < depth; ++k, panels += N * kUnits)
#pragma GCC unroll 2
    for (int64_t p = 0; p < P; ++p) {
      Floats weights[N];
#pragma GCC unroll 4
      for (int64_t j = 0; j < N; ++j) weights[j] = LoadFloats(panels + p * apart + j * kUnits);
#pragma GCC unroll 4
      for (int64_t r = 0; r < R; ++r) {
        const Floats a = SetAll(rows[r * stride + k]);
#pragma GCC unroll 4
        for (int64_t j = 0; j < N; ++j) sum[p][r][j] = hn::MulAdd(a, weights[j], sum[p][r][j]);
      }
    }
#pragma GCC unroll 16
  for (int64_t i = 0; i < P * R * N; ++i) StoreFloats(sum[i / (R * N)][i / N % R][i % N], sums + i * kUnits);
}

// body(position) for the units from `unit` on, at most kUnits.
template <class Body> HWY_INLINE void ForUnits(const RecurrentSizes& s, int64_t unit, const Body& body) {
  ForRow(std::min(s.hidden, unit + kUnits), body, unit);
}

// Operands of step i: pointers to row 0 and unit 0.
struct ForwardStep {
  ForwardStep(const RecurrentSizes& s, const RecurrentForward& call, int64_t i) {
    const int64_t states = s.batch * s.hidden, width = states * s.gates(), t = s.time(i), last = s.time(i - 1);
    const bool keeps = has_memory(s.kind);
    before = i > 0 ? call.result + last * states : call.hidden;
    before_memory = i > 0 && keeps ? call.memory + last * states : call.cell;
    projected = call.projected + t * width, result = call.result + t * states;
    if (keeps) gates = call.gates + t * width, memory = call.memory + t * states;
  }
  const float *before, *before_memory, *projected;
  float *result, *gates = nullptr, *memory = nullptr;
};

// Finishes the sums [gates, kUnits] of a row.
HWY_NOINLINE void Finish(const RecurrentSizes& s, const RecurrentForward& call, const ForwardStep& step, int64_t row,
    int64_t unit, const float* all_sums) {
  const int64_t h = s.hidden, width = s.gates() * h;
  ForUnits(s, unit, [&](const auto& at) LINNET_LAMBDA {
    const auto sum = [&](int64_t gate) LINNET_LAMBDA {
      return hn::Add(LoadFloats(all_sums + gate * kUnits + at.first - unit), at.load(call.bias + s.place(gate)));
    };
    const auto in = [&](int64_t gate) LINNET_LAMBDA { return at.load(step.projected + row * width + s.place(gate)); };
    const auto keep = [&](int64_t gate, Floats x)
                          LINNET_LAMBDA { at.store(x, step.gates + row * width + s.place(gate)); };
    float* const result = step.result + row * h;
    const Floats first = hn::Add(in(0), sum(0));
    if (s.kind == RecurrentKind::kTanh) return at.store(Tanh(first), result);
    if (s.kind == RecurrentKind::kRelu) return at.store(Relu(first), result);
    const Floats input = Sigmoid(first), second = Sigmoid(hn::Add(in(1), sum(1)));
    const bool lstm = s.kind == RecurrentKind::kLstm;
    Floats kept = sum(2);  // of a GRU
    const Floats fresh = Tanh(hn::Add(in(2), lstm ? kept : hn::Mul(input, kept)));
    if (lstm) {
      const Floats out = Sigmoid(hn::Add(in(3), sum(3)));
      kept = hn::Add(hn::Mul(second, at.load(step.before_memory + row * h)), hn::Mul(input, fresh));
      keep(3, out);
      at.store(hn::Mul(out, Tanh(kept)), result);
    } else {
      at.store(hn::MulAdd(second, hn::Sub(at.load(step.before + row * h), fresh), fresh), result);
    }
    keep(0, input), keep(1, second), keep(2, fresh);
    at.store(kept, step.memory + row * h);
  });
}

// P panels of kUnits at once: a row alone keeps the multipliers busy with two.
template <int64_t P, int64_t R, int64_t N> void ForwardRows(
    const RecurrentSizes& s, const RecurrentForward& call, const ForwardStep& step, int64_t row, int64_t unit) {
  HWY_ALIGN float sums[P * R * N * kUnits];
  for (int64_t lane = 0; lane < kUnits; lane += kFloatLanes)
    Multiply<P, R, N>(step.before + row * s.hidden, s.hidden, s.hidden, call.packed + unit * s.hidden * N + lane,
        s.hidden * N * kUnits, sums + lane);
  for (int64_t i = 0; i < P * R; ++i) Finish(s, call, step, row + i % R, unit + i / R * kUnits, sums + i * N * kUnits);
}

template <int64_t N> void ForwardBlock(const RecurrentSizes& s, const RecurrentForward& call, const ForwardStep& step,
    int64_t row, int64_t end, int64_t unit) {
  for (; row + kRows <= end; row += kRows)
    for (const int64_t panel : {int64_t{0}, kUnits}) ForwardRows<1, kRows, N>(s, call, step, row, unit + panel);
  for (; row < end; ++row) ForwardRows<2, 1, N>(s, call, step, row, unit);
}

// Rows up to `end` of step i, for kRecurrentUnits units.
void Forward(const RecurrentSizes& s, const RecurrentForward& call, int64_t i, int64_t row, int64_t end, int64_t unit) {
  const ForwardStep step(s, call, i);
  if (s.gates() == 4) return ForwardBlock<4>(s, call, step, row, end, unit);
  if (s.gates() == 3) return ForwardBlock<3>(s, call, step, row, end, unit);
  ForwardBlock<1>(s, call, step, row, end, unit);
}

// Operands of the gradient of step i; step -1, for the initial states, has the product alone.
struct BackwardStep {
  BackwardStep(const RecurrentSizes& s, const RecurrentBackward& call, int64_t i) {
    const int64_t states = s.batch * s.hidden, width = states * s.gates();
    const bool gru = s.kind == RecurrentKind::kGru;
    carry = gru ? call.hidden_slopes : call.first_cell_slopes;
    has_after = i + 1 < s.steps;
    sums_after = (gru ? call.sums : call.projected) + (has_after ? s.time(i + 1) * width : 0);
    if (i < 0) return;
    const int64_t t = s.time(i), last = s.time(i - 1);
    slopes = call.slopes + t * states, projected = call.projected + t * width, result = call.result + t * states;
    before = i > 0 ? call.result + last * states : call.hidden;
    before_memory = i > 0 && has_memory(s.kind) ? call.memory + last * states : call.cell;
    if (call.cell_slopes) cell_slopes = call.cell_slopes + t * states;
    if (has_memory(s.kind)) gates = call.gates + t * width, memory = call.memory + t * states;
    if (gru) sums = call.sums + t * width;
  }
  bool has_after;
  const float* sums_after;  // the gradient of s at step i + 1, where there is one
  float* carry;             // what flows back beside the product: to c, of a GRU to h
  const float *slopes = nullptr, *cell_slopes = nullptr, *before, *before_memory, *result, *gates, *memory;
  float *projected, *sums;
};

// The gradients of a row's gates; products: of h [kUnits], from the following step.
HWY_NOINLINE void Differentiate(const RecurrentSizes& s, const RecurrentBackward& call, const BackwardStep& step,
    int64_t row, int64_t unit, const float* products) {
  const int64_t h = s.hidden, width = s.gates() * h;
  const bool lstm = s.kind == RecurrentKind::kLstm, gru = s.kind == RecurrentKind::kGru;
  const Floats one = SetAll(1.0f);
  // Times the derivative of the sigmoid or tanh that gave y.
  const auto sigmoid = [&](Floats x, Floats y) LINNET_LAMBDA { return hn::Mul(x, hn::Mul(y, hn::Sub(one, y))); };
  const auto tanh = [&](Floats x, Floats y) LINNET_LAMBDA { return hn::Mul(x, hn::NegMulAdd(y, y, one)); };
  ForUnits(s, unit, [&](const auto& at) LINNET_LAMBDA {
    const auto gate = [&](int64_t i) LINNET_LAMBDA { return at.load(step.gates + row * width + s.place(i)); };
    const auto keep = [&](int64_t i, Floats x)
                          LINNET_LAMBDA { at.store(x, step.projected + row * width + s.place(i)); };
    Floats slope = LoadFloats(products + at.first - unit);
    if (gru) slope = hn::Add(slope, at.load(step.carry + row * h));
    if (!step.slopes) return at.store(slope, call.hidden_slopes + row * h);
    slope = hn::Add(slope, at.load(step.slopes + row * h));
    if (!has_memory(s.kind)) {
      const Floats y = at.load(step.result + row * h);
      return keep(0,
          s.kind == RecurrentKind::kTanh ? tanh(slope, y) : hn::IfThenElseZero(hn::Gt(y, hn::Zero(FloatTag())), slope));
    }
    const Floats first = gate(0), second = gate(1), fresh = gate(2), memory = at.load(step.memory + row * h);
    if (lstm) {
      const Floats out = gate(3), bent = Tanh(memory);
      Floats cell = hn::Add(at.load(step.carry + row * h), tanh(hn::Mul(slope, out), bent));
      if (step.cell_slopes) cell = hn::Add(cell, at.load(step.cell_slopes + row * h));
      keep(0, sigmoid(hn::Mul(cell, fresh), first));
      keep(1, sigmoid(hn::Mul(cell, at.load(step.before_memory + row * h)), second));
      keep(2, tanh(hn::Mul(cell, first), fresh));
      keep(3, sigmoid(hn::Mul(slope, bent), out));
      return at.store(hn::Mul(cell, second), step.carry + row * h);
    }
    const Floats back = tanh(hn::Mul(slope, hn::Sub(one, second)), fresh);
    const Floats reset = sigmoid(hn::Mul(back, memory), first);
    const Floats update = sigmoid(hn::Mul(slope, hn::Sub(at.load(step.before + row * h), fresh)), second);
    keep(0, reset), keep(1, update), keep(2, back);
    float* const sums = step.sums + row * width;
    at.store(reset, sums + s.place(0)), at.store(update, sums + s.place(1));
    at.store(hn::Mul(back, first), sums + s.place(2));
    at.store(hn::Mul(slope, second), step.carry + row * h);
  });
}

template <int64_t R> void BackwardRows(
    const RecurrentSizes& s, const RecurrentBackward& call, const BackwardStep& step, int64_t row, int64_t unit) {
  const int64_t width = s.gates() * s.hidden;
  HWY_ALIGN float products[R * 2 * kUnits];
  for (int64_t lane = 0; lane < kUnits; lane += kFloatLanes)
    Multiply<1, R, 2>(step.sums_after + row * width, width, step.has_after ? width : 0,
        call.packed + unit * width + lane, 0, products + lane);
  for (int64_t i = 0; i < 2 * R; ++i)
    Differentiate(s, call, step, row + i / 2, unit + i % 2 * kUnits, products + i * kUnits);
}

void Backward(
    const RecurrentSizes& s, const RecurrentBackward& call, int64_t i, int64_t row, int64_t end, int64_t unit) {
  const BackwardStep step(s, call, i);
  for (; row + kRows <= end; row += kRows) BackwardRows<kRows>(s, call, step, row, unit);
  for (; row < end; ++row) BackwardRows<1>(s, call, step, row, unit);
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

// Calls body(first row, end row, first unit) for all rows and units of a step. Results do not depend on the division.
template <class Body> void for_parts(const RecurrentSizes& s, ThreadPool& pool, const Body& body) {
  constexpr int64_t kRowsOfPart = 24, kSerialProducts = 1 << 16, kMostParts = 64;
  const int64_t blocks = ceil_div(s.batch, kRowsOfPart), count = ceil_div(s.hidden, kRecurrentUnits) * blocks;
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % blocks * kRowsOfPart;
      body(row, std::min(row + kRowsOfPart, s.batch), i / blocks * kRecurrentUnits);
    }
  };
  if (s.batch * s.gates() * s.hidden * s.hidden <= kSerialProducts) return range(0, count);
  // A thread takes the part of its number, whose panels it has in cache, and then any remaining ones.
  const int64_t parts = std::min({count, static_cast<int64_t>(pool.size()), kMostParts});
  std::atomic<uint64_t> taken{0};
  pool.run(parts, [&](int64_t, int worker) {
    int64_t part = worker % parts;
    while (taken.fetch_or(uint64_t{1} << part) >> part & 1) part = (part + 1) % parts;
    range(count * part / parts, count * (part + 1) / parts);
  });
}
}  // namespace

void recurrent_forward(const RecurrentSizes& s, const RecurrentForward& call, ThreadPool& pool) {
  for (int64_t i = 0; i < s.steps; ++i)
    for_parts(s, pool, [&](int64_t row, int64_t end, int64_t unit) {
      HWY_DYNAMIC_DISPATCH(Forward)(s, call, i, row, end, unit);
    });
}

void recurrent_backward(const RecurrentSizes& s, const RecurrentBackward& call, ThreadPool& pool) {
  for (float* carry : {call.hidden_slopes, call.first_cell_slopes})
    if (carry) std::fill_n(carry, s.batch * s.hidden, 0.0f);
  for (int64_t i = s.steps - 1; i >= -1; --i)
    for_parts(s, pool, [&](int64_t row, int64_t end, int64_t unit) {
      HWY_DYNAMIC_DISPATCH(Backward)(s, call, i, row, end, unit);
    });
}
}  // namespace linnet
#endif
