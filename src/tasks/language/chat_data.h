// Conversations as tokens of which a language model learns the assistant's.
#pragma once
#include <string>
#include <vector>

#include "data/examples/text/packed_rows.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {

// Reads JSON lines: {"messages": [{"role", "content"}, ...]}, {"prompt", "completion"} (texts or lists of messages), or
// {"conversations": [{"from", "value"}, ...]} (ShareGPT). Each is rendered by the chat template of `tokenizer`; learned
// are the tokens of the assistant's turns, up to what ends them. A conversation beyond `longest` tokens is cut there;
// one without anything to learn is left out; the log counts both. `folder` (the tokenizer's) and
// `why_cut` are for messages. User error,
// naming the line, for roles that the template refuses and templates that rewrite earlier turns.
std::vector<TargetedTokens> read_chats(const std::string& path, const PretrainedTokenizer& tokenizer,
                                       const std::string& folder, int64_t longest,
                                       const std::string& why_cut);

}  // namespace linnet
