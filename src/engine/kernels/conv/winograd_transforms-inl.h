// Shared by the kernels of Winograd's minimal filtering F(t x t, 3 x 3), t = 2 or 4: Lavin and Gray, "Fast Algorithms
// for Convolutional Neural Networks" (2015). A tile of t x t results y comes from (t + 2) x (t + 2) source pixels d and
// a filter g as
//
//   y = A^T [(G g G^T) * (B^T d B)] A,    dg = G^T [(A dy A^T) * (B^T d B)] G
//
// with (t + 2)^2 products for each channel, 16 or 36, where the sum over taps has 9 t^2, 36 or 144. The products of a
// spot of the (t + 2) x (t + 2), over all tiles and channels, are a matrix product.
#if defined(LINNET_KERNELS_WINOGRAD_TRANSFORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LINNET_KERNELS_WINOGRAD_TRANSFORMS_INL_H_
#undef LINNET_KERNELS_WINOGRAD_TRANSFORMS_INL_H_
#else
#define LINNET_KERNELS_WINOGRAD_TRANSFORMS_INL_H_
#endif

#include "engine/kernels/conv/convolution-inl.h"
#include "engine/kernels/conv/convolution_layout.h"

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE::convolution {
// `factor` is a constant
HWY_INLINE V Scaled(float factor, V x) { return factor == 1 ? x : hn::Mul(hn::Set(d, factor), x); }
HWY_INLINE V AddScaled(V sum, float factor, V x) {
  if (factor == 1) return hn::Add(sum, x);
  if (factor == -1) return hn::Sub(sum, x);
  return hn::MulAdd(hn::Set(d, factor), x, sum);
}

// The transformations along one axis. kResults: t; kSide: source pixels; kSpots: of a tile.
template <int kTile> struct Filtering;

template <> struct Filtering<2> {
  static constexpr int kResults = 2, kSide = 4, kSpots = 16;

  static HWY_INLINE void Source(const V* x, V* out) {  // B^T x
    out[0] = hn::Sub(x[0], x[2]);
    out[1] = hn::Add(x[1], x[2]);
    out[2] = hn::Sub(x[2], x[1]);
    out[3] = hn::Sub(x[1], x[3]);
  }
  static HWY_INLINE void Result(const V* m, V* out) {  // A^T m
    out[0] = hn::Add(hn::Add(m[0], m[1]), m[2]);
    out[1] = hn::Sub(hn::Sub(m[1], m[2]), m[3]);
  }
  static HWY_INLINE void Slope(const V* y, V* out) {  // A y
    out[0] = y[0];
    out[1] = hn::Add(y[0], y[1]);
    out[2] = hn::Sub(y[0], y[1]);
    out[3] = hn::Neg(y[1]);
  }
  static HWY_INLINE void Filter(const V* g, V* out) {  // G g
    const V half = hn::Set(d, 0.5f), outer = hn::Mul(half, hn::Add(g[0], g[2])), middle = hn::Mul(half, g[1]);
    out[0] = g[0];
    out[1] = hn::Add(outer, middle);
    out[2] = hn::Sub(outer, middle);
    out[3] = g[2];
  }
  static HWY_INLINE void FilterSlope(const V* u, V* out) {  // G^T u
    const V half = hn::Set(d, 0.5f), sum = hn::Mul(half, hn::Add(u[1], u[2]));
    out[0] = hn::Add(u[0], sum);
    out[1] = hn::Mul(half, hn::Sub(u[1], u[2]));
    out[2] = hn::Add(sum, u[3]);
  }
};

// The polynomials are interpolated at 0, a, -a, b, -b and infinity.
template <> struct Filtering<4> {
  static constexpr int kResults = 4, kSide = 6, kSpots = 36;
  static constexpr float kA = 0.625f, kB = 1.5f;
  static constexpr float kA2 = kA * kA, kB2 = kB * kB, kProduct = kA2 * kB2;
  static constexpr float kNormA = 1 / (2 * kA2 * (kA2 - kB2)), kNormB = 1 / (2 * kB2 * (kB2 - kA2));

  static HWY_INLINE void Source(const V* x, V* out) {
    const V even_a = AddScaled(x[4], -kB2, x[2]), odd_a = AddScaled(x[3], -kB2, x[1]);
    const V even_b = AddScaled(x[4], -kA2, x[2]), odd_b = AddScaled(x[3], -kA2, x[1]);
    out[0] = AddScaled(AddScaled(x[4], -kA2 - kB2, x[2]), kProduct, x[0]);
    out[1] = AddScaled(even_a, kA, odd_a);
    out[2] = AddScaled(even_a, -kA, odd_a);
    out[3] = AddScaled(even_b, kB, odd_b);
    out[4] = AddScaled(even_b, -kB, odd_b);
    out[5] = AddScaled(AddScaled(x[5], -kA2 - kB2, x[3]), kProduct, x[1]);
  }
  static HWY_INLINE void Result(const V* m, V* out) {
    const V sum_a = hn::Add(m[1], m[2]), sum_b = hn::Add(m[3], m[4]);
    const V odd_a = hn::Sub(m[1], m[2]), odd_b = hn::Sub(m[3], m[4]);
    out[0] = hn::Add(hn::Add(m[0], sum_a), sum_b);
    out[1] = AddScaled(Scaled(kA, odd_a), kB, odd_b);
    out[2] = AddScaled(Scaled(kA2, sum_a), kB2, sum_b);
    out[3] = AddScaled(AddScaled(m[5], kA * kA2, odd_a), kB * kB2, odd_b);
  }
  static HWY_INLINE void Slope(const V* y, V* out) {
    const V even_a = AddScaled(y[0], kA2, y[2]), odd_a = AddScaled(y[1], kA2, y[3]);
    const V even_b = AddScaled(y[0], kB2, y[2]), odd_b = AddScaled(y[1], kB2, y[3]);
    out[0] = y[0];
    out[1] = AddScaled(even_a, kA, odd_a);
    out[2] = AddScaled(even_a, -kA, odd_a);
    out[3] = AddScaled(even_b, kB, odd_b);
    out[4] = AddScaled(even_b, -kB, odd_b);
    out[5] = y[3];
  }
  static HWY_INLINE void Filter(const V* g, V* out) {
    const V even_a = Scaled(kNormA, AddScaled(g[0], kA2, g[2])), odd_a = Scaled(kA * kNormA, g[1]);
    const V even_b = Scaled(kNormB, AddScaled(g[0], kB2, g[2])), odd_b = Scaled(kB * kNormB, g[1]);
    out[0] = Scaled(1 / kProduct, g[0]);
    out[1] = hn::Add(even_a, odd_a);
    out[2] = hn::Sub(even_a, odd_a);
    out[3] = hn::Add(even_b, odd_b);
    out[4] = hn::Sub(even_b, odd_b);
    out[5] = g[2];
  }
  static HWY_INLINE void FilterSlope(const V* u, V* out) {
    const V sum_a = Scaled(kNormA, hn::Add(u[1], u[2])), sum_b = Scaled(kNormB, hn::Add(u[3], u[4]));
    const V odd_a = Scaled(kNormA, hn::Sub(u[1], u[2])), odd_b = Scaled(kNormB, hn::Sub(u[3], u[4]));
    out[0] = AddScaled(hn::Add(sum_a, sum_b), 1 / kProduct, u[0]);
    out[1] = AddScaled(Scaled(kA, odd_a), kB, odd_b);
    out[2] = AddScaled(AddScaled(u[5], kA2, sum_a), kB2, sum_b);
  }
};

// The first result of a tile.
template <class F> class TilePlace {
 public:
  HWY_INLINE TilePlace(int64_t tile, int64_t tile_rows, int64_t tile_columns)
      : image(tile / (tile_rows * tile_columns)), row(tile % (tile_rows * tile_columns) / tile_columns * F::kResults),
        column(tile % tile_columns * F::kResults), rows_(F::kResults * tile_rows),
        columns_(F::kResults * tile_columns) {}
  HWY_INLINE void advance() {
    column += F::kResults;
    if (column < columns_) return;
    column = 0, row += F::kResults;
    if (row < rows_) return;
    row = 0, ++image;
  }
  int64_t image, row, column;

 private:
  int64_t rows_, columns_;
};

// An image whose pixels are contiguous. T: float or Bfloat16.
template <class T> struct TileSource {
  const T* image;
  int64_t height, width, channels;
};

// The kSize x kSize pixels from (row, column) on. zeros: a pixel outside of the image.
template <int kSize, class T>
HWY_INLINE void TilePixels(const TileSource<T>& image, int64_t row, int64_t column, const T* zeros, const T** pixels) {
  for (int64_t y = row; y < row + kSize; ++y, pixels += kSize) {
    const bool row_is_inside = y >= 0 && y < image.height;
    const T* const first = image.image + (y * image.width + column) * image.channels;
    for (int j = 0; j < kSize; ++j) {
      const bool inside = row_is_inside && column + j >= 0 && column + j < image.width;
      pixels[j] = inside ? first + j * image.channels : zeros;
    }
  }
}

// Hardware does not prefetch tiles of a few lines each, so kTilesAhead are.
constexpr int64_t kTilesAhead = 4;

// Prefetches kSize x kSize pixels from (row, column) on, except those outside of the image.
template <int kSize, class T> HWY_INLINE void FetchPixels(const TileSource<T>& image, int64_t row, int64_t column) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const T* first = image.image + (row * image.width + column) * image.channels;
  for (int i = 0; i < kSize; ++i, first += image.width * image.channels)
    for (int64_t k = 0; k < kSize * image.channels; k += kLine) hwy::Prefetch(first + k);
}

// body(pixel), where pixel(i, j) is a pixel's address. A tile inside of the image needs no table.
template <int kSize, class T, class Body>
HWY_INLINE void WithPixels(const TileSource<T>& image, int64_t row, int64_t column, const T* zeros, const Body& body) {
  if (row >= 0 && row + kSize <= image.height && column >= 0 && column + kSize <= image.width) {
    const int64_t channels = image.channels, pitch = image.width * channels;
    const T* const first = image.image + row * pitch + column * channels;
    body([=](int i, int j) LINNET_LAMBDA { return first + i * pitch + j * channels; });
  } else {
    const T* pixels[kSize * kSize];
    TilePixels<kSize>(image, row, column, zeros, pixels);
    body([&](int i, int j) LINNET_LAMBDA { return pixels[i * kSize + j]; });
  }
}

// Transforms kFrom values along both axes: load(i, j) of kFrom x kFrom, store(i, j, value) of kTo x kTo.
template <int kFrom, int kTo, class Transform, class Load, class Store>
HWY_INLINE void OnBothAxes(const Transform& transform, const Load& load, const Store& store) {
  V rows[kTo][kFrom];
  const auto do_column = [&](int j) LINNET_LAMBDA {
    V from[kFrom], to[kTo];
#pragma GCC unroll 6
    for (int i = 0; i < kFrom; ++i) from[i] = load(i, j);
    transform(from, to);
#pragma GCC unroll 6
    for (int i = 0; i < kTo; ++i) rows[i][j] = to[i];
  };
  const auto do_row = [&](int i) LINNET_LAMBDA {
    V to[kTo];
    transform(rows[i], to);
#pragma GCC unroll 6
    for (int j = 0; j < kTo; ++j) store(i, j, to[j]);
  };
  if constexpr (kFrom * kTo <= 16) {
#pragma GCC unroll 4
    for (int j = 0; j < kFrom; ++j) do_column(j);
#pragma GCC unroll 4
    for (int i = 0; i < kTo; ++i) do_row(i);
  } else {
    // More values than registers: in loops their addresses are cheap.
#pragma GCC unroll 1
    for (int j = 0; j < kFrom; ++j) do_column(j);
#pragma GCC unroll 1
    for (int i = 0; i < kTo; ++i) do_row(i);
  }
}

// B^T d B of a vector of channels: store(i, j, value) for each spot.
template <class F, class At, class Pixel, class Store>
HWY_INLINE void TransformPixels(const At& at, const Pixel& pixel, const Store& store) {
  OnBothAxes<F::kSide, F::kSide>([](const V* x, V* out) LINNET_LAMBDA { F::Source(x, out); },
      [&](int i, int j) LINNET_LAMBDA { return at.load(pixel(i, j)); }, store);
}

// A dy A^T of a vector of filters, of the pixels of dy: store(i, j, value) for each spot.
template <class F, class At, class Pixel, class Store>
HWY_INLINE void TransformSlopes(const At& at, const Pixel& pixel, const Store& store) {
  OnBothAxes<F::kResults, F::kSide>([](const V* y, V* out) LINNET_LAMBDA { F::Slope(y, out); },
      [&](int i, int j) LINNET_LAMBDA { return at.load(pixel(i, j)); }, store);
}

// G g G^T of a vector of filters or channels: tap(i, j) of 3 x 3, store(i, j, value) for each spot.
template <class F, class Tap, class Store> HWY_INLINE void TransformFilter(const Tap& tap, const Store& store) {
  OnBothAxes<3, F::kSide>([](const V* g, V* out) LINNET_LAMBDA { F::Filter(g, out); }, tap, store);
}
}  // namespace linnet::HWY_NAMESPACE::convolution
HWY_AFTER_NAMESPACE();

#endif
