#include <algorithm>
#include <vector>

#include "ops/quantized/quantized_conv2d.h"

namespace linnet {
namespace {

PackedWeight filters(const KernelArgs& args, const QuantizedConv2dAttrs& attrs) {
  return {attrs.weight.packed(), args.in[1].as<const std::byte>()};
}

size_t workspace(const KernelQuery& query) {
  return int8_convolution_workspace(query.node.attrs.as<QuantizedConv2dAttrs>().sizes(query.in[0].shape),
                                    query.threads);
}

void run(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<QuantizedConv2dAttrs>();
  int8_convolution(attrs.sizes(args.in[0].shape()), filters(args, attrs), attrs.rounding.rounding(),
                   args.in[0].as<float>(), args.out[0].as<float>(), args.workspace, args.pool);
}

// The definition.
template <class T>
void reference(const KernelArgs& args) {
  const auto& attrs = args.node.attrs.as<QuantizedConv2dAttrs>();
  const Int8ConvolutionSizes s = attrs.sizes(args.in[0].shape());
  const PackedWeight weight = filters(args, attrs);
  std::vector<float> filter(static_cast<size_t>(weight.shape.columns));
  for (int64_t o = 0; o < weight.shape.rows; ++o) {
    dequantize_row(weight, o, filter.data());
    T* y = args.out[0].as<T>() + o;
    for (int64_t result = 0; result < s.images * s.out_height() * s.out_width(); ++result, y += weight.shape.rows) {
      const int64_t image = result / s.out_width() / s.out_height();
      const int64_t top = result / s.out_width() % s.out_height() * s.vertical.stride - s.vertical.before;
      const int64_t left = result % s.out_width() * s.horizontal.stride - s.horizontal.before;
      double sum = 0;
      for (int64_t tap = 0; tap < s.vertical.size * s.horizontal.size; ++tap) {
        const int64_t i = top + tap / s.horizontal.size * s.vertical.dilation;
        const int64_t j = left + tap % s.horizontal.size * s.horizontal.dilation;
        if (i < 0 || i >= s.height || j < 0 || j >= s.width) continue;
        const T* x = args.in[0].as<T>() + ((image * s.height + i) * s.width + j) * s.channels;
        for (int64_t c = 0; c < s.channels; ++c)
          sum += static_cast<double>(attrs.rounding.rounded(x[c])) *
                 static_cast<double>(filter[static_cast<size_t>(tap * s.channels + c)]);
      }
      *y = static_cast<T>(sum);
    }
  }
}

void run_reference(const KernelArgs& args) {
  for_float(args.out[0].type.dtype, [&]<class T>() { reference<T>(args); });
}

constexpr Kernel kKernels[] = {{"int8", all_f32, workspace, run}, {"reference", nullptr, nullptr, run_reference}};

}  // namespace

KernelList quantized_conv2d_kernels() { return kKernels; }

}  // namespace linnet
