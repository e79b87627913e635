#include "vector_math.h"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>
#include "engine/kernels/processor.h"

namespace linnet {
namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Case {
  const char* name;
  VectorFunction function;
  double (*reference)(double);
  float low, high;
  double max_ulp;
};

// Errors in units of the last place of the exact result.
double worst_ulp(const Case& c) {
  constexpr int count = 200'003;
  std::vector<float> x(count), y(count);
  for (int i = 0; i < count; ++i) x[i] = static_cast<float>(c.low + (double(c.high) - c.low) * i / (count - 1));
  vector_math(c.function, count, x.data(), y.data());
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    const double exact = c.reference(x[i]);
    const float size = std::fabs(static_cast<float>(exact));
    if (size < 1.2e-38f) continue;
    worst = std::max(worst, std::fabs(y[i] - exact) / (std::nextafter(size, kInf) - size));
  }
  return worst;
}

TEST(VectorMath, IsAccurateOnEveryInstructionSet) {
  const Case cases[] = {
      {"exp", VectorFunction::kExp, std::exp, -87.3f, 88.7f, 1.2},
      {"exp small", VectorFunction::kExp, std::exp, -1, 1, 1.2},
      {"log", VectorFunction::kLog, std::log, 1e-6f, 4, 1.5},
      {"log near 1", VectorFunction::kLog, std::log, 0.9f, 1.1f, 1.5},
      {"log large", VectorFunction::kLog, std::log, 1, 1e30f, 1.5},
      {"log denormal", VectorFunction::kLog, std::log, 1e-45f, 1e-37f, 1.5},
      {"tanh", VectorFunction::kTanh, std::tanh, -10, 10, 3.5},
      {"tanh small", VectorFunction::kTanh, std::tanh, -1e-2f, 1e-2f, 3.5},
      {"erf", VectorFunction::kErf, std::erf, -5, 5, 4.5},
      {"erf small", VectorFunction::kErf, std::erf, -1e-3f, 1e-3f, 4.5},
      {"sigmoid", VectorFunction::kSigmoid, sigmoid, -87, 87, 4},
      {"sin", VectorFunction::kSin, std::sin, -10, 10, 2.4},
      {"sin large", VectorFunction::kSin, std::sin, 49000, 51000, 2.4},
      {"sin huge", VectorFunction::kSin, std::sin, 1e6f, 1e30f, 1},
      {"cos", VectorFunction::kCos, std::cos, -10, 10, 2.4},
      {"cos large", VectorFunction::kCos, std::cos, -51000, -49000, 2.4},
  };
  for (const auto& isa : available_isas()) {
    force_isa(isa);
    for (const Case& c : cases) {
      EXPECT_LE(worst_ulp(c), c.max_ulp) << c.name << " on " << isa;
    }
  }
  force_isa("auto");
}

TEST(VectorMath, SinesAreAtMostOneAndDoNotDependOnNeighbors) {
  constexpr int count = 100'000;
  std::vector<float> x(count), sines(count), cosines(count), others(count);
  for (int i = 0; i < count; ++i) x[i] = static_cast<float>(i - count / 2) * 4e-4F;
  for (const auto& isa : available_isas()) {
    force_isa(isa);
    for (const auto& [function, y] : {std::pair{VectorFunction::kSin, &sines}, {VectorFunction::kCos, &cosines}}) {
      vector_math(function, count, x.data(), y->data());
      EXPECT_LE(std::fabs(*std::ranges::max_element(*y, {}, [](float v) { return std::fabs(v); })), 1.0F) << isa;
      std::vector<float> far = x;
      for (int i = 0; i < count; i += 7) far[i] = i % 2 ? kNan : 1e6F;
      vector_math(function, count, far.data(), others.data());
      for (int i = 0; i < count; ++i)
        if (i % 7) ASSERT_EQ(others[i], (*y)[i]) << isa << " " << x[i];
    }
  }
  force_isa("auto");
}

TEST(VectorMath, LimitsAndNan) {
  const float nan_with_payload = std::nanf("12345");
  const std::vector<float> x = {-kInf, kInf, kNan, -kNan, nan_with_payload, -1000, 1000, 0, -0.0f, -88, 89, -1,
      std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 1e-45f, 3};
  const auto reference = [](VectorFunction function, double x) -> double {
    switch (function) {
      case VectorFunction::kExp: return x < -87.4 ? 0 : std::exp(x);
      case VectorFunction::kLog: return std::log(x);
      case VectorFunction::kTanh: return std::tanh(x);
      case VectorFunction::kErf: return std::erf(x);
      case VectorFunction::kSin: return std::sin(x);
      case VectorFunction::kCos: return std::cos(x);
      default: return x < -88.7 ? 0 : sigmoid(x);
    }
  };
  for (const auto& isa : available_isas()) {
    force_isa(isa);
    for (const auto function : {VectorFunction::kExp, VectorFunction::kLog, VectorFunction::kTanh, VectorFunction::kErf,
             VectorFunction::kSigmoid, VectorFunction::kSin, VectorFunction::kCos}) {
      for (size_t i = 0; i < x.size(); ++i) {
        float y = 7;
        vector_math(function, 1, &x[i], &y);
        const auto expected = static_cast<float>(reference(function, x[i]));
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(y)) << isa << " " << int(function) << " of " << x[i] << " is " << y;
        } else {
          EXPECT_EQ(y == 0, expected == 0) << isa << " " << int(function) << " of " << x[i] << " is " << y;
          EXPECT_FLOAT_EQ(y, expected) << isa << " " << int(function) << " of " << x[i];
        }
      }
    }
  }
  force_isa("auto");
}

TEST(VectorMath, RaggedEndsWriteNothingBeyond) {
  for (const auto& isa : available_isas()) {
    force_isa(isa);
    for (int n = 0; n < 70; ++n) {
      std::vector<float> x(n + 1, 1.0f), y(n + 2, -5.0f);
      vector_math(VectorFunction::kExp, n, x.data() + 1, y.data() + 1);
      EXPECT_EQ(y[0], -5.0f);
      EXPECT_EQ(y[n + 1], -5.0f);
      for (int i = 1; i <= n; ++i) EXPECT_FLOAT_EQ(y[i], std::exp(1.0f));
    }
  }
  force_isa("auto");
}
}  // namespace
}  // namespace linnet
