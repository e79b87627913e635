#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include <algorithm>
#include <charconv>
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "data/text/pipeline/truncation.h"
#include "data/text/pretrained_files.h"
#include "data/text/vocabulary.h"

namespace linnet {

SentencePiecePretrained::SentencePiecePretrained(SentencePieceModelFile file, std::string bytes,
                                                 const std::string& path, SentencePieceOptions options)
    : bytes_(std::move(bytes)), options_(std::move(options)), file_(std::move(file)) {
  using File = SentencePieceModelFile;
  ByteTrie::Keys user_defined;
  if (file_.byte_fallback) byte_ids_.resize(256);
  for (size_t id = 0; id < file_.pieces.size(); ++id) {
    const File::Piece& piece = file_.pieces[id];
    if (piece.type == File::kUserDefined) user_defined.emplace_back(piece.text, 0);
    if (piece.type != File::kByte) continue;
    unsigned byte = 0;
    std::from_chars(piece.text.data() + 3, piece.text.data() + 5, byte, 16);
    byte_ids_[byte] = static_cast<TokenId>(id);
  }
  if (!user_defined.empty()) user_defined_ = std::make_unique<ByteTrie>(std::move(user_defined));
  normalizer_ =
      std::make_unique<SentencePieceNormalizer>(file_.normalization, file_.space_as_suffix, user_defined_.get(), path);
  decoder_ = std::make_unique<SentencePieceDecoder>(file_, path);
  if (file_.model_type == 1) model_ = std::make_unique<SentencePieceUnigram>(file_, path);
  else model_ = std::make_unique<SentencePieceBpe>(file_, user_defined_.get(), path);

  for (const File::Piece& piece : file_.pieces) {
    pieces_.push_back(piece.text);
    special_.push_back(piece.type == File::kControl);
  }
  for (size_t id = 0; id < pieces_.size(); ++id) to_model_.push_back(static_cast<int>(id));
  if (!options_.vocabulary.empty()) map_ids(options_.vocabulary_path);
  std::vector<AddedToken> added;
  std::vector<std::string> texts;
  for (int64_t extra = options_.extra_ids - 1; extra >= 0; --extra) {
    const auto id = static_cast<TokenId>(pieces_.size());
    texts.push_back("<extra_id_" + std::to_string(extra) + ">");
    pieces_.push_back(texts.back());
    special_.push_back(true);
    to_model_.push_back(-1);
    added.push_back({.id = id, .text = texts.back(), .special = true});
  }
  vocab_size_ = static_cast<int64_t>(pieces_.size());
  for (size_t id = 0; id < pieces_.size(); ++id)
    if (!pieces_[id].empty()) ids_.emplace(pieces_[id], static_cast<TokenId>(id));
  for (const std::string& piece : options_.text_tokens) {
    const TokenId id = id_of(piece);
    if (id == kNoToken || std::ranges::find(texts, piece) != texts.end()) continue;
    special_[static_cast<size_t>(id)] = true;
    texts.push_back(piece), added.push_back({.id = id, .text = piece, .special = true});
  }
  added_ = AddedTokenMatcher(added, texts);
  for (size_t id = 0; id < special_.size(); ++id) {
    if (!special_[id] || to_model_[id] < 0 || std::ranges::find(texts, pieces_[id]) != texts.end()) continue;
    texts.push_back(pieces_[id]);
    added.push_back({.id = static_cast<TokenId>(id), .text = pieces_[id], .special = true});
  }
  special_matcher_ = AddedTokenMatcher(added, texts);

  find_roles();
  const auto surround = [&](std::vector<TemplateItem>& items) {
    std::vector<TemplateItem> all;
    for (const TemplateItem& item : items) {
      if (options_.add_begin && roles_.begin >= 0) all.push_back({-1, roles_.begin, item.segment});
      all.push_back(item);
      if (options_.add_end && roles_.end >= 0) all.push_back({-1, roles_.end, item.segment});
    }
    items = std::move(all);
  };
  if (!options_.add_begin)  // T5 does not tell its two texts apart
    post_.pair[1].segment = 0;
  surround(post_.single);
  surround(post_.pair);
  if (const TokenId first = id_of(options_.first_piece); first != kNoToken)
    for (std::vector<TemplateItem>* items : {&post_.single, &post_.pair}) items->insert(items->begin(), {-1, first, 0});
}

SentencePiecePretrained::~SentencePiecePretrained() = default;

void SentencePiecePretrained::find_roles() {
  const auto ours = [&](TokenId id) { return to_ours_.empty() ? id : to_ours_[static_cast<size_t>(id)]; };
  const auto control = [&](const std::string& piece) {
    const TokenId id = model_->vocabulary().find(piece);
    const bool is_control = id >= 0 && file_.pieces[static_cast<size_t>(id)].type == SentencePieceModelFile::kControl;
    return is_control ? ours(id) : kNoToken;
  };
  roles_.begin = control(file_.begin_piece);
  roles_.end = control(file_.end_piece);
  roles_.pad = control(file_.pad_piece);
  roles_.unknown = ours(model_->unknown());
}

// Marian's models share a vocabulary of their own between the two languages.
void SentencePiecePretrained::map_ids(const std::string& path) {
  const Json json = Json::parse(options_.vocabulary, "'" + path + "'", JsonLimits::tables());
  if (!json.is_object()) fail_user("'" + path + "' is not an object of pieces and ids");
  Vocabulary vocabulary;
  for (const auto& [piece, id] : json.items())
    if (!id.is_integer(0, Vocabulary::kMaxId) || !vocabulary.add(piece, id.get<TokenId>()))
      fail_user("'" + path + "' has an id that is out of range or comes twice");
  const std::string& unknown_piece = pieces_[static_cast<size_t>(model_->unknown())];
  const TokenId unknown = vocabulary.find(unknown_piece);
  if (unknown < 0) fail_user("'" + path + "' has no " + unknown_piece);
  const std::vector<bool> was_special = special_;
  const std::vector<std::string> model_pieces = std::move(pieces_);
  pieces_.clear();
  for (TokenId id = 0; id < vocabulary.size(); ++id) pieces_.emplace_back(vocabulary.piece(id));
  special_.assign(pieces_.size(), false);
  to_model_.assign(pieces_.size(), -1);
  for (size_t id = 0; id < model_pieces.size(); ++id) {
    const TokenId ours = vocabulary.find(model_pieces[id]);
    to_ours_.push_back(ours < 0 ? unknown : ours);
    if (ours < 0) continue;
    to_model_[static_cast<size_t>(ours)] = static_cast<int>(id);
    special_[static_cast<size_t>(ours)] = was_special[id];
  }
  if (const TokenId pad = vocabulary.find("<pad>"); pad >= 0) special_[static_cast<size_t>(pad)] = true;
}

// What the model does not know may be in a vocabulary that two models share.
TokenId SentencePiecePretrained::our_id(TokenId id, std::string_view text) const {
  if (to_ours_.empty()) return id;
  const TokenId ours = to_ours_[static_cast<size_t>(id)];
  if (id != model_->unknown()) return ours;
  const TokenId found = id_of(text);
  return found == kNoToken ? ours : found;
}

void SentencePiecePretrained::encode_part(std::string_view part, size_t base, Encoding& encoding, bool offsets) const {
  if (part.size() > UINT32_MAX / 4) fail_user("a line of more than 1 GB cannot be encoded");
  const ScratchPool<SentencePieceScratch>::Lease lease(scratch_);
  SentencePieceScratch& scratch = *lease;
  normalizer_->apply(part, scratch.text, offsets ? &scratch.sources : nullptr);
  model_->tokenize(scratch);
  const std::string_view text = scratch.text;
  const std::vector<ModelToken>& tokens = scratch.tokens;
  size_t begin = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool unknown = tokens[i].id == model_->unknown();
    // Characters that are unknown one after another are one token.
    while (unknown && byte_ids_.empty() && i + 1 < tokens.size() && tokens[i + 1].id == model_->unknown()) ++i;
    const size_t end = tokens[i].end;
    const TextRange range =
        offsets ? TextRange{base + scratch.sources[begin], base + scratch.sources[end]} : TextRange{};
    const std::string_view piece = text.substr(begin, end - begin);
    begin = end;
    if (unknown && !byte_ids_.empty()) {
      add_bytes(piece, range, encoding, offsets);
      continue;
    }
    encoding.ids.push_back(our_id(tokens[i].id, piece));
    if (offsets) encoding.offsets.push_back(range);
  }
}

// A character that the model does not know, byte by byte. As in SentencePiece the last one stands for the character.
void SentencePiecePretrained::add_bytes(std::string_view text, TextRange range, Encoding& encoding,
                                        bool offsets) const {
  for (size_t i = 0; i < text.size(); ++i) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(text[i])];
    encoding.ids.push_back(our_id(id, {}));
    if (offsets) encoding.offsets.push_back({range.begin, i + 1 == text.size() ? range.end : range.begin});
  }
}

void SentencePiecePretrained::tokenize(std::string_view text, const AddedTokenMatcher& added, Encoding& encoding,
                                       bool offsets) const {
  std::vector<TextSegment> segments;
  added.split(text, 0, text.size(), segments);
  for (const TextSegment& segment : segments) {
    if (segment.id == kNoToken) {
      std::string_view part = text.substr(segment.begin, segment.end - segment.begin);
      size_t begin = segment.begin;
      if (const size_t end = part.find("<<"); options_.language_marks && part.starts_with(">>") && end != part.npos) {
        const TokenId language = id_of(part.substr(0, end + 2));
        encoding.ids.push_back(language == kNoToken ? roles_.unknown : language);
        if (offsets) encoding.offsets.push_back({begin, begin + end + 2});
        part.remove_prefix(end + 2), begin += end + 2;
      }
      encode_part(part, begin, encoding, offsets);
      continue;
    }
    encoding.ids.push_back(segment.id);
    if (offsets) encoding.offsets.push_back({segment.begin, segment.end});
  }
}

void SentencePiecePretrained::encode(std::string_view text, std::vector<TokenId>& ids) const {
  Encoding encoding;
  tokenize(text, added_, encoding, false);
  ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
}

void SentencePiecePretrained::encode_with_special(std::string_view text, std::vector<TokenId>& ids) const {
  Encoding encoding;
  tokenize(text, special_matcher_, encoding, false);
  ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
}

Encoding SentencePiecePretrained::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<Encoding> parts(1);
  tokenize(text, added_, parts[0], options.offsets);
  return join_by_template(std::move(parts), post_, options);
}

Encoding SentencePiecePretrained::encode_pair(std::string_view first, std::string_view second,
                                              const EncodeOptions& options) const {
  std::vector<Encoding> parts(2);
  tokenize(first, added_, parts[0], options.offsets);
  tokenize(second, added_, parts[1], options.offsets);
  return join_by_template(std::move(parts), post_, options);
}

int64_t SentencePiecePretrained::added_by_template(bool pair) const {
  return special_count(pair ? post_.pair : post_.single);
}

std::string SentencePiecePretrained::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string text;
  std::vector<int> run;
  const auto flush = [&] {
    text += decoder_->decode(run);
    run.clear();
  };
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size_) continue;
    const auto location = static_cast<size_t>(id);
    if (to_model_[location] >= 0 && !special_[location]) {
      run.push_back(to_model_[location]);
    } else if (!special_[location] || !skip_special) {
      flush();
      text += pieces_[location];
    }
  }
  flush();
  return text;
}

std::string SentencePiecePretrained::piece(TokenId id) const {
  if (id < 0 || id >= vocab_size_)
    fail_internal("token " + std::to_string(id) + " is outside the vocabulary of " + std::to_string(vocab_size_));
  return pieces_[static_cast<size_t>(id)];
}

TokenId SentencePiecePretrained::id_of(std::string_view piece) const {
  const auto found = ids_.find(std::string(piece));
  return found == ids_.end() ? kNoToken : found->second;
}

bool SentencePiecePretrained::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size_ && special_[static_cast<size_t>(id)];
}

std::map<std::string, std::string> SentencePiecePretrained::files() const {
  std::map<std::string, std::string> files{
      {options_.file_name, bytes_}, {"tokenizer_config.json", format_tokenizer_config(*this, options_.config_json)}};
  if (!options_.vocabulary.empty())
    files["vocab.json"] = options_.vocabulary_file.empty() ? options_.vocabulary : options_.vocabulary_file;
  return files;
}

}  // namespace linnet
