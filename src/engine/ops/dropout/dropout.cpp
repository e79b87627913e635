#include "engine/ops/dropout/dropout.h"
#include "base/numbers.h"
#include "engine/kernels/parallel.h"

namespace linnet {
void expect_random(const TensorType& random) {
  expect(random == TensorType{DType::kI32, {4}}, "got random state ", random, ", expected i32[4]");
}

namespace {
std::vector<TensorType> infer_dropout(const InferArgs& args) {
  const auto& attrs = args.attrs.as<DropoutAttrs>();
  expect(attrs.probability >= 0 && attrs.probability < 1, "got probability ", attrs.probability, ", expected [0, 1)");
  expect_random(args.in[1]);
  expect(is_float(args.in[0].dtype) && args.in[0].shape.rank() >= 1, "got ", args.in[0]);
  expect(attrs.layout == DropoutLayout::kDense || args.in[0].shape.rank() == 4, "got ", args.in[0],
      ", expected [B, H, Tq, Tk]");
  const bool fits = attrs.is_whole() || (attrs.layout == DropoutLayout::kDense && args.in[0].shape.rank() >= 2 &&
                                            attrs.all_columns % 8 == 0 && attrs.first_column % 8 == 0 &&
                                            attrs.first_column + args.in[0].shape[-1] <= attrs.all_columns);
  expect(fits, "got ", args.in[0], " as columns from ", attrs.first_column, " on of ", attrs.all_columns);
  return {args.in[0]};
}

std::vector<TensorType> infer_random_uniform(const InferArgs& args) {
  const TensorType& type = args.attrs.as<RandomUniformAttrs>().type;
  expect_random(args.in[0]);
  expect(type.dtype == DType::kF32 || type.dtype == DType::kF64, "got ", type, ", expected a float type");
  return {type};
}

// Also for the attention layout, which only attention's decomposition uses.
void run_dropout_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<DropoutAttrs>();
  const uint64_t key = dropout_key(args.in[1].as<int32_t>(), attrs.site);
  const Shape& shape = args.in[0].shape();
  const bool attention = attrs.layout == DropoutLayout::kAttention;
  const int64_t samples = shape[0], size = samples ? shape.elements() / samples : 0, keys = shape[-1];
  for_float(args.in[0].type.dtype, [&]<class T>() {
    const T scale = dropout_scale(attrs.probability);
    for (int64_t b = 0; b < samples; ++b)
      for (int64_t i = 0; i < size; ++i) {
        const auto sample = static_cast<uint32_t>(b);
        bool keep;
        if (attention) {
          const int64_t query = i / keys % shape[2], head = i / keys / shape[2];
          keep = dropout_keeps(
              key, i % keys, static_cast<uint32_t>(query), static_cast<uint32_t>(head), sample, attrs.probability);
        } else {
          const int64_t whole = attrs.is_whole() ? i : i / keys * attrs.all_columns + attrs.first_column + i % keys;
          keep = dropout_keeps(key, whole, kDenseDropout, 0, sample, attrs.probability);
        }
        args.out[0].as<T>()[b * size + i] = keep ? args.in[0].as<T>()[b * size + i] * scale : T(0);
      }
  });
}

bool supports_dropout(const KernelQuery& query) {
  return all_f32_or_bf16(query) && query.attrs<DropoutAttrs>().layout == DropoutLayout::kDense;
}

void run_dropout(const KernelArgs& args) {
  const auto& attrs = args.attrs<DropoutAttrs>();
  const int64_t samples = args.in[0].shape()[0], size = samples ? args.in[0].elements() / samples : 0;
  const uint64_t key = dropout_key(args.in[1].as<int32_t>(), attrs.site);
  if (attrs.is_whole())
    return dropout(samples, size, stored(args.in[0]), mutable_stored(args.out[0]), attrs.probability, key, args.pool);
  const DropoutColumns columns{attrs.all_columns, attrs.first_column, args.in[0].shape()[-1]};
  dropout_of_columns(
      samples, size, columns, stored(args.in[0]), mutable_stored(args.out[0]), attrs.probability, key, args.pool);
}

void run_random_uniform(const KernelArgs& args) {
  constexpr int64_t kWords = 4;
  const uint64_t key = dropout_key(args.in[0].as<int32_t>(), args.attrs<RandomUniformAttrs>().site);
  const int64_t count = args.out[0].elements();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T* to = args.out[0].as<T>();
    for_each_index(args.pool, ceil_div(count, kWords), 16 * kWords, [&](int64_t block) {
      const auto words =
          philox4x32({static_cast<uint32_t>(block), kUniformDraw, static_cast<uint32_t>(block >> 32), 0}, key);
      for (int64_t i = block * kWords; i < std::min(count, (block + 1) * kWords); ++i)
        to[i] = static_cast<T>(words[i % kWords] >> 8) / static_cast<T>(1 << 24);
    });
  });
}
}  // namespace

const OpDef kDropout{.name = "dropout",
    .infer = takes<2, infer_dropout>,
    .gradient = [](const GradientArgs& args) -> std::vector<Tensor> {
      return {args.add(kDropout, {args.out_grad[0], args.in[1]})[0], Tensor{}};
    },
    .may_overwrite = overwrites_first,
    .storage = reduced<0b1, 0b1>};
const OpDef kRandomUniform{.name = "random_uniform", .infer = takes<1, infer_random_uniform>, .gradient = no_gradient};

Tensor dropout(At x, Tensor random, float probability, uint64_t site, DropoutLayout layout) {
  if (probability == 0) return x.value;
  return op_result(kDropout, x, {random}, DropoutAttrs{probability, site, layout});
}

Tensor random_uniform(At random, const TensorType& type, uint64_t site) {
  return op_result(kRandomUniform, random, {}, RandomUniformAttrs{type, site});
}

uint64_t dropout_site(std::string_view module_path, std::string_view name) {
  return mix64(fnv1a(name, fnv1a("/", fnv1a(module_path))));
}

LINNET_KERNELS(random_uniform, {"reference", run_random_uniform})
LINNET_KERNELS(dropout, {"simd", run_dropout, supports_dropout}, {"reference", run_dropout_reference})
}  // namespace linnet
