#include "tasks/text_coder.h"
#include <algorithm>
#include <sstream>
#include "base/fail.h"
#include "base/files.h"

namespace linnet {
namespace {
constexpr const char *kStem = "tokenizer", *kNumbers = "tokenizer.numbers";

// Tokens whose texts do not depend on those before them.
class SingleFlow : public TextFlow {
 public:
  explicit SingleFlow(const TextCoder& coder) : coder_(coder) {}
  std::string push(int32_t token) override { return coder_.decode({token}); }

 private:
  const TextCoder& coder_;
};

// A tokenizer of single characters; line ends are characters too.
class CharacterCoder : public TextCoder {
 public:
  explicit CharacterCoder(std::unique_ptr<Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override { tokenizer_->encode(text, ids); }
  std::string decode(const std::vector<int32_t>& ids) const override { return tokenizer_->decode(ids); }
  int32_t separator() const override { return tokenizer_->special().end; }
  int32_t start() const override {
    std::vector<int32_t> line_end;
    encode("\n", line_end);
    return line_end[0] == tokenizer_->special().unknown ? separator() : line_end[0];
  }
  int64_t unknown_count(const std::vector<int32_t>& ids) const override {
    return std::count(ids.begin(), ids.end(), tokenizer_->special().unknown);
  }
  void save(const std::string& folder) const override { tokenizer_->save(folder, kStem); }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
};

class PretrainedFlow : public TextFlow {
 public:
  PretrainedFlow(const PretrainedTokenizer& tokenizer, std::span<const int32_t> context)
      : stream_(tokenizer, true, context) {}
  std::string push(int32_t token) override { return stream_.push(token); }
  std::string finish() override { return stream_.finish(); }

 private:
  TextStream stream_;
};

class PretrainedCoder : public TextCoder {
 public:
  explicit PretrainedCoder(std::unique_ptr<PretrainedTokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  int64_t vocab_size() const override { return tokenizer_->vocab_size(); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override { tokenizer_->encode(text, ids); }
  void encode_whole(std::string_view text, std::vector<int32_t>& ids) const override {
    const Encoding encoding = tokenizer_->encode(text, EncodeOptions{.offsets = false});
    ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    return tokenizer_->decode(std::span<const int32_t>(ids));
  }
  int32_t begin() const override {
    const Encoding encoding = tokenizer_->encode("a", EncodeOptions{.offsets = false});
    return !encoding.ids.empty() && encoding.special[0] == 1 ? encoding.ids[0] : kNoToken;
  }
  int32_t separator() const override { return tokenizer_->roles().end; }
  int32_t start() const override {
    const TokenRoles& roles = tokenizer_->roles();
    return roles.begin != kNoToken ? roles.begin : roles.end;
  }
  std::unique_ptr<TextFlow> flow(std::span<const int32_t> context) const override {
    return flow_of(*tokenizer_, context);
  }
  void save(const std::string& folder) const override { tokenizer_->save(folder, kStem); }
  const PretrainedTokenizer* pretrained() const override { return tokenizer_.get(); }

 private:
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
};

class NumberCoder : public TextCoder {
 public:
  explicit NumberCoder(int64_t vocab_size) : vocab_size_(vocab_size) {}

  int64_t vocab_size() const override { return vocab_size_; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::istringstream in{std::string(text)};
    int64_t id = 0;
    while (in >> id) {
      if (id < 0 || id >= vocab_size_) fail_user("there is no token ", id);
      ids.push_back(static_cast<int32_t>(id));
    }
    if (!in.eof()) fail_user("this model has no tokenizer: its text is token numbers with spaces between");
  }
  std::string decode(const std::vector<int32_t>& ids) const override {
    std::string text;
    for (const int32_t id : ids) text += std::to_string(id) + " ";
    return text;
  }
  int32_t separator() const override { return -1; }
  int32_t start() const override { return 0; }
  void save(const std::string& folder) const override {
    write_file_atomically(folder + "/" + kNumbers, std::to_string(vocab_size_) + "\n");
  }

 private:
  int64_t vocab_size_;
};
}  // namespace

std::unique_ptr<TextFlow> TextCoder::flow(std::span<const int32_t>) const {
  return std::make_unique<SingleFlow>(*this);
}

std::unique_ptr<TextFlow> flow_of(const PretrainedTokenizer& tokenizer, std::span<const int32_t> context) {
  return std::make_unique<PretrainedFlow>(tokenizer, context);
}

std::unique_ptr<TextCoder> make_number_coder(int64_t vocab_size) { return std::make_unique<NumberCoder>(vocab_size); }

std::unique_ptr<TextCoder> make_character_coder(std::unique_ptr<Tokenizer> tokenizer) {
  return std::make_unique<CharacterCoder>(std::move(tokenizer));
}

std::unique_ptr<TextCoder> make_pretrained_coder(std::unique_ptr<PretrainedTokenizer> tokenizer) {
  return std::make_unique<PretrainedCoder>(std::move(tokenizer));
}

std::unique_ptr<TextCoder> open_text_coder(const std::string& path) {
  return make_pretrained_coder(load_pretrained_tokenizer(path));
}

std::unique_ptr<TextCoder> load_text_coder(const std::string& folder) {
  if (file_exists(folder + "/" + kStem)) return open_text_coder(folder + "/" + kStem);
  if (file_exists(folder + "/" + kNumbers))
    return make_number_coder(std::max<int64_t>(1, std::atoll(read_file(folder + "/" + kNumbers).c_str())));
  return std::make_unique<CharacterCoder>(load_tokenizer(folder, kStem));
}
}  // namespace linnet
