// The tokenizer that runs the steps of a tokenizer.json.
#include <algorithm>
#include "base/json.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
bool ends_in_word(std::string_view text) {
  return !text.empty() && is_word_character(utf8_code_point_at(text, utf8_start_before(text, text.size())));
}

bool starts_in_word(std::string_view text) { return !text.empty() && is_word_character(utf8_code_point_at(text, 0)); }
constexpr size_t kKeptText = 1 << 20;  // bytes; a longer text leaves no scratch memory
}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  ByteTrie::Keys keys;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    keys.emplace_back(tokens_[i].text, static_cast<int32_t>(i));
    if (!tokens_[i].text.empty()) first_.set(static_cast<unsigned char>(tokens_[i].text[0]));
  }
  trie_ = ByteTrie(std::move(keys));
}

void AddedTokenMatcher::split(
    std::string_view text, size_t begin, size_t end, std::vector<TextSegment>& segments) const {
  const std::string_view part = text.substr(0, end);
  size_t done = begin;
  for (size_t at = begin; at < end;) {
    int32_t longest = -1;
    if (first_[static_cast<unsigned char>(part[at])])
      trie_.visit_prefixes(part.substr(at), [&](size_t, int32_t location) { longest = location; });
    if (longest < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[longest];
    size_t from = at, to = at + token.text.size();
    at = to;
    if (token.single_word && (ends_in_word(part.substr(begin, from - begin)) || starts_in_word(part.substr(to))))
      continue;
    while (token.left_strip && from > done) {
      const size_t before = utf8_start_before(part, from);
      if (before < done || !is_white_space(utf8_code_point_at(part, before))) break;
      from = before;
    }
    while (token.right_strip && to < end && is_white_space(utf8_code_point_at(part, to)))
      to += utf8_length_at(part, to);
    if (from > done) segments.push_back({done, from, kNoToken});
    if (from < done) segments.back().end = from;  // a token in the white space that the one before took along
    segments.push_back({from, to, token.id});
    done = to;
  }
  if (done < end) segments.push_back({done, end, kNoToken});
}

void AlignedText::reset(std::string_view view, size_t base, bool tracked) {
  view_ = view, base_ = base, tracked_ = tracked;
  rewritten_ = starts_late_ = false;
}

TextRange AlignedText::source(size_t begin, size_t end) const {
  if (!rewritten_) return {base_ + begin, base_ + end};
  if (source_.empty()) return {base_, base_};
  if (begin >= end) {
    const size_t at = begin < source_.size() ? source_[begin].begin : source_.back().end;
    return {at, at};
  }
  return {source_[begin].begin, source_[end - 1].end};
}

void AlignedText::start_rewrite() {
  next_text_.clear();
  next_source_.clear();
}

void AlignedText::keep(size_t begin, size_t end) {
  starts_late_ = starts_late_ || (next_text_.empty() && begin > 0);
  next_text_.append(view().substr(begin, end - begin));
  if (!tracked_) return;
  if (rewritten_) {
    next_source_.insert(next_source_.end(), source_.begin() + begin, source_.begin() + end);
  } else {
    for (size_t i = begin; i < end; ++i) next_source_.push_back({base_ + i, base_ + i + 1});
  }
}

void AlignedText::put(std::string_view bytes, size_t begin, size_t end) {
  starts_late_ = starts_late_ || (next_text_.empty() && begin > 0);
  next_text_.append(bytes);
  if (tracked_) next_source_.insert(next_source_.end(), bytes.size(), source(begin, end));
}

void AlignedText::finish_rewrite() {
  text_.swap(next_text_);
  source_.swap(next_source_);
  rewritten_ = true;
}

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
    for (const TextStep& step : pipeline_.normalizers) step(scratch);
    after.back().text = scratch.text.view();
  }
  before_ = AddedTokenMatcher(before);
  after_ = AddedTokenMatcher(after);
  for (size_t i = 0; i < pipeline_.pre_tokenizers.size(); ++i)
    if (pipeline_.pre_tokenizers[i].rewrites) first_cut_ = i + 1;
}

void PipelineTokenizer::tokenize(
    std::string_view text, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const {
  const auto lease = scratch_.lease();
  PipelineScratch& scratch = *lease;
  scratch.segments.clear(), scratch.use_batch = nullptr;
  before_.split(text, 0, text.size(), scratch.segments);
  for (size_t i = 0; i < scratch.segments.size(); ++i) {
    const TextSegment segment = scratch.segments[i];
    if (segment.id != kNoToken) {
      ids.push_back(segment.id);
      if (offsets) offsets->push_back({segment.begin, segment.end});
      continue;
    }
    scratch.text.reset(text.substr(segment.begin, segment.end - segment.begin), segment.begin, offsets != nullptr);
    for (const TextStep& step : pipeline_.normalizers) step(scratch);
    scratch.words.clear();
    after_.split(scratch.text.view(), 0, scratch.text.view().size(), scratch.words);
    cut(0, scratch, ids, offsets);
  }
  if (text.size() > kKeptText) scratch.shrink();
}

// Runs the pre-tokenizers from `step` on and tokenizes the words. The words of a long text would take many times its
// bytes: the first step that makes them hands them over in batches, which take the other steps by themselves.
void PipelineTokenizer::cut(
    size_t step, PipelineScratch& scratch, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const {
  if (step == pipeline_.pre_tokenizers.size()) return tokenize_words(scratch, ids, offsets);
  std::unique_ptr<PipelineScratch> batch;
  if (step == first_cut_ && scratch.text.view().size() > kKeptText) {
    batch = std::make_unique<PipelineScratch>();
    scratch.use_batch = [&] {
      batch->words = std::exchange(scratch.next_words, {scratch.next_words.back()});
      batch->words.pop_back();
      std::swap(batch->text, scratch.text);
      cut(step + 1, *batch, ids, offsets);
      std::swap(batch->text, scratch.text);
    };
  }
  pipeline_.pre_tokenizers[step](scratch);
  scratch.use_batch = nullptr;
  cut(step + 1, scratch, ids, offsets);
}

void PipelineTokenizer::tokenize_words(
    PipelineScratch& scratch, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const {
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

// Cold: optimized for size.
[[gnu::cold]] void PipelineTokenizer::add_to_template(bool begin, bool end) {
  begin = begin && roles_.begin != kNoToken, end = end && roles_.end != kNoToken;
  if (added_by_template(false) > 0 || (!begin && !end)) return;
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto add = [&](const char* kind, const std::string& id, int segment) {
    const Json item = {{kind, {{"id", id}, {"type_id", segment}}}};
    if (segment == 0) single.push_back(item);
    pair.push_back(item);
  };
  const auto add_token = [&](TokenId id, int segment) {
    const std::string name = piece(id);
    tokens[name] = {{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({name})}};
    add("SpecialToken", name, segment);
  };
  for (const int segment : {0, 1}) {
    if (begin) add_token(roles_.begin, segment);
    add("Sequence", segment == 0 ? "A" : "B", segment);
    if (end) add_token(roles_.end, segment);
  }
  const Json added = {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  read_post_processor(JsonObject(added, "the template"), post_);
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
  return joined(tokens, pipeline_.join_by_space ? " " : "");
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
