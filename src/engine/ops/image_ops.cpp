// The forward ops of networks for images.
#include <array>

#include "engine/ops/batch_norm/batch_norm.h"
#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/conv_pool/conv_pool.h"
#include "engine/ops/max_pool/max_pool.h"
#include "engine/ops/op_lists.h"
#include "engine/ops/pixels/pixels.h"
#include "engine/ops/quantized/quantized_conv2d.h"

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
