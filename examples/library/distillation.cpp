// Distillation (Hinton et al. 2015): a wide teacher learns three arms of a spiral from labels, and a narrow student
// learns the teacher's softened probabilities. Teacher and student are parts of one module with a learner each.
#include <linnet/linnet.h>
#include <cmath>
#include <cstdio>
#include <random>
using namespace linnet;

constexpr int64_t kRows = 256, kClasses = 3;
constexpr double kTemperature = 2;

struct Mlp : Module {
  Mlp(Module* parent, std::string name, int64_t width)
      : Module(parent, std::move(name)), a{this, "a", 2, width, he_normal()}, b{this, "b", width, width, he_normal()},
        c{this, "c", width, kClasses} {}
  Tensor operator()(Tensor x) { return c(relu(b(relu(a(x))))); }
  Linear a, b, c;
};

struct Pair : Module {
  Mlp teacher{this, "teacher", 256}, student{this, "student", 16};
};

// Points [kRows, 2] of the arms with noise, and the arm that each is on.
void draw(std::mt19937& random, std::vector<float>& points, std::vector<int32_t>& labels) {
  std::uniform_real_distribution<float> uniform(0, 1);
  std::normal_distribution<float> noise(0, 0.03f);
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int32_t>(random() % kClasses);
    const float radius = uniform(random), turn = 4 * radius + 2.0943951f * static_cast<float>(labels[i]);
    points[2 * i] = 2 * radius * std::cos(turn) + noise(random);
    points[2 * i + 1] = 2 * radius * std::sin(turn) + noise(random);
  }
}

int main() {
  Pair net;
  const auto points = [](Tracer& trace) { return trace.input("points", {DType::kF32, {kRows, 2}}); };
  Learner teacher(net,
      [&](Tracer& trace) -> Loss {
        const Tensor logits = net.teacher(points(trace));
        trace.output("teacher", logits), trace.output("student", net.student(points(trace)));
        return cross_entropy_loss(logits, trace.input("labels", {DType::kI32, {kRows}}));
      },
      {.groups = {{.patterns = {"student.*"}, .frozen = true}}});
  // The divergence of the student's from the teacher's probabilities, times T^2 so that the gradient's size does not
  // depend on the temperature T.
  Learner student(net,
      [&](Tracer& trace) -> Loss {
        const Tensor wanted = log_softmax(net.teacher(points(trace)) / kTemperature);
        const Tensor given = log_softmax(net.student(points(trace)) / kTemperature);
        return {
            .sum = sum(exp(wanted) * (wanted - given)) * (kTemperature * kTemperature), .count = trace.number(kRows)};
      },
      {.groups = {{.patterns = {"teacher.*"}, .frozen = true}}, .weights = &teacher});

  std::mt19937 random(1);
  std::vector<float> x(2 * kRows);
  std::vector<int32_t> labels(kRows);
  for (int step = 0; step < 2000; ++step) {
    draw(random, x, labels);
    teacher.set("points", x), teacher.set("labels", labels);
    teacher.step(1e-3);
  }
  for (int step = 0; step < 8000; ++step) {
    draw(random, x, labels);
    student.set("points", x);
    student.step(3e-3);
  }
  int right[2] = {};
  constexpr int kTests = 20;
  for (int test = 0; test < kTests; ++test) {
    draw(random, x, labels);
    teacher.set("points", x), teacher.set("labels", labels);
    teacher.evaluate();
    for (size_t i = 0; i < labels.size(); ++i)
      for (size_t k = 0; k < 2; ++k)
        right[k] += top_k(teacher.output(k ? "student" : "teacher").subspan(kClasses * i, kClasses), 1)[0] == labels[i];
  }
  const double all = kTests * kRows, taught = 100 * right[1] / all;
  std::printf("teacher of %d parameters: %.1f%% right, student of %d: %.1f%%\n",
      static_cast<int>(net.teacher.parameter_count()), 100 * right[0] / all,
      static_cast<int>(net.student.parameter_count()), taught);
  return taught > 90 ? 0 : 1;
}
