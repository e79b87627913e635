// What the kernels of Winograd's minimal filtering F(2 x 2, 3 x 3) share: Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2015). A tile of 2 x 2 results y comes from 4 x 4 source pixels d and a filter g as
//
//   y = A^T [(G g G^T) * (B^T d B)] A,    dg = G^T [(A dy A^T) * (B^T d B)] G
//
// with 16 products for each channel where the sum over taps has 36. The products of a spot of the 4 x 4, over all tiles
// and channels, are a matrix product. Included by *_simd.cpp after "hwy/foreach_target.h".
#if defined(LINNET_KERNELS_WINOGRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_WINOGRAD_INL_H_
#undef LINNET_KERNELS_WINOGRAD_INL_H_
#else
#define LINNET_KERNELS_WINOGRAD_INL_H_
#endif

#include "kernels/conv/convolution-inl.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {

constexpr int kSpots = convolution_layout::kWinogradSpots;  // of the 4 x 4

// Where the results of a tile begin.
struct TilePlace {
  HWY_INLINE TilePlace(int64_t tile, int64_t tile_rows, int64_t tile_columns)
      : image(tile / (tile_rows * tile_columns)),
        row(tile % (tile_rows * tile_columns) / tile_columns * 2),
        column(tile % tile_columns * 2) {}
  int64_t image, row, column;
};

// B^T d B of the 4 x 4 pixels from (row, column) of an image on, of every channel. out: of spot 0, the next one `spot`
// floats further. zeros: a pixel outside the image.
HWY_INLINE void TransformSource(const StripSource& image, int64_t row, int64_t column, const float* zeros, float* out,
                                int64_t spot) {
  const float* pixels[kSpots];
  for (int k = 0; k < kSpots; ++k) {
    const int64_t y = row + k / 4, x = column + k % 4;
    const bool inside = y >= 0 && y < image.height && x >= 0 && x < image.width;
    pixels[k] = inside ? image.image + (y * image.width + x) * image.image_pitch : zeros;
  }
  ForRow(image.channels, [&](const auto& at) LINNET_LAMBDA {
    V rows[4][4];
    for (int j = 0; j < 4; ++j) {
      const V x0 = at.load(pixels[j]), x1 = at.load(pixels[4 + j]), x2 = at.load(pixels[8 + j]),
              x3 = at.load(pixels[12 + j]);
      rows[0][j] = hn::Sub(x0, x2);
      rows[1][j] = hn::Add(x1, x2);
      rows[2][j] = hn::Sub(x2, x1);
      rows[3][j] = hn::Sub(x1, x3);
    }
    for (int i = 0; i < 4; ++i) {
      const V* r = rows[i];
      float* to = out + 4 * i * spot;
      at.store(hn::Sub(r[0], r[2]), to);
      at.store(hn::Add(r[1], r[2]), to + spot);
      at.store(hn::Sub(r[2], r[1]), to + 2 * spot);
      at.store(hn::Sub(r[1], r[3]), to + 3 * spot);
    }
  });
}

}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();

#endif
