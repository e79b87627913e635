// A convolutional network for MNIST: mnist_conv FOLDER [--device cuda] [--epochs N]
#include <linnet/linnet.h>
#include <cstdio>
#include <cstdlib>
using namespace linnet;

struct Net : Module {
  ConvReluPool conv1{this, "conv1", 1, 32}, conv2{this, "conv2", 32, 64};
  Linear hidden{this, "hidden", 7 * 7 * 64, 128, he_normal()}, out{this, "out", 128, 10};
  Dropout dropout{this, "dropout", 0.3f};
  Tensor operator()(Tensor images) {
    const Tensor x = conv2(conv1(images));
    return out(dropout(relu(hidden(reshape(x, {x.dim(0), 7 * 7 * 64})))));
  }
};

int run(int count, char** words) {
  const std::string folder = count > 1 ? words[1] : ".";
  LearnerOptions options{.optimizer = AdamW{}};
  int64_t epochs = 6;
  for (int i = 2; i + 1 < count; i += 2) {
    if (std::string(words[i]) == "--device") options.device = words[i + 1];
    if (std::string(words[i]) == "--epochs") epochs = std::atoll(words[i + 1]);
  }
  const Dataset train = Dataset::idx(folder + "/train-images-idx3-ubyte.gz", folder + "/train-labels-idx1-ubyte.gz");
  const Dataset test = Dataset::idx(folder + "/t10k-images-idx3-ubyte.gz", folder + "/t10k-labels-idx1-ubyte.gz");
  Loader batches(train, {.batch = 100, .shuffle = true}), test_batches(test, {.batch = 100});

  Net net;
  const auto loss = [&](Tracer& trace) -> Loss {
    const Tensor logits = net(trace.input("images")), labels = trace.input("labels");
    trace.output("logits", logits);
    return {.sum = cross_entropy_sum(logits, labels), .count = count_targets(labels)};
  };
  Learner learner(net, loss, batches.shapes(), options);
  std::printf("%.1f MB, now and at the end\n", static_cast<double>(learner.memory_bytes()) / 1e6);

  const Schedule schedule{.kind = Schedule::Kind::kCosine, .peak = 2e-3, .max_steps = epochs * batches.batches()};
  learner.fit(batches, {.epochs = epochs, .rate = schedule, .on_epoch = [](const FitEvent& event) {
                          std::printf("epoch %d: loss %.4f\n", static_cast<int>(event.epoch), event.mean_loss);
                          return true;
                        }});
  const Evaluation result = learner.evaluate(test_batches, {accuracy()});
  learner.save("mnist.safetensors");
  std::printf("test accuracy %.2f%%\n", 100 * result.metrics.at("accuracy"));
  return 0;
}

int main(int count, char** words) try { return run(count, words); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
