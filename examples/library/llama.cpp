// Fine-tunes a folder of a decoder (Llama, GPT-2, Qwen and their kind) by a loop of its own and writes a folder that
// transformers loads:
//
//   llama FOLDER OUT [TEXT [STEPS]]
//
// Without a text it learns to count backwards, which needs no tokenizer.
#include <linnet/linnet.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
using namespace linnet;

constexpr int64_t kRows = 4, kLength = 16;

struct Model : Module {
  explicit Model(const std::string& folder) : decoder{this, "decoder", folder} {}
  // The cross-entropy of the next tokens; logits are never whole in memory.
  Loss loss(Tracer& trace) {
    const Tensor states = decoder(trace.input("tokens")), targets = trace.input("targets");
    return {
        .sum = linear_cross_entropy_sum(states, decoder.head_weight(), {}, targets), .count = count_targets(targets)};
  }
  PretrainedDecoder decoder;
};

std::vector<int32_t> ids_of(const std::string& path, const std::string& folder, int64_t vocabulary) {
  std::vector<int32_t> ids;
  if (path.empty()) {
    for (int64_t i = 20000; i > 0; --i) ids.push_back(static_cast<int32_t>(i % vocabulary));
    return ids;
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_user("cannot read " + path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return load_pretrained_tokenizer(folder)->encode(text);
}

int run(int count, char** words) {
  if (count < 3) fail_user("usage: llama FOLDER OUT [TEXT [STEPS]]");
  const std::string folder = words[1], out = words[2];
  const int64_t steps = count > 4 ? std::atoll(words[4]) : 150;
  Model model(folder);
  const Dataset chunks =
      Dataset::chunks(ids_of(count > 3 ? words[3] : "", folder, model.decoder.vocab_size()), kLength);
  const auto [train, test] = chunks.split(0.9);
  Loader batches(train, {.batch = kRows, .shuffle = true, .drop_last = true}), tests(test, {.batch = kRows});

  const auto loss_of = [](Model& of) { return [&of](Tracer& trace) { return of.loss(trace); }; };
  Learner learner(model, loss_of(model), batches.shapes(),
      {.optimizer = AdamW{.weight_decay = 0.1}, .clip_norm = 1, .accumulate = 2});
  const double before = learner.evaluate(tests).loss;
  const Schedule rate{.kind = Schedule::Kind::kCosine, .peak = 5e-3, .warmup_steps = 10, .max_steps = steps};
  for (int64_t step = 1; step <= steps; ++step) {
    const std::vector<Arrays> micro_batches{batches.next(), batches.next()};
    if (!learner.step(micro_batches, learning_rate(rate, step)).finite) return 3;
  }
  const double after = learner.evaluate(tests).loss;
  model.decoder.save(learner, out);

  Model saved(out);
  Learner reader(saved, loss_of(saved), tests.shapes(), {.training = false});
  const double read = reader.evaluate(tests).loss;
  std::printf("loss %.3f before, %.3f after, %.3f of the folder that was written\n", before, after, read);
  return after < before / 2 && std::abs(read - after) < 1e-3 ? 0 : 1;
}

int main(int count, char** words) try { return run(count, words); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return exit_code(error.kind());
}
