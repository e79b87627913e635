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

// Devices without kernels for a program's own ops run their decompositions.

// While it lives, ops of programs that are recorded by this thread are decomposed at once, or not.
class OwnOpDecomposition {
 public:
  explicit OwnOpDecomposition(bool decompose);
  ~OwnOpDecomposition();
  OwnOpDecomposition(const OwnOpDecomposition&) = delete;
  OwnOpDecomposition& operator=(const OwnOpDecomposition&) = delete;

 private:
  bool outer_;
};

}  // namespace linnet
