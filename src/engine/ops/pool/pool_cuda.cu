// Small convolutional networks fit in the caches, and a step is bound by kernel launches and by too few threads. So
// each op is one direct kernel, and a gradient's sums two.
#include <algorithm>
#include <limits>
#include "engine/kernels/conv/pool.h"
#include "engine/kernels/cuda/block_reduce.cuh"
#include "engine/ops/pool/pool.h"

namespace linnet {
namespace {
constexpr int kThreads = 256;
constexpr int kMaxByteChannels = 8;        // of u8 images
constexpr size_t kMostShared = 99 * 1024;  // what a block has at least, from compute capability 8.0 on (8.6)

struct Channel {
  int index;
  float scale, shift;
};

struct Images {
  int count = 0, height = 0, width = 0, channels = 0, filters = 0, pooled_height = 0, pooled_width = 0;
  float scale[kMaxByteChannels] = {}, shift[kMaxByteChannels] = {};

  // Chosen by comparisons: an index unknown at compile time would put the arrays into memory.
  LINNET_DEVICE Channel channel(int c) const {
    Channel result{c, 1, 0};
#pragma unroll
    for (int k = 0; k < kMaxByteChannels; ++k)
      if (k == c) result.scale = scale[k], result.shift = shift[k];
    return result;
  }
  // A pixel for the convolution: zero outside, bytes scaled.
  template <class X> LINNET_DEVICE float pixel(const X* image, int row, int column, const Channel& channel) const {
    if (row < 0 || row >= height || column < 0 || column >= width) return 0;
    const int location = (row * width + column) * channels + channel.index;
    if constexpr (std::is_same_v<X, uint8_t>)
      return static_cast<float>(image[location]) * channel.scale + channel.shift;
    else return to_float(image[location]);
  }
};

constexpr int kGroup = 4;  // filters of a thread

inline int groups_of(const Images& images) { return (images.filters + kGroup - 1) / kGroup; }

// The largest of a window's four results and its index; NaN counts as largest.
LINNET_DEVICE void choose(const float (&sums)[4], float& largest, unsigned& which) {
  largest = sums[0], which = 0;
#pragma unroll
  for (unsigned location = 1; location < 4; ++location)
    if (sums[location] > largest || sums[location] != sums[location]) largest = sums[location], which = location;
  if (largest <= 0) largest = 0, which = kDeadWindow;
}

// A thread has the window at (i, j) of an image and four filters, which share the 4 x 4 pixels under the window's four
// results. A channel's weights are in shared memory, [9][filters]. `wide`: writes the four results together.
template <class X, class T> __global__ void __launch_bounds__(kThreads, 2)
    conv_pool_kernel(Images images, int groups, bool wide, const X* __restrict__ x, Numbers weight,
        const float* __restrict__ bias, T* __restrict__ y, uint8_t* __restrict__ which) {
  begin_kernel();
  auto* weights = dynamic_shared<float>();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, window = at / groups;
  const int first = static_cast<int>(at - window * groups) * kGroup,
            per_image = images.pooled_height * images.pooled_width;
  const int64_t image = window / per_image;
  const bool inside = image < images.count;
  const int in_image = static_cast<int>(window - image * per_image), i = in_image / images.pooled_width,
            j = in_image - i * images.pooled_width;
  x += inside ? image * images.height * images.width * images.channels : 0;
  float sums[kGroup][4];  // [filter][location in the window]
#pragma unroll
  for (int f = 0; f < kGroup; ++f)
#pragma unroll
    for (float& sum : sums[f]) sum = first + f < images.filters ? bias[first + f] : 0;
  for (int c = 0; c < images.channels; ++c) {
    if (c > 0) __syncthreads();
    for (int k = static_cast<int>(threadIdx.x); k < 9 * groups * kGroup; k += kThreads) {
      const int tap = k / (groups * kGroup), o = k - tap * groups * kGroup;
      weights[k] = o < images.filters ? weight[(static_cast<int64_t>(o) * 9 + tap) * images.channels + c] : 0;
    }
    __syncthreads();
    const Channel channel = images.channel(c);
    float pixels[4][4];
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int s = 0; s < 4; ++s) pixels[r][s] = inside ? images.pixel(x, 2 * i + r - 1, 2 * j + s - 1, channel) : 0;
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      float w[kGroup];
      load_vector(weights + tap * groups * kGroup + first, w);
#pragma unroll
      for (int f = 0; f < kGroup; ++f)
#pragma unroll
        for (int location = 0; location < 4; ++location)
          sums[f][location] += pixels[location / 2 + tap / 3][location % 2 + tap % 3] * w[f];
    }
  }
  if (!inside) return;
  float largest[kGroup];
  unsigned best[kGroup];
#pragma unroll
  for (int f = 0; f < kGroup; ++f) choose(sums[f], largest[f], best[f]);
  y += window * images.filters + first, which += window * images.filters + first;
  if (wide) {
    store_vector(y, largest);
    *reinterpret_cast<unsigned*>(which) = best[0] | best[1] << 8 | best[2] << 16 | best[3] << 24;
    return;
  }
#pragma unroll
  for (int f = 0; f < kGroup; ++f)
    if (first + f < images.filters) y[f] = from_float<T>(largest[f]), which[f] = static_cast<uint8_t>(best[f]);
}

constexpr int kFilters = 16;  // of a block of the weights' gradient; its other threads share the windows
constexpr int kAtOnce = 4;    // images whose pixels a block keeps, and for which it reads the head's weights once
constexpr int kSums = 10;     // nine taps and the bias
constexpr int kSlices = 32;   // of the windows, one for every kFilters threads
constexpr int kGradThreads = kFilters * kSlices;
constexpr size_t kTileBytes = 40 * 1024;

struct WeightGradient {
  Images images;
  const uint8_t* which = nullptr;
  Numbers dy;            // or, where `outputs` is above 0, the product of
  Numbers factor, head;  // factor [N, outputs] and head [outputs, pooled locations * filters]
  int outputs = 0;
  int images_per_part = 1;
  int band = 1;            // pooled rows at a time
  float* parts = nullptr;  // [parts, filters * 9 * channels + filters]
};

// Block (part, channel, filters / 16). A channel's padded pixels are in shared memory, a band of rows of kAtOnce images
// at a time, so that a result's nine pixels need no border checks.
template <class X> __global__ void __launch_bounds__(kGradThreads)
    weight_grad_kernel(WeightGradient call, const X* __restrict__ x) {
  begin_kernel();
  // [kAtOnce][2 * band + 2][width + 2], then [kAtOnce][outputs]; in the end [kSlices][kFilters][kSums]
  auto* tile = dynamic_shared<float>();
  const Images& images = call.images;
  const int row_size = images.width + 2, tile_rows = 2 * call.band + 2, plane = tile_rows * row_size;
  float* factors = tile + kAtOnce * plane;
  const int thread = static_cast<int>(threadIdx.x), own = thread % kFilters, slice = thread / kFilters;
  const int filter = static_cast<int>(blockIdx.z) * kFilters + own, channel = static_cast<int>(blockIdx.y);
  const int per_image = images.pooled_height * images.pooled_width;
  const int begin = static_cast<int>(blockIdx.x) * call.images_per_part,
            end = min(images.count, begin + call.images_per_part);
  const Channel pixels_of = images.channel(channel);
  float sums[kSums] = {};
  for (int first = begin; first < end; first += kAtOnce) {
    const int count = min(kAtOnce, end - first);
    for (int top = 0; top < images.pooled_height; top += call.band) {
      __syncthreads();  // what the last band was read from is written again
      for (int k = thread; k < count * plane; k += kGradThreads) {
        const int image = k / plane, inside = k - image * plane, row = inside / row_size;
        const X* from = x + static_cast<int64_t>(first + image) * images.height * images.width * images.channels;
        tile[k] = images.pixel(from, 2 * top - 1 + row, inside - row * row_size - 1, pixels_of);
      }
      for (int k = thread; k < count * call.outputs; k += kGradThreads)
        factors[k] = call.factor[static_cast<int64_t>(first) * call.outputs + k];
      __syncthreads();
      if (filter >= images.filters) continue;
      const int locations = min(call.band, images.pooled_height - top) * images.pooled_width;
      for (int location = slice; location < locations; location += kSlices) {
        const int i = location / images.pooled_width, j = location - i * images.pooled_width;
        const int64_t in_image = static_cast<int64_t>(top * images.pooled_width + location) * images.filters + filter;
        const int64_t stride = static_cast<int64_t>(per_image) * images.filters;
        float slopes[kAtOnce] = {};
        if (call.outputs > 0) {
          for (int k = 0; k < call.outputs; ++k) {
            const float w = call.head[k * stride + in_image];
#pragma unroll
            for (int m = 0; m < kAtOnce; ++m)
              if (m < count) slopes[m] += factors[m * call.outputs + k] * w;
          }
        } else {
#pragma unroll
          for (int m = 0; m < kAtOnce; ++m)
            if (m < count) slopes[m] = call.dy[(first + m) * stride + in_image];
        }
#pragma unroll
        for (int m = 0; m < kAtOnce; ++m) {
          if (m >= count) continue;
          const int chosen = call.which[(first + m) * stride + in_image];
          if (chosen == kDeadWindow) continue;
          const float* pixels = tile + m * plane + (2 * i + chosen / 2) * row_size + 2 * j + chosen % 2;
#pragma unroll
          for (int tap = 0; tap < 9; ++tap) sums[tap] += slopes[m] * pixels[tap / 3 * row_size + tap % 3];
          sums[9] += slopes[m];
        }
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSums; ++k) tile[thread * kSums + k] = sums[k];
  __syncthreads();
  const int64_t weights = static_cast<int64_t>(images.filters) * 9 * images.channels;
  float* to = call.parts + static_cast<int64_t>(blockIdx.x) * (weights + images.filters);
  for (int at = thread; at < kFilters * kSums; at += kGradThreads) {
    const int f = at / kSums, k = at - f * kSums;
    const int64_t o = static_cast<int64_t>(blockIdx.z) * kFilters + f;
    if (o >= images.filters) continue;
    float sum = 0;
    for (int s = 0; s < kSlices; ++s) sum += tile[(s * kFilters + f) * kSums + k];
    if (k < 9) to[(o * 9 + k) * images.channels + channel] = sum;
    else if (channel == 0) to[weights + o] = sum;
  }
}

// A thread has one element of dx: it gathers from the nine results it took part in those that were chosen.
template <class T>
LINNET_DEVICE void gather_slopes(int64_t at, Images images, Numbers weight, const uint8_t* which, const T* dy, T* dx) {
  const int64_t location = at / images.channels, per_image = static_cast<int64_t>(images.height) * images.width,
                image = location / per_image;
  const int channel = static_cast<int>(at - location * images.channels),
            inside = static_cast<int>(location - image * per_image), row = inside / images.width,
            column = inside - row * images.width;
  float sum = 0;
  for (int tap = 0; tap < 9; ++tap) {
    const int i = row + 1 - tap / 3, j = column + 1 - tap % 3;  // of the result
    if (i < 0 || j < 0 || i / 2 >= images.pooled_height || j / 2 >= images.pooled_width) continue;
    const int64_t first =
        ((image * images.pooled_height + i / 2) * images.pooled_width + j / 2) * static_cast<int64_t>(images.filters);
    for (int o = 0; o < images.filters; ++o)
      if (which[first + o] == 2 * (i % 2) + j % 2)
        sum += to_float(dy[first + o]) * weight[(static_cast<int64_t>(o) * 9 + tap) * images.channels + channel];
  }
  dx[at] = from_float<T>(sum);
}

Images images_of(const Shape& x, const Shape& pooled, const PixelScaling& scaling) {
  const auto size = [](int64_t n) { return static_cast<int>(n); };
  Images images{size(x[0]), size(x[1]), size(x[2]), size(x[3]), size(pooled[3]), size(pooled[1]), size(pooled[2])};
  for (size_t c = 0; c < scaling.scale.size(); ++c)
    images.scale[c] = scaling.scale[c], images.shift[c] = scaling.shift[c];
  return images;
}

template <class Body> void for_images(DType dtype, const Body& body) {
  if (dtype == DType::kU8) return body.template operator()<uint8_t>();
  for_storage(dtype, body);
}

bool supports_images(const KernelQuery& query) {
  const TensorType& x = query.in[0];
  return x.shape.elements(1, 4) <= std::numeric_limits<int>::max() &&
         (x.dtype != DType::kU8 || x.shape[3] <= kMaxByteChannels);
}

size_t weight_bytes(const Images& images) { return bytes_for<float>(int64_t{9} * kGroup * groups_of(images)); }

bool supports(const KernelQuery& query) {
  return supports_images(query) && weight_bytes(images_of(query.in[0].shape, query.out[0].shape, {})) <= kMostShared;
}

void run(const KernelArgs& args) {
  const Images images = images_of(args.in[0].shape(), args.out[0].shape(), args.attrs<ConvReluPoolAttrs>().scaling);
  const int64_t windows = static_cast<int64_t>(images.count) * images.pooled_height * images.pooled_width;
  const int groups = groups_of(images);
  const bool wide = images.filters % kGroup == 0 && aligned16(args.out[0].as<float>(), args.out[1].as<uint8_t>());
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    for_images(args.in[0].type.dtype, [&]<class X>() {
      launch(args.device, conv_pool_kernel<X, T>, blocks_for(windows * groups, kThreads), kThreads,
          weight_bytes(images), images, groups, wide, args.in[0].as<X>(), numbers_of(args.in[1]),
          args.in[2].as<float>(), args.out[0].as<T>(), args.out[1].as<uint8_t>());
    });
  });
}

// About two blocks per multiprocessor of a large GPU.
int64_t images_per_part(int64_t images) { return std::max<int64_t>(1, (images + 255) / 256); }
int64_t part_count(int64_t images) { return (images + images_per_part(images) - 1) / images_per_part(images); }

size_t tile_bytes(const Images& images, int band, int outputs) {
  return sizeof(float) * kAtOnce *
         (static_cast<size_t>(2 * band + 2) * static_cast<size_t>(images.width + 2) + static_cast<size_t>(outputs));
}

int band_of(const Images& images, int outputs) {
  int band = images.pooled_height;
  while (band > 1 && tile_bytes(images, band, outputs) > kTileBytes) band = (band + 1) / 2;
  return band;
}

int outputs_of(std::span<const TensorType> in) { return in.size() == 4 ? static_cast<int>(in[2].shape[1]) : 0; }

bool supports_weight_grad(const KernelQuery& query) {
  const Images images = images_of(query.in[0].shape, query.in[1].shape, {});
  return supports_images(query) && tile_bytes(images, 1, outputs_of(query.in)) <= kMostShared;
}

size_t weight_grad_workspace(const KernelQuery& query) {
  const int64_t sums = query.out[0].shape.elements() + query.out[1].shape.elements();
  return bytes_for<float>(part_count(query.in[0].shape[0]) * sums);
}

void run_weight_grad(const KernelArgs& args) {
  WeightGradient call;
  call.images = images_of(args.in[0].shape(), args.in[1].shape(), args.attrs<ConvReluPoolAttrs>().scaling);
  call.which = args.in[1].as<uint8_t>();
  if (args.in.size() == 4) {
    call.factor = numbers_of(args.in[2]), call.head = numbers_of(args.in[3]);
    call.outputs = static_cast<int>(args.in[2].shape()[1]);
  } else {
    call.dy = numbers_of(args.in[2]);
  }
  const Images& images = call.images;
  const auto parts = static_cast<unsigned>(part_count(images.count));
  call.images_per_part = static_cast<int>(images_per_part(images.count));
  call.band = band_of(images, call.outputs);
  call.parts = reinterpret_cast<float*>(args.workspace);
  const dim3 grid(parts, static_cast<unsigned>(images.channels), blocks_for(images.filters, kFilters));
  for_images(args.in[0].type.dtype, [&]<class X>() {
    launch(args.device, weight_grad_kernel<X>, grid, kGradThreads,
        std::max(tile_bytes(images, call.band, call.outputs), sizeof(float) * kGradThreads * kSums), call,
        args.in[0].as<X>());
  });
  const int64_t weights = args.out[0].elements();
  add_parts(args.device, parts, weights, weights + images.filters, call.parts, args.out[0].as<float>(),
      args.out[1].as<float>());
}

void run_input_grad(const KernelArgs& args) {
  const Images images = images_of(args.out[0].shape(), args.in[2].shape(), {});
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    launch_elements<gather_slopes<T>>(args.device, args.out[0].elements(), images, numbers_of(args.in[0]),
        args.in[1].as<uint8_t>(), args.in[2].as<T>(), args.out[0].as<T>());
  });
}

// Pooling alone: a thread for each result, backward for each element of the image.
// image [N, height, width, channels], result [N, rows, columns, channels]
struct Pool {
  int64_t height, width, rows, columns, channels;
  int size, stride;
};

template <class T> LINNET_DEVICE void pool_window(int64_t i, Pool pool, const T* x, T* y, uint8_t* locations) {
  const auto [window, c] = divided(i, pool.channels);
  const auto [line, column] = divided(window, pool.columns);
  const auto [image, row] = divided(line, pool.rows);
  x += ((image * pool.height + row * pool.stride) * pool.width + column * pool.stride) * pool.channels + c;
  float largest = to_float(x[0]);
  int location = 0;
  for (int h = 0; h < pool.size; ++h)
    for (int w = 0; w < pool.size; ++w) {
      const float value = to_float(x[(h * pool.width + w) * pool.channels]);
      if (value > largest || value != value) largest = value, location = h * pool.size + w;
    }
  y[i] = from_float<T>(largest);
  locations[i] = static_cast<uint8_t>(location);
}

template <class T>
LINNET_DEVICE void gather_window_slopes(int64_t i, Pool pool, const T* dy, const uint8_t* locations, T* dx) {
  const auto [pixel, c] = divided(i, pool.channels);
  const auto [line, w] = divided(pixel, pool.width);
  const auto [image, h] = divided(line, pool.height);
  // Windows from the first that reaches here to the last that begins here.
  const auto first = [&](int64_t at) {
    return divided(max(int64_t{0}, at - pool.size + pool.stride), pool.stride).quotient;
  };
  const int64_t last_row = min(divided(h, pool.stride).quotient, pool.rows - 1);
  const int64_t last_column = min(divided(w, pool.stride).quotient, pool.columns - 1);
  float sum = 0;
  for (int64_t row = first(h); row <= last_row; ++row)
    for (int64_t column = first(w); column <= last_column; ++column) {
      const int64_t at = ((image * pool.rows + row) * pool.columns + column) * pool.channels + c;
      const int64_t location = (h - row * pool.stride) * pool.size + w - column * pool.stride;
      if (locations[at] == location) sum += to_float(dy[at]);
    }
  dx[i] = from_float<T>(sum);
}

Pool pool_of(const MaxPoolAttrs& attrs, const Shape& image, const Shape& result) {
  return {.height = image[1],
      .width = image[2],
      .rows = result[1],
      .columns = result[2],
      .channels = image[3],
      .size = static_cast<int>(attrs.size),
      .stride = static_cast<int>(attrs.stride)};
}

void run_max_pool(const KernelArgs& args) {
  const Pool pool = pool_of(args.attrs<MaxPoolAttrs>(), args.in[0].shape(), args.out[0].shape());
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch_elements<pool_window<T>>(
        args.device, args.out[0].elements(), pool, args.in[0].as<T>(), args.out[0].as<T>(), args.out[1].as<uint8_t>());
  });
}

void run_max_pool_grad(const KernelArgs& args) {
  const Pool pool = pool_of(args.attrs<MaxPoolAttrs>(), args.out[0].shape(), args.in[0].shape());
  for_storage(args.in[0].type.dtype, [&]<class T>() {
    launch_elements<gather_window_slopes<T>>(
        args.device, args.out[0].elements(), pool, args.in[0].as<T>(), args.in[1].as<uint8_t>(), args.out[0].as<T>());
  });
}

// Bytes as numbers, four in one access.
constexpr int kMaxChannels = 64;

struct Channels {
  float scale[kMaxChannels], shift[kMaxChannels];
};

template <class T> LINNET_DEVICE void scale_four(
    int64_t i, int64_t count, int channels, bool aligned, Channels scaling, const uint8_t* x, T* y) {
  const int64_t begin = i * 4;
  const bool whole = aligned && begin + 4 <= count;
  int channel = static_cast<int>(begin % channels);
  Four<uint8_t> bytes;
  float values[4];
  if (whole) bytes = *reinterpret_cast<const Four<uint8_t>*>(x + begin);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (!whole) bytes.at[k] = begin + k < count ? x[begin + k] : 0;
    // Rounded twice, as on the CPU.
    values[k] = __fadd_rn(__fmul_rn(static_cast<float>(bytes.at[k]), scaling.scale[channel]), scaling.shift[channel]);
    if (++channel == channels) channel = 0;
  }
  store_up_to_4(y + begin, count - begin, whole, values);
}

bool supports_pixels(const KernelQuery& query) {
  return query.attrs<ScalePixelsAttrs>().scaling.scale.size() <= kMaxChannels;
}

void run_pixels(const KernelArgs& args) {
  const PixelScaling& scaling = args.attrs<ScalePixelsAttrs>().scaling;
  Channels channels{};
  for (size_t c = 0; c < scaling.scale.size(); ++c)
    channels.scale[c] = scaling.scale[c], channels.shift[c] = scaling.shift[c];
  const int64_t count = args.in[0].elements();
  const auto* x = args.in[0].as<const uint8_t>();
  for_storage(args.out[0].type.dtype, [&]<class T>() {
    T* y = args.out[0].as<T>();
    launch_elements<scale_four<T>>(args.device, (count + 3) / 4, count, static_cast<int>(scaling.scale.size()),
        aligned4(x) && aligned4(y), channels, x, y);
  });
}
}  // namespace

LINNET_KERNELS(conv_relu_pool_cuda, {"windows", run, supports})
LINNET_KERNELS(
    conv_relu_pool_weight_grad_cuda, {"images", run_weight_grad, supports_weight_grad, weight_grad_workspace})
LINNET_KERNELS(conv_relu_pool_input_grad_cuda, {"pixels", run_input_grad})
LINNET_KERNELS(max_pool_cuda, {"windows", run_max_pool})
LINNET_KERNELS(max_pool_grad_cuda, {"elements", run_max_pool_grad})
LINNET_KERNELS(scale_pixels_cuda, {"bytes", run_pixels, supports_pixels})
}  // namespace linnet
