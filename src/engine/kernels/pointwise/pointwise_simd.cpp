// Interprets the expression block by block: each step runs over a block that stays in L1, so that a thousand elements
// share the interpreter's cost and memory is read and written once.
#include <algorithm>
#include <cstring>
#include <utility>
#include "base/fail.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/pointwise/expression.h"

#define HWY_TARGET_INCLUDE "engine/kernels/pointwise/pointwise_simd.cpp"
#include <hwy/foreach_target.h>
#include "engine/kernels/vector_math-inl.h"

#ifndef LINNET_KERNELS_POINTWISE_TASK
#define LINNET_KERNELS_POINTWISE_TASK
namespace linnet {
namespace {
// An expression compiled to run on blocks: inputs and constants are read in place, every other instruction writes a
// register (a block of scratch memory), which is reused once its value is dead.
struct PointwiseSource {
  enum Kind : uint8_t { kOperand, kConstant, kRegister } kind = kOperand;
  uint8_t index = 0;  // of the operand, the constant or the register
};

struct PointwiseStep {
  Scalar function;  // kInput copies its argument
  uint8_t target;   // a register; the last step writes the output instead
  PointwiseSource argument[3];
};

struct PointwiseProgram {
  PointwiseStep steps[kMaxInstructions];
  float constants[kMaxInstructions];
  int step_count = 0, constant_count = 0, register_count = 0;
};

struct PointwiseCall {
  PointwiseProgram program;
  PointwiseOperand operands[kMaxOperands];
  int operand_count;
  int64_t n, block;
  MutableStoredFloats out;
  int64_t rows = 0, width = 0;  // of sums
  bool is_operand = false;      // sums of the operand's own elements

  // Elements of the block that begins at `first`. A block of sums has some whole [rows, width], or a part of one, so
  // that its sums do not depend on where a task begins.
  int64_t block_at(int64_t first) const {
    const int64_t size = rows * width;
    return size == 0 ? block : size <= block ? block - block % size : std::min(block, size - first % size);
  }
};

// Programs that need many blocks at once get shorter ones; 96 KiB either way.
constexpr int64_t kBlock = 1024, kShortBlock = 256, kScratch = 24 * kBlock;
}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
// What a step reads: consecutive elements, or with step 0 one vector repeatedly.
struct Stream {
  const float* data;
  int64_t step;
  HWY_INLINE Floats Next() { return LoadFloats(std::exchange(data, data + step)); }
};

template <class F> HWY_INLINE void Map1(Stream a, float* out, int64_t length, const F& f) {
  for (int64_t i = 0; i < length; i += kFloatLanes) StoreFloats(f(a.Next()), out + i);
}

template <class F> HWY_INLINE void Map2(Stream a, Stream b, float* out, int64_t length, const F& f) {
  for (int64_t i = 0; i < length; i += kFloatLanes) StoreFloats(f(a.Next(), b.Next()), out + i);
}

HWY_INLINE void Select(Stream a, Stream b, Stream c, float* out, int64_t length) {
  for (int64_t i = 0; i < length; i += kFloatLanes) {
    const auto is_zero = hn::Eq(a.Next(), SetAll(0));  // Ne is false for NaN on AVX
    const Floats x = b.Next(), y = c.Next();
    StoreFloats(hn::IfThenElse(is_zero, y, x), out + i);
  }
}

HWY_INLINE Floats PowPerLane(Floats x, Floats y) {
  HWY_ALIGN float base[kFloatLanes], exponent[kFloatLanes];
  hn::Store(x, FloatTag(), base);
  hn::Store(y, FloatTag(), exponent);
  for (int64_t i = 0; i < kFloatLanes; ++i) base[i] = std::pow(base[i], exponent[i]);
  return hn::Load(FloatTag(), base);
}

#define LINNET_UNARY(expression) return Map1(a, out, length, [](Floats x) LINNET_LAMBDA { return expression; })
#define LINNET_BINARY(expression) \
  return Map2(a, b, out, length, [](Floats x, Floats y) LINNET_LAMBDA { return expression; })

void RunUnary(Scalar function, Stream a, float* out, int64_t length) {
  switch (function) {
    case Scalar::kNeg: LINNET_UNARY(hn::Neg(x));
    case Scalar::kExp: LINNET_UNARY(Exp(x));
    case Scalar::kLog: LINNET_UNARY(Log(x));
    case Scalar::kSqrt: LINNET_UNARY(hn::Sqrt(x));
    case Scalar::kRsqrt: LINNET_UNARY(hn::Div(SetAll(1), hn::Sqrt(x)));
    case Scalar::kReciprocal: LINNET_UNARY(hn::Div(SetAll(1), x));
    case Scalar::kTanh: LINNET_UNARY(Tanh(x));
    case Scalar::kSigmoid: LINNET_UNARY(Sigmoid(x));
    case Scalar::kErf: LINNET_UNARY(Erf(x));
    case Scalar::kRelu: LINNET_UNARY(Relu(x));
    case Scalar::kSquare: LINNET_UNARY(hn::Mul(x, x));
    case Scalar::kAbs: LINNET_UNARY(hn::Abs(x));
    case Scalar::kSin: LINNET_UNARY(Sin(x));
    case Scalar::kCos: LINNET_UNARY(Cos(x));
    case Scalar::kFloor: LINNET_UNARY(hn::Floor(x));
    case Scalar::kRound: LINNET_UNARY(hn::Round(x));
    case Scalar::kAtan: LINNET_UNARY(PerLane(x, [](float v) HWY_ATTR { return std::atan(v); }));
    case Scalar::kToBf16: LINNET_UNARY(Widen(RoundToBf16(x)));
    default: LINNET_UNARY(x);  // a copy
  }
}

void RunBinary(Scalar function, Stream a, Stream b, float* out, int64_t length) {
  switch (function) {
    case Scalar::kAdd: LINNET_BINARY(hn::Add(x, y));
    case Scalar::kSub: LINNET_BINARY(hn::Sub(x, y));
    case Scalar::kMul: LINNET_BINARY(hn::Mul(x, y));
    case Scalar::kDiv: LINNET_BINARY(hn::Div(x, y));
    case Scalar::kMax: LINNET_BINARY(hn::IfThenElse(hn::Or(hn::Gt(x, y), hn::IsNaN(x)), x, y));
    case Scalar::kMin: LINNET_BINARY(hn::IfThenElse(hn::Or(hn::Lt(x, y), hn::IsNaN(x)), x, y));
    case Scalar::kEqual: LINNET_BINARY(hn::IfThenElseZero(hn::Eq(x, y), SetAll(1)));
    case Scalar::kPow: LINNET_BINARY(PowPerLane(x, y));
    default: LINNET_BINARY(hn::IfThenElseZero(hn::Gt(x, y), SetAll(1)));  // kGreater
  }
}

#undef LINNET_UNARY
#undef LINNET_BINARY

// The scratch memory of one task: registers, and operands that cannot be read in place.
class Task {
 public:
  // With `sums` [outer, width] results are added to them instead of being stored.
  Task(const PointwiseCall& call, int64_t begin, int64_t end, double* sums)
      : call_(call), program_(call.program), sums_(sums) {
    free_ = scratch_ + program_.register_count * call.block;
    for (int i = 0; i < program_.constant_count; ++i)
      hn::StoreU(SetAll(program_.constants[i]), FloatTag(), constants_[i]);
    for (int k = 0; k < call.operand_count; ++k) Prepare(k, std::min(call.block, end - begin));
    if (sums || call.out.is_bf16) result_ = Take(call.block);
  }

  void Run(int64_t begin, int64_t end) {
    const PointwiseOperand& x = call_.operands[0];
    if (call_.is_operand && call_.width > 1 && x.broadcast == Broadcast::kFull && !x.data.is_bf16)
      return AddUp(begin, end - begin, x.data.f32() + begin);
    for (int64_t i = begin, length = 0; i < end; i += length) {
      length = std::min(call_.block_at(i), end - i);
      const int64_t part = length % kFloatLanes, whole = length - part;
      if (call_.is_operand) {
        AddUp(i, length, Locate(0, i, length).data);
        continue;
      }
      if (whole > 0) RunBlock(i, whole);
      if (part > 0) RunEnd(i + whole, part, whole);
      if (sums_) AddUp(i, length, result_);  // a row's sum must not depend on its neighbors
    }
  }

 private:
  float* Take(int64_t count) { return std::exchange(free_, free_ + count); }

  // Once per task: widens a scalar to a vector, and repeats a short row vector so that any block finds a piece in it.
  void Prepare(int k, int64_t longest) {
    const PointwiseOperand& operand = call_.operands[k];
    if (operand.broadcast == Broadcast::kScalar) {
      hn::StoreU(SetAll(operand.data[0]), FloatTag(), scalars_[k]);
      streams_[k] = {scalars_[k], 0};
    } else if (operand.broadcast == Broadcast::kSuffix && operand.size <= call_.block) {
      buffers_[k] = Take(2 * call_.block);
      const int64_t length = round_up(longest, kFloatLanes) + operand.size;
      Repeat(operand, 0, length, buffers_[k]);
    } else if (operand.broadcast != Broadcast::kFull || operand.data.is_bf16) {
      buffers_[k] = Take(call_.block);
    }
  }

  // to[j] = operand[(first + j) % size]
  static void Repeat(const PointwiseOperand& operand, int64_t first, int64_t length, float* to) {
    for (int64_t j = 0; j < length;) {
      const int64_t from = (first + j) % operand.size, piece = std::min(operand.size - from, length - j);
      Widen(operand.data + from, piece, to + j);
      j += piece;
    }
  }

  static void Widen(StoredFloats from, int64_t count, float* to) {
    if (!from.is_bf16) return void(std::memcpy(to, from.data, static_cast<size_t>(count) * sizeof(float)));
    ForRow(count, [to, x = from.bf16()](const auto& at) LINNET_LAMBDA { at.store(at.load(x), to); });
  }

  // to[j] = operand[(first + j) / run]
  void Spread(const PointwiseOperand& operand, int64_t first, int64_t length, float* to) const {
    const int64_t run = call_.n / operand.size;
    int64_t row = first / run, left = run - first % run;
    for (float* end = to + length; to < end; ++row, left = run) {
      const int64_t piece = std::min<int64_t>(left, end - to);
      ForRow(piece, [value = SetAll(operand.data[row]), to](const auto& at) LINNET_LAMBDA { at.store(value, to); });
      to += piece;
    }
  }

  // to[j] = the repeated rows of the operand from element `first` on. Copies of a row are copied from the first one,
  // twice as many each time.
  void Interleave(const PointwiseOperand& operand, int64_t first, int64_t length, float* to) const {
    const int64_t row = operand.row, period = call_.n / operand.size * row;
    StoredFloats from = operand.data + first / period * row;
    int64_t left = period - first % period, element = first % row;
    for (float* end = to + length; to < end; from = from + row, left = period) {
      float* group = to + std::min<int64_t>(left, end - to);
      const auto widen = [&](int64_t at) {
        const int64_t piece = std::min<int64_t>(row - at, group - to);
        Widen(from + at, piece, to);
        to += piece;
      };
      if (element > 0) widen(std::exchange(element, 0));
      const float* rows = to;
      if (to < group) widen(0);
      while (to < group) {
        const int64_t piece = std::min<int64_t>(to - rows, group - to);
        std::copy_n(rows, piece, to);
        to += piece;
      }
    }
  }

  HWY_NOINLINE void AddUp(int64_t first, int64_t length, const float* x) {
    const int64_t rows = call_.rows, width = call_.width;
    if (width == 1) {
      for (int64_t sum = first / rows, left = rows - first % rows; length > 0; ++sum, left = rows) {
        const int64_t piece = std::min(left, length);
        sums_[sum] += SumInDouble(piece, x);
        x += piece, length -= piece;
      }
      return;
    }
    int64_t row = first / width % rows, column = first % width;
    double* to = sums_ + first / width / rows * width;
    for (; length > 0; column = 0) {
      const int64_t piece = std::min(width - column, length);
      const int64_t count = piece == width ? std::min(rows - row, length / width) : 1;
      AddInDouble(count, piece, x, to + column);
      x += count * piece, length -= count * piece;
      if ((row += count) == rows) row = 0, to += width;
    }
  }

  Stream Locate(int k, int64_t first, int64_t length) {
    const PointwiseOperand& operand = call_.operands[k];
    if (operand.broadcast == Broadcast::kScalar) return streams_[k];
    if (operand.broadcast == Broadcast::kFull) {
      if (!operand.data.is_bf16) return {operand.data.f32() + first, kFloatLanes};
      Widen(operand.data + first, length, buffers_[k]);
    } else if (operand.broadcast == Broadcast::kPrefix) {
      Spread(operand, first, length, buffers_[k]);
    } else if (operand.broadcast == Broadcast::kMiddle) {
      Interleave(operand, first, length, buffers_[k]);
    } else {
      const int64_t from = first % operand.size;
      if (operand.size <= call_.block) return {buffers_[k] + from, kFloatLanes};
      if (from + length <= operand.size && !operand.data.is_bf16) return {operand.data.f32() + from, kFloatLanes};
      Repeat(operand, first, length, buffers_[k]);
    }
    return {buffers_[k], kFloatLanes};
  }

  void RunBlock(int64_t first, int64_t length) {  // `length`: whole vectors
    for (int k = 0; k < call_.operand_count; ++k) streams_[k] = Locate(k, first, length);
    if (!result_) return RunSteps(length, call_.out.f32() + first);
    RunSteps(length, result_);
    if (sums_) return;
    Bfloat16* out = call_.out.bf16() + first;
    ForRow(length, [out, x = result_](const auto& at) LINNET_LAMBDA { at.store(at.load(x), out); });
  }

  // The last few elements of a block go through padded copies, so that steps need not handle partial vectors.
  void RunEnd(int64_t first, int64_t count, int64_t end) {
    float copies[kMaxOperands][kFloatLanes], result[kFloatLanes];
    for (int k = 0; k < call_.operand_count; ++k) {
      streams_[k] = Locate(k, first, count);
      if (call_.operands[k].broadcast == Broadcast::kScalar) continue;
      hn::StoreU(LoadPart(streams_[k].data, count), FloatTag(), copies[k]);
      streams_[k].data = copies[k];
    }
    RunSteps(kFloatLanes, result);
    if (sums_) return PartLanes{0, count}.store(LoadFloats(result), result_ + end);
    PartLanes{0, count}.store(LoadFloats(result), call_.out + first);
  }

  void RunSteps(int64_t length, float* out) {
    for (int s = 0; s < program_.step_count; ++s) {
      const PointwiseStep& step = program_.steps[s];
      float* target = s + 1 == program_.step_count ? out : scratch_ + step.target * call_.block;
      const Stream a = Argument(step.argument[0]);
      const int arity = scalar_arity(step.function);
      if (arity < 2) {
        RunUnary(step.function, a, target, length);
      } else if (arity == 2) {
        RunBinary(step.function, a, Argument(step.argument[1]), target, length);
      } else {
        Select(a, Argument(step.argument[1]), Argument(step.argument[2]), target, length);
      }
    }
  }

  Stream Argument(PointwiseSource source) const {
    switch (source.kind) {
      case PointwiseSource::kOperand: return streams_[source.index];
      case PointwiseSource::kConstant: return {constants_[source.index], 0};
      default: return {scratch_ + source.index * call_.block, kFloatLanes};
    }
  }

  const PointwiseCall& call_;
  const PointwiseProgram& program_;
  double* sums_;
  float* free_;
  float* result_ = nullptr;  // a block of it, where it is rounded on its way to memory, or summed
  Stream streams_[kMaxOperands];
  float* buffers_[kMaxOperands];
  alignas(64) float constants_[kMaxInstructions][kFloatLanes];
  float scalars_[kMaxOperands][kFloatLanes];
  alignas(64) float scratch_[kScratch];
};

void RunTask(const PointwiseCall& call, int64_t begin, int64_t end, double* sums) {
  Task(call, begin, end, sums).Run(begin, end);
}
}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linnet {
namespace {
HWY_EXPORT(RunTask);

// last_use[i] = the last instruction that reads instruction i, -1 if none does.
void find_last_uses(const Expression& expression, int* last_use) {
  const auto count = static_cast<int>(expression.code.size());
  std::fill(last_use, last_use + count, -1);
  for (int i = 0; i < count; ++i) {
    const Instruction& in = expression.code[i];
    const int16_t arguments[3] = {in.a, in.b, in.c};
    for (int k = 0; k < scalar_arity(in.function); ++k) last_use[arguments[k]] = i;
  }
}

class Registers {
 public:
  uint8_t take() {
    const auto slot = std::find(busy_, busy_ + kMaxInstructions, false);
    *slot = true;
    const auto index = static_cast<int>(slot - busy_);
    count_ = std::max(count_, index + 1);
    return static_cast<uint8_t>(index);
  }
  void give_back(uint8_t index) { busy_[index] = false; }
  int count() const { return count_; }

 private:
  bool busy_[kMaxInstructions] = {};
  int count_ = 0;
};

PointwiseProgram compile_pointwise(const Expression& expression) {  // checked
  PointwiseProgram program;
  PointwiseSource where[kMaxInstructions];
  int last_use[kMaxInstructions];
  Registers registers;
  find_last_uses(expression, last_use);
  const auto count = static_cast<int>(expression.code.size());
  for (int i = 0; i < count; ++i) {
    const Instruction& in = expression.code[i];
    const bool is_result = i + 1 == count;
    if (in.function == Scalar::kInput) {
      where[i] = {PointwiseSource::kOperand, static_cast<uint8_t>(in.a)};
    } else if (in.function == Scalar::kConstant) {
      where[i] = {PointwiseSource::kConstant, static_cast<uint8_t>(program.constant_count)};
      program.constants[program.constant_count++] = static_cast<float>(in.constant);
    } else if (is_result || last_use[i] >= 0) {  // a value nobody reads is not computed
      PointwiseStep& step = program.steps[program.step_count++];
      step.function = in.function;
      const int16_t arguments[3] = {in.a, in.b, in.c};
      for (int k = 0; k < scalar_arity(in.function); ++k) {
        const PointwiseSource source = step.argument[k] = where[arguments[k]];
        // Freed before the target is taken: a step may overwrite its own argument.
        if (source.kind == PointwiseSource::kRegister && last_use[arguments[k]] == i) registers.give_back(source.index);
      }
      if (!is_result) where[i] = {PointwiseSource::kRegister, step.target = registers.take()};
    }
    const bool is_leaf = in.function == Scalar::kInput || in.function == Scalar::kConstant;
    if (is_result && is_leaf) {
      PointwiseStep& copy = program.steps[program.step_count++];
      copy.function = Scalar::kInput;
      copy.argument[0] = where[i];
    }
  }
  program.register_count = registers.count();
  return program;
}

// Checks the sizes, and replaces trivial broadcasts by kFull or kScalar.
PointwiseOperand simplify(PointwiseOperand operand, int64_t n) {
  const bool fits =
      operand.broadcast == Broadcast::kFull ? operand.size == n
      : operand.broadcast == Broadcast::kScalar
          ? operand.size == 1
          : operand.size > 0 && n % operand.size == 0 && (operand.row == 0 || operand.size % operand.row == 0);
  if (!fits) fail_internal("a pointwise operand of ", operand.size, " elements cannot be broadcast to ", n);
  if (operand.size == 1) operand.broadcast = Broadcast::kScalar;
  if (operand.size == n && operand.broadcast != Broadcast::kScalar) operand.broadcast = Broadcast::kFull;
  return operand;
}

PointwiseCall call_of(int64_t n, const Expression& expression, std::span<const PointwiseOperand> operands,
    MutableStoredFloats out, bool is_sum) {
  check_expression(expression, static_cast<int>(operands.size()));
  PointwiseCall call;
  call.program = compile_pointwise(expression);
  call.operand_count = static_cast<int>(operands.size());
  int64_t slots = call.program.register_count + (is_sum || out.is_bf16 ? 1 : 0);
  for (size_t k = 0; k < operands.size(); ++k) {
    call.operands[k] = simplify(operands[k], n);
    if (call.operands[k].broadcast == Broadcast::kSuffix) slots += 2;
    if (call.operands[k].broadcast == Broadcast::kPrefix || call.operands[k].broadcast == Broadcast::kMiddle)
      slots += 1;
    if (call.operands[k].broadcast == Broadcast::kFull && operands[k].data.is_bf16) slots += 1;
  }
  call.block = slots * kBlock <= kScratch ? kBlock : kShortBlock;
  call.n = n;
  call.out = out;
  return call;
}

// Parts of each [rows, width] whose sums are computed apart, for threads to share.
int64_t sum_parts(int64_t rows, int64_t width) {
  return std::clamp<int64_t>(ceil_div(rows * width, 16 * kBlock), 1, std::clamp<int64_t>(rows / 16, 1, 32));
}
}  // namespace

void pointwise(int64_t n, const Expression& expression, std::span<const PointwiseOperand> operands,
    MutableStoredFloats out, ThreadPool& pool) {
  if (n <= 0) return check_expression(expression, static_cast<int>(operands.size()));
  const PointwiseCall call = call_of(n, expression, operands, out, false);
  // Tasks begin at multiples of kBlock, so that only the last one has a partial end.
  const int64_t blocks = ceil_div(n, kBlock);
  for_ranges(pool, blocks, std::min(n, kBlock), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RunTask)(call, begin * kBlock, std::min(n, end * kBlock), nullptr);
  });
}

size_t pointwise_sum_workspace(int64_t outer, int64_t rows, int64_t width) {
  return bytes_for<double>(outer * sum_parts(rows, width) * width);
}

void pointwise_sum(int64_t outer, int64_t rows, int64_t width, const Expression& expression,
    std::span<const PointwiseOperand> operands, float* out, void* workspace, ThreadPool& pool) {
  const int64_t parts = sum_parts(rows, width), n = outer * rows * width;
  auto* partial = static_cast<double*>(workspace);  // [outer, parts, width]
  std::fill_n(partial, outer * parts * width, 0.0);
  if (n > 0) {
    PointwiseCall call = call_of(n, expression, operands, out, true);
    call.rows = rows, call.width = width;
    call.is_operand = expression.code.size() == 1 && expression.code[0].function == Scalar::kInput &&
                      call.operands[0].broadcast != Broadcast::kScalar;
    const auto begin_of = [&](int64_t part) { return (part / parts * rows + rows * (part % parts) / parts) * width; };
    for_ranges(pool, outer * parts, rows * width / parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin, last = 0; part < end; part = last) {
        last = parts == 1 ? end : part + 1;
        double* sums = partial + (part - part / parts) * width;  // where those of `outer` 0 would be
        HWY_DYNAMIC_DISPATCH(RunTask)(call, begin_of(part), begin_of(last), sums);
      }
    });
  }
  for_ranges(pool, outer, parts * width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double* sums = partial + i * parts * width;
      for (int64_t part = 1; part < parts; ++part)
        for (int64_t j = 0; j < width; ++j) sums[j] += sums[part * width + j];
      std::copy_n(sums, width, out + i * width);
    }
  });
}
}  // namespace linnet
#endif
