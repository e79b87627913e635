// Mistakes that programs make: each, in a process of its own, ends in a linnet::Error of one line, and the program can
// go on. None ends in a signal, an abort or a result.
#include <gtest/gtest.h>
#include <linnet/linnet.h>
#include <linnet/testing.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

namespace {
using namespace linnet;
namespace testing = linnet::testing;

struct Net : Module {
  Linear hidden{this, "hidden", 2, 4}, out{this, "out", 4, 1};
  Tensor operator()(Tensor x) { return out(relu(hidden(x))); }
};

const TensorType kX{DType::kF32, {4, 2}}, kY{DType::kF32, {4, 1}};

Loss squares(Net& net, Tracer& trace) {
  const Tensor x = trace.input("x", kX), y = trace.input("y", kY);
  trace.output("answer", net(x));
  return {.sum = sum(square(net(x) - y)), .count = trace.number(4)};
}

// A learner of the network above.
struct Ready {
  explicit Ready(const LearnerOptions& options = {})
      : learner(
            net, [this](Tracer& trace) { return squares(net, trace); }, options) {
    learner.set<float>("x", {0, 0, 0, 1, 1, 0, 1, 1});
    learner.set<float>("y", {0, 1, 1, 0});
  }
  Net net;
  Learner learner;
};

// Traces ops on x f32 [4, 2], y f32 [4, 1] and ids i32 [4].
void trace(const std::function<Tensor(Tracer&, Tensor x, Tensor y, Tensor ids)>& ops) {
  Net net;
  Learner learner(net, [&](Tracer& tracer) -> Loss {
    const Tensor x = tracer.input("x", kX);
    const Tensor result = ops(tracer, x, tracer.input("y", kY), tracer.input("ids", {DType::kI32, {4}}));
    return {.sum = sum(net(x)) + sum(result) * 0.0, .count = tracer.number(4)};
  });
}

// A step of attention to 4 positions of which `lengths` count.
void attend(const std::vector<int32_t>& lengths) {
  struct Attending : Module {
    MultiHeadAttention attention{this, "attention", 4, 2};
  } model;
  Learner learner(model, [&](Tracer& t) -> Loss {
    const Tensor x = t.input("x", {DType::kF32, {2, 4, 4}}), counted = t.input("lengths", {DType::kI32, {2}});
    return {sum(model.attention(x, {.lengths = counted})), t.number(2)};
  });
  learner.set<float>("x", std::vector<float>(32, 1));
  learner.set<int32_t>("lengths", lengths);
  learner.step(0.1);
}

// Rows added up at ids of which one is outside.
void scatter(int32_t id) {
  const Shape ids{4};
  Net net;
  Learner learner(net, [&](Tracer& t) -> Loss {
    const Tensor rows = scatter_add(net(t.input("x", kX)), t.input("ids", {DType::kI32, ids}), 3);
    return {sum(rows), t.number(4)};
  });
  learner.set<float>("x", std::vector<float>(8, 1));
  learner.set<int32_t>("ids", {0, 1, 2, id});
  learner.evaluate();
}

Dataset numbers(int64_t count) {
  Dataset data;
  data.add("x", {2}, std::vector<float>(static_cast<size_t>(2 * count)));
  return data.add("labels", Shape{}, std::vector<int32_t>(static_cast<size_t>(count)));
}

Arrays batch_of(const TensorType& x, const TensorType& y) { return Arrays({{"x", x}, {"y", y}}); }

std::string temporary() {
  return (std::filesystem::temp_directory_path() / ("misuse_" + std::to_string(getpid()))).string();
}

std::string file_of(const std::string& text) {
  std::ofstream(temporary()) << text;
  return temporary();
}

// An op of floats without a gradient.
OpDefinition definition(const std::string& name) {
  OpDefinition op{.name = name};
  op.infer = [](const OpTypes& types) -> std::vector<TensorType> {
    if (types.in.size() != 1 || !is_float(types.in[0].dtype)) throw Error(ErrorKind::kShape, "expected one float");
    return {types.in[0]};
  };
  op.decompose = [](const OpOperands& operands) -> std::vector<Tensor> { return {operands.in[0] * 0.5}; };
  op.kernel = [](const OpCall& call) {
    for (size_t i = 0; i < call.in[0].as<float>().size(); ++i)
      call.out[0].as<float>()[i] = call.in[0].as<float>()[i] / 2;
  };
  return op;
}

struct Misuse {
  const char* name;
  std::function<void()> run;
};

// One that is a wrong call of a function of x f32 [4, 2] and ids i32 [4].
Misuse wrong(const char* name, const std::function<Tensor(Tensor x, Tensor ids)>& call) {
  return {name, [call] { trace([&](Tracer&, Tensor x, Tensor, Tensor ids) { return call(x, ids); }); }};
}

// x as [rows, height, width, channels] of 8 elements.
Tensor image(Tensor x) { return reshape(x, {1, 2, 2, 2}); }
// Some tensor of this shape.
Tensor shaped(const Shape& shape) { return reshape(arange(shape.elements()), shape); }

const double kNan = std::numeric_limits<double>::quiet_NaN();

const std::vector<Misuse>& misuses() {
  static const std::vector<Misuse> all{
      // Tensors
      {"UndefinedFirst", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return Tensor{} + x; }); }},
      {"UndefinedSecond", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return x * Tensor{}; }); }},
      {"UndefinedUnary", [] { trace([](Tracer&, Tensor, Tensor, Tensor) { return relu(Tensor{}); }); }},
      {"UndefinedMatmul", [] { trace([](Tracer&, Tensor, Tensor, Tensor) { return matmul(Tensor{}, Tensor{}); }); }},
      {"UndefinedReduction", [] { trace([](Tracer&, Tensor, Tensor, Tensor) { return sum(Tensor{}); }); }},
      {"UndefinedShape", [] { (void)Tensor{}.shape(); }},
      {"UndefinedConvolution", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return conv2d(Tensor{}, x); }); }},
      {"UndefinedInModule",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss { return {sum(net(Tensor{})), t.number(1)}; });
          }},
      {"ScatterFarOutside", [] { scatter(100'000); }},
      {"ScatterBelowZero", [] { scatter(-1); }},
      {"ShapesDiffer", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) {
                              return x + reshape(x, {2, 4});
                            }); }},
      {"MatmulDiffers", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return matmul(x, x); }); }},
      {"TypesDiffer", [] { trace([](Tracer&, Tensor x, Tensor, Tensor ids) { return x + ids; }); }},
      {"FunctionOfIds", [] { trace([](Tracer&, Tensor, Tensor, Tensor ids) { return exp(ids); }); }},
      {"ReshapeDiffers", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) {
                                return reshape(x, {3, 3});
                              }); }},
      {"ReshapeNegative", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) {
                                 return reshape(x, {-2, -4});
                               }); }},
      {"SliceBeyond", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return slice(x, 0, 2, 5); }); }},
      {"SliceNegative", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return slice(x, 0, -1, 2); }); }},
      {"SplitUnevenly", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return split_evenly(x, 0, 3)[0]; }); }},
      {"SplitIntoNone", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return split_evenly(x, 0, 0)[0]; }); }},
      {"SumAxis", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return sum(x, 2); }); }},
      {"MeanAxis", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return mean(x, -3); }); }},
      {"MaxAxis", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return max(x, 7); }); }},
      {"ConcatNothing",
          [] { trace([](Tracer&, Tensor, Tensor, Tensor) { return concat(std::vector<Tensor>{}, 0); }); }},
      {"ConcatDiffers", [] { trace([](Tracer&, Tensor x, Tensor y, Tensor) {
                               return concat({x, y}, 0);
                             }); }},
      {"PermuteTwice", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) {
                              return permute(x, {0, 0});
                            }); }},
      {"PermuteTooMany", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) {
                                return permute(x, {0, 1, 2});
                              }); }},
      {"ClampTurned", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return clamp(x, 1, -1); }); }},
      {"PoolTooLarge",
          [] { trace([](Tracer&, Tensor x, Tensor, Tensor) {
                 return avg_pool(reshape(x, {1, 2, 2, 2}), 3);
               }); }},
      {"PoolOfMatrix", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return global_avg_pool(x); }); }},
      {"ScaleFloats", [] { trace([](Tracer&, Tensor x, Tensor, Tensor) { return scale_images(x); }); }},
      {"ScaleByZero",
          [] {
            trace([](Tracer& t, Tensor, Tensor, Tensor) {
              return scale_images(t.input("p", {DType::kU8, {1, 2, 2, 1}}), {0.5}, {0.0});
            });
          }},
      {"TooManyAxes",
          [] {
            trace([](Tracer& t, Tensor, Tensor, Tensor) { return t.input("z", {DType::kF32, {1, 1, 1, 1, 1, 1, 1}}); });
          }},
      {"DimOutOfRange",
          [] {
            trace([](Tracer&, Tensor x, Tensor, Tensor) {
              (void)x.dim(2);
              return x;
            });
          }},
      {"AxisOutOfRange",
          [] {
            (void)Shape{2, 3}[-3];
          }},
      {"AxisOfScalar", [] { Shape{}.set(0, 1); }},
      {"SevenAxes",
          [] {
            Shape shape{1, 2, 3, 4, 5, 6};
            shape.push_back(7);
          }},
      {"TensorOfEarlierRecording",
          [] {
            Tensor kept;
            Net net;
            Learner(net, [&](Tracer& t) -> Loss {
              const Tensor x = t.input("x", kX);
              if (!kept.defined()) kept = x;
              return {sum(net(kept)), t.number(1)};
            });
          }},
      {"TensorAfterRecording",
          [] {
            Tensor kept;
            Net net;
            Learner(net, [&](Tracer& t) -> Loss {
              kept = net(t.input("x", kX));
              return {sum(kept), t.number(1)};
            });
            (void)kept.shape();
          }},
      {"OutputOfEarlierRecording",
          [] {
            Tensor kept;
            trace([&](Tracer& t, Tensor x, Tensor, Tensor) {
              if (!kept.defined()) kept = x;
              if (!t.training()) t.output("kept", kept);
              return x;
            });
            trace([&](Tracer& t, Tensor x, Tensor, Tensor) {
              t.output("kept", kept);
              return x;
            });
          }},
      {"TensorOfOtherLearner",
          [] {
            Tensor kept;
            trace([&](Tracer&, Tensor x, Tensor, Tensor) { return kept = x; });
            trace([&](Tracer&, Tensor x, Tensor, Tensor) { return x + kept; });
          }},
      {"TensorAfterRecordingFirst",
          [] {
            Tensor kept;
            trace([&](Tracer&, Tensor x, Tensor, Tensor) { return kept = x; });
            trace([&](Tracer&, Tensor, Tensor, Tensor) { return relu(kept); });
          }},
      // Functions of tensors
      wrong("Conv1dOfMatrix", [](Tensor x, Tensor) { return conv1d(x, x); }),
      wrong("Conv1dChannels",
          [](Tensor x, Tensor) {
            return conv1d(reshape(x, {1, 4, 2}), shaped({3, 3, 5}));
          }),
      wrong("Conv1dLargerThanInput",
          [](Tensor x, Tensor) {
            return conv1d(reshape(x, {1, 4, 2}), shaped({3, 7, 2}));
          }),
      wrong("Conv2dStrideZero",
          [](Tensor x, Tensor) {
            return conv2d(image(x), shaped({3, 1, 1, 2}), 0);
          }),
      wrong("Conv2dPaddingNegative",
          [](Tensor x, Tensor) {
            return conv2d(image(x), shaped({3, 1, 1, 2}), 1, -1);
          }),
      wrong("Conv2dDilationZero",
          [](Tensor x, Tensor) {
            return conv2d(image(x), shaped({3, 1, 1, 2}), 1, 0, 0);
          }),
      wrong("Conv2dGroups",
          [](Tensor x, Tensor) {
            return conv2d(image(x), shaped({3, 1, 1, 2}), 1, 0, 1, 3);
          }),
      wrong("TransposedChannels",
          [](Tensor x, Tensor) {
            return conv_transpose2d(image(x), shaped({5, 3, 3, 7}));
          }),
      wrong("TransposedStride",
          [](Tensor x, Tensor) {
            return conv_transpose2d(image(x), shaped({2, 3, 3, 2}), 0);
          }),
      wrong("ResizeToNothing", [](Tensor x, Tensor) { return resize(image(x), 0, 2); }),
      wrong("ResizeMatrix", [](Tensor x, Tensor) { return resize(x, 2, 2); }),
      wrong("UpsampleByZero", [](Tensor x, Tensor) { return upsample(image(x), 0); }),
      wrong("EinsumWithoutArrow", [](Tensor x, Tensor) { return einsum("ij,jk", {x}); }),
      wrong("EinsumOperands", [](Tensor x, Tensor) { return einsum("ij,jk->ik", {x}); }),
      wrong("EinsumAxes", [](Tensor x, Tensor) { return einsum("ijk->i", {x}); }),
      wrong("EinsumSizes",
          [](Tensor x, Tensor) {
            return einsum("ij,ji->i", {x, x});
          }),
      wrong("EinsumUnknownLetter", [](Tensor x, Tensor) { return einsum("ij->k", {x}); }),
      wrong("EinsumSigns", [](Tensor x, Tensor) { return einsum("i?->i", {x}); }),
      wrong("EinsumStar", [](Tensor x, Tensor) { return einsum("*j->j*", {x}); }),
      wrong("SortIds", [](Tensor, Tensor ids) { return sort(ids); }),
      wrong("TopKNone", [](Tensor x, Tensor) { return top_k(x, 0).first; }),
      wrong("TopKTooMany", [](Tensor x, Tensor) { return top_k(x, 3).first; }),
      wrong("ScatterToNoRows", [](Tensor x, Tensor ids) { return scatter_add(x, ids, 0); }),
      wrong("ScatterByFloats", [](Tensor x, Tensor) { return scatter_add(x, x, 4); }),
      wrong("ScatterOtherRows",
          [](Tensor x, Tensor ids) {
            return scatter_add(reshape(x, {2, 4}), ids, 4);
          }),
      wrong("GatherByFloats", [](Tensor x, Tensor) { return gather(x, x); }),
      wrong("PadNegative", [](Tensor x, Tensor) { return pad(x, 0, -1, 0); }),
      wrong("PadAxis", [](Tensor x, Tensor) { return pad(x, 2, 1, 0); }),
      wrong("CumsumAxis", [](Tensor x, Tensor) { return cumsum(x, 2); }),
      wrong("SoftmaxAxis", [](Tensor x, Tensor) { return softmax(x, -3); }),
      wrong("ArangeNone", [](Tensor, Tensor) { return arange(0); }),
      wrong("ArangeNegative", [](Tensor, Tensor) { return arange(-4); }),
      wrong("TrilOfVector", [](Tensor, Tensor ids) { return tril(ids); }),
      wrong("SumAxisTwice",
          [](Tensor x, Tensor) {
            return sum(x, {0, 0});
          }),
      wrong("BroadcastAway", [](Tensor x, Tensor) { return broadcast_to(x, {2}); }),
      wrong("OneHotOfFloats", [](Tensor x, Tensor) { return one_hot(x, 3, DType::kF32); }),
      wrong("OneHotOfNoClasses", [](Tensor, Tensor ids) { return one_hot(ids, 0, DType::kF32); }),
      wrong("WhereSizes",
          [](Tensor x, Tensor) {
            return where(greater(x, x), shaped({3, 2}), x);
          }),
      wrong("HeadsDoNotDivide",
          [](Tensor x, Tensor) {
            return attention(reshape(x, {1, 4, 2}), reshape(x, {1, 4, 2}), reshape(x, {1, 4, 2}), 3);
          }),
      wrong("ClassWeightsOfOtherCount",
          [](Tensor x, Tensor ids) { return weighted_cross_entropy_sum(x, ids, shaped({5})); }),
      wrong("GradientOfIds", [](Tensor x, Tensor ids) { return gradient(sum(x), ids); }),
      wrong("GradientOfManyValues", [](Tensor x, Tensor) { return gradient(square(x), x); }),
      {"IntegerThatDoesNotFit",
          [] {
            Arrays().set<int64_t>("ids", {2}, {1, int64_t{1} << 40});
          }},
      {"IntegersForFloats",
          [] {
            Ready().learner.set<int64_t>("y", {0, 1, 1, 0});
          }},
      {"BooleansForFloats",
          [] {
            Ready().learner.set<bool>("y", {false, true, true, false});
          }},
      {"LabelThatDoesNotFit", [] { Dataset().add<int64_t>("label", {}, {-(int64_t{1} << 33)}); }},
      // Ops of the program
      {"OpWithoutKernel", [] { OwnOp(OpDefinition{.name = "half"}); }},
      {"OpWithoutName", [] { OwnOp(definition("")); }},
      {"OpOfTakenName", [] { OwnOp(definition("matmul")); }},
      {"OpTwice",
          [] {
            const OwnOp first(definition("twice"));
            const OwnOp second(definition("twice"));
          }},
      {"OpOfIds",
          [] {
            const OwnOp half(definition("half"));
            trace([&](Tracer&, Tensor, Tensor, Tensor ids) { return half(ids); });
          }},
      {"OpWithoutGradient",
          [] {
            const OwnOp half(definition("half"));
            Net net;
            Learner(net, [&](Tracer& t) -> Loss { return {sum(half(net(t.input("x", kX)))), t.number(1)}; });
          }},
      {"OpOfUndefined",
          [] {
            const OwnOp half(definition("half"));
            trace([&](Tracer&, Tensor, Tensor, Tensor) { return half(Tensor{}); });
          }},
      {"OpIsCheckedWithoutFunction", [] { testing::check_op({}); }},
      // Modules
      {"NoParent", [] { Linear layer(nullptr, "layer", 2, 2); }},
      {"NoModule", [] { Parameter parameter(nullptr, "weight", {2}, constant_init(0)); }},
      {"NegativeSize",
          [] {
            Module root;
            Linear layer(&root, "layer", -2, 4);
          }},
      {"ZeroSize",
          [] {
            Module root;
            Embedding table(&root, "table", 0, 4);
          }},
      {"HugeModel",
          [] {
            Module root;
            Linear layer(&root, "layer", int64_t{1} << 40, int64_t{1} << 40);
            Learner(root, [&](Tracer& t) -> Loss { return {sum(t.input("x", kX)), t.number(1)}; });
          }},
      {"NoInitializer",
          [] {
            Module root;
            Parameter parameter(&root, "weight", {2}, Initializer{});
          }},
      {"WrongInitialValues",
          [] {
            Module root;
            Parameter parameter(&root, "weight", {2}, values_init({1, 2, 3}));
            Learner(root, [&](Tracer& t) -> Loss { return {sum(t.input("x", kX) * parameter), t.number(1)}; });
          }},
      {"DuplicateNames",
          [] {
            struct Twice : Module {
              Linear a{this, "layer", 2, 2}, b{this, "layer", 2, 2};
            } net;
            Learner(net, [&](Tracer& t) -> Loss { return {sum(net.a(net.b(t.input("x", kX)))), t.number(1)}; });
          }},
      {"OutsideOfTrace",
          [] {
            Net net;
            (void)net.hidden.weight.tensor();
          }},
      {"ForeignModule",
          [] {
            Net net;
            struct Other : Module {
              Linear layer{this, "other", 2, 1};
            } other;
            Learner(net, [&](Tracer& t) -> Loss { return {sum(other.layer(t.input("x", kX))), t.number(1)}; });
          }},
      {"ForeignModuleOfTheSameShape",
          [] {
            Net net, other;
            Learner(net, [&](Tracer& t) -> Loss { return {sum(other(t.input("x", kX))), t.number(1)}; });
          }},
      {"PartIsDestroyed",
          [] {
            Module root;
            std::make_unique<Linear>(&root, "layer", 2, 1);
            Learner(root, [&](Tracer& t) -> Loss { return {sum(t.input("x", kX)), t.number(1)}; });
          }},
      {"ParentIsDestroyed",
          [] {
            auto parent = std::make_unique<Net>();
            Linear layer(parent.get(), "layer", 2, 1);
            parent.reset();
            Net net;
            Learner(net, [&](Tracer& t) -> Loss { return {sum(layer(t.input("x", kX))), t.number(1)}; });
          }},
      {"AdoptedTwice",
          [] {
            Module root;
            Net net;
            root.adopt(net, "net");
            root.adopt(net, "again");
          }},
      {"AdoptedByItsPart",
          [] {
            Module root;
            Net net;
            root.adopt(net, "net");
            net.adopt(root, "root");
          }},
      {"AdoptedByItself",
          [] {
            Module root;
            root.adopt(root, "root");
          }},
      {"MoreElementsThanCanBeCounted",
          [] {
            Dataset data;
            data.add("x", {int64_t{1} << 32, int64_t{1} << 32}, std::vector<float>(16));
          }},
      {"InputOfMoreElementsThanCanBeCounted",
          [] {
            trace([](Tracer& t, Tensor, Tensor, Tensor) {
              return sum(sum(t.input("z", {DType::kF32, {(int64_t{1} << 61) + 1, 8}}), 0));
            });
          }},
      {"StructsOfSeveralWidths",
          [] {
            const std::vector<std::vector<float>> items{{}, {1, 2}, {3, 4}};
            Dataset data;
            data.add("x", items, [](const std::vector<float>& item) { return item; });
          }},
      {"PredictedRowsDiffer",
          [] {
            Ready ready;
            Arrays batch;
            batch.set("x", {2, 2}, std::vector<float>(4));
            batch.set("y", {3, 1}, std::vector<float>(3));
            ready.learner.predict(batch);
          }},
      {"ValidationIsNotFinite",
          [] {
            Ready ready;
            Dataset data, broken;
            data.add("x", {2}, std::vector<float>(16)).add("y", {1}, std::vector<float>(8));
            broken.add("x", {2}, std::vector<float>(16, std::numeric_limits<float>::quiet_NaN()))
                .add("y", {1}, std::vector<float>(8));
            Loader loader(data, {.batch = 4}), validation(broken, {.batch = 4});
            ready.learner.fit(loader, {.epochs = 3, .validation = &validation});
          }},
      {"HeadsDoNotDivide",
          [] {
            Module root;
            CausalAttention attention(&root, "attention", 16, 3);
          }},
      {"EmptyModel",
          [] {
            Module root;
            Learner(root, [&](Tracer& t) -> Loss { return {sum(t.input("x", kX)), t.number(1)}; });
          }},
      {"DropoutProbability",
          [] {
            Module root;
            Dropout dropout(&root, "dropout", 1.5f);
            Linear layer(&root, "layer", 2, 1);
            Learner(root, [&](Tracer& t) -> Loss { return {sum(layer(dropout(t.input("x", kX)))), t.number(1)}; });
          }},
      {"ConvolutionGroups",
          [] {
            Module root;
            Conv2d layer(&root, "conv", 3, 4, 3, {.groups = 2});
          }},
      {"ConvolutionStride",
          [] {
            Module root;
            Conv2d layer(&root, "conv", 3, 4, 3, {.stride = 0});
          }},
      {"ConvolutionChannels",
          [] {
            Module root;
            Conv2d layer(&root, "conv", 3, 4, 3);
            Learner(root, [&](Tracer& t) -> Loss {
              return {sum(layer(t.input("x", {DType::kF32, {1, 8, 8, 2}}))), t.number(1)};
            });
          }},
      {"ConvolutionTooLarge",
          [] {
            Module root;
            Conv2d layer(&root, "conv", 1, 4, 9);
            Learner(root, [&](Tracer& t) -> Loss {
              return {sum(layer(t.input("x", {DType::kF32, {1, 4, 4, 1}}))), t.number(1)};
            });
          }},
      {"NormGroups",
          [] {
            Module root;
            GroupNorm norm(&root, "norm", 3, 4);
          }},
      {"ListIndex",
          [] {
            Module root;
            ModuleList<Linear> layers(&root, "layers", 2, int64_t{2}, int64_t{2});
            (void)layers[2];
          }},
      {"EmptyFunction",
          [] {
            Module root;
            Sequential layers(&root, "layers");
            layers.add(std::function<Tensor(At)>{});
          }},
      {"BatchNormOfOne",
          [] {
            Module root;
            BatchNorm norm(&root, "norm", 2);
            Learner(root, [&](Tracer& t) -> Loss {
              return {sum(norm(t.input("x", {DType::kF32, {1, 2}}))), t.number(1)};
            });
          }},
      // Losses
      {"NoLossFunction",
          [] {
            Net net;
            Learner(net, TracedLoss{});
          }},
      {"LossWithoutCount",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss { return {.sum = sum(net(t.input("x", kX)))}; });
          }},
      {"LossWithoutSum",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss { return {.sum = {}, .count = t.number(1)}; });
          }},
      {"LossOfOtherShapes",  // it would be broadcast to [4, 4]
          [] {
            Net net;
            Learner(net, [&](Tracer& t) {
              return squared_error_loss(t, net(t.input("x", kX)), t.input("y", {DType::kF32, {4}}));
            });
          }},
      {"LossIsNoScalar",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss { return {net(t.input("x", kX)), t.number(1)}; });
          }},
      {"LossOfOtherGraph",
          [] {
            Ready ready;
            Tensor kept;
            Net net;
            Learner(net, [&](Tracer& t) -> Loss {
              const Tensor x = net(t.input("x", kX));
              Learner(net, [&](Tracer& inner) -> Loss { return {sum(x), inner.number(1)}; });
              return {sum(x), t.number(1)};
            });
          }},
      {"InputWithoutType",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss { return {sum(net(t.input("x"))), t.number(1)}; });
          }},
      {"InputOfNoBatch",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss { return {sum(net(t.input("z"))), t.number(1)}; }, {{{"x", kX}}});
          }},
      {"InputOfTwoTypes",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss {
              return {sum(net(t.input("x", kX))) + sum(t.input("x", kY)), t.number(1)};
            });
          }},
      {"InputOfNegativeSize",
          [] { trace([](Tracer& t, Tensor, Tensor, Tensor) {
                 return t.input("z", {DType::kF32, {-4}});
               }); }},
      {"InputIsReserved", [] { trace([](Tracer& t, Tensor, Tensor, Tensor) { return t.input("parameters", kX); }); }},
      {"OutputTwice",
          [] {
            trace([](Tracer& t, Tensor x, Tensor, Tensor) {
              t.output("a", x);
              t.output("a", x);
              return x;
            });
          }},
      {"OutputUndefined",
          [] {
            trace([](Tracer& t, Tensor x, Tensor, Tensor) {
              t.output("a", Tensor{});
              return x;
            });
          }},
      {"NoShapes",
          [] {
            Net net;
            Learner(
                net, [&](Tracer& t) { return squares(net, t); }, std::vector<InputTypes>{});
          }},
      // Options
      {"AccumulateNothing", [] { Ready ready({.accumulate = 0}); }},
      {"NegativeThreads", [] { Ready ready({.threads = -1}); }},
      {"UnknownPrecision", [] { Ready ready({.precision = "half"}); }},
      {"UnknownDevice", [] { Ready ready({.device = "tpu"}); }},
      {"TooLittleMemory", [] { Ready ready({.memory = 1000}); }},
      {"NanDecay", [] { Ready ready({.optimizer = AdamW{.weight_decay = kNan}}); }},
      {"MomentumOfOne", [] { Ready ready({.optimizer = Sgd{.momentum = 1}}); }},
      {"NegativeClip", [] { Ready ready({.clip_norm = -1}); }},
      {"UnknownGroup", [] { Ready ready({.groups = {{.patterns = {"hiden.*"}, .frozen = true}}}); }},
      {"GroupBehindAnother",
          [] {
            Ready ready(
                {.groups = {{.patterns = {"*"}, .rate_factor = 0.5}, {.patterns = {"hidden.*"}, .frozen = true}}});
          }},
      {"LearnerThatWasMoved",
          [] {
            Ready ready;
            const Learner taken = std::move(ready.learner);
            ready.learner.step(0.1);
          }},
      {"GroupWithoutPattern", [] { Ready ready({.groups = {{.frozen = true}}}); }},
      {"EverythingFrozen", [] { Ready ready({.groups = {{.patterns = {"*"}, .frozen = true}}}); }},
      // Steps
      {"NanRate", [] { Ready().learner.step(kNan); }},
      {"NegativeRate", [] { Ready().learner.step(-0.1); }},
      {"SetUnknown", [] { Ready().learner.set<float>("z", {1}); }},
      {"SetTooFew",
          [] {
            Ready().learner.set<float>("x", {1, 2});
          }},
      {"SetOtherType",
          [] {
            Ready().learner.set<int32_t>("x", {1, 2, 3, 4, 5, 6, 7, 8});
          }},
      {"StepOnOtherShape",
          [] {
            Ready().learner.step(batch_of({DType::kF32, {5, 2}}, kY), 0.1);
          }},
      {"StepOnOtherType",
          [] {
            Ready().learner.step(batch_of({DType::kI32, {4, 2}}, kY), 0.1);
          }},
      {"StepWithoutInput",
          [] {
            Ready().learner.step(Arrays({{"x", kX}}), 0.1);
          }},
      {"StepOfOneMicroBatch", [] { Ready({.accumulate = 2}).learner.step(batch_of(kX, kY), 0.1); }},
      {"StepWithoutTraining", [] { Ready({.training = false}).learner.step(0.1); }},
      {"PredictOtherShape",
          [] {
            Ready().learner.predict(batch_of({DType::kF32, {9, 2}}, kY));
          }},
      {"PredictNothing", [] { Ready().learner.predict(Arrays{}); }},
      {"OutputUnknown", [] { (void)Ready().learner.output("logits"); }},
      {"ParameterUnknown", [] { (void)Ready().learner.parameter("weight"); }},
      {"GradientBeforeStep", [] { (void)Ready().learner.gradient("hidden.weight"); }},
      {"GradientOfFrozen",
          [] {
            Ready ready({.groups = {{.patterns = {"hidden.*"}, .frozen = true}}});
            ready.learner.step(0.1);
            (void)ready.learner.gradient("hidden.weight");
          }},
      {"IdOutOfRange",
          [] {
            Module root;
            Embedding table(&root, "table", 4, 2);
            Learner learner(root, [&](Tracer& t) -> Loss {
              return {sum(table(t.input("ids", {DType::kI32, {2}}))), t.number(1)};
            });
            learner.set<int32_t>("ids", {0, 4});
            learner.step(0.1);
          }},
      {"LossIsNan",
          [] {
            Net net;
            Loader loader(numbers(8), {.batch = 4});
            Learner learner(
                net,
                [&](Tracer& t) -> Loss {
                  return {sum(log(net(t.input("x")) * 0.0 - 1.0)), t.number(4)};
                },
                loader.shapes());
            learner.fit(loader, {.epochs = 1});
          }},
      // Files
      {"LoadMissing", [] { Ready().learner.load("/nonexistent/model"); }},
      {"LoadGarbage", [] { Ready().learner.load(file_of("not a file of weights")); }},
      {"LoadOfOtherModel",
          [] {
            struct Other : Module {
              Linear layer{this, "other", 2, 1};
            } other;
            Learner learner(other, [&](Tracer& t) -> Loss {
              return {sum(other.layer(t.input("x", kX))), t.number(1)};
            });
            const std::string path = file_of("");
            learner.save(path);
            Ready().learner.load(path);
          }},
      {"StateOfWeights",
          [] {
            Ready ready;
            const std::string path = file_of("");
            ready.learner.save(path);
            ready.learner.load_state(path);
          }},
      {"StateOfOtherSeed",
          [] {
            const std::string path = file_of("");
            Ready().learner.save_state(path);
            Ready({.seed = 2}).learner.load_state(path);
          }},
      {"SaveNowhere", [] { Ready().learner.save("/nonexistent/folder/model"); }},
      // Data
      {"EmptyDataset", [] { Loader(Dataset{}, {}); }},
      {"BatchOfNone", [] { Loader(numbers(4), {.batch = 0}); }},
      {"NoWholeBatch", [] { Loader(numbers(4), {.batch = 8, .drop_last = true}); }},
      {"NegativeWorkers", [] { Loader(numbers(4), {.workers = -1}); }},
      {"FieldTwice", [] { numbers(4).add("x", {2}, std::vector<float>(8)); }},
      {"FieldOfOtherCount", [] { numbers(4).add("y", {2}, std::vector<float>(10)); }},
      {"FieldNotWhole", [] { numbers(4).add("y", {3}, std::vector<float>(8)); }},
      {"SampleOutOfRange", [] { (void)numbers(4).sample(4); }},
      {"SplitAtOne", [] { (void)numbers(4).split(1.0); }},
      {"SelectNegative", [] { (void)numbers(4).select({-1}); }},
      {"SeekBeyond",
          [] {
            Loader(numbers(4), {.batch = 2}).seek({0, 2});
          }},
      {"TooLongForBuckets",
          [] {
            Dataset data;
            data.add_sequences("tokens", {{1, 2, 3}});
            Loader(data, {.batch = 1, .buckets = {2}});
          }},
      {"MissingImages", [] { (void)Dataset::idx("/nonexistent/images", "/nonexistent/labels"); }},
      {"ArraysUnknown", [] { (void)Arrays{}.bytes("x"); }},
      {"ArraysOtherType",
          [] {
            const Arrays arrays(InputTypes{{"x", kX}});
            (void)arrays.get<int32_t>("x");
          }},
      {"ArraysTooFew",
          [] {
            Arrays{}.set<float>("x", {3}, {1, 2});
          }},
      {"FitOfNegativeEpochs",
          [] {
            Ready ready;
            Loader loader(numbers(4), {.batch = 2});
            ready.learner.fit(loader, {.epochs = -1});
          }},
      {"PatienceWithoutValidation",
          [] {
            Ready ready;
            Loader loader(numbers(4), {.batch = 2});
            ready.learner.fit(loader, {.patience = 1});
          }},
      {"MetricWithoutOutput",
          [] {
            Net net;
            Loader loader(numbers(8), {.batch = 4});
            Learner learner(
                net,
                [&](Tracer& t) -> Loss {
                  return {sum(net(t.input("x"))), t.number(4)};
                },
                loader.shapes());
            learner.evaluate(loader, {accuracy("logits")});
          }},
      {"InputNeverSet",
          [] {
            Net net;
            Learner learner(net, [&](Tracer& t) { return squares(net, t); });
            learner.set<float>("x", {0, 0, 0, 1, 1, 0, 1, 1});
            learner.step(0.1);
          }},
      {"InputNeverSetInEvaluation",
          [] {
            Net net;
            Learner learner(net, [&](Tracer& t) { return squares(net, t); });
            learner.evaluate();
          }},
      {"InputsOfPredictionTrainedOn",
          [] {
            Ready ready;
            Arrays request;
            request.set<float>("x", {4, 2}, std::vector<float>(8));
            (void)ready.learner.predict(request);
            ready.learner.step(0.1);
          }},
      {"TracesDiffer",
          [] {
            Net net;
            int calls = 0;
            Learner(net, [&](Tracer& t) -> Loss {
              const Tensor y = net(t.input("x", kX));
              return {sum(++calls == 2 ? y : square(y)), t.number(4)};
            });
          }},
      {"TrainingTraceDiffers",
          [] {
            Net net;
            int trained = 0;
            Learner(net, [&](Tracer& t) -> Loss {
              const Tensor y = net(t.input("x", kX));
              return {sum(t.training() && ++trained == 2 ? y : square(y)), t.number(4)};
            });
          }},
      {"InputsDiffer",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss {
              const Tensor y = net(t.input("x", kX));
              return {sum(t.training() ? y * t.input("weights", kY) : y), t.number(4)};
            });
          }},
      {"CountNegative",
          [] {
            Net net;
            Learner learner(net, [&](Tracer& t) -> Loss { return {sum(net(t.input("x", kX))), t.number(-4)}; });
            learner.set<float>("x", std::vector<float>(8));
            learner.step(0.1);
          }},
      {"CountFractional",
          [] {
            Net net;
            Learner learner(net, [&](Tracer& t) -> Loss { return {sum(net(t.input("x", kX))), t.number(0.5)}; });
            learner.set<float>("x", std::vector<float>(8));
            learner.evaluate();
          }},
      {"PaddedRowsCounted",
          [] {
            Net net;
            Dataset data;
            data.add("x", {2}, std::vector<float>(40)).add("y", {1}, std::vector<float>(20));
            Loader loader(data, {.batch = 16});
            Learner learner(
                net,
                [&](Tracer& t) -> Loss {
                  return {sum(square(net(t.input("x")) - t.input("y"))), t.number(16)};
                },
                loader.shapes());
            learner.evaluate(loader);
          }},
      {"MaskBeforeInputs",
          [] {
            Net net;
            Learner(net, [&](Tracer& t) -> Loss {
              const Tensor mask = t.row_mask();
              return {sum(net(t.input("x", kX))), sum(mask)};
            });
          }},
      {"ModuleNameWithStar",
          [] {
            Module root;
            Linear(&root, "layer*", 2, 2);
          }},
      {"ParameterNameWithNewline",
          [] {
            Module root;
            Parameter(&root, "a\nb", {2}, constant_init(0));
          }},
      {"InputNameWithNewline", [] { trace([](Tracer& t, Tensor, Tensor, Tensor) { return t.input("a\n", kX); }); }},
      {"OutputNameWithNewline",
          [] {
            trace([](Tracer& t, Tensor x, Tensor, Tensor) {
              t.output("a\n", x);
              return x;
            });
          }},
      {"DropoutOfAll",
          [] {
            Module root;
            Dropout(&root, "dropout", 1);
          }},
      {"DropoutNan",
          [] {
            Module root;
            Dropout(&root, "dropout", std::nanf(""));
          }},
      {"ArraysLargerThanMemory",
          [] {
            Arrays(InputTypes{{"x", {DType::kF32, {1 << 30, 1 << 30}}}});
          }},
      {"ArraysOverflow",
          [] {
            Arrays(InputTypes{{"x", {DType::kF32, {int64_t{1} << 62, 8}}}});
          }},
      {"InputLargerThanMemory",
          [] {
            trace([](Tracer& t, Tensor, Tensor, Tensor) { return t.input("z", {DType::kF32, {1 << 30, 1 << 30}}); });
          }},
      {"LengthsBeyond",
          [] {
            attend({1, 5});
          }},
      {"LengthsZero",
          [] {
            attend({0, 4});
          }},
      {"EvaluatedAfterABatchReplacedWhatWasSet",
          [] {
            Ready ready;
            Arrays batch;
            batch.set<float>("x", {4, 2}, std::vector<float>(8, 1)).set<float>("y", {4, 1}, std::vector<float>(4, 1));
            ready.learner.predict(batch);
            (void)ready.learner.evaluate();
          }},
      {"CosineWithoutAnEnd", [] { (void)Rate(Schedule{.kind = Schedule::Kind::kCosine}); }},
      {"DiagnoseBeforeStep", [] { (void)Ready().learner.diagnose(); }},
      {"StateOfOtherOptimizer",
          [] {
            const std::string path = file_of("");
            Ready({.optimizer = Adam{}}).learner.save_state(path);
            Ready({.optimizer = Lion{}}).learner.load_state(path);
          }},
      {"StateOfAdamIntoSgd",
          [] {
            const std::string path = file_of("");
            Ready({.optimizer = Adam{}}).learner.save_state(path);
            Ready({.optimizer = Sgd{}}).learner.load_state(path);
          }},
      {"StateOfOtherGroups",
          [] {
            const std::string path = file_of("");
            Ready().learner.save_state(path);
            Ready({.groups = {{.patterns = {"hidden.*"}, .rate_factor = 0.5}}}).learner.load_state(path);
          }},
      {"WeightsOfAnotherModel",
          [] {
            Ready ready;
            struct Other : Module {
              Linear layer{this, "layer", 2, 1};
            } other;
            Learner(other,
                [&](Tracer& t) -> Loss {
                  return {sum(other.layer(t.input("x", kX))), t.number(1)};
                },
                {.weights = &ready.learner});
          }},
      {"WeightsWithAverage",
          [] {
            Ready ready({.average_decay = 0.9});
            Learner(ready.net, [&](Tracer& t) { return squares(ready.net, t); }, {.weights = &ready.learner});
          }},
      {"PlanOfNoShapes",
          [] {
            Net net;
            (void)plan(net, [&](Tracer& t) { return squares(net, t); }, std::vector<InputTypes>{}, {});
          }},
      {"TokenizerMissing", [] { (void)load_pretrained_tokenizer("/nonexistent"); }},
  };
  return all;
}

constexpr int kError = 0, kNothing = 1, kOther = 2, kLines = 3;

// Runs it and a step of a sound learner behind it, and says what came of it.
int outcome(const Misuse& misuse) {
  int result = kNothing;
  try {
    misuse.run();
  } catch (const Error& error) {
    const std::string text = error.what();
    result = text.empty() || text.find('\n') != text.npos ? kLines : kError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    result = kOther;
  }
  std::filesystem::remove(temporary());
  Ready ready;
  return ready.learner.step(0.1).finite ? result : kOther;
}

TEST(Misuses, AreErrorsOfOneLine) {
  EXPECT_GE(misuses().size(), 200u);
  for (const Misuse& misuse : misuses()) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      if (!std::freopen("/dev/null", "w", stdout)) _exit(kOther);
      _exit(outcome(misuse));
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_FALSE(WIFSIGNALED(status)) << misuse.name << " ends in signal " << WTERMSIG(status);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), kError)
          << misuse.name << ": 1 nothing was noticed, 2 another exception, 3 not one line";
    }
  }
}

// What is no mistake: parts come and go in any order, and the model has those that are there.
TEST(Misuses, PartsMayBeDestroyedBeforeTheModel) {
  struct Growing : Module {
    Linear first{this, "first", 2, 2};
  } net;
  auto second = std::make_unique<Linear>(&net, "second", 2, 1);
  auto third = std::make_unique<Linear>(&net, "third", 2, 1);
  second.reset();
  Learner learner(net, [&](Tracer& t) -> Loss { return {sum((*third)(net.first(t.input("x", kX)))), t.number(1)}; });
  std::vector<std::string> names;
  for (const ParameterSpec& spec : learner.parameters()) names.push_back(spec.name);
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"first.bias", "first.weight", "third.bias", "third.weight"}));
  third.reset();
  learner.set<float>("x", {0, 0, 0, 1, 1, 0, 1, 1});
  EXPECT_TRUE(learner.step(0.1).finite);
}

// Learners, devices that there are not, ops and tensors from several threads at once.
TEST(Misuses, ThreadsShareNothingThatHurts) {
  std::vector<std::thread> threads;
  std::atomic<int> errors = 0, steps = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      try {
        Ready on_device({.device = "cuda:" + std::to_string(900 + i % 2)});
      } catch (const Error&) {
        ++errors;
      }
      const OwnOp half(definition("half" + std::to_string(i)));
      Ready ready({.threads = 1});
      for (int step = 0; step < 3; ++step) steps += ready.learner.step(0.1).finite;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 8);
  EXPECT_EQ(steps, 24);
}

// What does not compile: a tensor in a condition, and copies of modules, learners and loaders.
static_assert(!std::is_copy_constructible_v<Net> && !std::is_copy_assignable_v<Linear>);
static_assert(!std::is_copy_constructible_v<Learner> && !std::is_copy_constructible_v<Loader>);
// A bound for each element is clamp() or maximum(), and arrays have four types of elements.
template <class Bound>
concept ReducesTo = requires(Tensor x, Bound bound) {
  max(x, bound);
};
static_assert(ReducesTo<int> && !ReducesTo<double>);
static_assert(!std::is_constructible_v<bool, Tensor> && !std::is_convertible_v<Tensor, double>);
}  // namespace
