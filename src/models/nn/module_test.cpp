#include "models/nn/module.h"
#include <gtest/gtest.h>
#include <cmath>
#include "error_of.h"
#include "models/nn/layers.h"
#include "models/nn/trace.h"

namespace linnet {
namespace {
struct Mlp : Module {
  Mlp(Module* up, std::string name, int64_t d)
      : Module(up, std::move(name)), fc{this, "fc", d, 4 * d}, proj{this, "proj", 4 * d, d} {}
  Tensor operator()(Tensor x) { return proj(relu(fc(x))); }
  Linear fc, proj;
};

struct Net : Module {
  Mlp first{this, "first", 4};
  ModuleList<Mlp> layers{this, "layers", 2, int64_t{4}};
};

TEST(Module, NamesFollowTheMembersInOrder) {
  Net net;
  std::vector<std::string> names;
  for (const ParameterSpec& spec : net.parameters()) names.push_back(spec.name);
  const std::vector<std::string> expected{"first.fc.weight", "first.fc.bias", "first.proj.weight", "first.proj.bias",
      "layers.0.fc.weight", "layers.0.fc.bias", "layers.0.proj.weight", "layers.0.proj.bias", "layers.1.fc.weight",
      "layers.1.fc.bias", "layers.1.proj.weight", "layers.1.proj.bias"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(net.parameter_count(), 3 * (16 * 4 + 16 + 4 * 16 + 4));
}

TEST(Module, AnAdoptedRootHasItsNamesBehindItsPlace) {
  Net net;
  struct Pair : Module {
  } pair;
  pair.adopt(net, "left");
  EXPECT_EQ(pair.parameters()[0].name, "left.first.fc.weight");
  EXPECT_EQ(pair.parameters()[11].name, "left.layers.1.proj.bias");
  EXPECT_EQ(net.first.fc.path(), "left.first.fc");
  EXPECT_EQ(pair.parameter_count(), net.parameter_count());
}

TEST(Module, AShapeErrorNamesTheModule) {
  Net net;
  Trace trace;
  const Tensor x = trace.graph().input("x", {DType::kF32, {2, 5}});
  const std::string message = error_of([&] { net.layers[1](x); }, ErrorKind::kShape);
  EXPECT_PRED2(has_text, message, "module_test.cpp:");
  EXPECT_PRED2(
      has_text, message, "matmul: got [2, 5] and [16, 4] transposed, inner sizes 5 and 4 differ (in layers.1.fc)");
}

TEST(Module, GlorotKeepsItsBoundAndVariance) {
  std::vector<float> values(300 * 100);
  initialize(xavier_uniform(3), "w", 1, {300, 100}, values);
  const double bound = std::sqrt(6.0 / 200);
  double squares = 0;
  for (float v : values) {
    EXPECT_LE(std::abs(v), bound);
    squares += v * v;
  }
  EXPECT_NEAR(squares / static_cast<double>(values.size()), bound * bound / 3, 0.03 * bound * bound / 3);
}

TEST(Module, InitialValuesDependOnNameAndSeedOnly) {
  std::vector<float> a(64), b(64), c(64);
  initialize(normal_init(1), "x.weight", 1, {8, 8}, a);
  initialize(normal_init(1), "x.weight", 1, {8, 8}, b);
  initialize(normal_init(1), "y.weight", 1, {8, 8}, c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  initialize(normal_init(1), "x.weight", 2, {8, 8}, c);
  EXPECT_NE(a, c);
}
}  // namespace
}  // namespace linnet
