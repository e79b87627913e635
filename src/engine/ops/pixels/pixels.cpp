#include "engine/ops/pixels/pixels.h"
#include "engine/ir/op.h"
#include "engine/kernels/parallel.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_pixels(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ScalePixelsAttrs>();
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(x.dtype == DType::kU8 && x.shape.rank() >= 1, "got ", x, ", expected u8");
  expect(x.shape[-1] == static_cast<int64_t>(attrs.scaling.scale.size()), "got ", x, " and a scaling of ",
      attrs.scaling.scale.size(), " channels");
  return {{attrs.dtype, x.shape}};
}

constexpr size_t kMostTables = 4;  // of channels: they lie in the first cache

void run_pixels_reference(const KernelArgs& args) {
  const PixelScaling& scaling = args.attrs<ScalePixelsAttrs>().scaling;
  const auto channels = static_cast<int64_t>(scaling.scale.size());
  const auto* x = args.in[0].as<const uint8_t>();
  for_float(args.out[0].type.dtype, [&]<class T>() {
    T* y = args.out[0].as<T>();
    for_ranges(args.pool, args.in[0].elements() / channels, channels, [&](int64_t begin, int64_t end) {
      for (int64_t pixel = begin; pixel < end; ++pixel)
        for (int64_t c = 0; c < channels; ++c)
          y[pixel * channels + c] = static_cast<T>(x[pixel * channels + c]) * scaling.scale[c] + scaling.shift[c];
    });
  });
}

// A table of the 256 values for each channel.
template <class T> void scale_by_tables(const KernelArgs& args, T* y) {
  const PixelScaling& scaling = args.attrs<ScalePixelsAttrs>().scaling;
  const auto channels = static_cast<int64_t>(scaling.scale.size());
  const auto* x = args.in[0].as<const uint8_t>();
  std::array<std::array<T, 256>, kMostTables> tables;
  for (size_t c = 0; c < scaling.scale.size(); ++c)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[c][byte] = T(static_cast<float>(byte) * scaling.scale[c] + scaling.shift[c]);
  for_ranges(args.pool, args.in[0].elements() / channels, channels, [&](int64_t begin, int64_t end) {
    for (int64_t pixel = begin; pixel < end; ++pixel)
      for (int64_t c = 0; c < channels; ++c) y[pixel * channels + c] = tables[c][x[pixel * channels + c]];
  });
}

void run_tables(const KernelArgs& args) {
  if (args.out[0].type.dtype == DType::kBF16) scale_by_tables(args, args.out[0].as<Bfloat16>());
  else scale_by_tables(args, args.out[0].as<float>());
}

bool has_tables(const KernelQuery& query) {
  return query.attrs<ScalePixelsAttrs>().scaling.scale.size() <= kMostTables && f32_or_reduced(query);
}
}  // namespace

const OpDef kScalePixels{.name = "scale_pixels", .infer = infer_pixels, .storage = reduced<0b0, 0b1>};

PixelScaling pixel_scaling(int64_t channels, const std::vector<double>& mean, const std::vector<double>& deviation) {
  const auto count = static_cast<size_t>(channels);
  for (const auto* list : {&mean, &deviation})
    if (!list->empty() && list->size() != count)
      fail_user("mean and deviation of ", list->size(), " channels for images of ", channels);
  PixelScaling scaling;
  for (size_t c = 0; c < count; ++c) {
    const double m = mean.empty() ? 0 : mean[c], d = deviation.empty() ? 1 : deviation[c];
    if (!(d > 0)) fail_user("the deviation of channel ", c, " is not positive");
    scaling.scale.push_back(static_cast<float>(1 / (255 * d)));
    scaling.shift.push_back(static_cast<float>(-m / d));
  }
  return scaling;
}

Tensor scale_pixels(At x, PixelScaling scaling, DType dtype) {
  return op_result(kScalePixels, x, {}, ScalePixelsAttrs{std::move(scaling), dtype});
}

LINNET_KERNELS(scale_pixels, {"tables", run_tables, has_tables}, {"reference", run_pixels_reference})
}  // namespace linnet
