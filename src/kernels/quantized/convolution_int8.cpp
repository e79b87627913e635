#include "kernels/quantized/convolution_int8.h"

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"

namespace linnet {
namespace {

size_t image_bytes(const Int8ConvolutionSizes& s) {
  const int64_t pixels = s.images * s.vertical.padded(s.height) * s.horizontal.padded(s.width);
  return static_cast<size_t>((pixels * s.channels + 63) / 64 * 64);
}

// The padded images as codes, [images, padded height, padded width, channels].
void round_images(const Int8ConvolutionSizes& s, const StaticRounding& rounding, const float* x, uint8_t* codes,
                  ThreadPool& pool) {
  const int64_t height = s.vertical.padded(s.height), line = s.horizontal.padded(s.width) * s.channels;
  const int64_t pixels = s.width * s.channels;  // elements of a line that are of the image
  const auto zero = static_cast<uint8_t>(rounding.zero);
  pool.run(s.images * height, [&](int64_t task, int) {
    uint8_t* out = codes + task * line;
    const int64_t image = task / height, row = task % height - s.vertical.before;
    if (row < 0 || row >= s.height) return void(std::fill_n(out, line, zero));
    uint8_t* first = std::fill_n(out, s.horizontal.before * s.channels, zero);
    round_to_codes(x + (image * s.height + row) * pixels, pixels, rounding, first);
    std::fill(first + pixels, out + line, zero);
  });
}

// Copies the patches of results [first, first + count) out of the padded images, a row of `depth` bytes for each.
class PatchWriter {
 public:
  PatchWriter(const Int8ConvolutionSizes& s, const uint8_t* codes, uint8_t zero)
      : s_(s), codes_(codes), depth_((s.patch() + 31) / 32 * 32), zero_(zero) {}

  void operator()(int64_t first, int64_t count, uint8_t* out) const {
    const int64_t width = s_.out_width(), height = s_.out_height();
    for (int64_t i = first; i < first + count; ++i, out += depth_) {
      const int64_t image = i / width / height, row = i / width % height, column = i % width;
      std::fill(write_patch(image, row * s_.vertical.stride, column * s_.horizontal.stride, out), out + depth_, zero_);
    }
  }

 private:
  uint8_t* write_patch(int64_t image, int64_t row, int64_t column, uint8_t* out) const {
    const WindowAxis &v = s_.vertical, &h = s_.horizontal;
    // Neighbors of a window's row lie together in memory unless it is dilated.
    const int64_t pieces = h.dilation == 1 ? 1 : h.size, bytes = h.size / pieces * s_.channels;
    for (int64_t r = 0; r < v.size; ++r) {
      const int64_t line = image * v.padded(s_.height) + row + r * v.dilation;
      const uint8_t* from = codes_ + (line * h.padded(s_.width) + column) * s_.channels;
      for (int64_t piece = 0; piece < pieces; ++piece, out += bytes)
        std::memcpy(out, from + piece * h.dilation * s_.channels, static_cast<size_t>(bytes));
    }
    return out;
  }

  const Int8ConvolutionSizes& s_;
  const uint8_t* codes_;
  int64_t depth_;
  uint8_t zero_;
};

}  // namespace

size_t int8_convolution_workspace(const Int8ConvolutionSizes& sizes, int threads) {
  return image_bytes(sizes) + written_rows_workspace(sizes.patch(), threads);
}

void int8_convolution(const Int8ConvolutionSizes& sizes, const PackedWeight& weight, const StaticRounding& rounding,
                      const float* x, float* y, std::byte* workspace, ThreadPool& pool) {
  auto* codes = reinterpret_cast<uint8_t*>(workspace);
  round_images(sizes, rounding, x, codes, pool);
  GemmArgs args{.m = sizes.images * sizes.out_height() * sizes.out_width(), .trans_b = true};
  args.c = y, args.ldc = weight.shape.rows;
  const PatchWriter patches(sizes, codes, static_cast<uint8_t>(rounding.zero));
  quantized_gemm(args, weight, rounding, patches, workspace + image_bytes(sizes), pool);
}

}  // namespace linnet
