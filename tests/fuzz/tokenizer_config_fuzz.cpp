// Any bytes are either a tokenizer_config.json and, behind an empty line, a special_tokens_map.json, which give roles
// that survive their printing, or a user error of one line.
#include "data/text/pretrained_files.h"
#include "fuzz/fuzzing.h"

using namespace linnet;

namespace {
PipelineTokenizer make_tokenizer() {
  const char* pieces = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n<s>\n</s>\n<pad>\n<unk>\n<mask>\nthe\n##a\n";
  const Json none = Json::object();
  return PipelineTokenizer(read_bert_vocabulary(pieces, "vocab.txt", "", JsonObject(none, "fuzz")));
}

void set_roles(PipelineTokenizer& tokenizer, std::string_view config_text, std::string_view map_text) {
  const Json config = parse_tokenizer_config(config_text, "fuzz/tokenizer_config.json"),
             map = parse_tokenizer_config(map_text, "fuzz/special_tokens_map.json");
  set_roles_from_files(tokenizer, JsonObject(config, "the configuration:"), JsonObject(map, "the map:"));
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static PipelineTokenizer tokenizer = make_tokenizer();
  const fuzzing::TwoFiles files = fuzzing::two_files(fuzzing::as_text(data, size));
  fuzzing::only_user_errors([&] {
    tokenizer.set_roles({});
    tokenizer.set_max_length(0);
    set_roles(tokenizer, files.first, files.second);
    const TokenRoles roles = tokenizer.roles();
    for (const TokenId id :
        {roles.begin, roles.end, roles.pad, roles.unknown, roles.classify, roles.separate, roles.mask})
      fuzzing::require(id == kNoToken || (id >= 0 && id < tokenizer.vocab_size()));
    const std::string printed = format_tokenizer_config(tokenizer, files.first);
    const int64_t length = tokenizer.max_length();
    tokenizer.set_roles({});
    set_roles(tokenizer, printed, files.second);
    // A role whose piece the vocabulary lacks is not printed, so that the usual spellings may fill it.
    fuzzing::require(roles.end == kNoToken || tokenizer.roles().end == roles.end);
    fuzzing::require(roles.pad == kNoToken || tokenizer.roles().pad == roles.pad);
    fuzzing::require(tokenizer.max_length() == length);
  });
  return 0;
}
