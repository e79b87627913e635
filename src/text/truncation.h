// Cutting encoded texts to a length.
#pragma once
#include "text/pretrained_tokenizer.h"

namespace linnet {

// Cuts the ends off one part or two, so that they and `added` tokens more are at most options.max_length, in the way
// tokenizers does. A length that cannot be reached is a user error.
void cut_to_length(std::vector<Encoding>& parts, const EncodeOptions& options, int64_t added);

}  // namespace linnet
