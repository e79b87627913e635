#include "base/fail.h"
#include "base/thread_pool.h"
#include "tasks/masked/masked_task.h"
#include "tasks/text_files.h"

namespace linnet {
namespace {
MaskedText encode_masked_text(const PretrainedTokenizer& tokenizer, const std::vector<std::string>& texts) {
  const TimedPhase phase("tokenizing");
  std::vector<int32_t> ids;
  std::vector<TokenSpan> documents;
  for (const std::string& text : texts) {
    const auto first = static_cast<int64_t>(ids.size());
    tokenizer.encode(text, ids);
    documents.push_back({first, static_cast<int64_t>(ids.size()) - first});
  }
  return {TokenStream(ids, tokenizer.vocab_size()), std::move(documents)};
}

MaskedText map_masked_tokens(const Config& config, const PretrainedTokenizer& tokenizer, const std::string& path) {
  TokenStream tokens(path, static_cast<int>(config.data.token_bytes), tokenizer.vocab_size());
  const TokenRoles& roles = tokenizer.roles();  // the token between documents also ends rows
  std::vector<TokenSpan> documents = find_documents(tokens, roles.separate != kNoToken ? roles.separate : roles.end);
  return {std::move(tokens), std::move(documents)};
}

// Takes documents from the last `share` of the tokens on; one across the cut is divided.
std::vector<TokenSpan> take_end(std::vector<TokenSpan>& documents, int64_t size, double share) {
  const auto cut = static_cast<int64_t>(static_cast<double>(size) * (1 - share));
  std::vector<TokenSpan> end;
  while (!documents.empty() && documents.back().first + documents.back().count > cut) {
    TokenSpan& last = documents.back();
    const int64_t first = std::max(last.first, cut);
    end.insert(end.begin(), {first, last.first + last.count - first});
    last.count = first - last.first;
    if (last.count > 0) break;
    documents.pop_back();
  }
  return end;
}

MaskedData load_masked_tokens(const Config& config, const PretrainedTokenizer& tokenizer, const std::string& path) {
  MaskedText train = map_masked_tokens(config, tokenizer, path);
  std::vector<TokenSpan> end = take_end(train.documents, train.tokens.size(), config.data.valid_share);
  MaskedText valid{train.tokens, std::move(end)};
  return {std::move(train), std::move(valid)};
}
}  // namespace

MaskedText load_masked_text(const Config& config, const PretrainedTokenizer& tokenizer, const std::string& path) {
  if (is_token_file(path)) return map_masked_tokens(config, tokenizer, path);
  MaskedText text = encode_masked_text(tokenizer, read_texts(config.data, path));
  if (text.tokens.size() == 0) fail_user("'", path, "' holds no text");
  return text;
}

MaskedData load_masked_data(const Config& config, const PretrainedTokenizer& tokenizer) {
  const std::string path = text_path(config, config.data.text, "text");
  if (!config.data.valid_text.empty())
    return {load_masked_text(config, tokenizer, path),
        load_masked_text(config, tokenizer, data_path(config.data, config.data.valid_text))};
  if (is_token_file(path)) return load_masked_tokens(config, tokenizer, path);
  std::vector<std::string> texts = read_texts(config.data, path);
  if (texts.empty()) fail_user("'", path, "' holds no text");
  const std::vector<std::string> end = split_end(texts, config.data.valid_share);
  MaskedData data{encode_masked_text(tokenizer, texts), encode_masked_text(tokenizer, end)};
  if (data.train.tokens.size() == 0) fail_user("'", path, "' holds no text to train on");
  if (data.valid.tokens.size() == 0)
    fail_user("there is no validation text: valid_share = ", config.data.valid_share, " of '", path,
        "' is empty, and valid_text is not given");
  return data;
}
}  // namespace linnet
