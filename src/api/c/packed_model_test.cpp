// include/linnet/packed_model.h on the small library: a program in C++ that uses models and trains none.
#include <gtest/gtest.h>
#include <linnet/packed_model.h>
#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>
#include "golden_folder.h"

namespace linnet {
namespace {
using Folder = testing::GoldenFolder;

TEST(PackedModel, GeneratesAndTellsThePiecesOfAText) {
  const Folder folder("gpt2", 90);
  const PackedModel model(folder.path());
  EXPECT_EQ(model.kind(), LINNET_LANGUAGE);
  EXPECT_EQ(model.encode("w5 w6"), (std::vector<int32_t>{5, 6}));
  linnet_generate_options options = PackedModel::default_generate_options();
  options.max_tokens = 8, options.temperature = 0, options.ignore_end = 1;
  std::string heard;
  const std::string text = model.generate("w5 w6", options, [&](std::string_view piece) {
    heard += piece;
    return true;
  });
  EXPECT_EQ(heard, text);
  EXPECT_GE(std::count(text.begin(), text.end(), 'w'), 3) << text;
  EXPECT_EQ(model.generate("w5 w6", options), text);
  int pieces = 0;
  EXPECT_LT(model.generate("w5 w6", options, [&](std::string_view) { return ++pieces < 3; }).size(), text.size());
}

TEST(PackedModel, ClassifiesEmbedsAndTranslates) {
  const Folder classes("bert_classifier", 90), sentences("bert_model", 90), pairs("marian", 47);
  const PackedModel classifier(classes.path()), embedder(sentences.path()), translator(pairs.path());
  ASSERT_EQ(classifier.classes().size(), classifier.width());
  const std::vector<float> both = classifier.classify({"w7 w8", "w9"});
  ASSERT_EQ(both.size(), 2 * classifier.width());
  const auto middle = both.begin() + static_cast<std::ptrdiff_t>(classifier.width());
  EXPECT_NEAR(std::accumulate(both.begin(), middle, 0.0), 1, 1e-5);
  EXPECT_EQ(classifier.classify({"w9"}), std::vector<float>(middle, both.end()));
  EXPECT_TRUE(embedder.classes().empty());
  EXPECT_EQ(embedder.embed({"w7 w8", "w9"}).size(), 2 * embedder.width());
  EXPECT_NE(translator.translate("w7 w8"), "");
}

TEST(PackedModel, MistakesAreExceptionsOfOneLine) {
  try {
    const PackedModel model("/nowhere.linnet");
    FAIL() << "there is no such file";
  } catch (const PackedModelError& error) {
    EXPECT_EQ(error.status(), LINNET_USER_ERROR);
    EXPECT_NE(std::string(error.what()).find("/nowhere.linnet"), std::string::npos);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
  const Folder folder("gpt2", 90);
  const PackedModel model(folder.path());
  EXPECT_THROW(model.embed({"w5"}), PackedModelError);
  EXPECT_THROW(model.translate("w5"), PackedModelError);
  EXPECT_THROW(model.generate("\xFF"), PackedModelError);
}
}  // namespace
}  // namespace linnet
