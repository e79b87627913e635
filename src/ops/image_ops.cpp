// The forward ops of networks for images.
#include <array>

#include "ops/batch_norm/batch_norm.h"
#include "ops/conv2d/conv2d.h"
#include "ops/conv_pool/conv_pool.h"
#include "ops/max_pool/max_pool.h"
#include "ops/op_lists.h"
#include "ops/pixels/pixels.h"
#include "ops/quantized/quantized_conv2d.h"

namespace linnet {

std::span<const OpEntry> image_ops() {
  static const std::array ops{
      OpEntry{&kQuantizedConv2d, quantized_conv2d_kernels()},
      OpEntry{&kBatchNorm, batch_norm_kernels()},
      OpEntry{&kScalePixels, scale_pixels_kernels()},
      OpEntry{&kConv2d, conv2d_kernels()},
      OpEntry{&kMaxPool, max_pool_kernels()},
      OpEntry{&kConvReluPool, conv_relu_pool_kernels()},
  };
  return ops;
}

}  // namespace linnet
