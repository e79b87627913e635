// SentencePiece's ModelProto, read and checked.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

struct SentencePieceModelFile {
  enum Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    int type = kNormal;
  };
  struct Normalization {
    std::string charsmap;  // the table of replacements, "" for none
    bool dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
  };
  std::vector<Piece> pieces;
  Normalization normalization, denormalization;
  int model_type = 1;  // 1: unigram, 2: BPE
  bool byte_fallback = false, space_as_suffix = false;
  std::string unknown_surface = " \xE2\x81\x87 ";  // what the unknown piece decodes to
  std::string begin_piece = "<s>", end_piece = "</s>", pad_piece = "<pad>";
};

// Pieces are distinct, not empty, UTF-8 and of finite score; exactly one is the unknown piece; byte pieces are all 256
// or none; tables of replacements point nowhere outside of themselves. Anything else is a user error of one line;
// `path` is for it.
SentencePieceModelFile read_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace linnet
