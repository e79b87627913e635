// Any bytes are either a vocab.json and, behind an empty line, a merges.txt, or a user error of one line.
#include "data/text/pretrained_files.h"
#include "fuzz/fuzzing.h"

using namespace linnet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzzing::as_text(data, size);
  const fuzzing::TwoFiles files = fuzzing::two_files(bytes);
  const Json none = Json::object();
  for (const char* kind : {"", "Roberta", "Qwen2"})
    fuzzing::only_user_errors([&] {
      fuzzing::use(PipelineTokenizer(read_gpt2_files(files.first, "fuzz/vocab.json", files.second, "fuzz/merges.txt",
                       kind, JsonObject(none, "fuzz"))),
          fuzzing::text_with(files.second));
    });
  return 0;
}
