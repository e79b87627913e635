// What is read into a learner, what learners share, and what stays when programs move their parts: filters in PyTorch's
// order, rules for names, weights with several losses, plans, modules in vectors.
#include <gtest/gtest.h>
#include <linnet/linnet.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include "temporary_folder.h"

namespace {
using namespace linnet;

const linnet::testing::TemporaryFolder& folder_of_tests() {
  static const linnet::testing::TemporaryFolder folder;
  return folder;
}

// A safetensors file of f32 tensors, as other programs write them.
struct FileTensor {
  std::string name, shape;
  std::vector<float> values;
};
std::string file_of(const char* name, const std::vector<FileTensor>& tensors) {
  std::string header = "{", data;
  for (const FileTensor& tensor : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float));
    header += (header.size() > 1 ? "," : "") + ("\"" + tensor.name) +
              "\":{\"dtype\":\"F32\",\"shape\":" + tensor.shape + ",\"data_offsets\":[" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  header += "}";
  const uint64_t size = header.size();
  return folder_of_tests().write(name, std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data);
}

std::vector<float> counted(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

struct Filters : Module {
  explicit Filters(int64_t in) : conv{this, "conv", in, 2, 3, {.bias = false}} {}
  Conv2d conv;
};

Learner learner_of(Filters& net, int64_t in) {
  return Learner(net, [&net, in](Tracer& t) -> Loss {
    return {sum(net.conv(t.input("x", {DType::kF32, {1, 4, 4, in}}))), t.number(1)};
  });
}

TEST(Load, FiltersWithChannelsFirstAreTurnedWhereTheirShapeShowsIt) {
  Filters net(2);
  Learner learner = learner_of(net, 2);
  const LoadReport report = learner.load(file_of("filters_2", {{"conv.weight", "[2,2,3,3]", counted(36)}}));
  EXPECT_EQ(report.turned, std::vector<std::string>{"conv.weight"});
  const std::span<const float> values = learner.parameter("conv.weight");
  for (int o = 0; o < 2; ++o)
    for (int i = 0; i < 2; ++i)
      for (int at = 0; at < 9; ++at)
        EXPECT_EQ(values[static_cast<size_t>((o * 9 + at) * 2 + i)], static_cast<float>((o * 2 + i) * 9 + at));
}

TEST(Load, FiltersOfEitherOrderAreAnErrorUntilTheOrderIsSaid) {
  Filters net(3);
  Learner learner = learner_of(net, 3);
  const std::string path = file_of("filters_3", {{"conv.weight", "[2,3,3,3]", counted(54)}});
  EXPECT_THROW(learner.load(path), Error);
  EXPECT_TRUE(learner.load(path, {.filters = FilterLayout::channels_last}).turned.empty());
  EXPECT_EQ(learner.parameter("conv.weight")[1], 1);
  EXPECT_EQ(learner.load(path, {.filters = FilterLayout::channels_first}).turned.size(), 1u);
  EXPECT_EQ(learner.parameter("conv.weight")[1], 9);
  learner.save(path);  // files of save() say what they have
  EXPECT_TRUE(learner.load(path).turned.empty());
  EXPECT_EQ(learner.parameter("conv.weight")[1], 9);
}

TEST(Load, FiltersOfSequencesAreTurned) {
  struct Net : Module {
    Conv1d conv{this, "conv", 4, 2, 3, {.bias = false}};
  } net;
  Learner learner(net, [&](Tracer& t) -> Loss {
    return {.sum = sum(net.conv(t.input("x", {DType::kF32, {1, 5, 4}}))), .count = t.number(1)};
  });
  const std::string path = file_of("filters_1d", {{"conv.weight", "[2,4,3]", counted(24)}});
  EXPECT_EQ(learner.load(path).turned, std::vector<std::string>{"conv.weight"});
  EXPECT_EQ(learner.parameter("conv.weight")[1], 3);
}

TEST(Load, RulesRenameStackSplitAndTranspose) {
  struct Model : Module {
    Linear fused{this, "fused", 2, 2}, first{this, "part.0", 2, 1}, second{this, "part.1", 2, 1};
  } net;
  Learner learner(net, [&](Tracer& t) -> Loss {
    const Tensor x = t.input("x", {DType::kF32, {1, 2}});
    return {sum(net.fused(x)) + sum(net.first(x)) + sum(net.second(x)), t.number(1)};
  });
  const std::string path = file_of(
      "rules", {{"q.w", "[1,2]", {1, 2}}, {"k.w", "[1,2]", {3, 4}}, {"q.b", "[1]", {5}}, {"k.b", "[1]", {6}},
                   {"both", "[2,2]", {7, 8, 9, 10}}, {"head.0.offset", "[1]", {11}}, {"head.1.offset", "[1]", {12}}});
  const LoadReport report =
      learner.load(path, {.rules = {{.parameter = "fused.weight", .tensors = {"q.w", "k.w"}},
                              {.parameter = "fused.bias", .tensors = {"q.b", "k.b"}},
                              {.parameter = "part.*.bias", .tensors = {"head.*.offset"}},
                              {.parameter = "part.0.weight", .tensors = {"both"}, .transpose = true, .first_row = 0},
                              {.parameter = "part.1.weight", .tensors = {"both"}, .transpose = true, .first_row = 1}}});
  const auto values = [&](const char* name) {
    const auto span = learner.parameter(name);
    return std::vector<float>(span.begin(), span.end());
  };
  EXPECT_EQ(values("fused.weight"), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values("fused.bias"), (std::vector<float>{5, 6}));
  EXPECT_EQ(values("part.0.weight"), (std::vector<float>{7, 9}));
  EXPECT_EQ(values("part.1.weight"), (std::vector<float>{8, 10}));
  EXPECT_EQ(values("part.1.bias"), std::vector<float>{12});
  EXPECT_EQ(report.turned, (std::vector<std::string>{"part.0.weight", "part.1.weight"}));
}

// A generator that is trained through a critic, and the critic: two losses over one module.
struct Pair : Module {
  Linear maker{this, "maker", 2, 3}, critic{this, "critic", 3, 1};
};
const TensorType kNoise{DType::kF32, {4, 2}};

std::vector<float> copy_of(Learner& learner, const char* name) {
  const auto values = learner.parameter(name);
  return {values.begin(), values.end()};
}

TEST(SharedWeights, EachLearnerTrainsItsPartOfOneModule) {
  Pair pair;
  const auto answers = [&](Tracer& t) { return pair.critic(tanh(pair.maker(t.input("noise", kNoise)))); };
  Learner critic(pair,
      [&](Tracer& t) -> Loss {
        return {sum(square(answers(t))), t.number(4)};
      },
      {.optimizer = Sgd{}, .groups = {{.patterns = {"maker.*"}, .frozen = true}}});
  Learner maker(pair,
      [&](Tracer& t) -> Loss {
        return {sum(square(answers(t) - 1.0)), t.number(4)};
      },
      {.optimizer = Adam{}, .groups = {{.patterns = {"critic.*"}, .frozen = true}}, .weights = &critic});
  for (Learner* learner : {&critic, &maker}) learner->set<float>("noise", {1, 2, 3, 4, 5, 6, 7, 8});
  const auto made = copy_of(critic, "maker.weight"), judged = copy_of(critic, "critic.weight");
  const double before = critic.evaluate();
  maker.step(0.01);
  EXPECT_NE(copy_of(critic, "maker.weight"), made);
  EXPECT_EQ(copy_of(maker, "critic.weight"), judged);
  EXPECT_NE(critic.evaluate(), before);
  const auto made_now = copy_of(critic, "maker.weight");
  critic.step(0.01);
  EXPECT_NE(copy_of(maker, "critic.weight"), judged);
  EXPECT_EQ(copy_of(maker, "maker.weight"), made_now);
  EXPECT_EQ(copy_of(maker, "maker.weight"), copy_of(critic, "maker.weight"));
  const auto kinds = maker.memory();
  EXPECT_TRUE(std::ranges::none_of(kinds, [](const MemoryUse& use) { return use.kind == "parameters"; }));
}

// Both losses train the critic, each with moments of its own.
struct TwoLosses {
  TracedLoss towards(double wanted) {
    return [this, wanted](Tracer& t) -> Loss {
      return {sum(square(pair.critic(tanh(pair.maker(t.input("noise", kNoise)))) - wanted)), t.number(4)};
    };
  }
  TwoLosses() {
    for (Learner* learner : {&first, &second}) learner->set<float>("noise", {1, 2, 3, 4, 5, 6, 7, 8});
  }
  void steps(int count) {
    for (int step = 0; step < count; ++step) first.step(0.01), second.step(0.02);
  }

  Pair pair;
  Learner first{pair, towards(0), {.groups = {{.patterns = {"maker.*"}, .frozen = true}}}};
  Learner second{pair, towards(1), {.weights = &first}};
};

TEST(SharedWeights, ResumeWithTheBitsOfUndisturbedSteps) {
  const std::string path = folder_of_tests() / "shared.state";
  TwoLosses undisturbed;
  undisturbed.steps(6);
  {
    TwoLosses stopped;
    stopped.steps(3);
    stopped.first.save_state(path + ".1"), stopped.second.save_state(path + ".2");
  }
  TwoLosses resumed;
  resumed.first.load_state(path + ".1"), resumed.second.load_state(path + ".2");
  resumed.steps(3);
  for (const char* name : {"maker.weight", "critic.weight", "critic.bias"})
    EXPECT_EQ(copy_of(resumed.second, name), copy_of(undisturbed.first, name)) << name;
}

TEST(SharedWeights, ThreadsPredictOverOneCopy) {
  struct Net : Module {
    Linear layer{this, "layer", 64, 64};
    BatchNorm norm{this, "norm", 64};
  } net;
  const TracedLoss loss = [&](Tracer& t) -> Loss {
    const Tensor y = net.norm(net.layer(t.input("x", {DType::kF32, {2, 64}})));
    t.output("y", y);
    return {sum(square(y)), t.number(2)};
  };
  Learner learner(net, loss);
  learner.set<float>("x", std::vector<float>(128, 0.5f));
  std::vector<Learner> readers;
  for (int i = 0; i < 4; ++i)
    readers.emplace_back(net, loss, LearnerOptions{.threads = 1, .training = false, .weights = &learner});
  learner.step(0.1);
  Arrays request;
  request.set<float>("x", {2, 64}, counted(128));
  const Arrays wanted = learner.predict(request);
  std::vector<Arrays> answers(readers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < readers.size(); ++i)
    threads.emplace_back([&, i] { answers[i] = readers[i].predict(request); });
  for (std::thread& thread : threads) thread.join();
  for (const Arrays& answer : answers) EXPECT_TRUE(std::ranges::equal(answer.get<float>("y"), wanted.get<float>("y")));
}

TEST(Plan, SaysWhatALearnerTakesWithoutTakingIt) {
  Pair pair;
  const TracedLoss loss = [&](Tracer& t) -> Loss { return {sum(pair.critic(pair.maker(t.input("x")))), t.number(1)}; };
  const std::vector<InputTypes> shapes{{{"x", {DType::kF32, {64, 2}}}}};
  const MemoryPlan planned = plan(pair, loss, shapes, {});
  Learner learner(pair, loss, shapes);
  EXPECT_EQ(planned.bytes, learner.memory_bytes());
  EXPECT_EQ(planned.kinds.size(), learner.memory().size());

  // Of terabytes too.
  struct Huge : Module {
    Linear layer{this, "layer", 1 << 19, 1 << 19};
  } huge;
  EXPECT_GT(plan(huge,
                [&](Tracer& t) -> Loss {
                  return {sum(huge.layer(t.input("x", {DType::kF32, {1, 1 << 19}}))), t.number(1)};
                })
                .bytes,
      size_t{4} << 40);

  const int64_t rows = largest_batch(pair, loss, shapes, size_t{1} << 24);
  const auto bytes_of = [&](int64_t count) { return plan(pair, loss, {{{"x", {DType::kF32, {count, 2}}}}}, {}).bytes; };
  EXPECT_LE(bytes_of(rows), size_t{1} << 24);
  EXPECT_GT(bytes_of(rows + 1), size_t{1} << 24);
}

// Options in braces are options, whatever is in them.
TEST(Learner, BracesAreOptions) {
  Pair pair;
  const auto loss = [&](Tracer& t) -> Loss {
    return {sum(pair.critic(pair.maker(t.input("x", kNoise)))), t.number(1)};
  };
  Learner plain(pair, loss, {}), accumulating(pair, loss, {.accumulate = 2}), still(pair, loss, {.training = false});
  EXPECT_THROW(accumulating.set<float>("y", {1}), Error);
  EXPECT_THROW(still.step(0.1), Error);
  Learner shaped(pair,
      [&](Tracer& t) -> Loss {
        return {sum(pair.critic(pair.maker(t.input("x")))), t.number(1)};
      },
      {{{"x", kNoise}}});
  EXPECT_EQ(shaped.steps(), 0);
}

// A loss may be of parameters alone, and a parameter the first operand of an op.
TEST(Learner, MayHaveALossOfParametersAlone) {
  struct Points : Module {
    Parameter at{this, "at", {3}, constant_init(2)};
  } points;
  Learner learner(points,
      [&](Tracer& t) -> Loss {
        return {sum(square(points.at) + relu(points.at - 5.0)), t.number(1)};
      },
      {.optimizer = Sgd{}});
  EXPECT_EQ(learner.step(0.25).loss, 12);
  EXPECT_EQ(learner.parameter("at")[0], 1);
}

TEST(Learner, PartsMoveIntoVectors) {
  struct Small : Module {
    Linear layer{this, "layer", 2, 1};
    Sequential tail{this, "tail"};
    Small() { tail.add<Linear>(1, 1); }
  };
  std::vector<Small> nets(1);
  for (int i = 0; i < 5; ++i) nets.emplace_back();
  std::vector<Learner> learners;
  for (Small& net : nets)
    learners.emplace_back(net, [&net](Tracer& t) -> Loss {
      return {sum(square(net.tail(net.layer(t.input("x", kNoise))))), t.number(4)};
    });
  nets.clear();  // the graphs are kept, not the modules
  for (Learner& learner : learners) {
    learner.set<float>("x", {1, 2, 3, 4, 5, 6, 7, 8});
    EXPECT_TRUE(learner.step(0.01).finite);
    EXPECT_EQ(learner.diagnose(), "");
    EXPECT_EQ(learner.parameters()[1].name, "tail.0.weight");
  }
}
}  // namespace
