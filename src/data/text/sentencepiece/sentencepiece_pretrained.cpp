#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "base/fail.h"
#include "base/functions.h"
#include "base/text.h"
#include "data/text/pretrained_files.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
SentencePiecePretrained::SentencePiecePretrained(
    SentencePieceModelFile file, std::string bytes, const std::string& path, SentencePieceOptions options)
    : bytes_(std::move(bytes)), options_(std::move(options)), file_(std::move(file)) {
  using Piece = SentencePieceModelFile::Piece;
  ByteTrie::Keys user_defined;
  if (file_.byte_fallback) byte_ids_.resize(256);
  for (const Piece& piece : file_.pieces) {
    const auto id = static_cast<TokenId>(tokens_.size());
    if (piece.type == SentencePieceModelFile::kUserDefined) user_defined.emplace_back(piece.text, 0);
    if (piece.type == SentencePieceModelFile::kByte) byte_ids_[fallback_byte(piece.text)] = id;
    tokens_.push_back({piece.text, id, piece.type == SentencePieceModelFile::kControl});
  }
  if (!user_defined.empty()) user_defined_ = std::make_unique<ByteTrie>(std::move(user_defined));
  normalizer_.emplace(file_.normalization, file_.space_as_suffix, user_defined_.get(), path);
  if (!file_.denormalization.charsmap.empty()) denormalizer_.emplace(file_.denormalization, false, nullptr, path);
  model_ = make_sentencepiece_model(file_, user_defined_.get(), path);
  if (!options_.vocabulary.empty()) map_ids(options_.vocabulary_path);
  std::vector<AddedToken> added;
  const auto add = [&](TokenId id) { added.push_back({.id = id, .text = tokens_[id].piece, .special = true}); };
  const auto is_added = [&](const std::string& piece) { return contains(added, piece, &AddedToken::text); };
  for (int64_t extra = options_.extra_ids - 1; extra >= 0; --extra) {
    tokens_.push_back({.piece = "<extra_id_" + std::to_string(extra) + ">", .special = true});
    add(static_cast<TokenId>(tokens_.size() - 1));
  }
  for (size_t id = 0; id < tokens_.size(); ++id)
    if (!tokens_[id].piece.empty()) ids_.emplace(tokens_[id].piece, static_cast<TokenId>(id));
  for (const std::string& piece : options_.text_tokens) {
    const TokenId id = id_of(piece);
    if (id == kNoToken || is_added(piece)) continue;
    tokens_[id].special = true;
    add(id);
  }
  added_ = AddedTokenMatcher(added);
  for (size_t id = 0; id < tokens_.size(); ++id)
    if (tokens_[id].special && tokens_[id].model_id >= 0 && !is_added(tokens_[id].piece)) add(static_cast<TokenId>(id));
  special_matcher_ = AddedTokenMatcher(added);
  find_roles();
  make_template();
}

void SentencePiecePretrained::find_roles() {
  const auto ours = [&](TokenId id) { return to_ours_.empty() ? id : to_ours_[id]; };
  const auto control = [&](const std::string& piece) {
    const TokenId id = model_->vocabulary().find(piece);
    const bool is_control = id >= 0 && file_.pieces[id].type == SentencePieceModelFile::kControl;
    return is_control ? ours(id) : kNoToken;
  };
  roles_.begin = control(file_.begin_piece);
  roles_.end = control(file_.end_piece);
  roles_.pad = control(file_.pad_piece);
  roles_.unknown = ours(model_->unknown());
}

void SentencePiecePretrained::make_template() {
  if (!options_.add_begin)  // T5 does not tell its two texts apart
    post_.pair[1].segment = 0;
  const TokenId first = id_of(options_.first_piece);
  for (std::vector<TemplateItem>* items : {&post_.single, &post_.pair}) {
    std::vector<TemplateItem> all;
    if (first != kNoToken) all.push_back({-1, first, 0});
    for (const TemplateItem& item : *items) {
      if (options_.add_begin && roles_.begin >= 0) all.push_back({-1, roles_.begin, item.segment});
      all.push_back(item);
      if (options_.add_end && roles_.end >= 0) all.push_back({-1, roles_.end, item.segment});
    }
    *items = std::move(all);
  }
}

// Marian's models share a separate vocabulary between the two languages.
void SentencePiecePretrained::map_ids(const std::string& path) {
  const Json json = Json::parse(options_.vocabulary, "'" + path + "'", JsonLimits::tables());
  if (!json.is_object()) fail_user("'", path, "' is not an object of pieces and ids");
  Vocabulary vocabulary;
  for (const auto& [piece, id] : json.items())
    if (!id.is_integer(0, Vocabulary::kMaxId) || !vocabulary.add(piece, id.get<TokenId>()))
      fail_user("'", path, "' has an id that is out of range or comes twice");
  const std::vector<Token> models = std::exchange(tokens_, {});
  const std::string& unknown_piece = models[model_->unknown()].piece;
  const TokenId unknown = vocabulary.find(unknown_piece);
  if (unknown < 0) fail_user("'", path, "' has no ", unknown_piece);
  for (TokenId id = 0; id < vocabulary.size(); ++id) tokens_.push_back({.piece = std::string(vocabulary.piece(id))});
  for (const Token& token : models) {
    const TokenId ours = vocabulary.find(token.piece);
    to_ours_.push_back(ours < 0 ? unknown : ours);
    if (ours >= 0) tokens_[ours] = token;
  }
  if (const TokenId pad = vocabulary.find("<pad>"); pad >= 0) tokens_[pad].special = true;
}

// A vocabulary shared by two models may have tokens that this model does not know.
TokenId SentencePiecePretrained::our_id(TokenId id, std::string_view text) const {
  if (to_ours_.empty()) return id;
  const TokenId ours = to_ours_[id];
  if (id != model_->unknown()) return ours;
  const TokenId found = id_of(text);
  return found == kNoToken ? ours : found;
}

void SentencePiecePretrained::encode_part(
    std::string_view part, size_t base, std::vector<TokenId>& ids, std::vector<TextRange>* offsets) const {
  if (part.size() > UINT32_MAX / 4) fail_user("a line of more than 1 GB cannot be encoded");
  const auto lease = scratch_.lease();
  SentencePieceScratch& scratch = *lease;
  normalizer_->apply(part, scratch.text, offsets ? &scratch.sources : nullptr);
  model_->tokenize(scratch);
  const std::vector<ModelToken>& tokens = scratch.tokens;
  size_t begin = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool unknown = tokens[i].id == model_->unknown();
    // Consecutive unknown characters are one token.
    while (unknown && byte_ids_.empty() && i + 1 < tokens.size() && tokens[i + 1].id == model_->unknown()) ++i;
    const size_t end = tokens[i].end;
    const TextRange range =
        offsets ? TextRange{base + scratch.sources[begin], base + scratch.sources[end]} : TextRange{};
    const std::string_view piece = std::string_view(scratch.text).substr(begin, end - begin);
    begin = end;
    if (!unknown || byte_ids_.empty()) {
      ids.push_back(our_id(tokens[i].id, piece));
      if (offsets) offsets->push_back(range);
      continue;
    }
    // Writes an unknown character byte by byte. As in SentencePiece the last byte stands for the character.
    for (size_t k = 0; k < piece.size(); ++k) {
      ids.push_back(our_id(byte_ids_[static_cast<unsigned char>(piece[k])], {}));
      if (offsets) offsets->push_back({range.begin, k + 1 == piece.size() ? range.end : range.begin});
    }
  }
}

void SentencePiecePretrained::tokenize(std::string_view text, const AddedTokenMatcher& added, std::vector<TokenId>& ids,
    std::vector<TextRange>* offsets) const {
  std::vector<TextSegment> segments;
  added.split(text, 0, text.size(), segments);
  const auto add = [&](TokenId id, size_t begin, size_t end) {
    ids.push_back(id);
    if (offsets) offsets->push_back({begin, end});
  };
  for (auto [begin, end, id] : segments) {
    if (id != kNoToken) {
      add(id, begin, end);
      continue;
    }
    const std::string_view part = text.substr(begin, end - begin);
    if (const size_t mark = part.find("<<"); options_.language_marks && part.starts_with(">>") && mark != part.npos) {
      const TokenId language = id_of(part.substr(0, mark + 2));
      add(language == kNoToken ? roles_.unknown : language, begin, begin + mark + 2);
      begin += mark + 2;
    }
    encode_part(text.substr(begin, end - begin), begin, ids, offsets);
  }
}

// Control pieces give nothing; invalid bytes give U+FFFD each.
std::string SentencePiecePretrained::decode_pieces(std::span<const int> model_ids) const {
  using File = SentencePieceModelFile;
  const auto& spec = file_.normalization;
  std::string text, bytes;
  const auto flush_bytes = [&] {
    text += replace_invalid_utf8(bytes);
    bytes.clear();
  };
  bool at_begin = true, space_seen = false;  // the space that was put before the text is left out once
  for (const int id : model_ids) {
    const File::Piece& piece = file_.pieces[id];
    if (piece.type == File::kByte) {
      bytes += static_cast<char>(fallback_byte(piece.text));
      continue;
    }
    flush_bytes();
    if (space_seen || !text.empty()) at_begin = false;
    space_seen = false;
    if (piece.type == File::kControl) continue;
    if (piece.type == File::kUnknown) {
      text += file_.unknown_surface;
      continue;
    }
    std::string rest = piece.text;
    if (at_begin && (spec.dummy_prefix || spec.remove_extra_spaces) && rest.starts_with(kSpaceSymbol)) {
      rest.erase(0, kSpaceSymbol.size());
      space_seen = !spec.remove_extra_spaces;  // else all spaces at the begin are left out
    }
    replace_all(rest, kSpaceSymbol, " ");
    text += rest;
  }
  flush_bytes();
  if (!denormalizer_) return text;
  std::string denormalized;
  denormalizer_->apply(text, denormalized, nullptr);
  return denormalized;
}

std::string SentencePiecePretrained::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string text;
  std::vector<int> run;
  const auto flush = [&] {
    text += decode_pieces(run);
    run.clear();
  };
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size()) continue;
    const Token& token = tokens_[id];
    if (token.model_id >= 0 && !token.special) {
      run.push_back(token.model_id);
    } else if (!token.special || !skip_special) {
      flush();
      text += token.piece;
    }
  }
  flush();
  return text;
}

std::string SentencePiecePretrained::piece(TokenId id) const {
  check_token(id, vocab_size());
  return tokens_[id].piece;
}

bool SentencePiecePretrained::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && tokens_[id].special;
}

std::map<std::string, std::string> SentencePiecePretrained::files() const {
  std::map<std::string, std::string> files{
      {options_.file_name, bytes_}, {"tokenizer_config.json", format_tokenizer_config(*this, options_.config_json)}};
  if (!options_.vocabulary.empty())
    files["vocab.json"] = options_.vocabulary_file.empty() ? options_.vocabulary : options_.vocabulary_file;
  return files;
}
}  // namespace linnet
