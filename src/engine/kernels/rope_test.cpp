#include "engine/kernels/rope.h"
#include <cmath>
#include "kernel_testing.h"

namespace linnet {
namespace {
struct Problem {
  int64_t batch, length, heads, others, head_size;
  std::vector<int32_t> positions = {};
  bool inverse = false;
};

std::vector<double> frequencies(const Problem& p) {
  std::vector<double> out;
  for (int64_t i = 0; i < p.head_size / 2; ++i) out.push_back(std::pow(1e4, -2.0 * double(i) / double(p.head_size)));
  return out;
}

std::vector<double> reference(const Problem& p, const std::vector<float>& x) {
  const int64_t half = p.head_size / 2, width = (p.heads + p.others) * p.head_size;
  std::vector<double> y(x.begin(), x.end());
  for (int64_t row = 0; row < p.batch * p.length; ++row)
    for (int64_t head = 0; head < p.heads; ++head)
      for (int64_t i = 0; i < half; ++i) {
        const double position = p.positions.empty() ? double(row % p.length) : p.positions[row];
        const double angle = position * frequencies(p)[i] * (p.inverse ? -1 : 1);
        const int64_t at = row * width + head * p.head_size + i;
        y[at] = x[at] * std::cos(angle) - x[at + half] * std::sin(angle);
        y[at + half] = x[at + half] * std::cos(angle) + x[at] * std::sin(angle);
      }
  return y;
}

TEST(Rope, TurnsTheHalvesOfEachHeadByItsPosition) {
  Problem far{2, 3, 2, 1, 34, {0, 1, 2000000000, 7, 7, 123456}};
  Problem back = far;
  back.inverse = true;
  for (const Problem& p : {Problem{1, 1, 1, 0, 2}, Problem{3, 40, 2, 1, 64}, Problem{2, 70, 3, 0, 6},
           Problem{1, 5, 1, 2, 512}, far, back}) {
    const int64_t width = (p.heads + p.others) * p.head_size;
    const std::vector<float> x = random_floats(p.batch * p.length * width, 3);
    const std::vector<double> want = reference(p, x), turns = frequencies(p);
    for (const bool in_place : {false, true})
      for_every_isa(
          [&](ThreadPool& pool) {
            std::vector<float> y = in_place ? x : std::vector<float>(x.size(), kNan);
            RopeArgs args{.batch = p.batch, .length = p.length, .width = width, .heads = p.heads};
            args.head_size = p.head_size, args.inverse = p.inverse, args.frequencies = turns.data();
            args.positions = p.positions.empty() ? nullptr : p.positions.data();
            args.position_stride = p.length;
            args.x = in_place ? y.data() : x.data(), args.x_batch_stride = p.length * width, args.x_row_stride = width;
            args.y = y.data(), args.y_batch_stride = p.length * width, args.y_row_stride = width;
            rope_rows(args, pool);
            return y;
          },
          [&](const std::vector<float>& y) { expect_close(y, want, 6e-7); });
  }
}
}  // namespace
}  // namespace linnet
