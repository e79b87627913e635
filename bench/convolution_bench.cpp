// Convolutions of ResNet-20, ResNet-18 and MobileNet: the forward pass and both gradients, in milliseconds and in
// GFLOP/s.
//
//   convolution_bench [threads=1] [seconds a pass=0.2] [filter] [bf16]
//                                           a table; the filter is a part of a row's name; bf16: images are stored and
//                                           multiplied in bf16, as far as the processor can
//   convolution_bench --ask [ISA]           reads lines "threads seconds N H W C O R stride padding groups" and answers
//                                           each with the three passes' best times in milliseconds; for
//                                           bench/convolutions.py, which sets PyTorch beside it
#include <time.h>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>
#include "base/thread_pool.h"
#include "base/timeline.h"
#include "engine/device/device.h"
#include "engine/kernels/conv/convolution.h"
#include "engine/kernels/processor.h"

namespace linnet {
namespace {
struct Row {
  const char* name;
  int64_t images, size, channels, filters, window, stride, padding, groups;
};

// bench/convolutions.py has the same list.
constexpr Row kRows[] = {
    {"resnet20 first", 128, 32, 3, 16, 3, 1, 1, 1},
    {"resnet20 16", 128, 32, 16, 16, 3, 1, 1, 1},
    {"resnet20 16 to 32", 128, 32, 16, 32, 3, 2, 1, 1},
    {"resnet20 32", 128, 16, 32, 32, 3, 1, 1, 1},
    {"resnet20 32 to 64", 128, 16, 32, 64, 3, 2, 1, 1},
    {"resnet20 64", 128, 8, 64, 64, 3, 1, 1, 1},
    {"resnet18 first", 8, 224, 3, 64, 7, 2, 3, 1},
    {"resnet18 64", 8, 56, 64, 64, 3, 1, 1, 1},
    {"resnet18 64 to 128", 8, 56, 64, 128, 3, 2, 1, 1},
    {"resnet18 shortcut", 8, 56, 64, 128, 1, 2, 0, 1},
    {"resnet18 128", 8, 28, 128, 128, 3, 1, 1, 1},
    {"resnet18 256", 8, 14, 256, 256, 3, 1, 1, 1},
    {"resnet18 512", 8, 7, 512, 512, 3, 1, 1, 1},
    {"mobilenet 32 each", 8, 112, 32, 32, 3, 1, 1, 32},
    {"mobilenet 128 each", 8, 56, 128, 128, 3, 2, 1, 128},
    {"mobilenet 512 each", 8, 14, 512, 512, 3, 1, 1, 512},
    {"mobilenet 512", 8, 14, 512, 512, 1, 1, 0, 1},
};

ConvolutionSizes sizes_of(const Row& row) {
  ConvolutionSizes s;
  s.images = row.images, s.height = s.width = row.size, s.channels = row.channels;
  s.filters = row.filters, s.rows = s.columns = row.window;
  s.stride = row.stride, s.padding = row.padding, s.groups = row.groups;
  s.out_height = s.out_width = (row.size + 2 * row.padding - row.window) / row.stride + 1;
  return s;
}

double operations(const ConvolutionSizes& s) {
  return 2.0 * static_cast<double>(s.images * s.out_height * s.out_width) *
         static_cast<double>(s.filters * s.taps() * s.group_channels());
}

std::vector<float> values(int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  uint32_t state = 12345;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int32_t>(state >> 9) % 2001 - 1000) * 1e-3f;
  }
  return x;
}

// A tensor as training has it: aligned, in memory of the same kind.
template <class T> class Tensor {
 public:
  explicit Tensor(size_t count) : memory_(count * sizeof(T)) {}
  explicit Tensor(const std::vector<float>& x) : Tensor(x.size()) {
    std::transform(x.begin(), x.end(), data(), [](float value) { return T(value); });
  }
  T* data() { return reinterpret_cast<T*>(memory_.data()); }

 private:
  Buffer memory_;
};

// Best milliseconds of the forward pass, the input gradient and the weight gradient. T: of images, float or Bfloat16.
template <class T> std::array<double, 3> measure(const ConvolutionSizes& s, int threads, double seconds) {
  constexpr bool kBf16 = std::is_same_v<T, Bfloat16>;
  const Convolution convolution{.sizes = s, .x_bf16 = kBf16, .y_bf16 = kBf16, .bf16_products = kBf16};
  ThreadPool pool(threads);
  const auto weight = values(s.filters * s.taps() * s.group_channels());
  const auto images = values(s.images * s.height * s.width * s.channels);
  const auto results = values(s.images * s.out_height * s.out_width * s.filters);
  Tensor<T> x(images), dy(results), y(results.size()), dx(images.size());
  std::vector<float> dweight(weight.size());
  std::array<double, 3> best{};
  for (const auto pass :
      {ConvolutionPass::kForward, ConvolutionPass::kInputGradient, ConvolutionPass::kWeightGradient}) {
    const size_t bytes = convolution_workspace(convolution, pass, threads);
    const Buffer memory(bytes);
    std::byte* workspace = memory.data();
    const auto run = [&] {
      if (pass == ConvolutionPass::kForward)
        convolution_forward(convolution, x.data(), weight.data(), y.data(), workspace, pool, {}, nullptr, nullptr);
      else if (pass == ConvolutionPass::kInputGradient)
        convolution_input_gradient(convolution, dy.data(), weight.data(), dx.data(), workspace, pool);
      else convolution_weight_gradient(convolution, x.data(), dy.data(), dweight.data(), workspace, pool);
    };
    run();
    double least = 1e9;
    for (const double end = now() + seconds; now() < end;) {
      const double begin = now();
      run();
      least = std::min(least, now() - begin);
    }
    best[static_cast<size_t>(pass)] = least * 1e3;
  }
  return best;
}

int answer() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    int threads = 1;
    double seconds = 0;
    Row row{};
    if (!(in >> threads >> seconds >> row.images >> row.size >> row.channels >> row.filters >> row.window >>
            row.stride >> row.padding >> row.groups))
      return 1;
    const auto best = measure<float>(sizes_of(row), threads, seconds);
    std::printf("%.4f %.4f %.4f\n", best[0], best[1], best[2]);
    std::fflush(stdout);
  }
  return 0;
}

void table(int threads, double seconds, const std::string& filter, bool bf16) {
  std::printf("%d threads; milliseconds and GFLOP/s of y, dx, dweight\n", threads);
  for (const Row& row : kRows) {
    if (std::string(row.name).find(filter) == std::string::npos) continue;
    const ConvolutionSizes s = sizes_of(row);
    const auto best = (bf16 ? measure<Bfloat16> : measure<float>)(s, threads, seconds);
    std::printf("%-20s", row.name);
    for (const double ms : best) std::printf("  %8.3f %6.1f", ms, operations(s) / ms * 1e-6);
    std::printf("\n");
    std::fflush(stdout);
  }
}
}  // namespace
}  // namespace linnet

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--ask") {
    linnet::force_isa(argc > 2 ? argv[2] : "auto");
    return linnet::answer();
  }
  linnet::table(argc > 1 ? std::atoi(argv[1]) : 1, argc > 2 ? std::atof(argv[2]) : 0.2, argc > 3 ? argv[3] : "",
      argc > 4 && std::string(argv[4]) == "bf16");
}
