// What a decoder that writes does with keys and values, for the attention layers in it.
#pragma once
#include "models/modules/attention_block.h"

namespace linnet {

// While it exists, layers of this thread that attend to themselves do so in this context. It must outlive the scope.
class DecodingScope {
 public:
  explicit DecodingScope(const AttentionContext& context);
  ~DecodingScope();
  DecodingScope(const DecodingScope&) = delete;
  DecodingScope& operator=(const DecodingScope&) = delete;

  static const AttentionContext* current();  // null outside of any scope

 private:
  const AttentionContext* outer_;
};

}  // namespace linnet
