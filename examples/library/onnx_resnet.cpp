// Trains a residual network of an ONNX file, as PyTorch exports it, to tell two kinds of pictures apart, and writes it
// as an ONNX file again:
//
//   onnx_resnet MODEL.onnx OUT.onnx [SIZE]
//
// Its input is f32 [N, 3, SIZE, SIZE], its output logits [N, classes], of which the first two are used.
#include <linnet/linnet.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
using namespace linnet;

constexpr int64_t kRows = 16;

struct Net : Module {
  explicit Net(const std::string& path) : body{this, "body", path} {}
  OnnxModule body;
};

// Noise, and for label 1 with stripes along the rows, else along the columns.
void draw(std::mt19937& random, size_t size, std::vector<float>& images, std::vector<int32_t>& labels) {
  std::normal_distribution<float> noise(0, 1);
  images.clear();
  for (int32_t& label : labels) {
    label = static_cast<int32_t>(random() % 2);
    for (size_t i = 0; i < 3 * size * size; ++i)
      images.push_back(noise(random) + ((label == 1 ? i / size : i) / 2 % 2 ? 1.0f : -1.0f));
  }
}

int run(int count, char** words) {
  if (count < 3) fail_user("usage: onnx_resnet MODEL.onnx OUT.onnx [SIZE]");
  const std::string out = words[2];
  const int64_t size = count > 3 ? std::atoll(words[3]) : 32;
  const TensorType images{DType::kF32, {kRows, 3, size, size}};
  const auto loss_of = [&](Net& net) {
    return [&](Tracer& trace) {
      const Tensor logits = net.body(trace.input("images", images));
      trace.output("logits", logits);
      return cross_entropy_loss(logits, trace.input("labels", {DType::kI32, {kRows}}));
    };
  };
  Net net(words[1]);
  Learner learner(net, loss_of(net), {.optimizer = AdamW{.weight_decay = 0.01}});

  std::mt19937 random(1);
  std::vector<float> pixels;
  std::vector<int32_t> labels(kRows);
  const auto fill = [&](Learner& of) { of.set("images", pixels), of.set("labels", labels); };
  for (int step = 0; step < 100; ++step) {
    draw(random, static_cast<size_t>(size), pixels, labels);
    fill(learner);
    learner.step(2e-3);
  }
  const std::string input = net.body.inputs().at(0), output = net.body.outputs().at(0);  // the file's names are kept
  export_onnx(
      learner, {{input, images}}, [&](Tracer& trace) { trace.output(output, net.body(trace.input(input))); }, out);

  // The file that was written gives the same for pictures that neither has seen.
  Net written(out);
  Learner reader(written, loss_of(written), {.training = false});
  draw(random, static_cast<size_t>(size), pixels, labels);
  fill(learner), fill(reader);
  learner.evaluate(), reader.evaluate();
  const auto logits = learner.output("logits"), again = reader.output("logits");
  const size_t classes = logits.size() / kRows;
  int right = 0;
  float different = 0;
  for (size_t i = 0; i < logits.size(); ++i) different = std::max(different, std::abs(logits[i] - again[i]));
  for (size_t i = 0; i < kRows; ++i) right += top_k(logits.subspan(classes * i, classes), 1)[0] == labels[i];
  std::printf("%d of %d right; logits of the file that was written differ by at most %.1e\n", right,
      static_cast<int>(kRows), static_cast<double>(different));
  return right >= kRows - 1 && different < 1e-3f ? 0 : 1;
}

int main(int count, char** words) try { return run(count, words); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
