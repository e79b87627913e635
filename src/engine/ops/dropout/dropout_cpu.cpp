#include "engine/kernels/parallel.h"
#include "engine/kernels/random/dropout.h"
#include "engine/kernels/random/philox.h"
#include "engine/ops/dropout/dropout.h"

namespace linnet {
namespace {

// Also serves the attention layout, which only the decomposition of attention uses.
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
          keep = dropout_keeps(key, i % keys, static_cast<uint32_t>(query), static_cast<uint32_t>(head), sample,
                               attrs.probability);
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
  dropout_of_columns(samples, size, columns, stored(args.in[0]), mutable_stored(args.out[0]), attrs.probability, key,
                     args.pool);
}

void run_random_uniform(const KernelArgs& args) {
  constexpr int64_t kWords = 4;
  const uint64_t key = dropout_key(args.in[0].as<int32_t>(), args.attrs<RandomUniformAttrs>().site);
  const int64_t count = args.out[0].elements();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T* to = args.out[0].as<T>();
    for_ranges(args.pool, (count + kWords - 1) / kWords, 16 * kWords, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const auto words =
            philox4x32({static_cast<uint32_t>(block), kUniformDraw, static_cast<uint32_t>(block >> 32), 0}, key);
        for (int64_t i = block * kWords; i < std::min(count, (block + 1) * kWords); ++i)
          to[i] = static_cast<T>(words[static_cast<size_t>(i % kWords)] >> 8) / static_cast<T>(1 << 24);
      }
    });
  });
}

}  // namespace

LINNET_KERNELS(random_uniform, {"reference", nullptr, nullptr, run_random_uniform})
LINNET_KERNELS(dropout, {"simd", supports_dropout, nullptr, run_dropout},
               {"reference", nullptr, nullptr, run_dropout_reference})

}  // namespace linnet
