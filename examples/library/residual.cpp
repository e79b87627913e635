// A residual network (He et al. 2016) of own blocks on a folder of images for each class, or on made pictures, with a
// training state that is saved and taken up again: residual [FOLDER]
#include <linnet/linnet.h>
#include <cstdio>
using namespace linnet;

constexpr int64_t kSize = 16;

struct Block : Module {
  Block(Module* parent, std::string name, int64_t in, int64_t out, int64_t stride)
      : Module(parent, std::move(name)), conv1{this, "conv1", in, out, 3,
                                             {.stride = stride, .padding = 1, .bias = false}},
        conv2{this, "conv2", out, out, 3, {.padding = 1, .bias = false}}, norm1{this, "norm1", out}, norm2{this,
                                                                                                         "norm2", out} {
    if (in != out || stride != 1) shortcut.emplace(this, "shortcut", in, out, 1, Conv2dOptions{.stride = stride});
  }
  Tensor operator()(Tensor x) {
    const Tensor y = norm2(conv2(relu(norm1(conv1(x)))));
    return relu(y + (shortcut ? (*shortcut)(x) : x));
  }
  Conv2d conv1, conv2;
  BatchNorm norm1, norm2;
  std::optional<Conv2d> shortcut;
};

struct ResNet : Module {
  explicit ResNet(int64_t classes) : out{this, "out", 32, classes} {
    blocks.append(int64_t{3}, int64_t{16}, int64_t{1});
    blocks.append(int64_t{16}, int64_t{32}, int64_t{2});
  }
  Tensor operator()(Tensor images) {
    Tensor x = scale_images(images, {0.5, 0.5, 0.5}, {0.25, 0.25, 0.25});
    for (Block& block : blocks) x = block(x);
    return out(global_avg_pool(x));
  }
  ModuleList<Block> blocks{this, "blocks"};
  Linear out;
};

// Pictures of two classes: bright on the left or on the right.
Dataset made_pictures() {
  return Dataset::from_function(256, {{"images", {DType::kU8, {kSize, kSize, 3}}}, {"labels", {DType::kI32, {}}}},
      [](int64_t index, Arrays& sample) {
        const auto pixels = sample.get<uint8_t>("images");
        const auto label = static_cast<int32_t>(index % 2);
        for (size_t i = 0; i < pixels.size(); ++i) {
          const bool right = i / 3 % kSize >= kSize / 2;
          const auto noise = static_cast<uint8_t>((i * 2654435761u + static_cast<size_t>(index) * 97u) >> 7 & 127);
          pixels[i] = static_cast<uint8_t>(noise + (right == (label == 1) ? 80 : 0));
        }
        sample.get<int32_t>("labels")[0] = label;
      });
}

int run(int count, char** words) {
  const Dataset data = count > 1 ? Dataset::image_folder(words[1], kSize) : made_pictures();
  Loader loader(data, {.batch = 32, .shuffle = true, .drop_last = true, .workers = 2});
  ResNet net(10);
  const auto loss = [&](Tracer& trace) -> Loss {
    const Tensor logits = net(trace.input("images")), labels = trace.input("labels");
    trace.output("logits", logits);
    return {.sum = cross_entropy_sum(logits, labels, /*label_smoothing=*/0.1), .count = count_targets(labels)};
  };
  const LearnerOptions options{.optimizer = Sgd{.momentum = 0.9, .weight_decay = 1e-4}, .average_decay = 0.99};

  Learner learner(net, loss, loader.shapes(), options);
  for (const MemoryUse& use : learner.memory())
    std::printf("%-12s %8.1f kB\n", use.kind.c_str(), static_cast<double>(use.bytes) / 1e3);
  learner.fit(loader, {.epochs = 2, .rate = 0.02});
  learner.save_state("residual.state", loader.position());

  Learner resumed(net, loss, loader.shapes(), options);  // as in another process
  loader.seek(resumed.load_state("residual.state"));
  resumed.fit(loader, {.epochs = 2, .rate = 0.02});
  const Evaluation result = resumed.evaluate(loader, {accuracy()});
  std::printf(
      "after %d steps: accuracy %.1f%%\n", static_cast<int>(resumed.steps()), 100 * result.metrics.at("accuracy"));
  return 0;
}

int main(int count, char** words) try { return run(count, words); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
