#include "data/text/pipeline/pipeline_tokenizer.h"
#include <algorithm>
#include "base/error.h"
#include "base/json.h"
#include "data/text/pipeline/truncation.h"
#include "data/text/unicode/unicode_classes.h"
#include "data/text/unicode/utf8.h"

namespace linnet {

PipelineTokenizer::PipelineTokenizer(Pipeline pipeline) : pipeline_(std::move(pipeline)) {
  vocab_size_ = pipeline_.model->vocabulary().size();
  std::vector<AddedToken> before, after;
  std::vector<std::string> before_texts, after_texts;
  PipelineScratch scratch;
  for (size_t i = 0; i < pipeline_.added.size(); ++i) {
    const AddedToken& token = pipeline_.added[i];
    vocab_size_ = std::max<int64_t>(vocab_size_, token.id + 1);
    added_by_id_.emplace(token.id, i);
    added_by_text_.emplace(token.text, token.id);
    if (!token.normalized) {
      before.push_back(token);
      before_texts.push_back(token.text);
    } else {
      after.push_back(token);
      scratch.text.reset(token.text, 0, false);
      if (pipeline_.normalizer) pipeline_.normalizer->apply(scratch.text, scratch);
      after_texts.emplace_back(scratch.text.view());
    }
  }
  before_ = AddedTokenMatcher(before, before_texts);
  after_ = AddedTokenMatcher(after, after_texts);
}

PipelineTokenizer::~PipelineTokenizer() = default;

void PipelineTokenizer::tokenize(std::string_view text, PipelineScratch& scratch, std::vector<TokenId>& ids,
                                 std::vector<TextRange>* offsets) const {
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
    if (pipeline_.normalizer) pipeline_.normalizer->apply(scratch.text, scratch);
    scratch.words.clear();
    after_.split(scratch.text.view(), 0, scratch.text.view().size(), scratch.words);
    for (const auto& step : pipeline_.pre_tokenizers) step->split(scratch);
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
      pipeline_.model->tokenize(word, scratch.model, scratch.tokens);
      scratch.cache.keep(word, hash, scratch.tokens.data(), scratch.tokens.size());
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

void PipelineTokenizer::encode(std::string_view text, std::vector<TokenId>& ids) const {
  const ScratchPool<PipelineScratch>::Lease lease(scratch_);
  tokenize(text, *lease, ids, nullptr);
}

Encoding PipelineTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<Encoding> parts(1);
  {
    const ScratchPool<PipelineScratch>::Lease lease(scratch_);
    tokenize(text, *lease, parts[0].ids, options.offsets ? &parts[0].offsets : nullptr);
  }
  trim_offsets(text, parts[0]);
  return join_by_template(std::move(parts), pipeline_.post, options);
}

Encoding PipelineTokenizer::encode_pair(std::string_view first, std::string_view second,
                                        const EncodeOptions& options) const {
  std::vector<Encoding> parts(2);
  for (size_t i = 0; i < 2; ++i) {
    const std::string_view text = i == 0 ? first : second;
    {
      const ScratchPool<PipelineScratch>::Lease lease(scratch_);
      tokenize(text, *lease, parts[i].ids, options.offsets ? &parts[i].offsets : nullptr);
    }
    trim_offsets(text, parts[i]);
  }
  return join_by_template(std::move(parts), pipeline_.post, options);
}

// As tokenizers does it: by the spaces in a token's spelling, of which the first token's first one may be the one that
// was put before the text.
void PipelineTokenizer::trim_offsets(std::string_view text, Encoding& encoding) const {
  if (!pipeline_.post.trim_offsets) return;
  const auto is_blank = [](std::string_view text, size_t at) {
    const char32_t c = utf8_code_point_at(text, at);
    return c == 0x120 || is_white_space(c);  // Ġ
  };
  for (size_t i = 0; i < encoding.offsets.size(); ++i) {
    TextRange& range = encoding.offsets[i];
    const std::string token = piece(encoding.ids[i]);
    size_t leading = 0, trailing = 0;
    for (size_t at = 0; at < token.size() && is_blank(token, at); at += utf8_length_at(token, at)) ++leading;
    for (size_t end = token.size(); end > 0 && is_blank(token, utf8_start_before(token, end));
         end = utf8_start_before(token, end))
      ++trailing;
    if (leading > 0 && pipeline_.post.prefix_space && (i == 0 || range.begin == 0)) --leading;
    range.begin = std::min(range.begin + leading, range.end);
    if (trailing == 0 || range.end < trailing) continue;
    range.end = std::max(range.end - trailing, range.begin);
    while (range.end > range.begin && range.end < text.size() &&
           (static_cast<unsigned char>(text[range.end]) & 0xC0) == 0x80)
      --range.end;  // whole characters
  }
}

// Cold: small rather than fast.
[[gnu::cold]] void PipelineTokenizer::add_to_template(bool begin, bool end) {
  begin = begin && roles_.begin != kNoToken, end = end && roles_.end != kNoToken;
  PostProcessing& post = pipeline_.post;
  if (special_count(post.single) > 0 || (!begin && !end)) return;
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  post.single.clear(), post.pair.clear();
  const auto add_token = [&](TokenId id, uint8_t segment) {
    const std::string name = piece(id);
    const Json item = {{"SpecialToken", {{"id", name}, {"type_id", segment}}}};
    tokens[name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
    if (segment == 0) post.single.push_back({-1, id, 0}), single.push_back(item);
    post.pair.push_back({-1, id, segment}), pair.push_back(item);
  };
  for (const uint8_t segment : {uint8_t{0}, uint8_t{1}}) {
    if (begin) add_token(roles_.begin, segment);
    const Json text = {{"Sequence", {{"id", segment == 0 ? "A" : "B"}, {"type_id", segment}}}};
    if (segment == 0) post.single.push_back({0, kNoToken, 0}), single.push_back(text);
    post.pair.push_back({segment, kNoToken, segment}), pair.push_back(text);
    if (end) add_token(roles_.end, segment);
  }
  const Json added = {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  const Json before = Json::parse(pipeline_.post_json, JsonLimits::tables());
  const Json all = {{"type", "Sequence"}, {"processors", Json::array({before, added})}};
  pipeline_.post_json = (before.is_null() ? added : all).dump_sorted();
}

int64_t PipelineTokenizer::added_by_template(bool pair) const {
  return special_count(pair ? pipeline_.post.pair : pipeline_.post.single);
}

std::string PipelineTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size_ || (skip_special && is_special(id))) continue;
    std::string token = piece(id);
    if (!token.empty()) tokens.push_back(std::move(token));
  }
  for (const auto& decoder : pipeline_.decoders) decoder->apply(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && pipeline_.join_by_space) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::string PipelineTokenizer::piece(TokenId id) const {
  if (id < 0 || id >= vocab_size_)
    fail_internal("token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocab_size_));
  if (const auto found = added_by_id_.find(id); found != added_by_id_.end()) return pipeline_.added[found->second].text;
  const Vocabulary& vocabulary = pipeline_.model->vocabulary();
  return id < vocabulary.size() ? std::string(vocabulary.piece(id)) : std::string();
}

TokenId PipelineTokenizer::id_of(std::string_view piece) const {
  if (const auto found = added_by_text_.find(piece); found != added_by_text_.end()) return found->second;
  return pipeline_.model->vocabulary().find(piece);
}

bool PipelineTokenizer::is_special(TokenId id) const {
  const auto found = added_by_id_.find(id);
  return found != added_by_id_.end() && pipeline_.added[found->second].special;
}

}  // namespace linnet
