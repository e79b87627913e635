#include "tasks/text_files.h"
#include <iterator>
#include "base/fail.h"
#include "base/thread_pool.h"
#include "data/examples/text/record_reader.h"
#include "data/examples/text/token_chunks.h"
#include "data/text/trained_tokenizers.h"
#include "tasks/text_coder.h"

namespace linnet {
bool is_token_file(const std::string& path) { return has_ending(path, ".bin") && !has_ending(path, ".bin.gz"); }

std::string text_path(const Config& config, const std::string& path, const char* key) {
  if (path.empty())
    fail_user("task = \"", config.data.task, "\" reads the text in `", key,
        "`, which is not given (--data FILE, or --set data.", key, "=FILE)");
  return data_path(config.data, path);
}

std::string evaluated_text(const Config& config, const std::string& path, const std::string& split) {
  if (!path.empty()) return path;
  if (split != "test") return data_path(config.data, config.data.valid_text);
  if (!config.data.test_text.empty()) return data_path(config.data, config.data.test_text);
  fail_user("the run's configuration names no test_text; --split valid takes the validation text");
}

std::vector<std::string> read_texts(const DataConfig& data, const std::string& path) {
  const TimedPhase phase("reading '" + path + "'");
  std::vector<std::string> texts;
  read_documents(path, data.text_column.empty() ? "text" : data.text_column,
      [&](std::string text) { texts.push_back(std::move(text)); });
  return texts;
}

std::vector<std::string> split_end(std::vector<std::string>& texts, double share) {
  if (texts.size() > 1) {
    const auto first = texts.begin() + (static_cast<double>(texts.size()) * (1 - share));
    std::vector<std::string> end(std::make_move_iterator(first), std::make_move_iterator(texts.end()));
    texts.erase(first, texts.end());
    return end;
  }
  std::string& text = texts[0];
  auto cut = static_cast<size_t>(static_cast<double>(text.size()) * (1 - share));
  while (cut < text.size() && (text[cut] & 0xC0) == 0x80) ++cut;  // within a character
  std::vector<std::string> end{text.substr(cut)};
  text.resize(cut);
  return end;
}

std::unique_ptr<TextCoder> make_text_coder(const Config& config, const std::vector<std::string>& texts) {
  if (!config.data.tokenizer_dir.empty()) return open_text_coder(config.data.tokenizer_dir);
  if (!config.model.from.empty()) return open_text_coder(config.model.from);
  const TimedPhase phase("learning the vocabulary");
  if (config.data.tokenizer == "byte_bpe") {
    BpeTrainer trainer({.vocab_size = config.data.vocab_size});
    for (const std::string& text : texts) trainer.add(text);
    return make_pretrained_coder(trainer.train());
  }
  if (config.data.tokenizer != "char")
    fail_user("tokenizer = \"", config.data.tokenizer,
        "\": a language model learns \"byte_bpe\" or \"char\" itself; any other is given as tokenizer_dir");
  return make_character_coder(
      train_tokenizer({.kind = config.data.tokenizer, .vocab_size = config.data.vocab_size}, texts));
}
}  // namespace linnet
