// Formats a conversation as a chat model was trained on it, by the template of its folder.
#pragma once
#include <string>
#include "data/text/chat/jinja_template.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {
class ChatTemplate {
 public:
  // Reads chat_template.jinja of the folder, or "chat_template" of its tokenizer_config.json (of several, "default").
  // User error if there is none.
  ChatTemplate(const PretrainedTokenizer& tokenizer, const std::string& folder);

  // `messages`: a JSON list of {"role": ..., "content": ...}. `begin_answer`: append the beginning of the assistant's
  // answer. `tools`: a list of functions, or "".
  std::string render(const std::string& messages, bool begin_answer = true, const std::string& tools = "") const;

 private:
  jinja::Dict tokens_;  // bos_token and the like
  jinja::Template template_;
};

jinja::Value template_value(const std::string& json);  // converts valid JSON text
}  // namespace linnet
