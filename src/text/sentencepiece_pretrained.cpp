#include "text/sentencepiece_pretrained.h"

#include <sentencepiece_processor.h>

#include "base/error.h"
#include "base/files.h"
#include "text/json_reader-inl.h"
#include "text/pretrained_files.h"
#include "text/sentencepiece_proto.h"
#include "text/truncation.h"
#include "text/vocabulary.h"

namespace linnet {
namespace {

// Debian's SentencePiece chooses otherwise than newer ones between ways of equal score, so the pieces of unigram models
// are found here, in the text as the library normalizes it: what its own pieces give when joined.
std::unique_ptr<UnigramModel> make_unigram(const SentencePieceModelFile& file, const std::string& path) {
  using File = SentencePieceModelFile;
  Vocabulary vocabulary;
  std::vector<double> scores;
  std::vector<bool> hidden;
  TokenId unknown = -1;
  for (const File::Piece& piece : file.pieces) {
    // Others have rules of their own in the library.
    if (piece.type == File::kUserDefined || piece.type == File::kUnused) return nullptr;
    if (piece.type == File::kUnknown) unknown = static_cast<TokenId>(scores.size());
    vocabulary.add(piece.text, static_cast<TokenId>(scores.size()));
    scores.push_back(piece.score);
    hidden.push_back(piece.type != File::kNormal);
  }
  auto model =
      std::make_unique<UnigramModel>(std::move(vocabulary), std::move(scores), unknown, file.byte_fallback, path);
  model->follow_sentencepiece(hidden);
  return model;
}

}  // namespace

SentencePiecePretrained::SentencePiecePretrained(std::string model, const std::string& path,
                                                 SentencePieceOptions options)
    : model_(std::move(model)),
      options_(std::move(options)),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  const SentencePieceModelFile file = check_sentencepiece_model(model_, path);
  try {
    const auto status = processor_->LoadFromSerializedProto(model_);
    if (!status.ok()) fail_user("'" + path + "' is no SentencePiece model");
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // of the library's trie
    fail_user("'" + path + "' is no SentencePiece model");
  }
  if (file.model_type == 1) unigram_ = make_unigram(file, path);
  for (const auto& piece : file.pieces) {
    pieces_.push_back(piece.text);
    special_.push_back(piece.type == SentencePieceModelFile::kControl);
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
  added_ = AddedTokenMatcher(added, texts);
  vocab_size_ = static_cast<int64_t>(pieces_.size());
  for (size_t id = 0; id < pieces_.size(); ++id)
    if (!pieces_[id].empty()) ids_.emplace(pieces_[id], static_cast<TokenId>(id));

  const auto role = [&](int id) {
    return id < 0 ? kNoToken : to_ours_.empty() ? id : to_ours_[static_cast<size_t>(id)];
  };
  roles_.begin = role(processor_->bos_id());
  roles_.end = role(processor_->eos_id());
  roles_.pad = role(processor_->pad_id());
  roles_.unknown = role(processor_->unk_id());
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
}

SentencePiecePretrained::~SentencePiecePretrained() = default;

// Marian's models share a vocabulary of their own between the two languages.
void SentencePiecePretrained::map_ids(const std::string& path) {
  const nlohmann::json json = parse_json(options_.vocabulary, path);
  if (!json.is_object()) fail_user("'" + path + "' is not an object of pieces and ids");
  Vocabulary vocabulary;
  for (const auto& [piece, id] : json.items())
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > Vocabulary::kMaxId ||
        !vocabulary.add(piece, id.get<TokenId>()))
      fail_user("'" + path + "' has an id that is out of range or comes twice");
  const TokenId unknown = vocabulary.find("<unk>");
  if (unknown < 0) fail_user("'" + path + "' has no <unk>");
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
TokenId SentencePiecePretrained::our_id(int id, std::string_view text) const {
  if (to_ours_.empty()) return id;
  if (id != processor_->unk_id()) return to_ours_[static_cast<size_t>(id)];
  const TokenId found = id_of(text);
  return found == kNoToken ? to_ours_[static_cast<size_t>(id)] : found;
}

void SentencePiecePretrained::encode_part(std::string_view part, size_t base, Encoding& encoding, bool offsets) const {
  if (unigram_) return encode_unigram(part, base, encoding, offsets);
  if (!offsets && to_ours_.empty()) {
    std::vector<int> ids;
    const auto status = processor_->Encode(part, &ids);
    if (!status.ok()) fail_internal("SentencePiece cannot encode: " + status.ToString());
    encoding.ids.insert(encoding.ids.end(), ids.begin(), ids.end());
    return;
  }
  const auto pieces = processor_->EncodeAsImmutableProto(part);
  for (size_t i = 0; i < pieces.pieces_size(); ++i) {
    const auto piece = pieces.pieces(static_cast<int>(i));
    encoding.ids.push_back(our_id(static_cast<int>(piece.id()), piece.piece()));
    if (offsets) encoding.offsets.push_back({base + piece.begin(), base + piece.end()});
  }
}

void SentencePiecePretrained::encode_unigram(std::string_view part, size_t base, Encoding& encoding,
                                             bool offsets) const {
  const auto pieces = processor_->EncodeAsImmutableProto(part);
  std::string text;
  std::vector<TextRange> sources;  // of each byte of it; inside of a piece byte by byte where that fits
  for (size_t i = 0; i < pieces.pieces_size(); ++i) {
    const auto piece = pieces.pieces(static_cast<int>(i));
    std::string spelt = piece.piece();
    const TextRange range = {base + piece.begin(), base + piece.end()};
    if (unigram_->vocabulary().has(static_cast<TokenId>(piece.id())) && spelt.size() == 6 && spelt.starts_with("<0x") &&
        processor_->IsByte(static_cast<int>(piece.id())))
      spelt = std::string(1, static_cast<char>(std::stoi(spelt.substr(3, 2), nullptr, 16)));
    const size_t mark = spelt.starts_with("\xE2\x96\x81") ? 2 : 0;  // "▁" is a byte of the text
    const bool fits = spelt.size() - mark == range.end - range.begin;
    for (size_t k = 0; offsets && k < spelt.size(); ++k) {
      const size_t place = range.begin + (k < mark ? 0 : k - mark);
      sources.push_back(fits ? TextRange{place, place + 1} : range);
    }
    text += spelt;
  }
  if (text.empty()) return;
  ModelScratch scratch;
  std::vector<ModelToken> tokens;
  unigram_->tokenize(text, scratch, tokens);
  size_t begin = 0;
  for (const ModelToken& token : tokens) {
    encoding.ids.push_back(our_id(token.id, std::string_view(text).substr(begin, token.end - begin)));
    if (offsets) encoding.offsets.push_back({sources[begin].begin, sources[token.end - 1].end});
    begin = token.end;
  }
}

void SentencePiecePretrained::tokenize(std::string_view text, Encoding& encoding, bool offsets) const {
  std::vector<TextSegment> segments;
  added_.split(text, 0, text.size(), segments);
  for (const TextSegment& segment : segments) {
    if (segment.id == kNoToken) {
      encode_part(text.substr(segment.begin, segment.end - segment.begin), segment.begin, encoding, offsets);
      continue;
    }
    encoding.ids.push_back(segment.id);
    if (offsets) encoding.offsets.push_back({segment.begin, segment.end});
  }
}

void SentencePiecePretrained::encode(std::string_view text, std::vector<TokenId>& ids) const {
  Encoding encoding;
  tokenize(text, encoding, false);
  ids.insert(ids.end(), encoding.ids.begin(), encoding.ids.end());
}

Encoding SentencePiecePretrained::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<Encoding> parts(1);
  tokenize(text, parts[0], options.offsets);
  return join_by_template(std::move(parts), post_, options);
}

Encoding SentencePiecePretrained::encode_pair(std::string_view first, std::string_view second,
                                              const EncodeOptions& options) const {
  std::vector<Encoding> parts(2);
  tokenize(first, parts[0], options.offsets);
  tokenize(second, parts[1], options.offsets);
  return join_by_template(std::move(parts), post_, options);
}

int64_t SentencePiecePretrained::added_by_template(bool pair) const {
  return special_count(pair ? post_.pair : post_.single);
}

std::string SentencePiecePretrained::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string text;
  std::vector<int> run;
  const auto flush = [&] {
    std::string part;
    const auto status = processor_->Decode(run, &part);
    if (!status.ok()) fail_internal("SentencePiece cannot decode: " + status.ToString());
    text += part;
    run.clear();
  };
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocab_size_) continue;
    const auto place = static_cast<size_t>(id);
    if (to_model_[place] >= 0 && !special_[place]) {
      run.push_back(to_model_[place]);
    } else if (!special_[place] || !skip_special) {
      flush();
      text += pieces_[place];
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

void SentencePiecePretrained::save_pretrained(const std::string& folder) const {
  make_directories(folder);
  write_file_atomically(folder + "/" + options_.file_name, model_);
  if (!options_.vocabulary.empty()) write_file_atomically(folder + "/vocab.json", options_.vocabulary);
  write_file_atomically(folder + "/tokenizer_config.json", format_tokenizer_config(*this, options_.config_json));
}

}  // namespace linnet
