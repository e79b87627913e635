// The models of tokenizer.json, and their vocabularies.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include "base/fail.h"
#include "data/text/byte_trie.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
// The tokens of single bytes; -1 if the vocabulary lacks one.
struct ByteTokens {
  TokenId ids[256];

  TokenId operator[](char byte) const { return ids[static_cast<unsigned char>(byte)]; }
  // Appends the byte tokens of a text that begins at byte `begin` of its word; false if one is lacking.
  bool append(std::string_view text, size_t begin, std::vector<ModelToken>& tokens) const {
    if (std::ranges::any_of(text, [&](char c) { return (*this)[c] < 0; })) return false;
    for (const char c : text) tokens.push_back({(*this)[c], static_cast<uint32_t>(++begin)});
    return true;
  }
};

// "a b", or ["a", "b"] in newer files.
std::pair<std::string, std::string> read_merge(const JsonObject& model, const Json& merge, size_t number) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].text(), merge[1].text()};
  if (!merge.is_string()) model.fail("merge " + std::to_string(number) + " is not two pieces");
  const std::string& text = merge.text();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    model.fail("merge " + std::to_string(number) + " is not two pieces and a space");
  return {text.substr(0, space), text.substr(space + 1)};
}

// Byte pair encoding: merges a word's symbols in the order in which merges were learned, leftmost first.
class BpeModel : public SubwordModel {
 public:
  // User error for inconsistent pieces and merges.
  BpeModel(const JsonObject& json, bool byte_level, const TokenizerTables* tables)
      : SubwordModel(json, tables), byte_level_(byte_level), byte_fallback_(json.flag("byte_fallback", false)),
        fuse_unknown_(json.flag("fuse_unk", false)), ignore_merges_(json.flag("ignore_merges", false)),
        unknown_piece_(json.text("unk_token", "")), continuing_prefix_(json.text("continuing_subword_prefix", "")),
        word_suffix_(json.text("end_of_word_suffix", "")) {
    if (json.has("dropout") && !(json.at("dropout").is_number() && json.at("dropout").get<double>() == 0))
      json.fail("has a dropout, which Linnet does not do");
    if (byte_fallback_ && !(continuing_prefix_ + word_suffix_).empty())
      json.fail("has byte_fallback beside a prefix or suffix of pieces, which Linnet does not do");
    if (!unknown_piece_.empty()) unknown_ = vocabulary_.find(unknown_piece_);
    for (int byte = 0; byte < 256; ++byte)
      bytes_.ids[byte] =
          vocabulary_.find(byte_level ? spelt(std::string(1, static_cast<char>(byte))) : byte_piece(byte));
    if (tables) use_tables(*tables);
    else read_merges(json);
  }

  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override {
    if (ignore_merges_) {
      std::string_view piece = word;
      if (byte_level_) {
        scratch.text.clear();
        spell_bytes(word, scratch.text);
        piece = scratch.text;
      }
      if (const TokenId id = vocabulary_.find(piece); id >= 0) {
        tokens.push_back({id, static_cast<uint32_t>(word.size())});
        return;
      }
    }
    const size_t begin = tokens.size();
    split(word, tokens, scratch.text);
    const auto join = [&](uint32_t, const ModelToken& left, const ModelToken& right) -> Merger::Joined {
      const Pair* pair = find(left.id, right.id);
      return pair ? Merger::Joined{pair->rank, pair->merged} : Merger::kApart;
    };
    if (tokens.size() - begin <= Merger::kFew) Merger::merge_few(tokens, begin, join);
    else scratch.merger.merge_many(tokens, begin, join);
  }

  Json settings() const override {
    const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
    return {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", text_or_null(unknown_piece_)},
        {"continuing_subword_prefix", text_or_null(continuing_prefix_)},
        {"end_of_word_suffix", text_or_null(word_suffix_)}, {"fuse_unk", fuse_unknown_},
        {"byte_fallback", byte_fallback_}, {"ignore_merges", ignore_merges_}};
  }

  void add_tables(TokenizerTableWriter& tables) const override {
    tables.set(TokenizerTable::kPairs, pairs_);
    tables.set(TokenizerTable::kMerges, merges_);
  }

 private:
  using Merger = PairMerger<uint32_t>;

  // The table of merges: open addressing, with slots by the upper bits of the key times a constant. Packed models store
  // it.
  struct Pair {
    uint64_t key = UINT64_MAX;  // pair_key()
    uint32_t rank = UINT32_MAX;
    TokenId merged = -1;  // -1: nothing is here
  };
  static_assert(alignof(Pair) <= kTokenizerTableAlignment && sizeof(Pair) == 16);
  using Merge = std::array<TokenId, 2>;

  size_t slot_of(uint64_t key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }
  const Pair* find(TokenId left, TokenId right) const {
    const uint64_t key = pair_key(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & (pairs_.size() - 1)) {
      if (pairs_[slot].key == key) return &pairs_[slot];
      if (pairs_[slot].merged < 0) return nullptr;
    }
  }
  std::string pieces_json() const override {
    // "a b" if no piece has a space: every version of tokenizers reads that.
    const auto has_space = [&](TokenId id) { return contains(vocabulary_.piece(id), ' '); };
    const bool spaces = std::ranges::any_of(merges_, [&](Merge ids) { return std::ranges::any_of(ids, has_space); });
    std::string json = SubwordModel::pieces_json() + ",\n\"merges\":[";
    const char* separator = "\n";
    for (const auto& [left, right] : merges_) {
      const std::string l(vocabulary_.piece(left)), r(vocabulary_.piece(right));
      json += std::exchange(separator, ",\n");
      json += spaces ? "[" + quote_json(l) + "," + quote_json(r) + "]" : quote_json(l + " " + r);
    }
    return json + "]";
  }

  void read_merges(const JsonObject& json) {
    const Json& merges = json.list("merges");
    const size_t slots = std::bit_ceil(std::max<size_t>(2 * merges.size(), 16));
    own_pairs_.resize(slots);
    shift_ = 64 - std::countr_zero(slots);
    own_merges_.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = read_merge(json, merges[rank], rank + 1);
      const size_t prefix = right.starts_with(continuing_prefix_) ? continuing_prefix_.size() : 0;
      const TokenId l = vocabulary_.find(left), r = vocabulary_.find(right),
                    merged = vocabulary_.find(left + right.substr(prefix));
      if (l < 0 || r < 0 || merged < 0)
        fail_user(json.where(), ": merge ", rank + 1, " needs a piece that is not in the vocabulary");
      own_merges_.push_back({l, r});
      // A repeated pair has its last rank, as in tokenizers.
      const uint64_t key = pair_key(l, r);
      size_t slot = slot_of(key);
      while (own_pairs_[slot].merged >= 0 && own_pairs_[slot].key != key) slot = (slot + 1) & (slots - 1);
      own_pairs_[slot] = {key, static_cast<uint32_t>(rank), merged};
    }
    pairs_ = own_pairs_, merges_ = own_merges_;
  }

  void use_tables(const TokenizerTables& tables) {
    pairs_ = tables.table<Pair>(TokenizerTable::kPairs), merges_ = tables.table<Merge>(TokenizerTable::kMerges);
    if (pairs_.size() < 2 || !std::has_single_bit(pairs_.size())) tables.fail("its pairs are no power of two");
    shift_ = 64 - std::countr_zero(pairs_.size());
    size_t empty = 0;
    for (const Pair& pair : pairs_) {
      const bool is_empty = pair.merged == -1 && pair.key == Pair{}.key;
      empty += is_empty;
      if (!is_empty && !vocabulary_.has(pair.merged)) tables.fail("a pair is merged to an id that has no piece");
    }
    if (empty == 0) tables.fail("all of its pairs are taken");  // a search would not end
    for (const auto& [left, right] : merges_)
      if (!vocabulary_.has(left) || !vocabulary_.has(right)) tables.fail("a merge has an id that has no piece");
  }

  // The first symbols: the word's characters or bytes.
  void split(std::string_view word, std::vector<ModelToken>& symbols, std::string& spelling) const {
    bool in_unknown = false;
    const auto add = [&](TokenId id, size_t end) {
      if (id < 0 && unknown_ < 0) return;
      if (id < 0 && in_unknown && fuse_unknown_) symbols.back().end = static_cast<uint32_t>(end);
      else symbols.push_back({id < 0 ? unknown_ : id, static_cast<uint32_t>(end)});
      in_unknown = id < 0;
    };
    if (byte_level_ && continuing_prefix_.empty() && word_suffix_.empty()) {
      for (size_t i = 0; i < word.size(); ++i) add(bytes_[word[i]], i + 1);
      return;
    }
    for (size_t i = 0; i < word.size();) {
      const size_t length = byte_level_ ? 1 : utf8_length_at(word, i), end = i + length;
      spelling.clear();
      if (i > 0) spelling += continuing_prefix_;
      if (byte_level_) spell_bytes(word.substr(i, length), spelling);
      else spelling += word.substr(i, length);
      if (end == word.size()) spelling += word_suffix_;
      const TokenId id = vocabulary_.find(spelling);
      if (id < 0 && byte_fallback_ && bytes_.append(word.substr(i, length), i, symbols)) in_unknown = false;
      else add(id, end);
      i = end;
    }
  }

  const bool byte_level_;      // words are raw bytes, pieces are spelt in GPT-2's alphabet of bytes
  bool byte_fallback_;         // a character without a piece becomes <0xE2> and so on
  bool fuse_unknown_;          // a run of unknown characters is one unknown token
  bool ignore_merges_;         // a word that is a piece is that piece, whatever the merges make of it
  std::string unknown_piece_;  // "": unknown characters are left out
  std::string continuing_prefix_, word_suffix_;
  TokenId unknown_ = -1;
  ByteTokens bytes_;  // byte_level's pieces, or byte_fallback's
  std::vector<Pair> own_pairs_;
  std::vector<Merge> own_merges_;
  std::span<const Pair> pairs_;  // at most half full
  std::span<const Merge> merges_;
  int shift_ = 0;  // 64 - log2(pairs_.size())
};

constexpr double kUnknownTokenPenalty = 10;  // below the lowest score, as in SentencePiece
constexpr size_t kMostBytes = 1 << 30;

// tokenizers reads a number's digits as one integer and divides by a power of ten (serde_json without float_roundtrip),
// which may miss the nearest double. The last bit may decide between segmentations.
double as_tokenizers_reads(double value) {
  char text[40];  // the shortest digits, as files have them: 1.234e-05
  const char* const end = std::to_chars(text, text + sizeof text, std::fabs(value), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0, written = 0;
  const char* c = text;
  for (; *c != 'e'; ++c) {
    if (*c == '.') continue;
    digits = 10 * digits + static_cast<uint64_t>(*c - '0');
    exponent -= c > text;  // behind the point
  }
  std::from_chars(c + (c[1] == '+' ? 2 : 1), end, written);
  exponent += written;
  if (exponent < -300 || exponent > 300) return value;
  const double power = std::stod("1e" + std::to_string(std::abs(exponent))), number = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? number / power : number * power, value);
}

// The segmentation with the largest sum of scores.
class UnigramModel : public SubwordModel {
 public:
  // A JSON's vocabulary is [[piece, score], ...] in id order; a score is the logarithm of the piece's probability.
  UnigramModel(const JsonObject& json, const TokenizerTables* tables)
      : SubwordModel(tables), byte_fallback_(json.flag("byte_fallback", false)) {
    const std::string where = tables ? tables->where() : json.where();
    const int64_t unknown = json.integer("unk_id", -1);
    if (tables) {
      written_scores_ = tables->table<double>(TokenizerTable::kWrittenScores);
      scores_ = tables->table<double>(TokenizerTable::kScores);
      const auto pieces = static_cast<size_t>(vocabulary_.size());
      if (scores_.size() != pieces || written_scores_.size() != pieces)
        tables->fail("its scores are not those of its pieces");
      trie_ = ByteTrie(tables->table<ByteTrie::Unit>(TokenizerTable::kTrie), vocabulary_.size(), where);
    } else {
      read_pieces(json);
    }
    if (unknown < -1 || unknown >= vocabulary_.size()) json.fail("has an unk_id outside its vocabulary");
    unknown_ = static_cast<TokenId>(unknown);
    for (const double score : scores_)
      if (!std::isfinite(score)) fail_user(where, " has a score that is not finite");
    unknown_score_ = (scores_.empty() ? 0 : *std::ranges::min_element(scores_)) - kUnknownTokenPenalty;
    for (int byte = 0; byte < 256; ++byte) bytes_.ids[byte] = vocabulary_.find(byte_piece(byte));
  }

  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override {
    const auto score_of = [&](TokenId id) { return id < 0 ? unknown_score_ : scores_[id]; };
    std::vector<ModelToken>& way = scratch.way;
    way.clear();
    append_best_way(trie_, word, 0.0, unknown_, score_of, scratch.nodes, way);
    uint32_t begin = 0;
    for (size_t i = 0; i < way.size(); ++i) {
      // Neighbors without a piece become one unknown token.
      if (i + 1 < way.size() && way[i].id == unknown_ && way[i + 1].id == unknown_) continue;
      emit(word, begin, way[i].end, way[i].id, tokens);
      begin = way[i].end;
    }
  }

  Json settings() const override {
    return {{"type", "Unigram"}, {"unk_id", unknown_ < 0 ? Json() : Json(unknown_)}, {"byte_fallback", byte_fallback_}};
  }
  void add_tables(TokenizerTableWriter& tables) const override {
    tables.set(TokenizerTable::kWrittenScores, written_scores_);
    tables.set(TokenizerTable::kScores, scores_);
    tables.set(TokenizerTable::kTrie, trie_.units());
  }

 private:
  std::string pieces_json() const override {
    std::string json = "\"vocab\":[";
    for (TokenId id = 0; id < vocabulary_.size(); ++id)
      json +=
          (id > 0 ? ",\n[" : "\n[") + quote_json(vocabulary_.piece(id)) + "," + Json(written_scores_[id]).dump() + "]";
    return json + "]";
  }

  void read_pieces(const JsonObject& json) {
    size_t bytes = 0;
    for (const Json& entry : json.list("vocab")) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number() ||
          !vocabulary_.add(entry[0].text(), static_cast<TokenId>(own_scores_.size())))
        json.fail("vocab", "has an entry " + std::to_string(own_scores_.size()) + " that is not a piece and its score");
      const double score = own_written_scores_.emplace_back(entry[1].get<double>());
      own_scores_.push_back(std::isfinite(score) ? as_tokenizers_reads(score) : score);
      bytes += entry[0].text().size();
    }
    if (bytes >= kMostBytes) fail_user(json.where(), " has more than 1 GB of pieces");
    written_scores_ = own_written_scores_, scores_ = own_scores_;
    ByteTrie::Keys keys;
    for (TokenId id = 0; id < vocabulary_.size(); ++id)
      keys.emplace_back(vocabulary_.piece(id), vocabulary_.find(vocabulary_.piece(id)));
    trie_ = ByteTrie(std::move(keys));
  }

  void emit(std::string_view word, uint32_t begin, uint32_t end, TokenId id, std::vector<ModelToken>& tokens) const {
    const std::string_view part = word.substr(begin, end - begin);
    if (id == unknown_ && byte_fallback_ && vocabulary_.find(part) < 0 && bytes_.append(part, begin, tokens)) return;
    if (id >= 0) tokens.push_back({id, end});
  }

  std::vector<double> own_written_scores_, own_scores_;
  std::span<const double> written_scores_, scores_;  // as the file has them, and as they are used
  TokenId unknown_ = -1;
  bool byte_fallback_;
  double unknown_score_ = 0;
  ByteTokens bytes_;
  ByteTrie trie_;
};

// The longest piece that fits, then the longest "##" piece, and so on. A word that is too long, or that pieces do not
// cover, is the unknown token, which the vocabulary has.
class WordPieceModel : public SubwordModel {
 public:
  WordPieceModel(const JsonObject& json, const TokenizerTables* tables)
      : SubwordModel(json, tables), unknown_piece_(json.text("unk_token", "[UNK]")),
        prefix_(json.text("continuing_subword_prefix", "##")),
        longest_word_(json.integer("max_input_chars_per_word", 100)), unknown_(vocabulary_.find(unknown_piece_)) {
    if (unknown_ < 0) fail_user(json.where(), " has no unknown token '", unknown_piece_, "' in its vocabulary");
  }

  Json settings() const override {
    return {{"type", "WordPiece"}, {"unk_token", unknown_piece_}, {"continuing_subword_prefix", prefix_},
        {"max_input_chars_per_word", longest_word_}};
  }

  void tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const override {
    const size_t first = tokens.size();
    const auto give_up = [&] {
      tokens.resize(first);
      tokens.push_back({unknown_, static_cast<uint32_t>(word.size())});
    };
    // Fast test: a word has at least as many bytes as characters.
    if (std::ssize(word) > longest_word_ && static_cast<int64_t>(count_code_points(word)) > longest_word_)
      return give_up();
    std::string& text = scratch.text;
    for (size_t begin = 0; begin < word.size();) {
      text.assign(begin > 0 ? prefix_ : "");
      const size_t prefix = text.size(), room = vocabulary_.longest() > prefix ? vocabulary_.longest() - prefix : 0;
      text.append(word.substr(begin, room));
      TokenId id = -1;
      size_t end = begin + text.size() - prefix;
      while (end > begin) {
        id = vocabulary_.find(text);
        if (id >= 0) break;
        do {  // one character less
          --end;
          text.pop_back();
        } while (end > begin && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80);
      }
      if (id < 0) return give_up();
      tokens.push_back({id, static_cast<uint32_t>(end)});
      begin = end;
    }
  }

 private:
  std::string unknown_piece_, prefix_;
  int64_t longest_word_;  // characters
  TokenId unknown_;
};

// tokenizers' WordLevel, a vocabulary of whole words.
class WordLevelModel : public SubwordModel {
 public:
  WordLevelModel(const JsonObject& json, const TokenizerTables* tables)
      : SubwordModel(json, tables), unknown_piece_(json.text("unk_token", "<unk>")), where_(json.where()),
        unknown_(vocabulary_.find(unknown_piece_)) {}

  Json settings() const override { return {{"type", "WordLevel"}, {"unk_token", unknown_piece_}}; }

  void tokenize(std::string_view word, ModelScratch&, std::vector<ModelToken>& tokens) const override {
    const TokenId known = vocabulary_.find(word), id = known >= 0 ? known : unknown_;
    if (id < 0) fail_user(where_, " has neither the word ", quote_json(word), " nor '", unknown_piece_, "'");
    tokens.push_back({id, static_cast<uint32_t>(word.size())});
  }

 private:
  std::string unknown_piece_, where_;
  TokenId unknown_;
};

// For old files, which do not name the type.
std::string guess_type(const JsonObject& model) {
  return model.has("merges") ? "BPE" : model.has("unk_id") ? "Unigram" : "WordPiece";
}
}  // namespace

SubwordModel::SubwordModel(const TokenizerTables* tables) {
  if (tables) vocabulary_ = tables->vocabulary(), owner_ = tables->owner();
}

SubwordModel::SubwordModel(const JsonObject& json, const TokenizerTables* tables) : SubwordModel(tables) {
  if (tables) return;
  const Json& pieces = json.at("vocab");
  if (!pieces.is_object()) json.fail("vocab", "is not an object");
  for (const auto& [piece, id] : pieces.items()) {
    if (!id.is_number() || id.is_float()) json.fail("vocab", "has an id that is no integer");
    if (!id.is_integer(0, Vocabulary::kMaxId) || !vocabulary_.add(piece, id.get<TokenId>()))
      json.fail("vocab", "has an id that is out of range or comes twice: " + id.dump());
  }
}

std::string SubwordModel::to_json() const {
  std::string json = settings().dump();
  json.back() = ',';
  return json + pieces_json() + "}";
}

std::string SubwordModel::pieces_json() const {
  std::string text = "\"vocab\":{";
  const char* separator = "\n";
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    if (!vocabulary_.has(id)) continue;
    text += std::exchange(separator, ",\n") + quote_json(vocabulary_.piece(id)) + ":" + std::to_string(id);
  }
  return text + "}";
}

std::unique_ptr<SubwordModel> read_model(const JsonObject& json, bool byte_level, const TokenizerTables* tables) {
  const std::string type = json.text("type", guess_type(json));
  if (byte_level && type != "BPE") json.fail("of type " + type + " does not go with a ByteLevel pre-tokenizer");
  if (type == "BPE") return std::make_unique<BpeModel>(json, byte_level, tables);
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(json, tables);
  if (type == "WordLevel") return std::make_unique<WordLevelModel>(json, tables);
  if (type == "Unigram") return std::make_unique<UnigramModel>(json, tables);
  fail_unknown(json, "type", type);
}

void check_token(TokenId id, int64_t vocab_size) {
  if (id < 0 || id >= vocab_size) fail_internal("token ", id, " is outside the vocabulary of ", vocab_size);
}

Vocabulary::Vocabulary(const Tables& tables, const std::string& where) : tables_(tables) {
  const auto fail = [&](const char* what) { fail_user(where, " is damaged: ", what); };
  if (tables.locations.size() > static_cast<size_t>(kMaxId) + 1 || tables.text.size() >= kGap)
    fail("its vocabulary is too large");
  for (const Location& location : tables.locations) {
    if (location.begin == kGap) continue;
    if (location.begin > tables.text.size() || location.length > tables.text.size() - location.begin)
      fail("a piece lies outside of the text");
    longest_ = std::max<size_t>(longest_, location.length);
  }
  if (tables.slots.empty()) return;
  if (!std::has_single_bit(tables.slots.size())) fail("its slots are no power of two");
  size_t empty = 0;
  for (const Slot& slot : tables.slots) {
    empty += slot.id < 0;
    if (slot.id >= 0 && !has(slot.id)) fail("a slot has an id that has no piece");
  }
  if (empty == 0) fail("all of its slots are taken");  // a search would not end
}

bool Vocabulary::add(std::string_view piece, TokenId id) {
  if (id < 0 || id > kMaxId || has(id) || text_.size() + piece.size() >= kGap) return false;
  const bool known = find(piece) >= 0;
  if (id >= size()) locations_.resize(static_cast<size_t>(id) + 1);
  locations_[id] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(piece.size())};
  text_.insert(text_.end(), piece.begin(), piece.end());
  longest_ = std::max(longest_, piece.size());
  tables_ = {text_, locations_, slots_};
  if (known) return true;
  if (2 * ++used_ > slots_.size()) grow();
  insert(id);
  return true;
}

void Vocabulary::insert(TokenId id) {
  const uint64_t hash = hash_piece(piece(id));
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
  slots_[slot] = {id, static_cast<uint32_t>(hash >> 32)};
}

void Vocabulary::grow() {
  std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
  old.swap(slots_);
  tables_.slots = slots_;
  for (const Slot& s : old)
    if (s.id >= 0) insert(s.id);
}
}  // namespace linnet
