// A language model of own blocks, trained on a text's bytes and sampled: decoder TEXT [STEPS]
#include <linnet/linnet.h>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
using namespace linnet;

constexpr int64_t kWidth = 64, kLength = 64;

// Attention and a gated feed-forward with one norm for both, side by side.
struct Block : Module {
  Block(Module* parent, std::string name) : Module(parent, std::move(name)) {}
  Tensor operator()(Tensor x) {
    const Tensor y = norm(x);
    return x + attention(y) + down(silu(gate(y)) * up(y));
  }
  RmsNorm norm{this, "norm", kWidth};
  CausalAttention attention{this, "attention", kWidth, 4, {.rotary_theta = 10000, .biases = false}};
  Linear gate{this, "gate", kWidth, 128}, up{this, "up", kWidth, 128}, down{this, "down", 128, kWidth};
};

struct Writer : Decoder {
  Embedding bytes{this, "bytes", 256, kWidth, normal_init(0.02)};
  ModuleList<Block> blocks{this, "blocks", 2};
  RmsNorm norm{this, "norm", kWidth};

  Tensor states(Tensor tokens, Tensor) override {
    Tensor x = bytes(tokens);
    for (Block& block : blocks) x = block(x);
    return norm(x);
  }
  Tensor head() override { return bytes.weight; }
  int64_t vocab_size() const override { return 256; }
  int64_t max_length() const override { return 4 * kLength; }
};

int run(int count, char** words) {
  std::string text;
  if (count > 1) {
    std::ifstream file(words[1], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(file), {});
  } else {
    for (int i = 0; i < 400; ++i) text += "the quick brown fox jumps over the lazy dog. ";
  }
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  Loader batches(Dataset::chunks(ids, kLength), {.batch = 8, .shuffle = true, .drop_last = true});

  Writer writer;
  Learner learner(writer, [&](Tracer& trace) { return decoder_loss(writer, trace); }, batches.shapes(),
      {.optimizer = AdamW{.weight_decay = 0.1}, .clip_norm = 1});
  const int64_t steps = count > 2 ? std::atoll(words[2]) : 150;
  const FitReport report = learner.fit(batches, {.epochs = steps, .max_steps = steps, .rate = 3e-3});
  std::printf("loss %.3f after %d steps\n", report.loss, static_cast<int>(report.steps));

  TextGenerator generator(writer);
  generator.take(learner);
  const std::vector<int32_t> prompt{'t', 'h', 'e', ' '};
  const auto texts = generator.generate({prompt}, {.max_tokens = 80, .temperature = 0.7});
  for (const int32_t id : texts[0]) std::putchar(id);
  std::putchar('\n');
  return report.loss < 2.5 ? 0 : 1;
}

int main(int count, char** words) try { return run(count, words); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
