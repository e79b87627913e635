// SentencePiece's ModelProto, read without its library, which crashes on some damaged models.
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
  std::vector<Piece> pieces;
  int model_type = 1;  // 1: unigram, 2: BPE
  bool byte_fallback = false;
};

// Checks everything that the library relies on: that pieces are distinct, not empty, UTF-8 and of finite score, that
// exactly one is the unknown piece, that tables of replacements point nowhere outside of themselves. Anything else is a
// user error of one line; `path` is for it.
SentencePieceModelFile check_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace linnet
