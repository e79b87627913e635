// Devices without kernels for a program's own ops run their decompositions.
#pragma once

namespace linnet {

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
