#include <algorithm>
#include <cstdio>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "app/cli/print-inl.h"
#include "base/fail.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/text/subword_trainers.h"
#include "tasks/task_table.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
struct TokenizerArguments {
  std::string model;
  std::vector<std::string> files;
  BpeTrainingOptions training;
  bool special = false, pieces = false, skip_special = false, target = false;
};

// From a run, a model folder, or a tokenizer file.
struct OpenedTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  const PretrainedTokenizer* pretrained;  // of a model folder; null: Linnet's own kinds
};

OpenedTokenizer open_tokenizer(const TokenizerArguments& arguments) {
  OpenedTokenizer opened;
  const bool is_run = RunFolder(arguments.model).has_config();
  if (arguments.target && !is_run) fail_user("--target is for runs; a model folder's target.spm can be named itself");
  opened.tokenizer = is_run ? load_run_tokenizer(arguments.model, arguments.target)
                            : std::shared_ptr<const Tokenizer>(load_pretrained_tokenizer(arguments.model));
  opened.pretrained = dynamic_cast<const PretrainedTokenizer*>(opened.tokenizer.get());
  return opened;
}

int encode_input(const TokenizerArguments& arguments) {
  const auto [tokenizer, pretrained] = open_tokenizer(arguments);
  if (arguments.special && !pretrained)
    fail_user("--special: the tokenizer of '", arguments.model, "' has no template that adds special tokens");
  InputLines input;  // keeps carriage returns, which are text to a tokenizer
  std::vector<TokenId> ids;
  for (std::string_view line; input.next(line);) {
    ids.clear();
    if (arguments.special) ids = pretrained->encode(line, {.offsets = false}).ids;
    else tokenizer->encode(line, ids);
    print_text(joined(ids, " ", [&, &tokenizer = tokenizer](TokenId id) {
      return arguments.pieces ? tokenizer->piece(id) : std::to_string(id);
    }) + "\n");
  }
  return 0;
}

std::vector<TokenId> parse_ids(std::string_view line, int64_t line_number, int64_t vocab_size) {
  const std::string where = "standard input: line " + std::to_string(line_number) + ": ";
  std::vector<TokenId> ids;
  constexpr std::string_view kBlanks = " \t\r";
  for (size_t at = line.find_first_not_of(kBlanks); at != line.npos; at = line.find_first_not_of(kBlanks, at)) {
    const size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const auto id = parse_number<TokenId>(word);
    if (!id || *id < 0) {
      std::string shown(word.substr(0, 20));
      std::replace_if(
          shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
      fail_user(where, "'", shown, "' is not a token id");
    }
    if (*id >= vocab_size) fail_user(where, "token ", *id, " is outside the vocabulary of ", vocab_size);
    ids.push_back(*id);
    at = end;
  }
  return ids;
}

int decode_input(const TokenizerArguments& arguments) {
  const auto [tokenizer, pretrained] = open_tokenizer(arguments);
  InputLines input;
  for (std::string_view line; input.next(line);) {
    const std::vector<TokenId> ids = parse_ids(line, input.number(), tokenizer->vocab_size());
    // Linnet's own tokenizers always leave special tokens out.
    print_text((pretrained ? pretrained->decode(ids, arguments.skip_special) : tokenizer->decode(ids)) + "\n");
  }
  return 0;
}

// Reads the mapped file in chunks of a few megabytes, as a corpus may exceed memory.
int train_tokenizer(const TokenizerArguments& arguments) {
  constexpr size_t kChunk = 4 << 20;
  if (file_exists(arguments.model + "/tokenizer.json"))
    fail_user("'", arguments.model, "' has a tokenizer already; name a new folder");
  BpeTrainer trainer(arguments.training);
  for (const std::string& path : arguments.files) {
    const MappedFile file(path);
    std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    while (!text.empty()) {
      const size_t line_end = text.size() > kChunk ? text.find('\n', kChunk) : text.npos;
      const size_t size = line_end == text.npos ? text.size() : line_end + 1;
      trainer.add(text.substr(0, size));
      text.remove_prefix(size);
    }
  }
  const auto tokenizer = trainer.train();
  tokenizer->save_pretrained(arguments.model);
  print("{}: {} tokens\n", arguments.model, tokenizer->vocab_size());
  return 0;
}
}  // namespace

void add_tokenizer_command(Command& linnet) {
  Command tokenizer = linnet.subcommand("tokenizer", "text to token ids and back, and new vocabularies");
  constexpr const char* kModel = "a run or model folder, or a tokenizer's file";
  constexpr const char* kTarget = "of a run with two vocabularies: that of the translations";

  auto [train, trained] = tokenizer.subcommand("train", "learn a byte-level BPE from text files", train_tokenizer);
  train.take("model", trained.model, "the folder to write: tokenizer.json, tokenizer_config.json", {.required = true})
      .take("files", trained.files, "text files", {.required = true})
      .take("--vocab-size", trained.training.vocab_size, "tokens, with the 256 bytes and the special one",
          {.show_default = true})
      .take("--min-count", trained.training.min_count, "pairs that are rarer are not merged", {.show_default = true});

  auto [encode, encoded] = tokenizer.subcommand("encode", "the token ids of each line of standard input", encode_input);
  encode.take("model", encoded.model, kModel, {.required = true, .type = "MODEL"})
      .flag("--tokens", encoded.pieces, "the pieces instead of their ids")
      .flag("--target", encoded.target, kTarget)
      .flag("--special", encoded.special, "with the special tokens that the model's template adds");

  auto [decode, decoded] =
      tokenizer.subcommand("decode", "the text of each line of token ids on standard input", decode_input);
  decode.take("model", decoded.model, kModel, {.required = true})
      .flag("--target", decoded.target, kTarget)
      .flag("--skip-special", decoded.skip_special, "leave special tokens out");
}
}  // namespace linnet
