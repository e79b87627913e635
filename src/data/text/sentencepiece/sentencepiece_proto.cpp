#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/protobuf.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
using Fail = ProtoReader::Fail;

// Checks the trie of replacements (see sentencepiece_model.cpp): all steps stay inside for any byte, with at most 32
// entries on the way to a leaf, as many as SentencePiece has room for.
void check_charsmap(std::string_view table, const Fail& fail_model) {
  if (table.empty()) return;
  const auto fail = [&](const char* what) { fail_model(std::string("its table of replacements ") + what); };
  if (table.size() <= sizeof(uint32_t)) fail("is too short");
  const auto bytes = number_at<uint32_t>(table.data());
  table.remove_prefix(sizeof bytes);
  if (bytes == 0 || bytes % 4 != 0 || bytes >= table.size()) fail("has a wrong size");
  std::vector<uint32_t> units(bytes / 4);
  std::memcpy(units.data(), table.data(), bytes);
  const std::string_view texts = table.substr(bytes);
  if (texts.back() != '\0') fail("does not end");
  if (invalid_utf8_at(texts) != std::string_view::npos) fail("is not UTF-8");
  // Depth first; paths may share their ends, so the most entries from each unit on are stored.
  struct Step {
    size_t location, byte;
    int most;
  };
  enum : unsigned char { kNew = 255, kOpen = 254 };
  std::vector<unsigned char> most(units.size(), kNew);
  std::vector<Step> steps = {{0, 1, 0}};
  most[0] = kOpen;
  while (!steps.empty()) {
    Step& step = steps.back();
    const uint32_t unit = units[step.location];
    const size_t children = step.location ^ ((unit >> 10) << ((unit & 0x200u) >> 6));
    if ((children | 0xFF) >= units.size()) fail("points outside of itself");
    if (step.byte == 256) {
      const bool entry = (unit >> 8) & 1;
      if (entry && (units[children] & 0x7FFFFFFFu) >= texts.size()) fail("points behind its end");
      const int entries = step.most + entry;
      if (entries > 32) fail("has more than 32 entries within one another");
      most[step.location] = static_cast<unsigned char>(entries);
      steps.pop_back();
      if (!steps.empty()) steps.back().most = std::max(steps.back().most, entries);
      continue;
    }
    while (step.byte < 256 && (units[children ^ step.byte] & 0x800000FFu) != step.byte) ++step.byte;
    if (step.byte == 256) continue;
    const size_t child = children ^ step.byte++;
    if (most[child] == kOpen) fail("goes in circles");
    if (most[child] != kNew) {
      step.most = std::max<int>(step.most, most[child]);
      continue;
    }
    most[child] = kOpen;
    steps.push_back({child, 1, 0});
  }
}

SentencePieceModelFile::Piece read_piece(std::string_view bytes, const Fail& fail) {
  SentencePieceModelFile::Piece piece;
  for (ProtoReader fields(bytes, fail); fields.next();) {
    if (fields.number() == 1) piece.text = fields.data();
    if (fields.number() == 2) piece.score = fields.real();
    if (fields.number() == 3) {
      if (fields.integer() < 1 || fields.integer() > 6) fail("a piece of an unknown type");
      piece.type = static_cast<int>(fields.integer());
    }
  }
  return piece;
}

// SentencePiece's library reads these names up to their first zero byte.
std::string c_string(std::string_view text) { return std::string(text.substr(0, text.find('\0'))); }

void read_trainer_spec(std::string_view bytes, const Fail& fail, SentencePieceModelFile& model) {
  for (ProtoReader fields(bytes, fail); fields.next();) {
    if (fields.number() == 3) {
      if (fields.integer() != 1 && fields.integer() != 2) fail("it is neither a unigram nor a BPE model");
      model.model_type = static_cast<int>(fields.integer());
    }
    if (fields.number() == 24) model.space_as_suffix = fields.integer() != 0;
    if (fields.number() == 35) model.byte_fallback = fields.integer() != 0;
    if (fields.number() == 44) model.unknown_surface = c_string(fields.data());
    // An empty name stands for the default one.
    const auto name = [&](std::string& piece) {
      if (const std::string text = c_string(fields.data()); !text.empty()) piece = text;
    };
    if (fields.number() == 46) name(model.begin_piece);
    if (fields.number() == 47) name(model.end_piece);
    if (fields.number() == 48) name(model.pad_piece);
  }
}

void read_normalizer_spec(std::string_view bytes, const Fail& fail, SentencePieceModelFile::Normalization& spec) {
  for (ProtoReader fields(bytes, fail); fields.next();) {
    if (fields.number() == 2) {
      check_charsmap(fields.data(), fail);
      spec.charsmap = fields.data();
    }
    if (fields.number() == 3) spec.dummy_prefix = fields.integer() != 0;
    if (fields.number() == 4) spec.remove_extra_spaces = fields.integer() != 0;
    if (fields.number() == 5) spec.escape_spaces = fields.integer() != 0;
  }
}

void check_pieces(const SentencePieceModelFile& model, const Fail& fail) {
  using File = SentencePieceModelFile;
  constexpr size_t kLongest = 1000, kMost = 10'000'000, kNested = 60;
  if (model.pieces.empty()) fail("it has no pieces");
  if (model.pieces.size() > kMost) fail("it has too many pieces");
  std::unordered_set<std::string_view> seen, user_defined;
  size_t unknown = 0, bytes = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const File::Piece& piece = model.pieces[id];
    const std::string where = "piece " + std::to_string(id) + " ";
    if (piece.text.empty()) fail(where + "is empty");
    if (piece.text.size() > kLongest) fail(where + "is longer than 1000 bytes");
    if (piece.text.find('\0') != std::string::npos || invalid_utf8_at(piece.text) != std::string::npos)
      fail(where + "is not UTF-8");
    if (!std::isfinite(piece.score) || std::fabs(piece.score) > 1e9f) fail(where + "has no finite score");
    if (!seen.insert(piece.text).second) fail(where + "is there twice");
    unknown += piece.type == File::kUnknown;
    if (piece.type == File::kByte && byte_piece(std::max(fallback_byte(piece.text), 0)) != piece.text)
      fail(where + "is no byte");
    bytes += piece.type == File::kByte;
    if (piece.type == File::kUserDefined) user_defined.insert(piece.text);
  }
  if (unknown != 1) fail("it has " + std::to_string(unknown) + " unknown pieces");
  if (bytes != (model.byte_fallback ? 256 : 0)) fail("it has " + std::to_string(bytes) + " byte pieces");
  for (const std::string_view text : user_defined) {
    size_t within = 0;
    for (size_t length = 1; length <= text.size(); ++length) within += user_defined.count(text.substr(0, length));
    if (within > kNested) fail("its user-defined pieces begin with one another");
  }
}
}  // namespace

SentencePieceModelFile read_sentencepiece_model(std::string_view bytes, const std::string& path) {
  const Fail fail = [&path](const std::string& what) {
    fail_user("'", path, "' is no SentencePiece model or is damaged: ", what);
  };
  SentencePieceModelFile model;
  for (ProtoReader fields(bytes, fail); fields.next();) {
    if (fields.number() == 1) model.pieces.push_back(read_piece(fields.data(), fail));
    if (fields.number() == 2) read_trainer_spec(fields.data(), fail, model);
    if (fields.number() == 3) read_normalizer_spec(fields.data(), fail, model.normalization);
    if (fields.number() == 5) read_normalizer_spec(fields.data(), fail, model.denormalization);
  }
  check_pieces(model, fail);
  return model;
}
}  // namespace linnet
