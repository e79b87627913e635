// Any bytes are either a vocab.txt and, behind an empty line, a tokenizer_config.json, or a user error of one line. All
// of it is a vocab.txt, too.
#include "data/text/pretrained_files.h"
#include "fuzz/fuzzing.h"

using namespace linnet;

namespace {
void read(const std::string& vocabulary, const std::string& config) {
  fuzzing::only_user_errors([&] {
    const char* config_path = "fuzz/tokenizer_config.json";
    const Json json = parse_tokenizer_config(config, config_path);
    const JsonObject settings(json, config_path);
    Pipeline pipeline = read_bert_vocabulary(vocabulary, "fuzz/vocab.txt", tokenizer_kind(settings, "fuzz"), settings);
    add_tokens_of_config(settings, pipeline);
    fuzzing::use(PipelineTokenizer(std::move(pipeline)), fuzzing::text_with(vocabulary));
  });
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzzing::as_text(data, size);
  const fuzzing::TwoFiles files = fuzzing::two_files(bytes);
  read(bytes, "");
  if (!files.second.empty()) read(files.first, files.second);
  return 0;
}
