#include <array>

#include "engine/kernels/parallel.h"
#include "engine/ops/pixels/pixels.h"
#include "engine/ops/stored_operands.h"

namespace linnet {
namespace {

constexpr size_t kMostTables = 4;  // of channels: they lie in the first cache

void run_reference(const KernelArgs& args) {
  const PixelScaling& scaling = args.node.attrs.as<ScalePixelsAttrs>().scaling;
  const auto channels = static_cast<int64_t>(scaling.scale.size());
  const auto* x = args.in[0].as<const uint8_t>();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T* y = args.out[0].as<T>();
    for_ranges(args.pool, args.in[0].elements() / channels, channels, [&](int64_t begin, int64_t end) {
      for (int64_t pixel = begin; pixel < end; ++pixel)
        for (int64_t c = 0; c < channels; ++c)
          y[pixel * channels + c] = static_cast<T>(x[pixel * channels + c]) * scaling.scale[static_cast<size_t>(c)] +
                                    scaling.shift[static_cast<size_t>(c)];
    });
  });
}

// A byte has 256 values: each channel has a table of theirs.
template <class T>
void scale_by_tables(const KernelArgs& args, T* y) {
  const PixelScaling& scaling = args.node.attrs.as<ScalePixelsAttrs>().scaling;
  const auto channels = static_cast<int64_t>(scaling.scale.size());
  const auto* x = args.in[0].as<const uint8_t>();
  std::array<std::array<T, 256>, kMostTables> tables;
  for (size_t c = 0; c < scaling.scale.size(); ++c)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[c][byte] = T(static_cast<float>(byte) * scaling.scale[c] + scaling.shift[c]);
  for_ranges(args.pool, args.in[0].elements() / channels, channels, [&](int64_t begin, int64_t end) {
    for (int64_t pixel = begin; pixel < end; ++pixel)
      for (int64_t c = 0; c < channels; ++c)
        y[pixel * channels + c] = tables[static_cast<size_t>(c)][x[pixel * channels + c]];
  });
}

void run_tables(const KernelArgs& args) {
  if (args.out[0].type.dtype == DType::kBF16)
    scale_by_tables(args, args.out[0].as<Bfloat16>());
  else
    scale_by_tables(args, args.out[0].as<float>());
}

bool has_tables(const KernelQuery& query) {
  return query.node.attrs.as<ScalePixelsAttrs>().scaling.scale.size() <= kMostTables && f32_or_reduced(query);
}

constexpr Kernel kKernels[] = {{"tables", has_tables, nullptr, run_tables},
                               {"reference", nullptr, nullptr, run_reference}};

}  // namespace

KernelList scale_pixels_kernels() { return kKernels; }

}  // namespace linnet
