// Generates from a T5 folder as Hugging Face writes them: the best of four beams.
//
//   t5 FOLDER ID ID ID...        the source as token ids, its end (1) last
#include "models/modules/t5.h"
#include <cstdio>
#include <cstdlib>
#include <thread>
#include "base/error.h"
#include "generation/engine.h"
#include "models/families/pretrained.h"
using namespace linnet;

int run(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  if (words.size() < 2) fail_user("usage: t5 FOLDER ID ID...");
  std::vector<int32_t> source;
  for (size_t i = 1; i < words.size(); ++i) source.push_back(std::atoi(words[i].c_str()));

  PretrainedModel model = open_pretrained(words[0]);  // config.json and the names of all tensors are checked here
  T5& t5 = model.as<T5>();
  const ParameterLayout layout(t5);
  const size_t bytes = static_cast<size_t>(layout.parameter_count()) * sizeof(float);

  // Where everything lies is decided first; then memory is taken.
  Store store;
  store.bind("parameters", {store.add_region("weights", MemoryKind::kParameters, bytes), 0}, bytes);
  const SharedRegions shared{
      store.add_region("arena", MemoryKind::kActivations, 0), store.add_region("workspace", MemoryKind::kWorkspace, 0)};
  SourceOptions options{.rows = 1, .beams = 4};
  options.source_lengths = {static_cast<int64_t>(source.size())};
  options.begin = t5.config.start_token;
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const SearchSettings search{.generate = {.ends = {1}, .never = {t5.config.start_token}}};
  SourceGenerator generator(t5, layout, store, shared, options, search);
  store.allocate();
  generator.bind();
  load_parameters(model, layout, store.as<float>("parameters"));

  ThreadPool pool(options.threads);
  const Hypothesis best = generator.generate({&source, 1}, 1, pool)[0][0];
  for (const int32_t id : best.ids) std::printf("%d ", id);
  std::printf("\nlog probability %.4f\n", best.log_probability);
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
