#include "engine/ops/pixels/pixels.h"

#include <cstdio>

#include "engine/ir/op.h"
#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ScalePixelsAttrs>();
  expect_inputs(args, 1);
  const TensorType& x = args.in[0];
  expect(x.dtype == DType::kU8 && x.shape.rank() >= 1, "got " + x.text() + ", expected u8");
  expect(x.shape[-1] == static_cast<int64_t>(attrs.scaling.scale.size()),
         "got " + x.text() + " and a scaling of " + std::to_string(attrs.scaling.scale.size()) + " channels");
  return {{attrs.dtype, x.shape}};
}

}  // namespace

const OpDef kScalePixels{.name = "scale_pixels",
                         .infer = infer,
                         .storage = reduced<0b0, 0b1>};

PixelScaling pixel_scaling(int64_t channels, const std::vector<double>& mean, const std::vector<double>& deviation) {
  const auto count = static_cast<size_t>(channels);
  for (const auto* list : {&mean, &deviation})
    if (!list->empty() && list->size() != count)
      fail_user("mean and deviation of " + std::to_string(list->size()) + " channels for images of " +
                std::to_string(channels));
  PixelScaling scaling;
  for (size_t c = 0; c < count; ++c) {
    const double m = mean.empty() ? 0 : mean[c], d = deviation.empty() ? 1 : deviation[c];
    if (!(d > 0)) fail_user("the deviation of channel " + std::to_string(c) + " is not positive");
    scaling.scale.push_back(static_cast<float>(1 / (255 * d)));
    scaling.shift.push_back(static_cast<float>(-m / d));
  }
  return scaling;
}

Tensor scale_pixels(At x, PixelScaling scaling, DType dtype) {
  return graph_of(x)->add_one(kScalePixels, std::array{x.value}, ScalePixelsAttrs{std::move(scaling), dtype}, x.where);
}

}  // namespace linnet
