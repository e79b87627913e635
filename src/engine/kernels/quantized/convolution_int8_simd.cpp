#include <algorithm>
#include <cstring>
#include <limits>
#include "base/numbers.h"
#include "base/thread_pool.h"
#include "engine/kernels/quantized/convolution_int8.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/quantized/convolution_int8_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// See gemm_bf16_simd.cpp: Highway's AVX-512 target and one extension more.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#endif
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/quantized/window_tiles-inl.h"

#ifndef LINNET_KERNELS_QUANTIZED_CONVOLUTION_INT8_ONCE_
#define LINNET_KERNELS_QUANTIZED_CONVOLUTION_INT8_ONCE_
namespace linnet {
namespace {

constexpr int64_t kPanel = PackedShape::kPanel;
constexpr int64_t kMostRows = 8;          // of a tile
constexpr int64_t kBandBytes = 96 << 10;  // of codes that a task has, so that they stay in the L2 cache
constexpr int64_t kImageParts = 16;       // an image's largest magnitude is found in so many parts
constexpr int64_t kFewestWindows = 48;    // of a task
constexpr int64_t kTasksOfThread = 4;

int64_t line_up(int64_t bytes) { return round_up(bytes, 64); }

// Sizes that follow from those of the convolution.
struct Layout {
  explicit Layout(const Int8ConvolutionSizes& s)
      : line(s.horizontal.padded(s.width) * s.channels),
        run(s.horizontal.dilation == 1 ? s.horizontal.size * s.channels : s.channels),
        runs(s.horizontal.dilation == 1 ? 1 : s.horizontal.size),
        window_rows((s.vertical.size - 1) * s.vertical.dilation + 1),
        is_direct(run % 4 == 0),
        depth(ceil_div(s.patch(), PackedShape::kBlock) * PackedShape::kBlock) {
    const int64_t room = std::max<int64_t>(0, kBandBytes / std::max<int64_t>(1, line) - window_rows);
    most_rows = std::min(std::max<int64_t>(1, s.out_height()), room / s.vertical.stride + 1);
  }
  int64_t rows_read(const Int8ConvolutionSizes& s, int64_t rows) const {
    return (rows - 1) * s.vertical.stride + window_rows;
  }

  int64_t line;         // bytes of a row of a padded image
  int64_t run, runs;    // neighboring bytes of a window's row, and how many such runs a row of it has
  int64_t window_rows;  // of the image, from a window's first to its last
  bool is_direct;       // windows are read where they lie, without a copy
  int64_t depth;        // bytes of a window's copy
  int64_t most_rows;    // of results, of a band
};

// The workspace, part by part.
struct Workspace {
  Workspace(const Int8ConvolutionSizes& s, int64_t filters, int threads) : layout(s) {
    const int64_t columns = ceil_div(filters, kPanel) * kPanel;
    factors = take(columns * 4), summands = take(columns * 4), zeros = take(columns * 4);
    image_scales = take(s.images * 4), parts = take(s.images * kImageParts * 4);
    pieces = take(s.vertical.size * layout.runs * 8);
    band_bytes = line_up(layout.rows_read(s, layout.most_rows) * layout.line);
    window_bytes = layout.is_direct ? 0 : line_up(kMostRows * layout.depth);
    bands = take(threads * (band_bytes + window_bytes));
  }
  int64_t take(int64_t bytes) {
    const int64_t begin = size;
    size += line_up(bytes);
    return begin;
  }

  Layout layout;
  int64_t factors, summands, zeros, image_scales, parts, pieces, bands;  // offsets
  int64_t band_bytes = 0, window_bytes = 0;                              // of a thread
  int64_t size = 0;
};

}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {

using IntTag = hn::RebindToSigned<FloatTag>;
using ByteTag = hn::Rebind<uint8_t, FloatTag>;

HWY_INLINE Floats LoadCodes(const uint8_t* codes) {
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), hn::LoadU(ByteTag(), codes)));
}

// The codes of values that were divided by their step. A NaN becomes the least.
struct CodesOf {
  explicit CodesOf(const StaticRounding& r)
      : least(static_cast<float>(r.least - r.zero)), most(static_cast<float>(r.most - r.zero)), zero(r.zero) {}
  HWY_INLINE auto operator()(Floats steps) const {
    const Floats low = SetAll(least), limited = hn::IfThenElse(hn::Gt(steps, low), hn::Min(steps, SetAll(most)), low);
    return hn::DemoteTo(ByteTag(), hn::Add(hn::NearestInt(limited), hn::Set(IntTag(), zero)));
  }
  float least, most;
  int32_t zero;
};

// codes of x [count], each x * inverse steps.
void round_row(const float* x, int64_t count, float inverse, const StaticRounding& rounding, uint8_t* codes) {
  const CodesOf codes_of(rounding);
  int64_t i = 0;
  for (; i + kFloatLanes <= count; i += kFloatLanes)
    hn::StoreU(codes_of(hn::Mul(LoadFloats(x + i), SetAll(inverse))), ByteTag(), codes + i);
  if (i == count) return;
  HWY_ALIGN uint8_t rest[kFloatLanes];
  hn::StoreU(codes_of(hn::Mul(LoadPart(x + i, count - i), SetAll(inverse))), ByteTag(), rest);
  std::memcpy(codes + i, rest, static_cast<size_t>(count - i));
}

// The largest magnitude, as the bits of a float: their order is that of magnitudes, NaN above infinity.
int32_t largest_bits(const float* x, int64_t count) {
  const IntTag di;
  auto most = hn::Zero(di);
  ForRow(count, [&](const auto& at) LINNET_LAMBDA {
    most = hn::Max(most, hn::And(hn::BitCast(di, at.load(x)), hn::Set(di, 0x7fffffff)));
  });
  return hn::GetLane(hn::MaxOfLanes(di, most));
}

// What a task has of an image.
struct Band {
  const uint8_t* codes;  // rows of padded images, from the first window's first
  int64_t first, rows;   // of results
  float scale;           // of the codes
};

class Convolution {
 public:
  Convolution(const Int8Convolution& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool)
      : c_(args),
        s_(args.sizes),
        weight_(weight),
        filters_(weight.shape.rows),
        space_(s_, filters_, pool.size()),
        layout_(space_.layout),
        memory_(workspace),
        pool_(pool),
        out_height_(s_.out_height()),
        out_width_(s_.out_width()) {}

  template <class Windows>
  void run() {
    prepare();
    const int64_t wanted = pool_.size() == 1 ? 1 : kTasksOfThread * pool_.size();
    const int64_t fewest = std::min(layout_.most_rows, ceil_div(kFewestWindows, std::max<int64_t>(1, out_width_)));
    const int64_t rows = std::clamp(ceil_div(out_height_ * s_.images, wanted), fewest, layout_.most_rows);
    const int64_t bands = ceil_div(out_height_, rows), strips = ceil_div(filters_, Windows::kMostPanels * kPanel);
    const int64_t parts = std::clamp(wanted / (bands * s_.images), int64_t{1}, strips);
    const int64_t columns = ceil_div(strips, parts) * Windows::kMostPanels * kPanel;
    pool_.run(s_.images * bands * parts, [&](int64_t task, int worker) {
      const int64_t begin = task % parts * columns;
      if (begin >= filters_) return;
      const int64_t image = task / parts / bands, first = task / parts % bands * rows;
      std::byte* own = memory_ + space_.bands + worker * (space_.band_bytes + space_.window_bytes);
      const Band band = take_band(image, first, std::min(rows, out_height_ - first), reinterpret_cast<uint8_t*>(own));
      multiply<Windows>(image, band, begin, std::min(filters_, begin + columns),
                        reinterpret_cast<uint8_t*>(own + space_.band_bytes));
    });
  }

 private:
  template <class T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }
  bool is_dynamic() const { return c_.rounding.scale == 0; }
  float steps_of_result() const { return c_.y_codes ? 1 / c_.y_rounding.scale : 1.0F; }

  void prepare() {
    auto *factors = at<float>(space_.factors), *summands = at<float>(space_.summands);
    std::fill_n(at<int32_t>(space_.zeros), ceil_div(filters_, kPanel) * kPanel, 0);
    const float input = is_dynamic() ? 1.0F : c_.rounding.scale, steps = steps_of_result();
    for (int64_t o = 0; o < ceil_div(filters_, kPanel) * kPanel; ++o) {
      const bool is_filter = o < filters_;
      float factor = is_filter ? input * weight_.row_scales()[o] : 0;
      if (is_filter && c_.scale) factor *= c_.scale[o];
      factors[o] = factor * steps;
      summands[o] = is_filter && c_.bias ? c_.bias[o] * steps : 0;
    }
    auto* pieces = at<int64_t>(space_.pieces);
    for (int64_t r = 0; r < s_.vertical.size; ++r)
      for (int64_t run = 0; run < layout_.runs; ++run)
        *pieces++ = r * s_.vertical.dilation * layout_.line + run * s_.horizontal.dilation * s_.channels;
    if (is_dynamic()) find_image_scales();
  }

  void find_image_scales() {
    const int64_t size = s_.height * s_.width * s_.channels, part = ceil_div(size, kImageParts);
    auto* found = at<int32_t>(space_.parts);
    pool_.run(s_.images * kImageParts, [&](int64_t task, int) {
      const int64_t begin = std::min(size, task % kImageParts * part);
      found[task] = largest_bits(c_.x + task / kImageParts * size + begin, std::min(part, size - begin));
    });
    for (int64_t image = 0; image < s_.images; ++image) {
      const int32_t bits = *std::max_element(found + image * kImageParts, found + (image + 1) * kImageParts);
      float top = 0;
      std::memcpy(&top, &bits, sizeof top);
      constexpr int32_t kInfinity = 0x7f800000;
      constexpr float kSmallest = 1e-30F;  // below it 255 / top may not be finite, and products are as good as zero
      const float scale = bits >= kInfinity ? std::numeric_limits<float>::quiet_NaN() : top < kSmallest ? 0 : top;
      at<float>(space_.image_scales)[image] = scale / static_cast<float>(255 - c_.rounding.zero);
    }
  }

  // The rows of an image that results [first, first + rows) need.
  Band take_band(int64_t image, int64_t first, int64_t rows, uint8_t* codes) const {
    const float scale = is_dynamic() ? at<const float>(space_.image_scales)[image] : 1.0F;
    const int64_t top = first * s_.vertical.stride - s_.vertical.before, width = s_.width * s_.channels;
    const auto is_bare = [](const WindowAxis& axis) { return axis.before == 0 && axis.after == 0; };
    if (c_.x_codes && is_bare(s_.vertical) && is_bare(s_.horizontal))
      return {c_.x_codes + (image * s_.height + top) * width, first, rows, scale};
    const auto zero = static_cast<uint8_t>(c_.rounding.zero);
    uint8_t* out = codes;
    for (int64_t row = top; row < top + layout_.rows_read(s_, rows); ++row, out += layout_.line) {
      if (row < 0 || row >= s_.height) {
        std::memset(out, zero, static_cast<size_t>(layout_.line));
        continue;
      }
      uint8_t* pixels = std::fill_n(out, s_.horizontal.before * s_.channels, zero);
      round_pixels((image * s_.height + row) * width, width, scale, pixels);
      std::fill(pixels + width, out + layout_.line, zero);
    }
    return {codes, first, rows, scale};
  }

  void round_pixels(int64_t location, int64_t count, float scale, uint8_t* codes) const {
    if (c_.x_codes) return void(std::memcpy(codes, c_.x_codes + location, static_cast<size_t>(count)));
    if (!is_dynamic()) return round_to_codes(c_.x + location, count, c_.rounding, codes);
    if (scale == 0 || scale != scale) return void(std::memset(codes, c_.rounding.zero, static_cast<size_t>(count)));
    StaticRounding rounding = c_.rounding;
    rounding.least = rounding.zero == 0 ? 0 : 1, rounding.most = 255;
    round_row(c_.x + location, count, 1 / scale, rounding, codes);
  }

  // Filters [begin, end) of the band's results. Windows that are copied are copied once for all filters; otherwise a
  // strip of the weight stays in the cache for all windows.
  template <class Windows>
  void multiply(int64_t image, const Band& band, int64_t begin, int64_t end, uint8_t* copies) const {
    constexpr int64_t kStrip = Windows::kMostPanels * kPanel;
    const int64_t windows = band.rows * out_width_, result = (image * out_height_ + band.first) * out_width_;
    const uint8_t* a[kMostRows];
    const auto panels_at = [&](int64_t column) {
      return static_cast<int>(ceil_div(std::min(kStrip, end - column), kPanel));
    };
    if (layout_.is_direct) {
      for (int64_t column = begin; column < end; column += kStrip) {
        const int rows = Windows::rows_of(panels_at(column));
        for (int64_t window = 0; window < windows; window += rows) {
          const int64_t count = std::min<int64_t>(rows, windows - window);
          find_windows(band, window, count, a);
          multiply_tile<Windows>(pieces(), a, count, band.scale, result + window, column, panels_at(column), end);
        }
      }
      return;
    }
    constexpr int64_t kNoOffset = 0;
    const WindowPieces copy{&kNoOffset, 1, layout_.depth};
    const int rows = Windows::rows_of(panels_at(begin));
    for (int64_t window = 0; window < windows; window += rows) {
      const int64_t count = std::min<int64_t>(rows, windows - window);
      find_windows(band, window, count, a);
      copy_windows(pieces(), count, a, copies);
      for (int64_t column = begin; column < end; column += kStrip)
        multiply_tile<Windows>(copy, a, count, band.scale, result + window, column, panels_at(column), end);
    }
  }

  template <class Windows>
  HWY_INLINE void multiply_tile(const WindowPieces& pieces, const uint8_t** a, int64_t count, float band_scale,
                                int64_t result, int64_t column, int panels, int64_t end) const {
    HWY_ALIGN int32_t sums[kMostRows * Windows::kMostPanels * kPanel];
    const int32_t* start = c_.rounding.zero == 0 ? at<const int32_t>(space_.zeros) : weight_.sums() + column;
    for (int64_t i = count; i < Windows::rows_of(panels); ++i) a[i] = a[count - 1];  // computed and not stored
    Windows::run(panels, pieces, a, weight_.codes(column / kPanel), weight_.shape.panel_bytes(), start, sums);
    for (int64_t i = 0; i < count; ++i)
      store(sums + i * panels * kPanel, band_scale, (result + i) * filters_, column,
            std::min<int64_t>(panels * kPanel, end - column));
  }

  WindowPieces pieces() const {
    return {at<const int64_t>(space_.pieces), s_.vertical.size * layout_.runs, layout_.run};
  }

  // Where windows [window, window + count) of the band begin.
  HWY_INLINE void find_windows(const Band& band, int64_t window, int64_t count, const uint8_t** a) const {
    int64_t row = window / out_width_, column = window % out_width_;
    const int64_t step = s_.horizontal.stride * s_.channels, line = s_.vertical.stride * layout_.line;
    for (int64_t i = 0; i < count; ++i) {
      a[i] = band.codes + row * line + column * step;
      if (++column == out_width_) column = 0, ++row;
    }
  }

  void copy_windows(const WindowPieces& pieces, int64_t count, const uint8_t** a, uint8_t* copies) const {
    for (int64_t i = 0; i < count; ++i) {
      uint8_t *copy = copies + i * layout_.depth, *out = copy;
      for (int64_t piece = 0; piece < pieces.count; ++piece, out += pieces.bytes)
        std::memcpy(out, a[i] + pieces.offsets[piece], static_cast<size_t>(pieces.bytes));
      std::fill(out, copy + layout_.depth, static_cast<uint8_t>(c_.rounding.zero));
      a[i] = copy;
    }
  }

  // Multiplications and additions are not fused, as not every instruction set can.
  HWY_INLINE Floats result_of(const int32_t* sums, Floats scale, int64_t column) const {
    const Floats factor = hn::Mul(scale, hn::LoadU(FloatTag(), at<const float>(space_.factors) + column));
    const Floats x = hn::Mul(hn::ConvertTo(FloatTag(), hn::LoadU(IntTag(), sums)), factor);
    return hn::Add(x, hn::LoadU(FloatTag(), at<const float>(space_.summands) + column));
  }

  HWY_INLINE Floats rectified(Floats x) const {
    return c_.relu ? hn::IfThenZeroElse(hn::Lt(x, hn::Zero(FloatTag())), x) : x;
  }

  // The sums of one window by filters [column, column + columns), for y at `location` + column.
  HWY_INLINE void store(const int32_t* sums, float band_scale, int64_t location, int64_t column,
                        int64_t columns) const {
    const Floats scale = SetAll(band_scale);
    const float of_residual = c_.residual_codes ? c_.residual_rounding.scale * steps_of_result() : steps_of_result();
    const Floats zero = SetAll(static_cast<float>(c_.residual_rounding.zero)), residual_factor = SetAll(of_residual);
    const CodesOf codes_of(c_.y_rounding);
    const auto each = [&](int64_t j, const float* residual, const uint8_t* residual_codes) LINNET_LAMBDA {
      Floats x = result_of(sums + j, scale, column + j);
      if (residual_codes) x = hn::Add(x, hn::Mul(hn::Sub(LoadCodes(residual_codes), zero), residual_factor));
      if (residual && !c_.y_codes) x = hn::Add(x, LoadFloats(residual));
      if (residual && c_.y_codes) x = hn::Add(x, hn::Mul(LoadFloats(residual), residual_factor));
      return rectified(x);
    };
    const int64_t to = location + column;
    int64_t j = 0;
    for (; j + kFloatLanes <= columns; j += kFloatLanes) {
      const Floats x = each(j, c_.residual ? c_.residual + to + j : nullptr,
                            c_.residual_codes ? c_.residual_codes + to + j : nullptr);
      if (c_.y_codes) hn::StoreU(codes_of(x), ByteTag(), c_.y_codes + to + j);
      else StoreFloats(x, c_.y + to + j);
    }
    if (j == columns) return;
    const auto rest = static_cast<size_t>(columns - j);
    HWY_ALIGN float floats[kFloatLanes] = {};
    HWY_ALIGN uint8_t codes[kFloatLanes] = {};
    if (c_.residual) std::memcpy(floats, c_.residual + to + j, rest * sizeof(float));
    if (c_.residual_codes) std::memcpy(codes, c_.residual_codes + to + j, rest);
    const Floats x = each(j, c_.residual ? floats : nullptr, c_.residual_codes ? codes : nullptr);
    if (c_.y_codes) {
      hn::StoreU(codes_of(x), ByteTag(), codes);
      std::memcpy(c_.y_codes + to + j, codes, rest);
    } else {
      StorePart(x, c_.y + to + j, columns - j);
    }
  }

  const Int8Convolution& c_;
  const Int8ConvolutionSizes& s_;
  const PackedWeight& weight_;
  const int64_t filters_;
  const Workspace space_;
  const Layout& layout_;
  std::byte* const memory_;
  ThreadPool& pool_;
  const int64_t out_height_, out_width_;
};

void convolve(const Int8Convolution& args, const PackedWeight& weight, [[maybe_unused]] bool vnni, std::byte* workspace,
              ThreadPool& pool) {
  Convolution convolution(args, weight, workspace, pool);
#if HWY_TARGET == HWY_AVX3
  if (vnni) return convolution.run<VnniWindows>();
#endif
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if (args.rounding.any_weight) return convolution.run<SplitPairWindows>();
  convolution.run<PairWindows>();
#else
  convolution.run<PlainWindows>();
#endif
}

}  // namespace
}  // namespace linnet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#if HWY_TARGET == HWY_AVX3
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace linnet {
namespace {

HWY_EXPORT(convolve);

}  // namespace

size_t int8_convolution_workspace(const Int8ConvolutionSizes& sizes, int64_t filters, int threads) {
  return static_cast<size_t>(Workspace(sizes, filters, threads).size);
}

void int8_convolution(const Int8Convolution& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  if (args.sizes.images == 0 || weight.shape.rows == 0) return;
  HWY_DYNAMIC_DISPATCH(convolve)(args, weight, has_vnni(), workspace, pool);
}

}  // namespace linnet
#endif
