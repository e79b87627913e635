// Ops that make elements, or convert them.
#include <algorithm>
#include <array>
#include <limits>
#include "engine/kernels/parallel.h"
#include "engine/kernels/stored_floats.h"
#include "engine/ops/movement/movement.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_movement_fill(const InferArgs& args) { return {args.attrs.as<FillAttrs>().type}; }

std::vector<TensorType> infer_literal(const InferArgs& args) {
  const auto& attrs = args.attrs.as<LiteralAttrs>();
  expect(attrs.words.size() == ceil_div(attrs.type.bytes(), sizeof(uint64_t)), attrs.words.size(),
      " words of data for ", attrs.type);
  return {attrs.type};
}

std::vector<TensorType> infer_cast(const InferArgs& args) {
  const DType from = args.in[0].dtype, dtype = args.attrs.as<CastAttrs>().dtype;
  const auto fits = [](DType one, DType other) { return one != DType::kBF16 || other == DType::kF32; };
  expect(from == dtype || (fits(from, dtype) && fits(dtype, from)), "got ", args.in[0], ", cannot become ",
      dtype_name(dtype));
  return {{dtype, args.in[0].shape}};
}

// Calls body.operator()<T>() with the type of an element, for bf16 uint16_t.
template <class Body> void with_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32: return body.template operator()<float>();
    case DType::kF64: return body.template operator()<double>();
    case DType::kI32: return body.template operator()<int32_t>();
    case DType::kU8: return body.template operator()<uint8_t>();
    case DType::kBF16: return body.template operator()<uint16_t>();
  }
}

void run_movement_fill(const KernelArgs& args) {
  const double value = args.attrs<FillAttrs>().value;
  const TensorView& out = args.out[0];
  with_type(out.type.dtype, [&]<class T>() {
    T element;
    if constexpr (std::is_same_v<T, uint16_t>) element = Bfloat16(static_cast<float>(value)).bits;
    else element = static_cast<T>(value);
    std::fill_n(out.as<T>(), out.elements(), element);
  });
}

void run_literal(const KernelArgs& args) {
  const auto& attrs = args.attrs<LiteralAttrs>();
  if (attrs.type.bytes() > 0) std::memcpy(args.out[0].data, attrs.words.data(), attrs.type.bytes());
}

template <class From> double number_of(From x) {
  if constexpr (std::is_same_v<From, uint16_t>) return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
  else return static_cast<double>(x);
}

// To bf16 like a GPU: unlike round_to_bf16 of the products, denormals stay. To whole numbers towards zero, clamped; NaN
// becomes 0.
template <class To> To converted(double x) {
  if constexpr (std::is_same_v<To, uint16_t>) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
    if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  } else if constexpr (std::is_integral_v<To>) {
    if (x != x) return 0;
    return static_cast<To>(std::clamp<double>(x, std::numeric_limits<To>::lowest(), std::numeric_limits<To>::max()));
  } else {
    return static_cast<To>(x);
  }
}

// By way of f64, which holds the numbers of all other types.
void run_cast(const KernelArgs& args) {
  const TensorView &in = args.in[0], &out = args.out[0];
  for_ranges(args.pool, out.elements(), 2, [&](int64_t begin, int64_t end) {
    std::array<double, 256> part;
    for (int64_t first = begin; first < end; first += std::ssize(part)) {
      const int64_t count = std::min<int64_t>(std::ssize(part), end - first);
      with_type(in.type.dtype, [&]<class From>() {
        for (int64_t i = 0; i < count; ++i) part[i] = number_of(in.as<const From>()[first + i]);
      });
      with_type(out.type.dtype, [&]<class To>() {
        for (int64_t i = 0; i < count; ++i) out.as<To>()[first + i] = converted<To>(part[i]);
      });
    }
  });
}

bool casts_storage(const KernelQuery& query) {
  const DType from = query.in[0].dtype, to = query.out[0].dtype;
  return (from == DType::kBF16 && to == DType::kF32) || (from == DType::kF32 && to == DType::kBF16);
}

void run_storage_cast(const KernelArgs& args) {
  convert_floats(args.out[0].elements(), stored(args.in[0]), mutable_stored(args.out[0]), args.pool);
}

void run_round_half(const KernelArgs& args) {
  round_to_half(args.in[0].elements(), args.in[0].as<float>(), args.out[0].as<float>(), args.pool);
}

void run_round_half_reference(const KernelArgs& args) {
  for_float(args.in[0].type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < args.in[0].elements(); ++i) args.out[0].as<T>()[i] = round_to_half(args.in[0].as<T>()[i]);
  });
}
}  // namespace

const OpDef kFill{.name = "fill", .infer = takes<0, infer_movement_fill>, .gradient = no_gradient};
const OpDef kLiteral{.name = "literal", .infer = takes<0, infer_literal>, .gradient = no_gradient};
const OpDef kCast{
    .name = "cast", .infer = takes<1, infer_cast>, .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      const DType from = args.in[0].type().dtype;
      if (!is_float(from) || !is_float(args.out[0].type().dtype)) return {Tensor{}};
      return {cast(args.out_grad[0], from)};
    }};

const OpDef kRoundHalf{.name = "round_half",
    .infer = infer_same_float,
    .may_overwrite = overwrites_any,
    .algebra = always<Algebra::kElementwise>,
    .cheap = true};

Tensor fill(Graph& graph, TensorType type, double value, SourceLine where) {
  return graph.add_one(kFill, {}, FillAttrs{type, value}, where);
}

Tensor literal(Graph& graph, TensorType type, const void* elements, SourceLine where) {
  LiteralAttrs attrs{.type = type};
  attrs.words.resize(ceil_div(type.bytes(), sizeof(uint64_t)));
  if (type.bytes() > 0) std::memcpy(attrs.words.data(), elements, type.bytes());
  return graph.add_one(kLiteral, {}, std::move(attrs), where);
}

Tensor literal(Graph& graph, TensorType type, const std::vector<double>& values) {
  if (type.dtype == DType::kF64) return literal(graph, type, values.data());
  const std::vector<float> floats(values.begin(), values.end());
  return literal(graph, type, floats.data());
}

Tensor counted_positions(Tensor tokens) {
  const Shape shape = tokens.shape();
  const std::vector<int32_t> positions = mapped<int32_t>(shape.elements(), [&](int64_t i) { return i % shape[-1]; });
  return literal(*tokens.graph, {DType::kI32, shape}, positions.data());
}

Tensor cast(At x, DType dtype) {
  if (x.value.type().dtype == dtype) return x.value;
  const Node* producer = producer_of(x.value);
  if (is(producer, kCast) && x.value.type().dtype == DType::kF64) {  // f64 holds the numbers of all other types
    const Tensor before{x.value.graph, producer->in[0]};
    if (before.type().dtype == dtype) return before;
  }
  return op_result(kCast, x, {}, CastAttrs{dtype});
}

Tensor round_half(At x) { return op_result(kRoundHalf, x); }

LINNET_KERNELS(fill, {"reference", run_movement_fill})
LINNET_KERNELS(literal, {"reference", run_literal})
LINNET_KERNELS(cast, {"convert", run_storage_cast, casts_storage}, {"reference", run_cast})
LINNET_KERNELS(round_half, {"simd", run_round_half, all_f32}, {"reference", run_round_half_reference})
}  // namespace linnet
