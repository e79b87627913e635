#include <cstring>
#include "base/numbers.h"
#include "base/thread_pool.h"
#include "engine/kernels/parallel.h"
#include "engine/kernels/quantized/products.h"

#define HWY_TARGET_INCLUDE "engine/kernels/quantized/convolution_int8_simd.cpp"
#include <hwy/foreach_target.h>

// See gemm_bf16_simd.cpp: Highway's AVX-512 target and one extension more.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#endif
#include "engine/kernels/quantized/byte_tiles-inl.h"

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

// Sizes that follow from the convolution's.
struct Layout {
  explicit Layout(const Int8ConvolutionSizes& s)
      : line(s.horizontal.padded(s.width) * s.channels),
        run(s.horizontal.dilation == 1 ? s.horizontal.size * s.channels : s.channels),
        runs(s.horizontal.dilation == 1 ? 1 : s.horizontal.size),
        window_rows((s.vertical.size - 1) * s.vertical.dilation + 1), is_direct(run % 4 == 0),
        depth(round_up(s.patch(), PackedShape::kBlock)) {
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

struct Workspace {
  Workspace(const Int8ConvolutionSizes& s, int64_t filters, int threads, std::byte* base) : layout(s) {
    Regions regions(base);
    const int64_t columns = round_up(filters, kPanel);
    factors = regions.take<float>(columns), summands = regions.take<float>(columns);
    zeros = regions.take<int32_t>(columns);
    image_scales = regions.take<float>(s.images), parts = regions.take<int32_t>(s.images * kImageParts);
    pieces = regions.take<int64_t>(s.vertical.size * layout.runs);
    band_bytes = round_up(layout.rows_read(s, layout.most_rows) * layout.line, 64);
    window_bytes = layout.is_direct ? 0 : round_up(kMostRows * layout.depth, 64);
    bands = regions.take<uint8_t>(threads * (band_bytes + window_bytes));
    size = regions.size();
  }

  Layout layout;
  float *factors, *summands;  // of a filter: y = sum * factor + summand, in steps of the result
  int32_t *zeros, *parts;
  float* image_scales;
  int64_t* pieces;
  uint8_t* bands;
  int64_t band_bytes, window_bytes;  // of a thread
  size_t size;
};
}  // namespace
}  // namespace linnet
#endif

HWY_BEFORE_NAMESPACE();
namespace linnet::HWY_NAMESPACE {
namespace {
// Rows of a tile by `panels` panels, all of which are computed.
template <class Tiles> constexpr int window_rows(int panels) {
  return Tiles::kPanels == 1 ? Tiles::kRows : panels == 4 ? 6 : 8;
}

// The codes of values divided by their step. A NaN becomes the least.
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

// A task's part of an image.
struct Band {
  const uint8_t* codes;  // rows of padded images, from the first window's first
  int64_t first, rows;   // of results
  float scale;           // of the codes
};

class Convolution {
 public:
  Convolution(const Int8Convolution& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool)
      : c_(args), s_(args.sizes), weight_(weight), filters_(weight.shape.rows),
        space_(s_, filters_, pool.size(), workspace), layout_(space_.layout), pool_(pool), out_height_(s_.out_height()),
        out_width_(s_.out_width()) {}

  template <class Tiles> void run() {
    prepare();
    const int64_t wanted = pool_.size() == 1 ? 1 : kTasksOfThread * pool_.size();
    const int64_t fewest = std::min(layout_.most_rows, ceil_div(kFewestWindows, std::max<int64_t>(1, out_width_)));
    const int64_t rows = std::clamp(ceil_div(out_height_ * s_.images, wanted), fewest, layout_.most_rows);
    const int64_t bands = ceil_div(out_height_, rows), strips = ceil_div(filters_, Tiles::kPanels * kPanel);
    const int64_t parts = std::clamp(wanted / (bands * s_.images), int64_t{1}, strips);
    const int64_t columns = ceil_div(strips, parts) * Tiles::kPanels * kPanel;
    pool_.run(s_.images * bands * parts, [&](int64_t task, int worker) {
      const int64_t begin = task % parts * columns;
      if (begin >= filters_) return;
      const int64_t image = task / parts / bands, first = task / parts % bands * rows;
      uint8_t* own = space_.bands + worker * (space_.band_bytes + space_.window_bytes);
      const Band band = take_band(image, first, std::min(rows, out_height_ - first), own);
      multiply<Tiles>(image, band, begin, std::min(filters_, begin + columns), own + space_.band_bytes);
    });
  }

 private:
  bool is_dynamic() const { return c_.rounding.scale == 0; }
  float steps_of_result() const { return c_.y_codes ? 1 / c_.y_rounding.scale : 1.0F; }

  void prepare() {
    std::fill_n(space_.zeros, round_up(filters_, kPanel), 0);
    const float input = is_dynamic() ? 1.0F : c_.rounding.scale, steps = steps_of_result();
    for (int64_t o = 0; o < round_up(filters_, kPanel); ++o) {
      const bool is_filter = o < filters_;
      float factor = is_filter ? input * weight_.row_scales()[o] : 0;
      if (is_filter && c_.scale) factor *= c_.scale[o];
      space_.factors[o] = factor * steps;
      space_.summands[o] = is_filter && c_.bias ? c_.bias[o] * steps : 0;
    }
    int64_t* pieces = space_.pieces;
    for (int64_t r = 0; r < s_.vertical.size; ++r)
      for (int64_t run = 0; run < layout_.runs; ++run)
        *pieces++ = r * s_.vertical.dilation * layout_.line + run * s_.horizontal.dilation * s_.channels;
    if (is_dynamic()) find_image_scales();
  }

  void find_image_scales() {
    const int64_t size = s_.height * s_.width * s_.channels, part = ceil_div(size, kImageParts);
    int32_t* const found = space_.parts;
    pool_.run(s_.images * kImageParts, [&](int64_t task, int) {
      const int64_t begin = std::min(size, task % kImageParts * part);
      const float* x = c_.x + task / kImageParts * size + begin;
      found[task] = LargestBits(std::min(part, size - begin), [=](const auto& at) LINNET_LAMBDA { return at.load(x); });
    });
    for (int64_t image = 0; image < s_.images; ++image) {
      const int32_t bits = *std::max_element(found + image * kImageParts, found + (image + 1) * kImageParts);
      space_.image_scales[image] = CodedMagnitude(bits) / static_cast<float>(255 - c_.rounding.zero);
    }
  }

  // The rows of an image that results [first, first + rows) need.
  Band take_band(int64_t image, int64_t first, int64_t rows, uint8_t* codes) const {
    const float scale = is_dynamic() ? space_.image_scales[image] : 1.0F;
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
    const CodesOf codes_of(rounding);
    const Floats inverse = SetAll(1 / scale);
    const float* x = c_.x + location;
    ForRow(count, [&](const auto& at) LINNET_LAMBDA { at.store_bytes(codes_of(hn::Mul(at.load(x), inverse)), codes); });
  }

  // Filters [begin, end) of the band's results. Copied windows are copied once for all filters; otherwise a strip of
  // the weight stays in cache for all windows.
  template <class Tiles>
  void multiply(int64_t image, const Band& band, int64_t begin, int64_t end, uint8_t* copies) const {
    constexpr int64_t kStrip = Tiles::kPanels * kPanel;
    const int64_t windows = band.rows * out_width_, result = (image * out_height_ + band.first) * out_width_;
    const uint8_t* a[kMostRows];
    const auto panels_at = [&](int64_t column) {
      return static_cast<int>(ceil_div(std::min(kStrip, end - column), kPanel));
    };
    if (layout_.is_direct) {
      for (int64_t column = begin; column < end; column += kStrip) {
        const int rows = window_rows<Tiles>(panels_at(column));
        for (int64_t window = 0; window < windows; window += rows) {
          const int64_t count = std::min<int64_t>(rows, windows - window);
          find_windows(band, window, count, a);
          multiply_tile<Tiles>(windows_at(a), a, count, band.scale, result + window, column, panels_at(column), end);
        }
      }
      return;
    }
    constexpr int64_t kNoOffset = 0;
    const WindowRows copy{a, &kNoOffset, 1, layout_.depth};
    const int rows = window_rows<Tiles>(panels_at(begin));
    for (int64_t window = 0; window < windows; window += rows) {
      const int64_t count = std::min<int64_t>(rows, windows - window);
      find_windows(band, window, count, a);
      copy_windows(count, a, copies);
      for (int64_t column = begin; column < end; column += kStrip)
        multiply_tile<Tiles>(copy, a, count, band.scale, result + window, column, panels_at(column), end);
    }
  }

  template <class Tiles> HWY_INLINE void multiply_tile(const WindowRows& windows, const uint8_t** a, int64_t count,
      float band_scale, int64_t result, int64_t column, int panels, int64_t end) const {
    HWY_ALIGN int32_t sums[kMostRows * Tiles::kPanels * kPanel];
    const int32_t* start = c_.rounding.zero == 0 ? space_.zeros : weight_.sums() + column;
    for (int64_t i = count; i < window_rows<Tiles>(panels); ++i) a[i] = a[count - 1];  // computed and not stored
    WithConstant<Tiles::kPanels>(panels, [&]<int P>() LINNET_LAMBDA {
      Tiles::template Tile<window_rows<Tiles>(P), P>(
          windows, weight_.codes(column / kPanel), weight_.shape.panel_bytes(), start, sums, P * kPanel);
    });
    for (int64_t i = 0; i < count; ++i)
      store(sums + i * panels * kPanel, band_scale, (result + i) * filters_, column,
          std::min<int64_t>(panels * kPanel, end - column));
  }

  WindowRows windows_at(const uint8_t* const* a) const {
    return {a, space_.pieces, s_.vertical.size * layout_.runs, layout_.run};
  }

  // The first bytes of windows [window, window + count) of the band.
  HWY_INLINE void find_windows(const Band& band, int64_t window, int64_t count, const uint8_t** a) const {
    int64_t row = window / out_width_, column = window % out_width_;
    const int64_t step = s_.horizontal.stride * s_.channels, line = s_.vertical.stride * layout_.line;
    for (int64_t i = 0; i < count; ++i) {
      a[i] = band.codes + row * line + column * step;
      if (++column == out_width_) column = 0, ++row;
    }
  }

  void copy_windows(int64_t count, const uint8_t** a, uint8_t* copies) const {
    const WindowRows pieces = windows_at(a);
    for (int64_t i = 0; i < count; ++i) {
      uint8_t *copy = copies + i * layout_.depth, *out = copy;
      for (int64_t piece = 0; piece < pieces.count; ++piece, out += pieces.bytes)
        std::memcpy(out, a[i] + pieces.offsets[piece], static_cast<size_t>(pieces.bytes));
      std::fill(out, copy + layout_.depth, static_cast<uint8_t>(c_.rounding.zero));
      a[i] = copy;
    }
  }

  // The sums of one window by filters [column, column + columns), for y at `location` + column. Without fused
  // multiply-add, which some instruction sets lack.
  HWY_INLINE void store(
      const int32_t* sums, float band_scale, int64_t location, int64_t column, int64_t columns) const {
    const Floats scale = SetAll(band_scale);
    const float of_residual = c_.residual_codes ? c_.residual_rounding.scale * steps_of_result() : steps_of_result();
    const Floats zero = SetAll(static_cast<float>(c_.residual_rounding.zero)), residual_factor = SetAll(of_residual);
    const CodesOf codes_of(c_.y_rounding);
    const int64_t to = location + column;
    ForRow(columns, [&](const auto& at) LINNET_LAMBDA {  // sums, factors and summands are whole panels
      const Floats factor = hn::Mul(scale, LoadFloats(space_.factors + column + at.first));
      Floats x = hn::Mul(FloatsOf(sums + at.first), factor);
      x = hn::Add(x, LoadFloats(space_.summands + column + at.first));
      if (c_.residual_codes) {
        const Floats codes = hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), at.load_bytes(c_.residual_codes + to)));
        x = hn::Add(x, hn::Mul(hn::Sub(codes, zero), residual_factor));
      }
      if (c_.residual) {
        const Floats residual = at.load(c_.residual + to);
        x = hn::Add(x, c_.y_codes ? hn::Mul(residual, residual_factor) : residual);
      }
      if (c_.relu) x = Relu(x);
      if (c_.y_codes) at.store_bytes(codes_of(x), c_.y_codes + to);
      else at.store(x, c_.y + to);
    });
  }

  const Int8Convolution& c_;
  const Int8ConvolutionSizes& s_;
  const PackedWeight& weight_;
  const int64_t filters_;
  const Workspace space_;
  const Layout& layout_;
  ThreadPool& pool_;
  const int64_t out_height_, out_width_;
};

void convolve(const Int8Convolution& args, const PackedWeight& weight, [[maybe_unused]] bool vnni, std::byte* workspace,
    ThreadPool& pool) {
  Convolution convolution(args, weight, workspace, pool);
#if HWY_TARGET == HWY_AVX3
  if (vnni) return convolution.run<VnniTiles>();
#endif
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if (args.rounding.any_weight) return convolution.run<SplitPairTiles>();
  convolution.run<PairTiles>();
#else
  convolution.run<PlainTiles>();
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
HWY_EXPORT(convolve);

size_t int8_convolution_workspace(const Int8ConvolutionSizes& sizes, int64_t filters, int threads) {
  return Workspace(sizes, filters, threads, nullptr).size;
}

void int8_convolution(const Int8Convolution& args, const PackedWeight& weight, std::byte* workspace, ThreadPool& pool) {
  if (args.sizes.images == 0 || weight.shape.rows == 0) return;
  HWY_DYNAMIC_DISPATCH(convolve)(args, weight, has_vnni(), workspace, pool);
}
}  // namespace linnet
#endif
