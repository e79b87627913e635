#include <bit>
#include "base/fail.h"
#include "base/text.h"
#include "engine/ops/pointwise/pointwise.h"

namespace linnet {
namespace {
const char* type_name(DType dtype) {
  if (dtype == DType::kF32) return "float";
  if (dtype == DType::kBF16) return "unsigned short";
  fail_internal("a generated kernel of ", dtype_name(dtype));
}

std::string applied(const Instruction& instruction) {
  std::string text;
  const std::string formula = scalar_formula(instruction.function);
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.'; };
  for (size_t i = 0; i < formula.size(); ++i) {
    const bool alone =
        (i == 0 || !is_letter(formula[i - 1])) && (i + 1 == formula.size() || !is_letter(formula[i + 1]));
    const int operand = formula[i] == 'a' ? instruction.a : formula[i] == 'b' ? instruction.b : instruction.c;
    if (alone && formula[i] >= 'a' && formula[i] <= 'c') text += "t" + std::to_string(operand);
    else text += formula[i];
  }
  return text;
}

std::string constant_text(double value) {  // all bits: infinities and NaN too
  return printed("__uint_as_float(0x%08xu)", std::bit_cast<uint32_t>(static_cast<float>(value)));
}

// The operand's elements for this thread: x<k>, or their one value, v<k>.
std::string load_text(const PointwiseSource::Operand& operand, size_t k, int step) {
  const std::string number = std::to_string(k), type = type_name(operand.dtype);
  const std::string memory = "static_cast<const " + type + "*>(arguments.in[" + number + "])";
  const std::string size = "static_cast<Index>(arguments.size[" + number + "])";
  const std::string several = "Several<" + type + ", " + std::to_string(step) + ">";
  const std::string begin = operand.kind == Broadcast::kSuffix ? "begin % " + size : "begin";
  switch (operand.kind) {
    case Broadcast::kFull:
    case Broadcast::kSuffix:
      return "  const " + several + " x" + number + " = *reinterpret_cast<const " + several + "*>(" + memory + " + " +
             begin + ");\n";
    case Broadcast::kPrefix: return "  const float v" + number + " = widened(" + memory + "[begin / " + size + "]);\n";
    case Broadcast::kScalar: return "  const float v" + number + " = widened(" + memory + "[0]);\n";
    case Broadcast::kMiddle:  // the CPU's alone
      break;
  }
  return "";
}

bool has_several(Broadcast kind) { return kind == Broadcast::kFull || kind == Broadcast::kSuffix; }
}  // namespace

std::string pointwise_prelude() {
  return R"(
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Several {
  T at[kCount];
};
__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ float widened(unsigned short x) { return __uint_as_float(static_cast<unsigned>(x) << 16); }
__device__ __forceinline__ void store(float x, float& to) { to = x; }
// The nearest bf16, ties to even.
__device__ __forceinline__ void store(float x, unsigned short& to) {
  const unsigned bits = __float_as_uint(x);
  to = x != x ? 0x7fff : static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
__device__ __forceinline__ float stored_as_bf16(float x) {
  unsigned short bits;
  store(x, bits);
  return widened(bits);
}
)";
}

std::string pointwise_arguments_text() {
  return R"(
__device__ __forceinline__ void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
#endif
}
struct PointwiseArguments {
  long long count;
  const void* in[16];
  long long size[16];
  void* out;
};
)";
}

std::string pointwise_kernel(const PointwiseSource& source, const std::string& name) {
  check_expression(source.expression, static_cast<int>(source.operands.size()));
  const std::string step = std::to_string(source.step), type = type_name(source.result);
  const std::string several = "Several<" + type + ", " + step + ">";
  std::string text = "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(kPointwiseThreads) + ") " +
                     name + "(PointwiseArguments arguments) {\n  begin_kernel();\n";
  text += std::string("  using Index = ") + (source.wide_indices ? "long long" : "unsigned") + ";\n";
  text += "  const Index begin = (static_cast<Index>(blockIdx.x) * " + std::to_string(kPointwiseThreads) +
          " + threadIdx.x) * " + step + ";\n";
  text += "  if (begin >= static_cast<Index>(arguments.count)) return;\n";
  for (size_t k = 0; k < source.operands.size(); ++k) text += load_text(source.operands[k], k, source.step);
  text += "  " + several + " y;\n#pragma unroll\n  for (int i = 0; i < " + step + "; ++i) {\n";
  for (size_t t = 0; t < source.expression.code.size(); ++t) {
    const Instruction& instruction = source.expression.code[t];
    text += "    const float t" + std::to_string(t) + " = ";
    if (instruction.function == Scalar::kInput) {
      const std::string k = std::to_string(instruction.a);
      const bool each = has_several(source.operands[instruction.a].kind);
      text += each ? "widened(x" + k + ".at[i])" : "v" + k;
    } else if (instruction.function == Scalar::kConstant) {
      text += constant_text(instruction.constant);
    } else {
      text += applied(instruction);
    }
    text += ";\n";
  }
  text += "    store(t" + std::to_string(source.expression.code.size() - 1) + ", y.at[i]);\n  }\n";
  text += "  *reinterpret_cast<" + several + "*>(static_cast<" + type + "*>(arguments.out) + begin) = y;\n}\n";
  return text;
}
}  // namespace linnet
