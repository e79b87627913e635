// Reads a GPT-2 folder as Hugging Face writes them, learns one text by heart, and writes a folder that transformers
// reads.
//
//   gpt2 FOLDER OUT ID ID ID...        the text as token ids (`linnet tokenizer encode FOLDER`)
#include <cstdio>
#include <cstdlib>
#include "base/error.h"
#include "models/families/pretrained.h"
#include "models/modules/text_decoder.h"
#include "training/trainer/learner.h"
using namespace linnet;

int run(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() < 4) fail_user("usage: gpt2 FOLDER OUT ID ID...");
  std::vector<int32_t> tokens;
  for (size_t i = 2; i < words.size(); ++i) tokens.push_back(std::atoi(words[i].c_str()));
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-1);  // nobody knows what comes after the last

  PretrainedModel model = open_pretrained(words[0]);  // config.json and the names of all tensors are checked here
  TextDecoder& gpt = model.as<TextDecoder>();
  std::printf("%s, %lld parameters\n", model.architecture.c_str(), static_cast<long long>(model.parameter_count()));

  TrainerOptions options;
  options.optimizer.kind = OptimizerAttrs::Kind::kAdam;
  const auto length = static_cast<int64_t>(tokens.size());
  SingleShapeLearner learner(
      gpt, [&](Trace& trace) { return causal_loss(gpt, trace, 1, length); }, options);
  const ParameterLayout& layout = learner.trainer().state().layout();
  float* parameters = learner.trainer().state().flat("parameters");
  load_parameters(model, layout, parameters);

  learner.set<int32_t>("tokens", tokens);
  learner.set<int32_t>("targets", targets);
  std::printf("loss %.3f\n", learner.evaluate());
  for (int step = 0; step < 50; ++step) learner.step(/*learning_rate=*/1e-3);
  std::printf("loss %.3f after 50 steps\n", learner.evaluate());
  save_pretrained(model, layout, parameters, words[1]);
  return 0;
}

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_code(error.kind());
  }
}
