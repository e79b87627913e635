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
class TilePlace {
 public:
  HWY_INLINE TilePlace(int64_t tile, int64_t tile_rows, int64_t tile_columns)
      : image(tile / (tile_rows * tile_columns)),
        row(tile % (tile_rows * tile_columns) / tile_columns * 2),
        column(tile % tile_columns * 2),
        rows_(2 * tile_rows),
        columns_(2 * tile_columns) {}
  // To the next tile.
  HWY_INLINE void advance() {
    column += 2;
    if (column < columns_) return;
    column = 0, row += 2;
    if (row < rows_) return;
    row = 0, ++image;
  }
  int64_t image, row, column;

 private:
  int64_t rows_, columns_;
};

// An image whose pixels have all their channels side by side. T: float or Bfloat16.
template <class T>
struct TileSource {
  const T* image;
  int64_t height, width, channels;
};

// The 4 x 4 pixels from (row, column) of an image on. zeros: a pixel outside of it.
template <class T>
HWY_INLINE void TilePixels(const TileSource<T>& image, int64_t row, int64_t column, const T* zeros, const T** pixels) {
  const int64_t first = (row * image.width + column) * image.channels;
  for (int k = 0; k < kSpots; ++k) {
    const int64_t y = row + k / 4, x = column + k % 4;
    const bool inside = y >= 0 && y < image.height && x >= 0 && x < image.width;
    pixels[k] = inside ? image.image + first + (k / 4 * image.width + k % 4) * image.channels : zeros;
  }
}

// body(pixel), pixel(k) being pixel k of the 4 x 4. A tile inside of the image needs no table.
template <class T, class Body>
HWY_INLINE void WithPixels(const TileSource<T>& image, int64_t row, int64_t column, const T* zeros, const Body& body) {
  if (row >= 0 && row + 4 <= image.height && column >= 0 && column + 4 <= image.width) {
    const int64_t channels = image.channels, pitch = image.width * channels;
    const T* const first = image.image + row * pitch + column * channels;
    body([=](int k) LINNET_LAMBDA { return first + k / 4 * pitch + k % 4 * channels; });
  } else {
    const T* pixels[kSpots];
    TilePixels(image, row, column, zeros, pixels);
    body([&](int k) LINNET_LAMBDA { return pixels[k]; });
  }
}

// B^T d B of a vector of channels: store(spot, value) for each spot.
template <class At, class Pixel, class Store>
HWY_INLINE void TransformPixels(const At& at, const Pixel& pixel, const Store& store) {
  V rows[4][4];
  for (int j = 0; j < 4; ++j) {
    const V x0 = at.load(pixel(j)), x1 = at.load(pixel(4 + j)), x2 = at.load(pixel(8 + j)), x3 = at.load(pixel(12 + j));
    rows[0][j] = hn::Sub(x0, x2);
    rows[1][j] = hn::Add(x1, x2);
    rows[2][j] = hn::Sub(x2, x1);
    rows[3][j] = hn::Sub(x1, x3);
  }
  for (int i = 0; i < 4; ++i) {
    const V* r = rows[i];
    store(4 * i, hn::Sub(r[0], r[2]));
    store(4 * i + 1, hn::Add(r[1], r[2]));
    store(4 * i + 2, hn::Sub(r[2], r[1]));
    store(4 * i + 3, hn::Sub(r[1], r[3]));
  }
}

// A dy A^T of a vector of filters, of the 2 x 2 pixels of dy: store(spot, value) for each spot.
template <class At, class T, class Store>
HWY_INLINE void TransformSlopes(const At& at, const T* const* pixels, const Store& store) {
  V rows[4][2];
  for (int j = 0; j < 2; ++j) {
    const V y0 = at.load(pixels[j]), y1 = at.load(pixels[2 + j]);
    rows[0][j] = y0;
    rows[1][j] = hn::Add(y0, y1);
    rows[2][j] = hn::Sub(y0, y1);
    rows[3][j] = hn::Neg(y1);
  }
  for (int i = 0; i < 4; ++i) {
    const V* r = rows[i];
    store(4 * i, r[0]);
    store(4 * i + 1, hn::Add(r[0], r[1]));
    store(4 * i + 2, hn::Sub(r[0], r[1]));
    store(4 * i + 3, hn::Neg(r[1]));
  }
}

}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();

#endif
