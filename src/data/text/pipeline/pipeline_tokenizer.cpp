#include <algorithm>
#include "base/error.h"
#include "base/json.h"
#include "data/text/pipeline/tokenizer_json.h"

namespace linnet {

PipelineTokenizer::PipelineTokenizer(Pipeline pipeline) : pipeline_(std::move(pipeline)) {
  post_ = pipeline_.post;
  vocab_size_ = model().vocabulary().size();
  std::vector<AddedToken> before, after;  // with the texts that are looked for
  PipelineScratch scratch;
  for (size_t i = 0; i < pipeline_.added.size(); ++i) {
    const AddedToken& token = pipeline_.added[i];
    vocab_size_ = std::max<int64_t>(vocab_size_, token.id + 1);
    added_by_id_.emplace(token.id, i);
    added_by_text_.emplace(token.text, token.id);
    (token.normalized ? after : before).push_back(token);
    if (!token.normalized) continue;
    scratch.text.reset(token.text, 0, false);
    if (pipeline_.normalizer) pipeline_.normalizer(scratch.text, scratch);
    after.back().text = scratch.text.view();
  }
  before_ = AddedTokenMatcher(before);
  after_ = AddedTokenMatcher(after);
}

void PipelineTokenizer::tokenize(std::string_view text, std::vector<TokenId>& ids,
                                 std::vector<TextRange>* offsets) const {
  const auto lease = scratch_.lease();
  PipelineScratch& scratch = *lease;
  scratch.segments.clear();
  before_.split(text, 0, text.size(), scratch.segments);
  for (size_t i = 0; i < scratch.segments.size(); ++i) {
    const TextSegment segment = scratch.segments[i];
    if (segment.id != kNoToken) {
      ids.push_back(segment.id);
      if (offsets) offsets->push_back({segment.begin, segment.end});
      continue;
    }
    scratch.text.reset(text.substr(segment.begin, segment.end - segment.begin), segment.begin, offsets != nullptr);
    if (pipeline_.normalizer) pipeline_.normalizer(scratch.text, scratch);
    scratch.words.clear();
    after_.split(scratch.text.view(), 0, scratch.text.view().size(), scratch.words);
    for (const PreTokenizer& step : pipeline_.pre_tokenizers) step(scratch);
    tokenize_words(scratch, ids, offsets);
  }
}

void PipelineTokenizer::tokenize_words(PipelineScratch& scratch, std::vector<TokenId>& ids,
                                       std::vector<TextRange>* offsets) const {
  const std::string_view text = scratch.text.view();
  for (const TextSegment& segment : scratch.words) {
    if (segment.id != kNoToken) {
      ids.push_back(segment.id);
      if (offsets) offsets->push_back(scratch.text.source(segment.begin, segment.end));
      continue;
    }
    const std::string_view word = text.substr(segment.begin, segment.end - segment.begin);
    if (word.empty()) continue;
    scratch.tokens.clear();
    const uint64_t hash = hash_piece(word);
    if (!scratch.cache.find(word, hash, scratch.tokens)) {
      model().tokenize(word, scratch.model, scratch.tokens);
      scratch.cache.keep(word, hash, scratch.tokens);
    }
    for (const ModelToken& token : scratch.tokens) ids.push_back(token.id);
    if (!offsets) continue;
    size_t begin = segment.begin;
    for (const ModelToken& token : scratch.tokens) {
      offsets->push_back(scratch.text.source(begin, segment.begin + token.end));
      begin = segment.begin + token.end;
    }
  }
}

// Cold: small rather than fast.
[[gnu::cold]] void PipelineTokenizer::add_to_template(bool begin, bool end) {
  begin = begin && roles_.begin != kNoToken, end = end && roles_.end != kNoToken;
  if (added_by_template(false) > 0 || (!begin && !end)) return;
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  post_.single.clear(), post_.pair.clear();
  const auto add_token = [&](TokenId id, uint8_t segment) {
    const std::string name = piece(id);
    const Json item = {{"SpecialToken", {{"id", name}, {"type_id", segment}}}};
    tokens[name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
    if (segment == 0) post_.single.push_back({-1, id, 0}), single.push_back(item);
    post_.pair.push_back({-1, id, segment}), pair.push_back(item);
  };
  for (const uint8_t segment : {uint8_t{0}, uint8_t{1}}) {
    if (begin) add_token(roles_.begin, segment);
    const Json text = {{"Sequence", {{"id", segment == 0 ? "A" : "B"}, {"type_id", segment}}}};
    if (segment == 0) post_.single.push_back({0, kNoToken, 0}), single.push_back(text);
    post_.pair.push_back({segment, kNoToken, segment}), pair.push_back(text);
    if (end) add_token(roles_.end, segment);
  }
  const Json added = {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  const Json before = Json::parse(pipeline_.post_json, JsonLimits::tables());
  const Json all = {{"type", "Sequence"}, {"processors", Json::array({before, added})}};
  pipeline_.post_json = (before.is_null() ? added : all).dump_sorted();
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size_ || (skip_special && is_special(id))) continue;
    std::string token = piece(id);
    if (!token.empty()) tokens.push_back(std::move(token));
  }
  for (const TokenDecoder& decoder : pipeline_.decoders) decoder(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && pipeline_.join_by_space) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::string PipelineTokenizer::piece(TokenId id) const {
  check_token(id, vocab_size_);
  if (const auto found = added_by_id_.find(id); found != added_by_id_.end()) return pipeline_.added[found->second].text;
  const Vocabulary& vocabulary = model().vocabulary();
  return id < vocabulary.size() ? std::string(vocabulary.piece(id)) : std::string();
}

TokenId PipelineTokenizer::id_of(std::string_view piece) const {
  if (const auto found = added_by_text_.find(piece); found != added_by_text_.end()) return found->second;
  return model().vocabulary().find(piece);
}

bool PipelineTokenizer::is_special(TokenId id) const {
  const auto found = added_by_id_.find(id);
  return found != added_by_id_.end() && pipeline_.added[found->second].special;
}

}  // namespace linnet
