// Any bytes are either a SentencePiece model that takes any text, alone, under a vocabulary of Marian's or as a class
// of transformers reads it, or a user error of one line.
#include "data/text/pretrained_files.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "fuzz/fuzzing.h"

using namespace linnet;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzzing::as_text(data, size);
  const std::string text = fuzzing::text_with(bytes) + " <extra_id_1>the";
  fuzzing::only_user_errors([&] {
    SentencePieceOptions options;
    options.extra_ids = size % 3;
    options.add_begin = size % 2;
    options.add_end = size % 5 == 0;
    fuzzing::use(SentencePiecePretrained(bytes, fuzzing::kName, options), text);
  });
  fuzzing::only_user_errors([&] {
    SentencePieceOptions options;
    options.vocabulary = R"({"<unk>": 1, "</s>": 0, "<pad>": 7, "▁the": 2, "a": 3, "▁": 4, "t": 5, "é": 6})";
    options.vocabulary_path = "fuzz/vocab.json";
    fuzzing::use(SentencePiecePretrained(bytes, fuzzing::kName, options), text);
  });
  fuzzing::only_user_errors([&] {
    constexpr const char* kKinds[] = {"T5", "Albert", "XLMRoberta", "Camembert", "MBart", "MBart50", "Nllb", "Pegasus",
        "DebertaV2", "Llama", "Gemma"};
    const Json settings = {{"extra_ids", 3}, {"add_eos_token", size % 2 == 0},
                   {"eos_token", size % 3 ? "</s>" : "<s>"}},
               none = Json::object();
    fuzzing::use(PipelineTokenizer(read_sentencepiece_pipeline(
                     bytes, fuzzing::kName, kKinds[size % 11], settings, JsonObject(none, fuzzing::kName))),
        text);
  });
  return 0;
}
