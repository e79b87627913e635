// Continues a text with a Llama folder as Hugging Face writes them.
//
//   llama FOLDER COUNT ID ID ID...        the text as token ids (`linnet tokenizer encode FOLDER`)
#include <cstdio>
#include <cstdlib>
#include <thread>
#include "base/error.h"
#include "generation/engine.h"
#include "models/families/pretrained.h"
#include "models/modules/text_decoder.h"
using namespace linnet;

int run(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() < 3) fail_user("usage: llama FOLDER COUNT ID ID...");
  std::vector<int32_t> prompt;
  for (size_t i = 2; i < words.size(); ++i) prompt.push_back(std::atoi(words[i].c_str()));

  PretrainedModel model = open_pretrained(words[0]);  // config.json and the names of all tensors are checked here
  TextDecoder& llama = model.as<TextDecoder>();
  const ParameterLayout layout(llama);
  const size_t bytes = static_cast<size_t>(layout.parameter_count()) * sizeof(float);
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));

  // Where everything lies is decided first; then memory is taken.
  Store store;
  store.bind("parameters", {store.add_region("weights", MemoryKind::kParameters, bytes), 0}, bytes);
  const SharedRegions shared{
      store.add_region("arena", MemoryKind::kActivations, 0), store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  const int64_t tokens = std::atoi(words[1].c_str()), wanted = static_cast<int64_t>(prompt.size()) + tokens;
  CausalGenerator generator(
      llama, layout, store, shared, {.max_length = std::min(llama.max_length(), wanted), .threads = threads});
  store.allocate();
  generator.bind();
  load_parameters(model, layout, store.as<float>("parameters"));

  ThreadPool pool(threads);
  generator.generate({&prompt, 1}, {.max_tokens = tokens, .sampling = {.temperature = 0}}, pool,
      [](int64_t, int32_t token) {  // hears each token as it is chosen
        std::printf("%d ", token);
        return std::fflush(stdout) == 0;
      });
  std::printf("\n");
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
