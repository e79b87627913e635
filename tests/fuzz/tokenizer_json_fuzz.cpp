// Any bytes are either a tokenizer.json that takes any text and survives its own printing, or a user error of one line.
#include "data/text/pipeline/tokenizer_json.h"
#include "fuzz/fuzzing.h"

using namespace linnet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzzing::as_text(data, size), text = fuzzing::text_with(bytes);
  fuzzing::only_user_errors([&] {
    const PipelineTokenizer tokenizer(read_tokenizer_json(bytes, fuzzing::kName));
    fuzzing::use(tokenizer, text);
    const PipelineTokenizer again(read_tokenizer_json(tokenizer.to_json(), "printed"));
    fuzzing::require(fuzzing::ids_of(again, text) == fuzzing::ids_of(tokenizer, text));
  });
  return 0;
}
