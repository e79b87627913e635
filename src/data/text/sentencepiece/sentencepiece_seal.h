#pragma once
#include <string>
#include <string_view>

namespace linnet {

// The file is the ModelProto and, at its end, one more protobuf field that holds a checksum. SentencePiece's own tools
// skip fields they do not know, so they read the file too. A damaged file is told by its checksum.
std::string seal_sentencepiece_model(std::string_view model);
// The model without its seal; a user error when the seal is missing or wrong.
std::string open_sentencepiece_model(std::string_view bytes, const std::string& path);

}  // namespace linnet
