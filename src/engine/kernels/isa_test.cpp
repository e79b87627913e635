#include <gtest/gtest.h>
#include "engine/kernels/processor.h"
#include "error_of.h"

namespace linnet {
namespace {
TEST(Isa, EveryAvailableOneCanBeForced) {
  const auto names = available_isas();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(current_isa(), names.front());
  for (const auto& name : names) {
    force_isa(name);
    EXPECT_EQ(current_isa(), name);
    EXPECT_EQ(available_isas(), names) << "forcing one must not hide the others";
  }
  force_isa("baseline");
  EXPECT_EQ(current_isa(), names.back());
  force_isa("auto");
  EXPECT_EQ(current_isa(), names.front());
}

TEST(Isa, AnUnknownNameListsTheChoices) {
  EXPECT_PRED2(has_text, error_of([] { force_isa("mmx"); }), "baseline");
}
}  // namespace
}  // namespace linnet
