#include <algorithm>
#include <vector>

#include "ops/conv2d/conv2d.h"

namespace linnet {
namespace {

struct Sizes {
  Sizes(const Shape& x, const Shape& weight, const Shape& y, const Conv2dAttrs& attrs)
      : images(x[0]),
        height(x[1]),
        width(x[2]),
        channels(x[3]),
        filters(weight[0]),
        rows(weight[1]),
        columns(weight[2]),
        out_height(y[1]),
        out_width(y[2]),
        stride(attrs.stride),
        padding(attrs.padding) {}
  int64_t images, height, width, channels, filters, rows, columns, out_height, out_width, stride, padding;
};

// body(offset in x, in weight, in y) of the first of `channels` products, for every tap that lies inside the image.
template <class Body>
void for_taps(const Sizes& s, int64_t image, const Body& body) {
  for (int64_t i = 0; i < s.out_height; ++i)
    for (int64_t j = 0; j < s.out_width; ++j)
      for (int64_t o = 0; o < s.filters; ++o)
        for (int64_t r = 0; r < s.rows; ++r)
          for (int64_t c = 0; c < s.columns; ++c) {
            const int64_t y = i * s.stride + r - s.padding, x = j * s.stride + c - s.padding;
            if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
            body(((image * s.height + y) * s.width + x) * s.channels, ((o * s.rows + r) * s.columns + c) * s.channels,
                 ((image * s.out_height + i) * s.out_width + j) * s.filters + o);
          }
}

void run_reference(const KernelArgs& args) {
  const Sizes s(args.in[0].shape(), args.in[1].shape(), args.out[0].shape(), args.node.attrs.as<Conv2dAttrs>());
  for_float(args.out[0].type.dtype, [&]<class T>() {
    const T *x = args.in[0].as<T>(), *weight = args.in[1].as<T>();
    T* y = args.out[0].as<T>();
    std::fill_n(y, args.out[0].elements(), T{0});
    args.pool.run(s.images, [&](int64_t image, int) {
      for_taps(s, image, [&](int64_t at_x, int64_t at_weight, int64_t at_y) {
        for (int64_t c = 0; c < s.channels; ++c) y[at_y] += x[at_x + c] * weight[at_weight + c];
      });
    });
  });
}

void run_input_grad_reference(const KernelArgs& args) {
  const Sizes s(args.out[0].shape(), args.in[1].shape(), args.in[0].shape(), args.node.attrs.as<Conv2dAttrs>());
  for_float(args.out[0].type.dtype, [&]<class T>() {
    const T *dy = args.in[0].as<T>(), *weight = args.in[1].as<T>();
    T* dx = args.out[0].as<T>();
    std::fill_n(dx, args.out[0].elements(), T{0});
    args.pool.run(s.images, [&](int64_t image, int) {
      for_taps(s, image, [&](int64_t at_x, int64_t at_weight, int64_t at_y) {
        for (int64_t c = 0; c < s.channels; ++c) dx[at_x + c] += dy[at_y] * weight[at_weight + c];
      });
    });
  });
}

void run_weight_grad_reference(const KernelArgs& args) {
  const Sizes s(args.in[0].shape(), args.out[0].shape(), args.in[1].shape(), args.node.attrs.as<Conv2dAttrs>());
  for_float(args.out[0].type.dtype, [&]<class T>() {
    const T *x = args.in[0].as<T>(), *dy = args.in[1].as<T>();
    T* dweight = args.out[0].as<T>();
    std::fill_n(dweight, args.out[0].elements(), T{0});
    for (int64_t image = 0; image < s.images; ++image)
      for_taps(s, image, [&](int64_t at_x, int64_t at_weight, int64_t at_y) {
        for (int64_t c = 0; c < s.channels; ++c) dweight[at_weight + c] += dy[at_y] * x[at_x + c];
      });
  });
}

constexpr Kernel kKernels[] = {{"reference", nullptr, nullptr, run_reference}};
constexpr Kernel kInputGradKernels[] = {{"reference", nullptr, nullptr, run_input_grad_reference}};
constexpr Kernel kWeightGradKernels[] = {{"reference", nullptr, nullptr, run_weight_grad_reference}};

}  // namespace

KernelList conv2d_kernels() { return kKernels; }
KernelList conv2d_input_grad_kernels() { return kInputGradKernels; }
KernelList conv2d_weight_grad_kernels() { return kWeightGradKernels; }

}  // namespace linnet
